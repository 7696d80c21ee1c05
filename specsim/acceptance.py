"""Exact distributions of an acceptance length, one constructor per engine's rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from specsim.arguments import finite, integer, numbers
from specsim.length_law import LengthLaw

_FloatArray: TypeAlias = NDArray[np.float64]


def _length_in_range(acc_len: float, gamma: int) -> float:
    length = finite(acc_len, "acc_len")
    if not 1.0 <= length <= gamma + 1:
        raise ValueError(f"acc_len must be in [1, gamma + 1] = [1, {gamma + 1}], got {acc_len!r}")
    return length


class AcceptanceDistribution(LengthLaw):
    """The exact distribution of an acceptance length L over 1 … max_len.

    The acceptance length counts the tokens committed per request and verify step, the target's
    own guaranteed token included; with `gamma` draft tokens per step, ``max_len = gamma + 1``.
    Instances are immutable, and equal if and only if their probabilities are equal bit for bit.

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

    Examples
    --------
    >>> d = AcceptanceDistribution.match_expected(4.75, max_len=8)
    >>> d
    AcceptanceDistribution(max_len=8, pmf={4: 0.25, 5: 0.75})
    >>> d.mean
    4.75
    """

    @classmethod
    def match_expected(cls, acc_len: float, max_len: SupportsIndex) -> AcceptanceDistribution:
        """Return the law on the two integers around a length, with that length as its mean.

        With t = min(max(acc_len, 1), max_len): P(⌊t⌋) = 1 − frac and P(⌊t⌋ + 1) = frac, where
        frac = t − ⌊t⌋ (SGLang's ``match-expected``).

        Parameters
        ----------
        acc_len
            Mean acceptance length in tokens; any finite number, clamped to [1, max_len].
        max_len
            Largest acceptance length, at least 1.

        Returns
        -------
        AcceptanceDistribution
            Its probabilities are exact: t − ⌊t⌋ and 1 − frac have no rounding in float64.

        Raises
        ------
        ValueError
            If `acc_len` is not finite or `max_len` is below 1.
        """
        length = finite(acc_len, "acc_len")
        most = integer(max_len, "max_len", 1)
        # The subtraction is exact: t - 1 is a multiple of t's last place and smaller than t.
        return cls._adjacent(min(max(length, 1.0), float(most)) - 1.0, most)

    @classmethod
    def multinomial(cls, acc_len: float, max_len: SupportsIndex) -> AcceptanceDistribution:
        """Return the law of a unit normal around a length, clamped and rounded.

        Z ~ N(acc_len, 1) is clamped to [1, max_len] and rounded half to even (SGLang's
        ``multinomial``). With μ = acc_len: P(1) = Φ(1.5 − μ), P(k) = Φ(k + .5 − μ) −
        Φ(k − .5 − μ), P(max_len) = Φ(μ − max_len + .5); a point mass if max_len = 1. The
        centre itself is not clamped. Near the ends the mean is not `acc_len`.

        Parameters
        ----------
        acc_len
            Centre of the normal in tokens; any finite number.
        max_len
            Largest acceptance length, at least 1.

        Returns
        -------
        AcceptanceDistribution
            Every bin above float64's smallest number is positive: the tails are differences of
            survival functions, never 1 − Φ.

        Raises
        ------
        ValueError
            If `acc_len` is not finite or `max_len` is below 1.
        """
        centre = finite(acc_len, "acc_len")
        most = integer(max_len, "max_len", 1)
        if most == 1:
            return cls(np.ones(1))
        edges = np.arange(1, most) + 0.5 - centre
        below, above = ndtr(edges), ndtr(-edges)
        inner = np.where(edges[:-1] > 0.0, above[:-1] - above[1:], below[1:] - below[:-1])
        return cls(np.concatenate([below[:1], inner, above[-1:]]))

    @classmethod
    def from_method(
        cls, acc_len: float, method: str, max_len: SupportsIndex
    ) -> AcceptanceDistribution:
        """Return the law of a method by the name that engines give it.

        Parameters
        ----------
        acc_len
            Configured length in tokens; any finite number.
        method
            ``"match-expected"`` or ``"multinomial"``.
        max_len
            Largest acceptance length, at least 1.

        Raises
        ------
        ValueError
            If `method` is unknown, `acc_len` is not finite or `max_len` is below 1.
        """
        known: dict[str, Callable[[float, SupportsIndex], AcceptanceDistribution]] = {
            "match-expected": cls.match_expected,
            "multinomial": cls.multinomial,
        }
        if not isinstance(method, str) or method not in known:
            names = ", ".join(repr(name) for name in known)
            raise ValueError(f"method must be one of {names}, got {method!r}")
        return known[method](acc_len, max_len)

    @classmethod
    def from_rates(cls, rates: Iterable[float]) -> AcceptanceDistribution:
        """Return the law with the given unconditional per-position acceptance rates.

        Rate k is P(L ≥ k + 1), the probability that draft tokens 1 … k are all accepted
        (vLLM's ``synthetic_acceptance_rates``, llama.cpp's ``--spec-synthetic-acceptance-rates``).
        The mean is 1 + the sum of the rates.

        Parameters
        ----------
        rates
            gamma non-increasing numbers in [0, 1]; none at all gives the point mass at 1.

        Raises
        ------
        TypeError
            If `rates` does not hold real numbers.
        ValueError
            If a rate is outside [0, 1] or above the rate before it.
        """
        checked = numbers(rates, "rates")
        for position, rate in enumerate(checked.tolist(), start=1):
            if not 0.0 <= rate <= 1.0:
                raise ValueError(f"rates must be in [0, 1], got {rate!r} at position {position}")
            if position > 1 and rate > checked[position - 2]:
                raise ValueError(
                    f"rates must be non-increasing, got {rate!r} at position {position} after "
                    f"{float(checked[position - 2])!r}"
                )
        survival = np.concatenate([[1.0], checked, [0.0]])
        return cls(survival[:-1] - survival[1:])

    @classmethod
    def minimum_variance(cls, acc_len: float, gamma: SupportsIndex) -> AcceptanceDistribution:
        """Return the law of least variance with a given mean, as vLLM schedules it.

        The unconditional rates are min(1, max(0, acc_len − k)), k = 1 … gamma: as many certain
        positions as fit and one fractional one. On [1, gamma + 1] it equals `match_expected`.

        Parameters
        ----------
        acc_len
            Mean acceptance length in tokens, in [1, gamma + 1].
        gamma
            Draft tokens per step, at least 0.

        Raises
        ------
        ValueError
            If `acc_len` is outside [1, gamma + 1] or `gamma` is negative.
        """
        drafts = integer(gamma, "gamma", 0)
        length = _length_in_range(acc_len, drafts)
        return cls.from_rates(np.clip(length - np.arange(1, drafts + 1), 0.0, 1.0))

    @classmethod
    def constant_conditional(cls, acc_len: float, gamma: SupportsIndex) -> AcceptanceDistribution:
        """Return the law in which each draft token is accepted with the same probability.

        The conditional rate p solves p + p² + … + p^gamma = acc_len − 1 (llama.cpp's
        ``--spec-synthetic-acceptance-length``); L is a geometric number cut at max_len.

        Parameters
        ----------
        acc_len
            Mean acceptance length in tokens, in [1, gamma + 1].
        gamma
            Draft tokens per step, at least 0.

        Raises
        ------
        ValueError
            If `acc_len` is outside [1, gamma + 1] or `gamma` is negative.
        """
        drafts = integer(gamma, "gamma", 0)
        return cls._chain(_length_in_range(acc_len, drafts), np.ones(drafts))

    @classmethod
    def geometric_decay(
        cls, acc_len: float, gamma: SupportsIndex, decay: float
    ) -> AcceptanceDistribution:
        """Return the law whose conditional rates fall by a constant factor.

        Draft token k is accepted, given that those before it were, with probability
        r · decay^(k−1); r ∈ [0, 1] solves Σ r^k · decay^(k(k−1)/2) = acc_len − 1 (earlier
        versions of vLLM and ATOM).

        Parameters
        ----------
        acc_len
            Mean acceptance length in tokens, in [1, 1 + Σ decay^(k(k−1)/2)].
        gamma
            Draft tokens per step, at least 0.
        decay
            Factor between one conditional rate and the next, in [0, 1]; 1 gives
            `constant_conditional`.

        Raises
        ------
        ValueError
            If `decay` is outside [0, 1], `gamma` is negative, or no r ≤ 1 reaches `acc_len`;
            the message then gives the feasible range.
        """
        drafts = integer(gamma, "gamma", 0)
        length = _length_in_range(acc_len, drafts)
        factor = finite(decay, "decay")
        if not 0.0 <= factor <= 1.0:
            raise ValueError(f"decay must be in [0, 1], got {decay!r}")
        shape = factor ** np.arange(drafts, dtype=np.float64)
        most = 1.0 + float(np.cumprod(shape).sum())
        if length > most:
            raise ValueError(
                f"acc_len must be in [1, {most!r}] for gamma={drafts} and decay={factor!r}, "
                f"got {acc_len!r}"
            )
        return cls._chain(length, shape)

    @classmethod
    def forced_drafts(cls, x: float, gamma: SupportsIndex) -> AcceptanceDistribution:
        """Return the law of ⌊x⌋ accepted draft tokens plus one more with probability frac(x).

        TensorRT-LLM's ``TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS``, which counts draft tokens:
        x = acc_len − 1, so this is ``match_expected(x + 1, gamma + 1)``.

        Parameters
        ----------
        x
            Mean number of accepted draft tokens; any finite number, clamped to [0, gamma].
        gamma
            Draft tokens per step, at least 0.

        Raises
        ------
        ValueError
            If `x` is not finite or `gamma` is negative.
        """
        drafts = integer(gamma, "gamma", 0)
        return cls._adjacent(min(max(finite(x, "x"), 0.0), float(drafts)), drafts + 1)

    @classmethod
    def _adjacent(cls, drafts: float, max_len: int) -> AcceptanceDistribution:
        """Return ⌊drafts⌋ accepted drafts, plus one more with probability frac(drafts)."""
        floor = math.floor(drafts)
        frac = drafts - floor
        pmf = np.zeros(max_len)
        pmf[floor] = 1.0 - frac
        if frac > 0.0:
            pmf[floor + 1] = frac
        return cls(pmf)

    @classmethod
    def _chain(cls, acc_len: float, shape: _FloatArray) -> AcceptanceDistribution:
        """Return the law with conditional rates r · shape whose mean is `acc_len`."""
        target = acc_len - 1.0

        def excess(r: float) -> float:
            return float(np.cumprod(r * shape).sum()) - target

        if target <= 0.0:
            rate = 0.0
        elif excess(1.0) <= 0.0:
            rate = 1.0
        else:
            from scipy.optimize import brentq  # 0.2 s that most users need not wait for

            # The smallest relative tolerance that brentq takes, and an absolute one that never
            # decides: a length just above 1 has a rate just above 0.
            epsilon = float(np.finfo(np.float64).eps)
            rate = float(brentq(excess, 0.0, 1.0, xtol=1e-300, rtol=4 * epsilon, maxiter=2000))
        accept = rate * shape
        reach = np.concatenate([[1.0], np.cumprod(accept)])
        return cls(reach * np.concatenate([1.0 - accept, [1.0]]))
