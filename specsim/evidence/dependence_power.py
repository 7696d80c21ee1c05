"""Which dependences on earlier draws the bets on agreement would have shown.

A claim stands on one bet of the average: the lag of the fault, and a size of bet. Under the fault
the log of its e-value is a sum S over blocks of draws, in which only neighbours depend on each
other. With λ > 0, P(S < s) ≤ e^(λs)·E e^(−λS) (Chernoff, 1952); splitting S into the links
between blocks of odd and of even number makes each half a sum of independent terms, and E
e^(−λS) ≤ √(E e^(−2λ·odd half)·E e^(−2λ·even half)) (Cauchy and Schwarz). All is exact but for
these two inequalities, so that a claim is never more than what the test would have shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specsim.evidence.dependence import LagMixture
from specsim.evidence.law import FloatArray, IntArray, Law, as_pmf
from specsim.evidence.sequential import SHARES

POWER = 0.99

# λ, in the order in which it is tried: near 0.5 for draws that only just suffice, large where
# every outcome is enough, small where many draws are.
_RATES = (0.5, 0.25, 0.125, 1.0, 0.0625, 2.0, 0.03125, 4.0, 0.015625, 0.35, 0.7)


@dataclass(frozen=True)
class DependenceClaims:
    """The dependences that a stream's draws would have shown with 99 % power.

    Each claim is for a fault that is there from the first draw on and leaves the law of a single
    draw as it is; 0 where nothing can be claimed.

    Attributes
    ----------
    held_up_to : int
        Each draw given k times before the next: for all k from 2 to this.
    pool_up_to : int
        m independent draws used in turn, again and again: for all m from 1 to this.
    antithetic_up_to : int
        b draws from fresh uniforms u, then b from 1 − u, by the inverse distribution function:
        for all b from 1 to this.
    """

    held_up_to: int
    pool_up_to: int
    antithetic_up_to: int

    def describe(self) -> str:
        """List what would have shown, as the end of a sentence."""
        claims = []
        if self.held_up_to:
            claims.append(f"draws held for up to {self.held_up_to:,} steps")
        if self.pool_up_to:
            claims.append(f"pools of up to {self.pool_up_to:,} draws used in turn")
        if self.antithetic_up_to:
            claims.append(f"antithetic blocks of up to {self.antithetic_up_to:,}")
        return ", ".join(claims) or "none for sure"


def detectable_dependence(
    p0: Law, draws: int, alpha: float, *, tolerance: float = 0.0
) -> DependenceClaims:
    """Return what a stream without evidence of dependence speaks against.

    Parameters
    ----------
    p0
        The law of a single draw.
    draws
        Draws that were taken.
    alpha
        Level of the `SequentialTest` that took them; its bets on agreement are counted at their
        own share of the weight.
    tolerance
        Total variation that the bets tolerate, as in `SequentialTest.lag_log_e`.

    Returns
    -------
    DependenceClaims

    Raises
    ------
    ValueError
        If `p0` is no pmf, `draws` is negative, or `alpha` is outside (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie in (0, 1), got {alpha!r}")
    if draws < 0:
        raise ValueError(f"draws must be >= 0, got {draws!r}")
    pmf = as_pmf(p0)
    law = pmf[pmf > 0]
    bets = LagMixture(law, tolerance=tolerance)
    taken = min(draws, bets.window)
    if law.size == 1 or taken < 2:
        return DependenceClaims(0, 0, 0)
    needed = -math.log(alpha) - math.log(SHARES["lags"]) - bets.log_weights
    sizes = np.arange(1, bets.max_lag + 1)
    grows = np.flatnonzero(bets.sizes > 0)

    def held(k: IntArray, bet: int, rate: float) -> FloatArray:
        return np.asarray(rate * needed[0] + _held(law, bets, taken, k, bet, rate))

    def pool(m: IntArray, bet: int, rate: float) -> FloatArray:
        return np.asarray(rate * needed[m - 1] + _pool(law, bets, taken, m, bet, rate))

    def antithetic(b: IntArray, bet: int, rate: float) -> FloatArray:
        return np.asarray(rate * needed[b - 1] + _antithetic(law, bets, taken, b, bet, rate))

    return DependenceClaims(
        _shown_up_to(sizes[1:], held, grows),
        _shown_up_to(sizes, pool, grows),
        _shown_up_to(sizes, antithetic, np.arange(bets.sizes.size)),
    )


def _shown_up_to(
    sizes: IntArray, log_miss: Callable[[IntArray, int, float], FloatArray], bets: IntArray
) -> int:
    """Return the last of the leading sizes that some bet and λ show; 0 if not even the first."""
    shown = np.zeros(sizes.size, dtype=bool)
    for rate in _RATES:
        for bet in bets:
            open_ = ~shown
            shown[open_] = log_miss(sizes[open_], int(bet), rate) <= math.log(1.0 - POWER)
            if shown.all():
                return int(sizes[-1])
    leading = int(np.argmin(shown))
    return int(sizes[leading - 1]) if leading else 0


def _held(
    law: FloatArray, bets: LagMixture, draws: int, steps: IntArray, bet: int, rate: float
) -> FloatArray:
    """Bound log E e^(−λS) at lag 1 for draws that are held.

    A block with the value y gains V = (k − 1)(θ − c(y)), and the link to the next block
    θ·1[y = next] − c(y). What the last, incomplete block gains within itself is not counted: it
    is never negative, since c ≤ θ.
    """
    size, cost = bets.sizes[bet], bets.costs[bet]
    steps = np.minimum(steps, draws)
    blocks, rest = np.divmod(draws, steps)
    gain = size - cost
    # The value with the least gain is the likeliest one; its factor is taken out, for range.
    least = (steps - 1) * gain.min()
    block = law * np.exp(-rate * (steps[:, None] - 1) * (gain - gain.min()))
    single = block.sum(axis=1)
    agree = math.expm1(-2.0 * rate * size)
    link = block * np.exp(2.0 * rate * cost)
    # A little more than `single`: the difference must not be rounded down, let alone to 0.
    pair = (link * (single[:, None] * (1.0 + 1e-12) + block * agree)).sum(axis=1)
    open_end = np.where(rest > 0, link @ (1.0 + law * agree), single)
    logs = 0.5 * ((blocks - 1) * np.log(pair) + np.log(single) + np.log(open_end))
    return np.asarray(logs - rate * blocks * least)


def _pool(
    law: FloatArray, bets: LagMixture, draws: int, pools: IntArray, bet: int, rate: float
) -> FloatArray:
    """Bound log E e^(−λS) at lag m for m draws used in turn.

    Each of the m is met again at least ⌊n/m⌋ − 1 times and gains θ − c(y) ≥ 0 each time.
    """
    gain = bets.sizes[bet] - bets.costs[bet]
    again, where = np.unique(np.maximum(draws // pools - 1, 0), return_inverse=True)
    logs = np.log(np.exp(-rate * again[:, None] * (gain - gain.min())) @ law)
    return np.asarray(pools * (logs - rate * again * gain.min())[where])


def _antithetic(
    law: FloatArray, bets: LagMixture, draws: int, sizes: IntArray, bet: int, rate: float
) -> FloatArray:
    """Bound log E e^(−λS) at lag b for antithetic blocks of b.

    The draws at one place of their blocks form a chain: a fresh one x, its antithesis x', a fresh
    one, and so on, b such chains in all, independent of each other. A pair gains
    V = θ·1[x = x'] − c(x), and the link to the next pair θ·1[x' = next] − c(x').
    """
    size, cost = bets.sizes[bet], bets.costs[bet]
    edges = np.concatenate([[0.0], np.cumsum(law)])
    low, high = edges[:-1], edges[1:]
    # P(x = row, x' = column): how far the interval of one overlaps the other's reflection.
    joint = np.minimum(high[:, None], 1.0 - low) - np.maximum(low[:, None], 1.0 - high)
    joint = np.maximum(joint, 0.0)
    factor = np.exp(rate * cost)
    same = np.diagonal(joint) * factor * math.expm1(-rate * size)
    by_first, by_second = factor * law + same, factor @ joint + same
    agree = math.expm1(-2.0 * rate * size)
    single = float(by_first.sum())
    link = by_second * factor**2
    log_single = math.log(single)
    log_pair = math.log(float(link @ (single * (1.0 + 1e-12) + by_first * agree)))
    log_open = math.log(float(link @ (1.0 + law * agree)))

    def chain(length: IntArray) -> FloatArray:
        pairs, odd = np.divmod(length, 2)
        ends = log_single + np.where(odd > 0, log_open, log_single)
        return np.where(pairs > 0, 0.5 * ((pairs - 1) * log_pair + ends), 0.0)

    short, longer = np.divmod(draws, sizes)
    return np.asarray((sizes - longer) * chain(short) + longer * chain(short + 1))
