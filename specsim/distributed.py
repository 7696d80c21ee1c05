"""Rank agreement: one acceptance length for all ranks of a group, and a check that it is one.

Ranks of a tensor-parallel group that commit different lengths go on from different sequences, and
hang or diverge some steps later. `AgreedSampler` draws a length that all ranks share, as does
`TargetVerifyExecutor` with its `sync`; `check_ranks` runs a user's own step on every rank and says
where the ranks first differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import torch
import torch.distributed as dist

from specsim.arguments import integer
from specsim.verify.ranks import SOURCE, AgreedSampler, must_be_initialised

__all__ = ["AgreedSampler", "RankComparison", "RankReport", "check_ranks"]

StepResult: TypeAlias = "int | Sequence[int] | torch.Tensor | np.ndarray[Any, Any]"
Lengths: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class RankComparison:
    """What the ranks returned under one seeding of the generators.

    Attributes
    ----------
    steps
        How many steps were compared.
    ranks
        How many ranks took part.
    first_step
        The first step at which two ranks differ; None if none do.
    first_rank
        The lowest rank that differs from rank 0 there; None if none does.
    lengths
        What each rank returned at that step; empty if no ranks differ.
    differing_steps
        At how many steps two ranks differ.
    """

    steps: int
    ranks: int
    first_step: int | None
    first_rank: int | None
    lengths: tuple[Lengths, ...]
    differing_steps: int

    @property
    def agree(self) -> bool:
        """Whether all ranks returned the same at every step."""
        return self.first_step is None

    def __str__(self) -> str:
        if self.first_step is None:
            return f"{self.ranks} ranks agree at all {self.steps} steps"
        return (
            f"rank {self.first_rank} first differs from rank 0 at step {self.first_step}: "
            f"{_short(self.lengths[self.first_rank or 0])} instead of {_short(self.lengths[0])}; "
            f"ranks differ at {self.differing_steps} of {self.steps} steps"
        )


@dataclass(frozen=True)
class RankReport:
    """Whether all ranks commit the same at every step; the same object on every rank.

    Attributes
    ----------
    equal
        With the global generators of all ranks in one state: here they must agree.
    unequal
        With another state on every rank: ranks that agree here too need no equal seeding.
    """

    equal: RankComparison
    unequal: RankComparison

    @property
    def passed(self) -> bool:
        """Whether the ranks agree where they must."""
        return self.equal.agree

    def __str__(self) -> str:
        return f"equal generators: {self.equal}\nunequal generators: {self.unequal}"


def check_ranks(
    step_function: Callable[[int], StepResult],
    steps: SupportsIndex,
    group: dist.ProcessGroup | None = None,
    *,
    seed: int = 0,
) -> RankReport:
    """Run a step on every rank, many times, and say where the ranks first differ.

    Every rank of the group calls this, as under torchrun, with its own executor's step. The
    steps are run twice: first with Python's, NumPy's and torch's global generators seeded alike
    on all ranks, then with another seed on each. The generators are put back afterwards.
    Generators that the step owns are not touched: give them the seeds that they have in use.

    Parameters
    ----------
    step_function
        Called with the step's number, which goes on from the first run to the second, 0 …
        2 · steps − 1. Returns what the rank commits: a length, or one per request, as an
        integer, a sequence or a tensor of any device.
    steps
        How many steps each of the two runs has, at least 1.
    group
        Process group; the default one if None.
    seed
        What the generators' seeds are derived from; rank 0's counts.

    Returns
    -------
    RankReport
        Equal on all ranks.

    Raises
    ------
    TypeError, ValueError
        If `steps` is not an integer of at least 1.
    RuntimeError
        If torch.distributed is not initialised; and, on all ranks, if the step raised on one. A
        step that waits in a collective for a rank that raised is not freed by this.

    Examples
    --------
    In a file that ``torchrun --nproc-per-node 4`` starts::

        dist.init_process_group("gloo")
        report = check_ranks(lambda step: executor.step(batch).commit_lens, steps=2_000)
        if dist.get_rank() == 0:
            print(report)
        sys.exit(not report.passed)
    """
    must_be_initialised()
    count = integer(steps, "steps", 1)
    rank = dist.get_rank(group)
    shared = _gather(seed, group)[SOURCE]
    with _global_generators_kept():
        _seed_global_generators(shared, 0)
        equal = _compare(step_function, range(count), group)
        _seed_global_generators(shared, 1 + rank)
        unequal = _compare(step_function, range(count, 2 * count), group)
    return RankReport(equal, unequal)


def _compare(
    step_function: Callable[[int], StepResult], steps: range, group: dist.ProcessGroup | None
) -> RankComparison:
    """Run the steps on this rank, gather all ranks' results and compare them."""
    mine: list[Lengths] = []
    failure: str | None = None
    cause: Exception | None = None
    try:
        mine.extend(_as_lengths(step_function(step)) for step in steps)
    except Exception as error:
        # The other ranks wait in the gather below: a rank that left now would leave them there.
        failure, cause = f"{type(error).__name__}: {error}", error
    gathered: list[tuple[list[Lengths], str | None]] = _gather((mine, failure), group)
    for rank, (done, problem) in enumerate(gathered):
        if problem is not None:
            step = steps[len(done)]
            raise RuntimeError(f"step {step} raised on rank {rank}: {problem}") from cause
    differing = [
        step
        for step, results in zip(
            steps, zip(*(done for done, _ in gathered), strict=True), strict=True
        )
        if len(set(results)) > 1
    ]
    if not differing:
        return RankComparison(len(steps), len(gathered), None, None, (), 0)
    results = tuple(done[differing[0] - steps.start] for done, _ in gathered)
    first_rank = next(rank for rank, result in enumerate(results) if result != results[0])
    return RankComparison(
        len(steps), len(gathered), differing[0], first_rank, results, len(differing)
    )


def _as_lengths(result: StepResult) -> Lengths:
    """Return what a step returned as a tuple of ints."""
    if isinstance(result, torch.Tensor):
        result = result.detach().cpu().numpy()
    array = np.asarray(result)
    if array.dtype.kind not in "iu":
        raise TypeError(f"step_function must return integers, got {result!r}")
    return tuple(int(number) for number in array.ravel())


def _gather(value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """Return every rank's value, in the order of ranks."""
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, value, group=group)
    return gathered


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    """Put the global generators back as they were before the block."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _seed_global_generators(seed: int, branch: int) -> None:
    """Seed Python's, NumPy's and torch's global generators from a seed and a branch number."""
    words = np.random.SeedSequence((seed, branch)).generate_state(2)
    number = int(words[0]) | int(words[1]) << 31
    random.seed(number)
    np.random.seed(int(words[0]))
    torch.default_generator.manual_seed(number)
    torch.cuda.manual_seed(number)


def _short(lengths: Lengths, most: int = 8) -> str:
    """Return a step's lengths for a message."""
    if len(lengths) == 1:
        return str(lengths[0])
    shown = ", ".join(map(str, lengths[:most]))
    return f"({shown}, … {len(lengths)} in all)" if len(lengths) > most else f"({shown})"
