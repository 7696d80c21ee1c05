"""Sequential two-sample test of whether two streams have the same law, whatever that law is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from specsim.evidence.design import check_draws, check_error_rate
from specsim.evidence.law import IntArray

# How many draws' worth of trust each part puts in "no difference": a difference that shows
# within a few dozen draws is found by the small ones, one that takes 10⁵ by the large ones.
_CONCENTRATIONS = 4.0 ** np.arange(1, 9)
_CHUNK = 4096


class TwoSampleTest:
    """Sequential test of whether two streams of draws have one law, that law being unknown.

    Draws are taken in blocks, so many of the old stream with so many of the new. Before each
    block a law is estimated for either stream, a and b, from the earlier blocks only; with
    r = (m_old·a + m_new·b) / (m_old + m_new) the block multiplies the evidence by
    ∏ a(x)/r(x) over its old draws times ∏ b(y)/r(y) over its new ones (Turner, Ly & Grünwald
    2024, "Generic E-variables for exact sequential k-sample tests that allow for optional
    stopping"). If both streams draw from p, whatever p is, the factor's mean is A^m_old·B^m_new
    with A = Σ p·a/r and B = Σ p·b/r; since m_old·A + m_new·B = m_old + m_new, it is at most 1
    by the inequality of the means. The estimates are posterior means: Dirichlet priors of
    several concentrations, centred on the estimate from both streams together; the evidence is
    the average over the concentrations.

    **Validity.** If the draws of both streams are independent and of one law, the probability
    that `log_e` ever reaches log(1/alpha) is at most alpha (Ville 1939), whatever the law and
    whenever one stops. A rejection is final. Draws that depend on one another (one draw shared
    by a batch, for instance) break this: give one draw per step then.

    Parameters
    ----------
    values
        The integers that can occur, for acceptance lengths ``range(1, max_len + 1)``.
    alpha
        Probability of ever rejecting wrongly, in (0, 1).
    block
        Draws of the old and the new stream per block, each at least 1. Unequal numbers use a
        longer old stream up; the evidence waits until a block is complete.

    Raises
    ------
    ValueError
        If `values` is empty or has an integer twice, `alpha` is outside (0, 1), or `block` is
        not two positive integers.
    TypeError
        If `values` holds something other than integers.
    """

    def __init__(
        self, values: Iterable[int], alpha: float, *, block: tuple[int, int] = (1, 1)
    ) -> None:
        self._values = _integers(list(values), "values")
        if self._values.size == 0:
            raise ValueError("values must hold at least one integer, got none")
        if np.unique(self._values).size != self._values.size:
            raise ValueError(f"values must be distinct, got {self._values.tolist()}")
        self._values.sort()
        self.alpha = check_error_rate(alpha, "alpha")
        if len(block) != 2:
            raise ValueError(f"block must be two integers >= 1, got {block!r}")
        self._sizes = check_draws(block[0], "block[0]"), check_draws(block[1], "block[1]")
        self._waiting: list[IntArray] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
        self._counts: list[IntArray] = [np.zeros(self._values.size, np.int64) for _ in range(2)]
        self._blocks = 0
        self._log_parts = np.zeros(_CONCENTRATIONS.size)
        self._rejected = False

    @property
    def draws(self) -> tuple[int, int]:
        """Draws of the old and the new stream in complete blocks, on which `log_e` stands."""
        return self._blocks * self._sizes[0], self._blocks * self._sizes[1]

    @property
    def log_e(self) -> float:
        """Evidence against one common law after the last complete block, in nats."""
        return float(logsumexp(self._log_parts)) - math.log(self._log_parts.size)

    @property
    def rejected(self) -> bool:
        """Whether the evidence has reached log(1/alpha) after any block so far."""
        return self._rejected

    def update(self, old: Sequence[int] | IntArray, new: Sequence[int] | IntArray) -> None:
        """Add draws of either stream, in the order in which they were drawn.

        Parameters
        ----------
        old, new
            Integers among the test's values, of any lengths; draws wait for their block's
            partners, so the result does not depend on how the streams are cut into updates.

        Raises
        ------
        TypeError
            If draws are not integers.
        ValueError
            If a draw is not among the test's values. Nothing is then added.
        """
        arrived = [self._places(old, "old"), self._places(new, "new")]
        queues = [np.concatenate(pair) for pair in zip(self._waiting, arrived, strict=True)]
        blocks = min(q.size // m for q, m in zip(queues, self._sizes, strict=True))
        whole = [
            q[: blocks * m].reshape(blocks, m) for q, m in zip(queues, self._sizes, strict=True)
        ]
        self._waiting = [q[blocks * m :].copy() for q, m in zip(queues, self._sizes, strict=True)]
        for start in range(0, blocks, _CHUNK):
            self._add([part[start : start + _CHUNK] for part in whole])

    def _places(self, draws: Sequence[int] | IntArray, name: str) -> IntArray:
        """Return the draws as indices into the values."""
        array = _integers(draws, name)
        places = np.minimum(np.searchsorted(self._values, array), self._values.size - 1)
        unknown = self._values[places] != array
        if unknown.any():
            raise ValueError(
                f"{name} must hold draws among {self._values.tolist()}, got {array[unknown][0]}"
            )
        return places.astype(np.int64)

    def _add(self, blocks: list[IntArray]) -> None:
        """Multiply the factors of complete blocks in; the arrays hold places, one row a block."""
        rows = np.arange(blocks[0].shape[0])
        before = []  # counts of either stream before each block, shape (blocks, values)
        for stream, places in enumerate(blocks):
            own = np.zeros((rows.size, self._values.size), np.int64)
            np.add.at(own, (rows[:, None], places), 1)
            running = np.cumsum(own, axis=0)
            before.append(self._counts[stream] + running - own)
            self._counts[stream] = self._counts[stream] + running[-1]
        seen = (self._blocks + rows)[:, None]
        self._blocks += rows.size
        factors = np.zeros((rows.size, _CONCENTRATIONS.size))
        m_old, m_new = self._sizes
        for stream, places in enumerate(blocks):
            n_old, n_new = (counts[rows[:, None], places] for counts in before)
            # Krichevsky and Trofimov's half a count per value keeps the common law positive.
            common = (n_old + n_new + 0.5) / (seen * (m_old + m_new) + 0.5 * self._values.size)
            for part, trust in enumerate(_CONCENTRATIONS):
                a = (n_old + trust * common) / (seen * m_old + trust)
                b = (n_new + trust * common) / (seen * m_new + trust)
                mixed = (m_old * a + m_new * b) / (m_old + m_new)
                factors[:, part] += np.log((a, b)[stream] / mixed).sum(axis=1)
        paths = self._log_parts + np.cumsum(factors, axis=0)
        self._log_parts = paths[-1]
        highest = float(logsumexp(paths, axis=1).max()) - math.log(self._log_parts.size)
        self._rejected = self._rejected or highest >= math.log(1.0 / self.alpha)


def _integers(values: Sequence[int] | NDArray[np.int64], name: str) -> IntArray:
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be a one-dimensional sequence of integers, got {values!r}")
    return array.astype(np.int64)
