"""Confidence regions around an empirical law, and their distance from p0.

A region is the set of laws that no event speaks against: for each event A (a set of values) the
mixture of likelihood ratios of Krichevsky and Trofimov (1981), Beta(½, ½) over the probability
of A, is a martingale under the true probability, so all of them stay below 2^(cells − 1)/alpha
at every draw at once with probability 1 − alpha (Ville; a union over events, which for many cells
is far smaller than a Dirichlet's (cells − 1)/2·log n). Total variation is the largest difference
over events, so the region's distance from p0 follows event by event, without a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betaln, rel_entr, xlogy

from specsim.evidence.law import FloatArray, IntArray

# Values of p0 that together weigh at most this much share one cell with everything outside the
# support. It is chosen from p0 alone, and costs at most this much in the upper bound.
MERGED_MASS = 5e-4
# Up to this many cells all events are visited one by one; beyond, a bound replaces the visit.
_ENUMERATED_CELLS = 12
# A bound is wider than the exact one by 2^-45, or 3e-14, at most.
_HALVINGS = 45


@dataclass(frozen=True)
class TVInterval:
    """Bounds on the total variation between the law that was drawn from and p0.

    Attributes
    ----------
    lower, upper : float
        The interval; with probability at least 1 − alpha it holds the truth at every draw at
        once, if the law does not change.
    """

    lower: float
    upper: float


def tv_interval(counts: IntArray, pmf: FloatArray, alpha: float) -> TVInterval:
    """Bound the total variation between p0 and the law that gave `counts`.

    Parameters
    ----------
    counts : ndarray, shape (K,), int64
    pmf : ndarray, shape (K,)
        Strictly positive probabilities of p0's support. Every draw lies in the support: the
        probability of a value outside it is bounded too, by the draws that did not show one.
    alpha
        Probability, over all draws of the stream, that the interval ever misses the truth.

    Returns
    -------
    TVInterval

    Raises
    ------
    ValueError
        If `alpha` is outside (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie in (0, 1), got {alpha!r}")
    total = int(counts.sum())
    if total == 0:
        return TVInterval(0.0, 1.0)
    order = np.argsort(pmf, kind="stable")
    merged = int(np.searchsorted(np.cumsum(pmf[order]), MERGED_MASS, side="right"))
    rest, kept = order[:merged], order[merged:]
    seen = np.append(counts[kept], counts[rest].sum())
    law = np.append(pmf[kept], pmf[rest].sum())
    cells = seen.size
    log_bound = -np.log(alpha) + (cells - 1) * np.log(2.0)
    if cells <= _ENUMERATED_CELLS:
        members = (np.arange(2**cells)[:, None] >> np.arange(cells)) & 1
        hits, expected = members @ seen, members @ law
        # An event's lower bound is 1 less its complement's upper one, and both events are here.
        above = _binary_bound(hits, total, log_bound, "upper") - expected
        return TVInterval(
            max(0.0, -float(above.min())), min(1.0, float(above.max()) + float(law[-1]))
        )
    # Any event gives a valid lower bound, and the event of all values seen too often is the one
    # that separates best. Above, Pinsker's inequality serves for all events at once, with the
    # largest regret of the mixture, ½·log n + log 2.
    distance = 0.5 * float(np.abs(seen / total - law).sum())
    often = np.array([int(seen[seen / total > law].sum())])
    lower_event = _binary_bound(often, total, log_bound, "lower")[0] - often[0] / total + distance
    slack = np.sqrt((log_bound + 0.5 * np.log(total) + np.log(2.0)) / (2.0 * total))
    return TVInterval(max(0.0, float(lower_event)), min(1.0, distance + slack + float(law[-1])))


def rows_exclude(pairs: IntArray, pmf: FloatArray, tolerance: float, alpha: float) -> bool:
    """Say whether the transitions rule out every law within a tolerance of p0.

    Parameters
    ----------
    pairs : ndarray, shape (K, K), int64
        Entry [x, y] counts how often y came right after x.
    pmf : ndarray, shape (K,)
        Strictly positive probabilities of p0's support.
    tolerance
        Total variation; laws of the next draw that stay this close to p0, whatever the past, are
        not ruled out.
    alpha
        Probability of a wrong exclusion, over all draws and rows.

    Returns
    -------
    bool
        True if some value, or some set {≤ k}, follows some value so often or so rarely that the
        probability given the past has to differ from p0's by more than `tolerance`.

    Notes
    -----
    The probabilities given the past may change from draw to draw. If they never exceed u, the
    mixture over θ ≥ u alone, with prior mass m, is a supermartingale against u. Where the share
    of hits is above u, the rest of the mixture is at most its mass 1 − m: so that the whole
    mixture reaches B with probability at most m / (B − 1 + m), by Ville. For the two sides of
    an event this sums to less than 1 / (B − 1/2); the set of all values, which is counted too
    and can't be excluded, makes up for the difference from 1 / B.
    """
    size = pmf.size
    events = np.concatenate([np.eye(size, dtype=np.int64), np.tri(size, dtype=np.int64)])
    hits = (pairs @ events.T).ravel()
    totals = np.repeat(pairs.sum(axis=1), events.shape[0])
    expected = np.tile(events @ pmf, size)
    drawn = totals > 0
    hits, totals, expected = hits[drawn], totals[drawn], expected[drawn]
    log_bound = -np.log(alpha) + np.log(size * events.shape[0])
    above = _binary_bound(hits, totals, log_bound, "lower") > expected + tolerance
    below = _binary_bound(hits, totals, log_bound, "upper") < expected - tolerance
    return bool(np.any(above | below))


def _binary_bound(
    hits: IntArray, total: IntArray | int, log_bound: float, side: Literal["lower", "upper"]
) -> FloatArray:
    """Return the smallest or largest probability that the Beta(½, ½) mixture leaves standing."""
    share = hits / total
    mixture = betaln(hits + 0.5, total - hits + 0.5) - np.log(np.pi)
    entropy = -(xlogy(share, share) + xlogy(1.0 - share, 1.0 - share))
    budget = np.maximum(log_bound - mixture - total * entropy, 0.0) / total
    inside = share.astype(np.float64)
    outside = np.full_like(inside, 0.0 if side == "lower" else 1.0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (inside + outside)
        divergence = rel_entr(share, middle) + rel_entr(1.0 - share, 1.0 - middle)
        stands = divergence <= budget
        inside = np.where(stands, middle, inside)
        outside = np.where(stands, outside, middle)
    # The end that is just ruled out, so that rounding never narrows the region.
    return np.asarray(outside, dtype=np.float64)
