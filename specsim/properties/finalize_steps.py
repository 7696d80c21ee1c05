"""Steps of executors that commit: the known cases, and Hypothesis' own.

Everything is decided by single results. A draw decides only which of the allowed results comes:
there is no false alarm, and shrinking looks for a simpler proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from specsim.adapters.executor import ExecutorTarget
from specsim.adapters.finalizing import Batch, Finalizer, Offer
from specsim.loading.failures import TargetFailed
from specsim.properties.finalize_cases import cases, known_cases
from specsim.properties.finalize_model import Case, Finding, judge
from specsim.properties.generators import GlobalStates, moved, own_generators
from specsim.properties.hypothesis_runs import search_and_shrink


@dataclass(frozen=True)
class Refutation:
    """Steps of an executor whose last one refutes a property.

    Attributes
    ----------
    name
        The property's id without its letter.
    case
        The executor and its steps; none if it could not be made.
    finding
        What the last step gave, and what was expected.
    fields
        What the last step's result holds; empty if there was none.
    by_key
        Whether that result is a mapping.
    frames
        The target's own part of the traceback, if it raised.
    """

    name: str
    case: Case
    finding: Finding
    fields: tuple[str, ...] = ()
    by_key: bool = False
    frames: str = ""

    def parts(self) -> Iterator[Case]:
        """Yield simpler cases that may refute the same: the last step, and one request of it."""
        batches = self.case.batches
        if len(batches) > 1:
            yield replace(self.case, batches=batches[-1:])
        slot = self.finding.slot
        if slot is not None and batches[-1].bs > 1:
            alone = replace(batches[-1], bs=1, pattern=(batches[-1].requests[slot],))
            yield replace(self.case, batches=(alone,))


def size_of(case: Case) -> tuple[int, ...]:
    """Return what orders cases from the simplest on."""
    batches = case.batches
    tokens = [
        sum((*request.draft_tokens, *request.target_tokens, request.prefix_len))
        for batch in batches
        for request in batch.pattern
    ]
    return (
        len(batches),
        # One request shows more than none.
        sum(batch.bs or 2 for batch in batches),
        sum(len(batch.pattern) for batch in batches),
        case.configuration.max_len,
        sum(len(batch.limits) for batch in batches),
        len(repr(case.configuration.acc_len)),
        sum(tokens),
    )


@dataclass
class Steps:
    """What all steps showed.

    Attributes
    ----------
    calls
        How many steps were made.
    judged
        How many of them, with a request in the batch, said something about each property.
    refutations
        The simplest refutation of each property.
    drew
        Generators that an executor with simulation off drew from.
    """

    calls: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    refutations: dict[str, Refutation] = field(default_factory=dict)
    drew: set[str] = field(default_factory=set)

    def is_simplest(self, name: str, case: Case) -> bool:
        """Say whether a case would be the simplest to refute a property."""
        best = self.refutations.get(name)
        return best is None or size_of(case) < size_of(best.case)


def run_steps(
    target: ExecutorTarget, offer: Offer, methods: Sequence[str], seed: int, examples: int
) -> Steps:
    """Make executors commit many batches.

    Parameters
    ----------
    target
        The executor; it can be judged by what it commits.
    offer
        What it can be asked for.
    methods
        Methods that it knows.
    seed
        Decides the batches and the generators' states.
    examples
        Executors that Hypothesis chooses.
    """
    runner = _Runner(target, offer, seed)
    for case in known_cases(methods, offer):
        runner.run(case)
    search_and_shrink(
        cases(methods, offer),
        runner.run,
        lambda: list(runner.seen.refutations),
        seed=seed,
        examples=examples,
    )
    return runner.seen


class _Runner:
    """Runs cases, and keeps what they show."""

    def __init__(self, target: ExecutorTarget, offer: Offer, seed: int) -> None:
        self.seen = Steps()
        self._target, self._offer = target, offer
        self._seed = seed
        self._dtypes: dict[tuple[object, ...], dict[str, str]] = {}

    def run(self, case: Case) -> set[str]:
        """Return the names of the properties that a case refutes."""
        found = self._run(case)
        for refutation in found:
            for part in refutation.parts():
                if self.seen.is_simplest(refutation.name, part):
                    self._run(part)
        return {refutation.name for refutation in found}

    def _run(self, case: Case) -> list[Refutation]:
        with own_generators(self._seed, case):
            found = self._refutations(case)
        for refutation in found:
            if self.seen.is_simplest(refutation.name, refutation.case):
                self.seen.refutations[refutation.name] = refutation
        return found

    def _refutations(self, case: Case) -> list[Refutation]:
        """Return the first refutation of each property."""
        found: dict[str, Refutation] = {}
        made: list[Batch] = []
        try:
            finalizer = Finalizer(
                self._target, self._offer, case.configuration, case.fixed_token_id
            )
            for batch in case.batches:
                dtypes = self._dtypes_when_on(case, batch) if case.is_off else None
                made.append(batch)
                before = GlobalStates.capture() if case.is_off else None
                commit = finalizer.commit(batch)
                self.seen.calls += 1
                if before is not None:
                    self.seen.drew.update(moved(before, GlobalStates.capture()))
                verdicts = judge(case, batch, commit, per_slot=self._target.per_slot, dtypes=dtypes)
                steps = replace(case, batches=tuple(made))
                fields = tuple(commit.columns)
                for name, finding in verdicts.items():
                    self.seen.judged[name] += batch.bs > 0
                    if finding is not None:
                        refutation = Refutation(name, steps, finding, fields, commit.by_key)
                        found.setdefault(name, refutation)
        except TargetFailed as failed:
            name = _blamed(case, limited=bool(made) and bool(made[-1].limits))
            steps = replace(case, batches=tuple(made))
            finding = Finding(failed.summary)
            found.setdefault(name, Refutation(name, steps, finding, frames=failed.frames_text))
        return list(found.values())

    def _dtypes_when_on(self, case: Case, batch: Batch) -> dict[str, str]:
        """Return the dtypes of what a step commits with simulation on; none if it fails."""
        key = (batch.gamma, batch.token_dtype, batch.prefix_dtype, batch.limits)
        if key not in self._dtypes:
            on = replace(case.configuration, acc_len=1.0)
            self._dtypes[key] = {}
            with suppress(TargetFailed):
                columns = Finalizer(self._target, self._offer, on).commit(batch).columns
                self._dtypes[key] = {name: column.dtype for name, column in columns.items()}
        return self._dtypes[key]


def _blamed(case: Case, *, limited: bool) -> str:
    """Return the property that an executor fails by raising."""
    if case.is_off:
        return "off"
    if case.fixed_token_id is not None:
        return "fixed"
    return "caps" if limited else "commit-lens"
