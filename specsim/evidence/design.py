"""Experiment design: draws that a deviation needs, and the limit that no test can beat."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real

import numpy as np
from scipy.special import rel_entr

from specsim.evidence.law import FloatArray, Law, as_pmf
from specsim.evidence.tails import binomial_critical, binomial_upper

_MOST_DRAWS = 2**40
_MOST_ENUMERATED = 12  # values in the support: 4,096 events
_CELLS = 4096


def check_error_rate(value: float, name: str) -> float:
    """Return `value` as a float strictly between 0 and 1.

    Raises
    ------
    ValueError
        If it is not; the message says which argument `name` it was.
    """
    if not isinstance(value, Real) or not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be strictly between 0 and 1, got {value!r}")
    return float(value)


def check_draws(value: int, name: str = "draws") -> int:
    """Return `value` as an int of at least 1.

    Raises
    ------
    ValueError
        If it is not; the message says which argument `name` it was.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    return int(value)


def pad_laws(p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return both pmfs with zeros appended to the shorter one."""
    size = max(p.size, q.size)
    return np.pad(p, (0, size - p.size)), np.pad(q, (0, size - q.size))


def least_draws(power_at: Callable[[int], float], power: float, most: int = _MOST_DRAWS) -> int:
    """Return a number of draws at which a fixed-size test has the wanted power.

    Doubling and bisection. The power of a discrete test rises in a sawtooth: at the number
    returned it is at least `power`, at one draw fewer it is not, and here and there a still
    smaller number may do. Draws beyond the number returned need not be used.

    Parameters
    ----------
    power_at
        The power at a number of draws.
    power
        The power wanted, in (0, 1).
    most
        Draws beyond which the search gives up.

    Raises
    ------
    ValueError
        If `most` draws don't reach it, so that the laws are the same for all purposes.
    """
    high = 1
    while power_at(high) < power:
        high *= 2
        if high > most:
            raise ValueError(f"q must differ more from p0: {most} draws don't reach {power!r}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_at(middle) >= power else (middle, high)
    return high


def wald_limit(q: Law, p0: Law, alpha: float) -> float:
    """Return log(1/alpha) / KL(q‖p0), the mean number of draws that no test can beat.

    Any test, sequential or not, that rejects p0 wrongly with probability at most `alpha` and
    rejects surely when the draws come from q, takes on average at least this many draws from q
    (Wald 1945: E[N]·KL(q‖p0) is the divergence between what the test saw under q and under p0,
    and telling a sure event from one of probability alpha takes log(1/alpha) nats).

    Parameters
    ----------
    q
        The law drawn from; may have another number of values than `p0`.
    p0
        The law tested.
    alpha
        Probability of rejecting p0 wrongly, in (0, 1).

    Returns
    -------
    float
        Draws. ``inf`` if q = p0. ``0.0`` if q has a value that p0 never has: one such draw
        decides at no risk, and the limit then says nothing (it takes 1/P_q(such a value)
        draws on average to see one).

    Raises
    ------
    ValueError
        If a law is not a pmf or `alpha` is outside (0, 1).
    """
    rate = check_error_rate(alpha, "alpha")
    alternative, null = pad_laws(as_pmf(q, "q"), as_pmf(p0))
    divergence = float(np.sum(rel_entr(alternative, null)))
    if divergence <= 0.0:
        return math.inf
    return math.log(1.0 / rate) / divergence


def _event_cells(pmf: FloatArray, deviation: float) -> tuple[FloatArray, FloatArray]:
    """Return intervals that hold P₀(A) of every event A that can gain `deviation`."""
    support = pmf[pmf > 0.0]
    if support.size > _MOST_ENUMERATED:
        edges = np.linspace(0.0, 1.0 - deviation, _CELLS + 1)
        return edges[:-1], edges[1:]
    sums = np.zeros(1)
    for p in support:
        sums = np.concatenate([sums, sums + p])
    events = np.unique(np.round(sums, 14))
    events = events[events <= 1.0 - deviation + 1e-12]
    return events, events


def _worst_power(pmf: FloatArray, draws: int, deviation: float, alpha: float) -> float:
    """Return the least power, over events, of the binomial test of the event that gained."""
    low, high = _event_cells(pmf, deviation)
    critical = binomial_critical(draws, high, alpha / 2.0)
    # Within a cell the critical count is at most its right end's, and P(count >= c) is at least
    # its left end's.
    powers = binomial_upper(critical, draws, np.minimum(low + deviation, 1.0))
    return float(np.min(powers))


def draws_needed(p0: Law, *, deviation: float, alpha: float, power: float) -> int:
    """Return the draws with which a fixed-size test sees a total-variation deviation.

    What is promised. Let q be any law with TV(q, p0) ≥ deviation, on whatever values. Then
    the event A = {k : q(k) > p0(k)} has q(A) − p0(A) = TV(q, p0). The test counts A in
    `draws` independent draws and rejects when the count is outside a central binomial region,
    each tail having probability at most alpha / 2 under p0(A). It rejects p0 wrongly with
    probability at most `alpha`, and q with probability at least `power`, whichever event of p0
    is A: the number returned is the worst over all events with p0(A) ≤ 1 − deviation, the
    empty one among them (q's excess is then outside p0's support). The power counts the tail on
    A's side only, which grows with q(A), so a larger deviation is seen at least as surely.

    What is not promised: the test is of the best event, which somebody has to know before the
    draws are taken. A test that must watch every event pays for it; 2^(K−1) − 1 events at
    alpha / (2^(K−1) − 1) each is one that keeps this promise without that knowledge.

    Parameters
    ----------
    p0
        The law tested.
    deviation
        Total-variation distance, in (0, 1].
    alpha
        Probability of rejecting p0 wrongly, in (0, 1).
    power
        Probability of rejecting q, in (0, 1).

    Returns
    -------
    int
        Draws; binomial tails are exact. For a support of up to 12 values the events are
        enumerated. Beyond that P₀(A) is bounded over 4,096 intervals that cover
        [0, 1 − deviation], so the number is on the safe side (about 2 / (4096 · deviation) too
        large, relatively).

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    pmf = as_pmf(p0)
    rate, wanted = check_error_rate(alpha, "alpha"), check_error_rate(power, "power")
    if not 0.0 < deviation <= 1.0:
        raise ValueError(f"deviation must be in (0, 1], got {deviation!r}")
    return least_draws(lambda n: _worst_power(pmf, n, deviation, rate), wanted)


def smallest_detectable(p0: Law, *, draws: int, alpha: float, power: float) -> float:
    """Return the smallest total-variation deviation that a number of draws can resolve.

    The inverse of `draws_needed`, with the same promise: every law at this distance or farther
    from p0 is rejected with probability at least `power` by the test of its best event.

    Parameters
    ----------
    p0
        The law tested.
    draws
        Number of draws, at least 1.
    alpha
        Probability of rejecting p0 wrongly, in (0, 1).
    power
        Probability of rejecting the other law, in (0, 1).

    Returns
    -------
    float
        Total-variation distance in (0, 1], to within 1e-9 and rounded up. A distance of 1 is
        always resolved: such a law has no value in common with p0.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    pmf = as_pmf(p0)
    size = check_draws(draws)
    rate, wanted = check_error_rate(alpha, "alpha"), check_error_rate(power, "power")
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2.0
        seen = _worst_power(pmf, size, middle, rate) >= wanted
        low, high = (low, middle) if seen else (middle, high)
    return high
