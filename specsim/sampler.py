"""Samplers of simulated acceptance lengths: the engines' reference, and a fast exact one."""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal, SupportsIndex, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import NDArray

from specsim.acceptance import AcceptanceDistribution
from specsim.arguments import finite, integer
from specsim.sampling.counter import CounterDraws
from specsim.sampling.lookup import (
    BlockFiller,
    IntArray,
    independent_filler,
    integer_thresholds,
    systematic_filler,
)
from specsim.sampling.sequence import LengthStream

Coupling: TypeAlias = Literal["slot", "batch"]
Method: TypeAlias = Literal["independent", "systematic"]
_Int: TypeAlias = "int | np.integer[Any]"
_Array: TypeAlias = "Sequence[int] | NDArray[np.integer[Any]]"

_SIMULATE_ACC_METHODS = ("match-expected", "multinomial")
_COUPLINGS = ("slot", "batch")
_METHODS = ("independent", "systematic")


def sample_simulated_acc_len(
    simulate_acc_len: float,
    simulate_acc_method: str,
    max_len: SupportsIndex,
    *,
    generator: torch.Generator | None = None,
) -> int:
    """Draw one simulated acceptance length, as the serving engines define it.

    Draws on the CPU in float64; never from any other generator than the one given.

    Parameters
    ----------
    simulate_acc_len
        Configured length in tokens, the target's guaranteed token included. Any finite number.
    simulate_acc_method
        ``"match-expected"``: with t = min(max(simulate_acc_len, 1), max_len), ⌊t⌋ + 1 with
        probability t − ⌊t⌋, else ⌊t⌋; a whole t is returned without a draw.
        ``"multinomial"``: a normal number of unit variance around `simulate_acc_len` itself,
        clamped to [1, max_len], then rounded half to even.
    max_len
        Largest acceptance length, at least 1.
    generator
        CPU generator to draw from; torch's default one if None.

    Returns
    -------
    int
        In [1, max_len].

    Raises
    ------
    TypeError
        If `simulate_acc_len` is not a real number or `max_len` not an integer.
    ValueError
        If `simulate_acc_len` is not finite, `max_len` is below 1, or the method is unknown.

    See Also
    --------
    AcceptanceDistribution.from_method : the exact law of what this returns.
    """
    _check_choice("simulate_acc_method", simulate_acc_method, _SIMULATE_ACC_METHODS)
    length = finite(simulate_acc_len, "simulate_acc_len")
    most = integer(max_len, "max_len", 1)
    if simulate_acc_method == "multinomial":
        noise = torch.randn((), generator=generator, dtype=torch.float64, device="cpu")
        return round(min(max(length + noise.item(), 1.0), float(most)))
    clamped = min(max(length, 1.0), float(most))
    floor = math.floor(clamped)
    if clamped == floor:
        return floor
    uniform = torch.rand((), generator=generator, dtype=torch.float64, device="cpu")
    return floor + int(uniform.item() < clamped - floor)


def _sample_simulated_acc_len(
    simulate_acc_len: float, simulate_acc_method: str, max_len: SupportsIndex
) -> int:
    """Call `sample_simulated_acc_len`, which this was the name of.

    .. deprecated:: 0.1
    """
    warnings.warn(
        "_sample_simulated_acc_len is deprecated: use sample_simulated_acc_len",
        DeprecationWarning,
        stacklevel=2,
    )
    return sample_simulated_acc_len(simulate_acc_len, simulate_acc_method, max_len)


class AcceptanceSampler:
    """Fast draws from an exact distribution of acceptance lengths.

    There are two independent sources. `draw` and `draws` read one stream, made in blocks by a
    NumPy generator of the sampler's own: the i-th length is the same however the stream is
    split over calls. `at` keeps no state: its draw is a pure function of (seed, step, slot),
    the same in any order, on every rank and on every device.

    **Law.** Both compare a uniform 32-bit word with the thresholds ⌈P(L ≤ k) · 2³²⌉. P(L ≤ k)
    is thus the distribution's value rounded up to a multiple of 2⁻³², and a length outside its
    support never occurs.

    **Systematic draws.** With ``method="systematic"`` step t compares the word
    (U + t · w) mod 2³², where U is one uniform word per slot (for `draw` and `draws`, one per
    sampler) and w / 2³² is the probability of the longer of two lengths a < b. Every step has
    exactly the law above, but steps depend on each other: any n consecutive ones (up to step
    2⁶⁴ − 1, where the counter ends) hold ⌊n·w/2³²⌋ or ⌈n·w/2³²⌉ of the longer length. Their
    mean is therefore less than (b − a) · (1/n + 2⁻³²) away from the distribution's: 1/n of the
    configured length for ``match_expected``. The arithmetic is exact, so this holds anywhere in
    the sequence. A distribution of more than two lengths is refused: with equal steps its count
    of each length isn't bounded that way.

    Parameters
    ----------
    distribution
        The law to draw from.
    seed
        In [0, 2⁶⁴); taken from the operating system if None.
    coupling
        ``"slot"``: `at` draws one length per slot. ``"batch"``: one per step, slot 0's, shared
        by all slots. `draw` and `draws` know no slots, and don't depend on it.
    method
        ``"independent"`` or ``"systematic"``.

    Attributes
    ----------
    distribution : AcceptanceDistribution
    seed : int
        The seed in use, also if it was None.
    coupling, method : str
    draw : callable
        Takes nothing and returns the next length of the stream, an int. It is an iterator's
        bound ``__next__``, since a Python function around it would cost more than the draw.

    Raises
    ------
    TypeError
        If `distribution` is not an AcceptanceDistribution or `seed` not an integer.
    ValueError
        If `seed` is outside [0, 2⁶⁴), `coupling` or `method` is unknown, or `method` is
        ``"systematic"`` and the distribution has more than two lengths.

    Notes
    -----
    A sampler belongs to one thread. A forked process continues its parent's stream: make one
    sampler per process, with a seed of its own, or use `at`.

    Examples
    --------
    >>> sampler = AcceptanceSampler(AcceptanceDistribution.match_expected(4.7, 8), seed=0)
    >>> [sampler.at(step, 0) for step in range(8)]
    [5, 5, 4, 5, 5, 5, 5, 5]
    """

    distribution: AcceptanceDistribution
    seed: int
    coupling: Coupling
    method: Method
    draw: Callable[[], int]

    def __init__(
        self,
        distribution: AcceptanceDistribution,
        *,
        seed: int | None = None,
        coupling: Coupling = "slot",
        method: Method = "independent",
    ) -> None:
        if not isinstance(distribution, AcceptanceDistribution):
            raise TypeError(f"distribution must be an AcceptanceDistribution, got {distribution!r}")
        _check_choice("coupling", coupling, _COUPLINGS)
        _check_choice("method", method, _METHODS)
        if method == "systematic" and len(distribution.support) > 2:
            raise ValueError(
                "distribution must have at most two lengths for method 'systematic', got "
                f"{distribution!r}"
            )
        self.distribution = distribution
        self.seed = secrets.randbits(64) if seed is None else integer(seed, "seed", 0)
        if self.seed >= 1 << 64:
            raise ValueError(f"seed must be in [0, 2**64), got {self.seed}")
        self.coupling = coupling
        self.method = method

        thresholds = integer_thresholds(distribution)
        stride = None
        if method == "systematic":
            shorter = distribution.support[0]
            stride = (1 << 32) - int(np.append(thresholds, 1 << 32)[shorter - 1])
        self._counter_draws = CounterDraws(
            thresholds, self.seed, shared=coupling == "batch", stride=stride
        )
        # Made on first use, so that a sampler asked only for at() never builds a table.
        self._stream = LengthStream(
            partial(_make_filler, distribution, thresholds, stride, self.seed)
        )
        # The stream refers to neither this object nor its own chunks: without a cycle, its
        # blocks and table are freed with the last reference to the sampler.
        self.draw = chain.from_iterable(self._stream.chunks()).__next__

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.distribution!r}, seed={self.seed}, "
            f"coupling={self.coupling!r}, method={self.method!r})"
        )

    def draws(self, n: SupportsIndex) -> IntArray:
        """Return the next lengths of the stream that `draw` reads.

        For more than two lengths a table is indexed with 16 random bits; where a threshold
        falls between the words of one table entry, 16 further bits decide. So no law is
        coarser than 2⁻³².

        Parameters
        ----------
        n
            How many, at least 0.

        Returns
        -------
        ndarray, shape (n,), int64

        Raises
        ------
        TypeError
            If `n` is not an integer.
        ValueError
            If `n` is negative.
        """
        return self._stream.take(integer(n, "n", 0))

    @overload
    def at(self, step: _Int, slots: _Int) -> int: ...
    @overload
    def at(self, step: _Int | torch.Tensor, slots: torch.Tensor) -> torch.Tensor: ...
    @overload
    def at(self, step: torch.Tensor, slots: _Int) -> torch.Tensor: ...
    @overload
    def at(self, step: _Int | _Array, slots: _Array) -> IntArray: ...
    @overload
    def at(self, step: _Array, slots: _Int) -> IntArray: ...
    def at(
        self, step: _Int | _Array | torch.Tensor, slots: _Int | _Array | torch.Tensor
    ) -> int | IntArray | torch.Tensor:
        """Return the length of a step and slot, or of many: a pure function of both and the seed.

        Philox4x32-10 is keyed with the seed's low and high 32 bits and counts with
        (step's low bits, step's high bits, slot, 0); its first output word is looked up among
        the thresholds. Systematic draws take each slot's U from the counter (0, 0, slot, 1).

        Tensors are computed on their device and never read on the host: values out of range are
        taken modulo 2⁶⁴ and 2³² instead of refused. To use the call in a CUDA graph, give `step`
        as a tensor that the device counts up (an int would be frozen at capture), and call it
        once on that device beforehand, which puts the thresholds there.

        Parameters
        ----------
        step
            In [0, 2⁶⁴): an int, or an integer tensor, array or sequence that broadcasts with
            `slots`.
        slots
            In [0, 2³²): an int, or an integer tensor, array or sequence. Under coupling
            ``"batch"`` only its shape counts.

        Returns
        -------
        int, or int64 ndarray, or int64 Tensor on the device of `slots` (else of `step`)
            One length per broadcast element of `step` and `slots`.

        Raises
        ------
        TypeError
            If either is not integral, or one is an array and the other a tensor.
        ValueError
            If an int or an array's element is out of range, or two tensors are on two devices.
        """
        if isinstance(step, (int, np.integer)) and isinstance(slots, (int, np.integer)):
            return self._counter_draws.of_ints(int(step), int(slots))
        if isinstance(step, torch.Tensor) or isinstance(slots, torch.Tensor):
            return self._counter_draws.of_tensors(step, slots)
        return self._counter_draws.of_arrays(step, slots)


def _make_filler(
    distribution: AcceptanceDistribution, thresholds: IntArray, stride: int | None, seed: int
) -> BlockFiller:
    bits = np.random.SFC64(np.random.SeedSequence(seed))
    if stride:
        shorter, longer = distribution.support
        return systematic_filler(shorter, longer, stride, bits)
    return independent_filler(thresholds, bits)


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        names = ", ".join(repr(choice) for choice in known)
        raise ValueError(f"{name} must be one of {names}, got {value!r}")
