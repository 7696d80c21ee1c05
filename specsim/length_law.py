"""A distribution over the integers 1 … max_len, and what can be read off it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, rel_entr

from specsim.arguments import numbers

if TYPE_CHECKING:
    from scipy.stats import rv_discrete

_FloatArray: TypeAlias = NDArray[np.float64]

# Rounding of up to a few hundred bins stays below _KEEP, so a valid pmf is stored bit for bit
# (and survives pickling); up to _ACCEPT, a caller's own rounding is divided away.
_KEEP = 1e-13
_ACCEPT = 1e-9
_REPR_ENTRIES = 6


@dataclass(frozen=True, eq=False, repr=False, init=False)
class LengthLaw:
    """An immutable distribution of a length L over 1 … max_len.

    Equal if and only if the probabilities are equal bit for bit.

    Parameters
    ----------
    pmf
        ``max_len`` non-negative numbers; entry k − 1 is P(L = k). A sum within 1e-9 of 1 is
        accepted and divided away; within 1e-13 the numbers are kept as they are.

    Attributes
    ----------
    pmf : ndarray, shape (max_len,), float64
        The probabilities; not writeable.

    Raises
    ------
    TypeError
        If `pmf` does not hold real numbers.
    ValueError
        If `pmf` is empty or not one-dimensional, has a negative or non-finite entry, or does
        not sum to 1 within 1e-9.
    """

    pmf: _FloatArray

    def __init__(self, pmf: Iterable[float] | _FloatArray) -> None:
        pmf = numbers(pmf, "pmf")
        if pmf.size == 0:
            raise ValueError("pmf must have at least one entry, got none")
        wrong = ~(np.isfinite(pmf) & (pmf >= 0.0))
        if wrong.any():
            raise ValueError(
                f"pmf must hold finite probabilities >= 0, got {float(pmf[wrong][0])!r}"
            )
        total = math.fsum(pmf)
        if abs(total - 1.0) > _ACCEPT:
            raise ValueError(f"pmf must sum to 1 within {_ACCEPT}, got a sum of {total!r}")
        if abs(total - 1.0) > _KEEP:
            pmf = pmf / total
        # An array over a bytes object can't be made writeable again, unlike one with a flag
        # cleared; adding 0.0 turns -0.0 into 0.0, so that equal values have equal bytes.
        frozen = np.frombuffer((pmf + 0.0).tobytes(), dtype=np.float64)
        object.__setattr__(self, "pmf", frozen)

    @property
    def max_len(self) -> int:
        """Largest possible acceptance length, gamma + 1."""
        return int(self.pmf.size)

    @property
    def gamma(self) -> int:
        """Draft tokens per step, max_len − 1."""
        return self.max_len - 1

    @property
    def support(self) -> tuple[int, ...]:
        """The lengths of positive probability, ascending."""
        return tuple(int(k) for k in np.flatnonzero(self.pmf) + 1)

    @property
    def mean(self) -> float:
        """E[L] in tokens."""
        return math.fsum(self._lengths * self.pmf)

    @property
    def var(self) -> float:
        """Variance of L in tokens²."""
        return math.fsum((self._lengths - self.mean) ** 2 * self.pmf)

    @property
    def std(self) -> float:
        """Standard deviation of L in tokens."""
        return math.sqrt(self.var)

    @property
    def entropy(self) -> float:
        """Shannon entropy of L in nats."""
        return math.fsum(entr(self.pmf))

    @property
    def per_position_rates(self) -> _FloatArray:
        """Unconditional rates P(L ≥ k + 1), k = 1 … gamma; shape (gamma,), float64."""
        return self._survival[1:-1].copy()

    @property
    def conditional_rates(self) -> _FloatArray:
        """Conditional rates P(L ≥ k + 1 | L ≥ k), k = 1 … gamma; shape (gamma,), float64.

        NaN at positions that are never reached, where P(L ≥ k) = 0.
        """
        survival = self._survival[:-1]
        rates = np.full(self.gamma, np.nan)
        np.divide(survival[1:], survival[:-1], out=rates, where=survival[:-1] > 0.0)
        return rates

    @overload
    def cdf(self, k: float) -> float: ...
    @overload
    def cdf(self, k: Sequence[float] | NDArray[Any]) -> _FloatArray: ...
    def cdf(self, k: ArrayLike) -> float | _FloatArray:
        """Return P(L ≤ k) for a number or an array; exactly 1 from the support's end on."""
        return self._at(self._cumulative, k)

    @overload
    def sf(self, k: float) -> float: ...
    @overload
    def sf(self, k: Sequence[float] | NDArray[Any]) -> _FloatArray: ...
    def sf(self, k: ArrayLike) -> float | _FloatArray:
        """Return P(L > k) for a number or an array, with the digits of small tails kept."""
        return self._at(self._survival, k)

    @overload
    def ppf(self, u: float) -> int: ...
    @overload
    def ppf(self, u: Sequence[float] | NDArray[Any]) -> NDArray[np.int64]: ...
    def ppf(self, u: ArrayLike) -> int | NDArray[np.int64]:
        """Return the smallest length of the support with P(L ≤ length) ≥ u.

        `u` is a number or an array in [0, 1], else ValueError; u = 0 gives the support's least
        length (where scipy's convention is one below it).
        """
        levels = np.asarray(u, dtype=np.float64)
        wrong = ~((levels >= 0.0) & (levels <= 1.0))
        if wrong.any():
            raise ValueError(f"u must be in [0, 1], got {float(levels[wrong].flat[0])!r}")
        found = np.searchsorted(self._cumulative[1:], levels, side="left") + 1
        found = np.maximum(found, self.support[0]).astype(np.int64)
        return found if levels.ndim else int(found)

    def kl(self, other: LengthLaw) -> float:
        """Return KL(self‖other) in nats; infinite if `other` lacks a length that `self` has.

        `other` may have another max_len: the shorter one is padded with zeros.
        """
        p, q = self._padded(other)
        return max(0.0, float(np.sum(rel_entr(p, q))))

    def tv(self, other: LengthLaw) -> float:
        """Return the total-variation distance Σ|p − q| / 2, in [0, 1].

        `other` may have another max_len: the shorter one is padded with zeros.
        """
        p, q = self._padded(other)
        return min(1.0, 0.5 * math.fsum(np.abs(p - q)))

    def to_scipy(self) -> rv_discrete:
        """Return the same law as a `scipy.stats.rv_discrete` over `support`."""
        from scipy.stats import rv_discrete  # 0.5 s that most users need not wait for

        support = np.array(self.support)
        return rv_discrete(name="acceptance_length", values=(support, self.pmf[support - 1]))

    # --- value semantics ----------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LengthLaw):
            return NotImplemented
        return np.array_equal(self.pmf, other.pmf)

    def __hash__(self) -> int:
        return hash(self.pmf.tobytes())

    def __reduce__(self) -> tuple[type[LengthLaw], tuple[_FloatArray]]:
        return type(self), (self.pmf,)

    def __repr__(self) -> str:
        shown = self.support[:_REPR_ENTRIES]
        entries = ", ".join(f"{k}: {self.pmf[k - 1]:.6g}" for k in shown)
        more = ", …" if len(self.support) > len(shown) else ""
        return f"{type(self).__name__}(max_len={self.max_len}, pmf={{{entries}{more}}})"

    # --- tables -------------------------------------------------------------------------

    @property
    def _lengths(self) -> _FloatArray:
        return np.arange(1, self.max_len + 1, dtype=np.float64)

    @property
    def _cumulative(self) -> _FloatArray:
        """P(L ≤ k) for k = 0 … max_len."""
        table: _FloatArray = np.minimum(np.append(0.0, np.cumsum(self.pmf)), 1.0)
        table[self.support[-1] :] = 1.0
        return table

    @property
    def _survival(self) -> _FloatArray:
        """P(L > k) for k = 0 … max_len."""
        table: _FloatArray = np.minimum(np.append(np.cumsum(self.pmf[::-1])[::-1], 0.0), 1.0)
        table[: self.support[0]] = 1.0
        return table

    def _at(self, table: _FloatArray, k: ArrayLike) -> float | _FloatArray:
        points = np.asarray(k, dtype=np.float64)
        if np.isnan(points).any():
            raise ValueError("k must be a number, got nan")
        index = np.floor(np.clip(points, 0.0, self.max_len)).astype(np.intp)
        found: _FloatArray = table[index]
        return found if points.ndim else float(found)

    def _padded(self, other: LengthLaw) -> tuple[_FloatArray, _FloatArray]:
        size = max(self.max_len, other.max_len)
        return (
            np.pad(self.pmf, (0, size - self.max_len)),
            np.pad(other.pmf, (0, size - other.max_len)),
        )
