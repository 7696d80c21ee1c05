"""Executors of a tensor-parallel group: ranks that draw apart, and ranks that agree.

Each is an ordinary executor, which looks for torch.distributed's default group at each draw. In a
single process without one it draws like any other.
"""

from __future__ import annotations

import secrets

import torch
import torch.distributed as dist
from torch import Tensor

from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.executor_base import BufferExecutor
from specsim.mutants.verify_registry import RANKS, Options
from specsim.sampler import AcceptanceSampler, sample_simulated_acc_len

_SEED = 20260804


def in_group() -> bool:
    """Say whether this process is a rank of an initialised group."""
    return dist.is_available() and dist.is_initialized()


def of_first_rank(number: int) -> int:
    """Return rank 0's number; one's own outside a group."""
    if not in_group():
        return number
    sent = torch.tensor([number], dtype=torch.int64, device="cpu")
    dist.broadcast(sent, src=0)
    return int(sent.item())


RANKS.correct(
    "global-generator",
    statement="Each rank draws from torch's global generator, which engines seed alike.",
    fails=("R.unequal-generators",),
)(BufferExecutor)


@RANKS.correct(
    "counter",
    statement="Each rank computes the draw from the step and a seed that rank 0 gives once.",
)
class Counter(BufferExecutor):
    """Sends nothing but the seed."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        law = AcceptanceDistribution.from_method(
            simulate_acc_len, simulate_acc_method, self.max_len
        )
        self.sampler = AcceptanceSampler(law, seed=of_first_rank(secrets.randbits(63)))
        self.step = 0

    def draw(self) -> int:
        """Return the step's length."""
        length = self.sampler.at(self.step, 0)
        self.step += 1
        return length


@RANKS.correct(
    "broadcast-after-override",
    statement="Each rank draws its own length, and all take rank 0's.",
)
class BroadcastAfterOverride(BufferExecutor):
    """Sends a length a step."""

    def draw(self) -> int:
        """Return rank 0's length."""
        return of_first_rank(super().draw())


class _OwnGenerator(BufferExecutor):
    """Draws from a generator of its own."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.generator = torch.Generator(device="cpu")
        self.seed()

    def seed(self) -> None:
        """Seed the generator."""
        raise NotImplementedError

    def draw(self) -> int:
        """Return a length of this rank's."""
        return sample_simulated_acc_len(
            self.simulate_acc_len,
            self.simulate_acc_method,
            self.max_len,
            generator=self.generator,
        )


@RANKS.mutant(
    "seeded-by-rank",
    caught_by="R.equal-generators",
    statement="Each rank draws from a generator whose seed its rank is added to.",
    source="SGLang PR 33614: each tensor-parallel rank drew its own",
)
class SeededByRank(_OwnGenerator):
    """Differs from other ranks by its seed."""

    def seed(self) -> None:
        """Seed with a constant and the rank."""
        self.generator.manual_seed(_SEED + (dist.get_rank() if in_group() else 0))


@RANKS.mutant(
    "seeded-by-the-system",
    caught_by="R.equal-generators",
    statement="Each rank draws from a generator that the operating system seeds.",
    source="SGLang PR 33614: each tensor-parallel rank drew its own",
)
class SeededByTheSystem(_OwnGenerator):
    """Differs from other ranks by its seed."""

    def seed(self) -> None:
        """Seed with entropy."""
        self.generator.seed()


@RANKS.mutant(
    "broadcast-before-override",
    caught_by="R.unequal-generators",
    statement="The real length is broadcast, and then replaced by a draw of each rank's own.",
    source="SGLang PR 33614: simulated length applied after the ranks' broadcast",
)
class BroadcastBeforeOverride(BufferExecutor):
    """Sends a length that is not used."""

    def draw(self) -> int:
        """Agree on the number that the real accept found, and override it."""
        of_first_rank(self.real_correct_len())
        return super().draw()

    def real_correct_len(self) -> int:
        """Return what a draft that is never right would give."""
        return 0


@RANKS.mutant(
    "broadcast-every-other-step",
    caught_by="R.unequal-generators",
    statement="Ranks take rank 0's length at every second step, and their own in between.",
    source="stands for a broadcast on one of two alternating paths, eager and captured",
)
class BroadcastEveryOtherStep(BufferExecutor):
    """Agrees every second time."""

    step = 0

    def draw(self) -> int:
        """Return rank 0's length, or this rank's."""
        self.step += 1
        return of_first_rank(super().draw()) if self.step % 2 else super().draw()


@RANKS.mutant(
    "last-slot-of-its-own",
    caught_by="R.equal-generators",
    statement="The last slot has a draw of this rank's own generator; the others agree.",
    source="stands for a request whose length is overridden outside the agreed path",
    # Told so, a check looks at every slot: under batch coupling the first one stands for all.
    options=Options(coupling="slot"),
)
class LastSlotOfItsOwn(SeededByRank):
    """Agrees on all slots but one."""

    def refresh(self, bs: int) -> None:
        """Write rank 0's length, then one slot's own."""
        drafts: Tensor = self.view(bs)
        drafts.fill_(of_first_rank(self.draw()) - 1)
        drafts[-1:].fill_(self.draw() - 1)
