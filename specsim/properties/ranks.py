"""R properties: what the ranks of a process group draw, compared step by step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specsim.loading.failures import TargetFailed
from specsim.properties.generators import own_generators
from specsim.properties.outcome import Effort, Outcome, Verdict
from specsim.properties.rank_processes import (
    GroupRun,
    Limits,
    NoGroupError,
    RankRun,
    draw_on_ranks,
    obstacle_to_ranks,
)
from specsim.properties.registry import Property, register
from specsim.properties.session import Session
from specsim.targets import Configuration

_KINDS = ("executor", "dflash", "eagle")
_LIMITS = Limits()
_SHOWN = 8
# A program starts with generators in one state, and runs at least so many steps.
_LEAST_STEPS = 100


@dataclass(frozen=True)
class _Extent:
    """How far one effort goes: ranks, steps of each configuration, and how many of these."""

    ranks: int
    steps: int
    lengths: tuple[tuple[float, int], ...]


_FEW = ((4.7, 8), (1.5, 2))
_EXTENTS: dict[Effort, _Extent] = {
    "quick": _Extent(2, 2_000, _FEW[:1]),
    "standard": _Extent(2, 3_000, _FEW),
    "thorough": _Extent(4, 4_000, (*_FEW, (40.3, 64))),
}


@register(
    "R.equal-generators",
    "With the global generators of all ranks in one state, every rank draws the same length at "
    "every step.",
    source="SGLang pull request 33614: each tensor-parallel rank drew its own length, and their "
    "sequences grew apart",
    kinds=_KINDS,
)
def equal_generators(prop: Property, session: Session) -> Outcome:
    """Judge R.equal-generators."""
    return _judge(prop, session, alike=True)


@register(
    "R.unequal-generators",
    "With other states of the global generators on each rank, every rank still draws the same "
    "length at every step.",
    source="design: what rests on equal seeding ends with the first draw that one rank makes alone",
    required=False,
    kinds=_KINDS,
)
def unequal_generators(prop: Property, session: Session) -> Outcome:
    """Judge R.unequal-generators."""
    return _judge(prop, session, alike=False)


def _judge(prop: Property, session: Session, *, alike: bool) -> Outcome:
    started = time.perf_counter()
    extent = _EXTENTS[session.settings.effort]
    configurations = [
        Configuration(acc_len, method, max_len)
        for acc_len, max_len in extent.lengths
        for method in session.settings.methods
    ]
    obstacle = obstacle_to_ranks()
    run: GroupRun | None = None
    if obstacle is None:
        try:
            run = draw_on_ranks(
                session.target,
                configurations,
                extent.steps,
                extent.ranks,
                seed=session.settings.seed,
                alike=alike,
                limits=_LIMITS,
                progress=session.progress,
            )
        except NoGroupError as error:
            obstacle = str(error)
    if run is None:
        return prop.outcome(
            "skip",
            f"not judged: {obstacle}; check_ranks of specsim.distributed judges a step under "
            "torchrun",
            seconds=time.perf_counter() - started,
        )
    return _Finding(prop, session, run, configurations, extent.steps, alike, started).outcome()


@dataclass(frozen=True)
class _Difference:
    """The first configuration in which ranks differ, and its first step."""

    index: int
    step: int
    rank: int
    differing: int
    compared: int


@dataclass(frozen=True)
class _Finding:
    """What a group's run says about a property.

    Where slots draw apart, several lengths are one step's, and they are counted instead.
    """

    prop: Property
    session: Session
    run: GroupRun
    configurations: Sequence[Configuration]
    steps: int
    alike: bool
    started: float

    @property
    def _unit(self) -> str:
        return "draw" if self.session.settings.coupling == "slot" else "step"

    def outcome(self) -> Outcome:
        """Return the verdict: a difference first, then an early end, then what was not drawn."""
        difference = _first_difference(self.run.ranks)
        if difference is not None:
            return self._differ(difference)
        cause = self.run.cause
        if cause is not None:
            return self._ended(cause)
        if self.run.end == "hung":
            return self._hung()
        ranks, compared = len(self.run.ranks), self._compared()
        of = f"{ranks} ranks drew the same length at each of {compared:,} {self._unit}s"
        if self.run.end == "late":
            wanted = self.steps * len(self.configurations)
            return self._outcome(
                "inconclusive",
                f"{of}, and were to draw {wanted:,}: more than {_LIMITS.total:g} s passed",
            )
        count = len(self.configurations)
        states = "one state on all ranks" if self.alike else "another state on each rank"
        return self._outcome(
            "pass",
            f"{of} of {count} {'configuration' if count == 1 else 'configurations'}, with the "
            f"global generators in {states}",
        )

    def _differ(self, found: _Difference) -> Outcome:
        lengths = [run.lengths[found.index][found.step :][:_SHOWN] for run in self.run.ranks]
        call = self._call(found.index)
        lines = [
            f"{call}: at {self._unit} {found.step} rank {found.rank} drew "
            f"{lengths[found.rank][0]} and rank 0 drew {lengths[0][0]}; ranks differ at "
            f"{found.differing:,} of {found.compared:,} {self._unit}s",
            *(
                f"rank {rank} from there on: {', '.join(map(str, drawn))}"
                for rank, drawn in enumerate(lengths)
            ),
            _EXPECTED[self.alike],
        ]
        evidence = {
            "step": found.step,
            "rank": found.rank,
            "lengths": lengths,
            "differing_steps": found.differing,
        }
        return self._failed("\n".join(lines), found.index, found.step + 1, evidence)

    def _ended(self, cause: RankRun) -> Outcome:
        index = _index_at(cause, self.steps)
        call, frames = self._call(index), cause.frames_text.rstrip()
        drawn = len(cause.lengths[index])
        if all(
            (run.state, run.summary, run.lengths) == ("raised", cause.summary, cause.lengths)
            for run in self.run.ranks
        ):
            # Not a matter of ranks, but there is nothing to compare.
            text = f"not judged: {call} {cause.summary} at {self._unit} {drawn} on every rank"
            return self._outcome("inconclusive", text)
        if cause.state == "raised":
            text = f"{call}: rank {cause.rank} {cause.summary} at {self._unit} {drawn}"
        else:
            text = f"rank {cause.rank}: {cause.summary} while drawing {call}"
        text = "; ".join([text, *(self._doing(run) for run in self.run.ranks if run is not cause)])
        return self._failed(f"{text}\n{frames}" if frames else text, index, drawn + 1, {})

    def _hung(self) -> Outcome:
        late = next(run for run in self.run.ranks if run.state == "drawing")
        index = _index_at(late, self.steps)
        text = "; ".join(
            [
                f"no rank drew a length for {_LIMITS.stall:g} s",
                *(self._doing(run) for run in self.run.ranks),
                "a rank that waits in a collective waits for all others to call it",
            ]
        )
        return self._failed(text, index, len(late.lengths[index]) + 1, {})

    def _doing(self, run: RankRun) -> str:
        """Say how one rank fared."""
        if run.state == "finished":
            return f"rank {run.rank} drew all it had to"
        call = self._call(_index_at(run, self.steps))
        if run.state == "drawing":
            return f"rank {run.rank} was drawing {call}"
        return f"rank {run.rank} then ended too: {run.summary}"

    def _failed(self, text: str, index: int, steps: int, evidence: dict[str, object]) -> Outcome:
        return self._outcome(
            "fail",
            text,
            configuration=self._call(index),
            snippet=self._snippet(self.configurations[index], max(steps, _LEAST_STEPS)),
            evidence=evidence,
        )

    def _snippet(self, configuration: Configuration, steps: int) -> str | None:
        """Return a program for torchrun that compares the ranks' lengths."""
        try:
            with own_generators(self.session.settings.seed, "snippet"):
                program = self.session.target.program(configuration)
        except TargetFailed:
            return None
        count = len(self.run.ranks)
        return "\n".join(
            [
                f"# Start it with: torchrun --standalone --nproc-per-node {count} THIS_FILE",
                "import random",
                "",
                "import numpy",
                "import torch",
                "import torch.distributed",
                "",
                "from specsim.distributed import check_ranks",
                self.session.import_line,
                "",
                'torch.distributed.init_process_group("gloo")',
                "for seed_generator in (random.seed, numpy.random.seed, torch.manual_seed):",
                f"    seed_generator({'0' if self.alike else 'torch.distributed.get_rank()'})",
                "",
                *(line for line in program.setup if line != "import torch"),
                "",
                f"report = check_ranks(lambda step: {program.length}, steps={steps})",
                "if torch.distributed.get_rank() == 0:",
                "    print(report)",
                "torch.distributed.destroy_process_group()",
                "",
            ]
        )

    def _call(self, index: int) -> str:
        return self.session.target.call_repr(self.configurations[index])

    def _compared(self) -> int:
        return sum(
            min(len(run.lengths[index]) for run in self.run.ranks)
            for index in range(len(self.configurations))
        )

    def _outcome(
        self,
        verdict: Verdict,
        detail: str,
        evidence: Mapping[str, object] | None = None,
        **more: Any,
    ) -> Outcome:
        return self.prop.outcome(
            verdict,
            detail,
            evidence={
                "ranks": len(self.run.ranks),
                "steps": self._compared(),
                **(evidence or {}),
            },
            draws=sum(len(drawn) for run in self.run.ranks for drawn in run.lengths),
            seconds=time.perf_counter() - self.started,
            **more,
        )


_EXPECTED = {
    True: (
        "expected is one length for all ranks: the global generators of Python, NumPy and torch "
        "were in one state on all of them. Draw from a generator that is seeded alike on every "
        "rank, compute the length from a seed, the step and the slot, or send rank 0's length to "
        "the others after the override. What never runs on more than one rank may have this as an "
        "expected failure."
    ),
    False: (
        "the global generators of each rank were in another state: these ranks agree only as long "
        "as they are seeded alike and draw equally often. A length computed from a seed, the step "
        "and the slot, or rank 0's sent after the override, needs neither."
    ),
}


def _first_difference(runs: Sequence[RankRun]) -> _Difference | None:
    """Compare the lengths that all ranks drew."""
    for index in range(len(runs[0].lengths)):
        steps = list(zip(*(run.lengths[index] for run in runs), strict=False))
        differing = [step for step, lengths in enumerate(steps) if len(set(lengths)) > 1]
        if differing:
            first = steps[differing[0]]
            rank = next(rank for rank, length in enumerate(first) if length != first[0])
            return _Difference(index, differing[0], rank, len(differing), len(steps))
    return None


def _index_at(run: RankRun, steps: int) -> int:
    """Return the index of the configuration that a rank was drawing."""
    last = len(run.lengths) - 1
    return next((i for i, drawn in enumerate(run.lengths) if len(drawn) < steps), last)
