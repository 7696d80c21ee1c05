"""One run: the target, the settings, and the draws that the properties share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from specsim.adapters.accept import AcceptTarget
from specsim.loading.failures import shown
from specsim.properties.configurations import LEVELS, METHODS, Course, plan
from specsim.properties.courses import CourseResult, run_course
from specsim.properties.exploration import Exploration, explore
from specsim.properties.outcome import EFFORTS, Effort
from specsim.properties.stream import StreamResult, StreamSettings
from specsim.targets import Configuration, LengthTarget, Violation

DEFAULT_TOLERANCE = 0.005
COUPLINGS = ("batch", "slot")

Progress: TypeAlias = Callable[[int], None]
"""Told of the number of draws just made."""

CourseRunner: TypeAlias = Callable[
    [Sequence[Course], Callable[[Course, Progress], CourseResult], Progress],
    Iterator["CourseResult | Lost"],
]
"""Runs courses and yields their results as they come; another one may use several processes."""


@dataclass(frozen=True)
class Lost:
    """A course whose process ended without a result.

    Attributes
    ----------
    course
        What was being drawn.
    reason
        How the process ended, in one line.
    """

    course: Course
    reason: str


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    Attributes
    ----------
    effort
        ``"quick"``, ``"standard"`` or ``"thorough"``.
    alpha
        Largest probability that a correct target is rejected by the whole run, in (0, 1).
    seed
        Decides configurations and generator states, not what a target draws from elsewhere.
    coupling
        ``"batch"``: an executor draws once a step for all slots; ``"slot"``: once for each slot.
    methods
        Methods that a sampler knows.
    tolerance
        Total variation within which another law inside the support is reported, not failed.
    step_method, step_tensor
        Of an executor with the step protocol: what draws a step's lengths, and the attribute
        that it fills; by default looked for under the usual names.

    Raises
    ------
    ValueError
        If one of them is outside what is allowed; the tolerance has to be below the total
        variation that a pass at this effort rules out.
    """

    effort: Effort = "standard"
    alpha: float = 1e-6
    seed: int = 0
    coupling: str = "batch"
    methods: tuple[str, ...] = METHODS
    tolerance: float = DEFAULT_TOLERANCE
    step_method: str | None = None
    step_tensor: str | None = None

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise ValueError(f"effort must be one of {', '.join(EFFORTS)}, got {self.effort!r}")
        if not (_is_number(self.alpha) and 0.0 < self.alpha < 1.0):
            raise ValueError(f"alpha must lie in (0, 1), got {self.alpha!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed must be an integer >= 0, got {self.seed!r}")
        if self.coupling not in COUPLINGS:
            raise ValueError(
                f"coupling must be one of {', '.join(COUPLINGS)}, got {self.coupling!r}"
            )
        unknown = [str(m) for m in self.methods if m not in METHODS]
        if unknown or not self.methods:
            raise ValueError(
                f"methods must be some of {', '.join(METHODS)}, got {', '.join(unknown) or 'none'}"
            )
        # Above delta, a law could be both tolerated and what a pass rules out.
        delta = LEVELS[self.effort].delta
        if not (_is_number(self.tolerance) and 0.0 <= self.tolerance < delta):
            raise ValueError(
                f"tolerance must lie in [0, {delta:g}), below what the effort {self.effort} rules "
                f"out, got {self.tolerance!r}"
            )


def as_names(argument: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple.

    Raises
    ------
    TypeError
        If they are one string, or no iterable of strings; names `argument`.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{argument} must be a list or tuple of strings, got {shown(names)}")
    listed = tuple(names)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"{argument} must hold strings only, got {shown(name)}")
    return listed


def as_reasons(expected_failures: Mapping[str, str] | None) -> dict[str, str]:
    """Return expected failures and their reasons as a dict.

    Raises
    ------
    TypeError
        If they are no mapping of strings to strings.
    """
    if expected_failures is None:
        return {}
    if not isinstance(expected_failures, Mapping):
        raise TypeError(
            f"expected_failures must map property ids to reasons, got {shown(expected_failures)}"
        )
    for property_id, reason in expected_failures.items():
        if not (isinstance(property_id, str) and isinstance(reason, str)):
            raise TypeError(
                "expected_failures must map property ids to reasons, both strings, "
                f"got {shown(property_id)}: {shown(reason)}"
            )
    return dict(expected_failures)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def run_in_turn(
    courses: Sequence[Course],
    run: Callable[[Course, Progress], CourseResult],
    progress: Progress,
) -> Iterator[CourseResult | Lost]:
    """Run courses one after the other in this process."""
    for course in courses:
        yield run(course, progress)


def commit_configurations(methods: Sequence[str]) -> tuple[Configuration, ...]:
    """Return the configurations in which the law of an executor's commits is judged."""
    return tuple(Configuration(4.7, method, 8) for method in methods)


@dataclass
class Session:
    """The draws of one run, made when a property first asks for them and shared by all.

    Attributes
    ----------
    target
        The code under test.
    import_line
        What a snippet starts with, so that the target's name is known.
    settings
        What the run was asked for.
    wants_streams
        Whether a property asks for streams; then those of single lengths look at them too.
    runner
        How courses are run.
    progress
        Called with the number of draws just made.
    memo
        What properties of one subject share, worked out by the first of them.
    """

    target: LengthTarget
    import_line: str
    settings: Settings
    wants_streams: bool = True
    runner: CourseRunner = run_in_turn
    progress: Progress = field(default=lambda draws: None)
    memo: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def courses(self) -> tuple[Course, ...]:
        """The courses of this run."""
        settings = self.settings
        return plan(self.target.kind, settings.effort, settings.methods, seed=settings.seed)

    @cached_property
    def stream_settings(self) -> StreamSettings:
        """Error rates and budgets of a stream: alpha is shared out by a list fixed beforehand."""
        level = LEVELS[self.settings.effort]
        streams = sum(course.streams for course in self.courses)
        if self.target.kind == "executor":
            streams += len(commit_configurations(self.settings.methods))
        return StreamSettings(
            seed=self.settings.seed,
            alpha_run=self.settings.alpha,
            alpha=self.settings.alpha / streams,
            delta=level.delta,
            tolerance=self.settings.tolerance,
            budget=level.budget,
        )

    def _run(self, course: Course, progress: Progress) -> CourseResult:
        return run_course(self.target, course, self.stream_settings, progress)

    @cached_property
    def timed_courses(self) -> tuple[tuple[CourseResult | Lost, ...], float]:
        """All courses, and the seconds that they took together."""
        started = time.perf_counter()
        results = self.runner(self.courses, self._run, self.progress)
        done = {result.course.name: result for result in results}
        ordered = tuple(done[course.name] for course in self.courses)
        return ordered, time.perf_counter() - started

    @cached_property
    def timed_exploration(self) -> tuple[Exploration, float]:
        """What Hypothesis found among configurations, and the seconds that it took."""
        started = time.perf_counter()
        examples = LEVELS[self.settings.effort].examples
        found = explore(
            self.target, self.settings.methods, self.settings.seed, examples, self.progress
        )
        return found, time.perf_counter() - started

    @property
    def streams(self) -> list[tuple[Course, StreamResult]]:
        """Every stream that was drawn, with its course."""
        return [
            (result.course, stream)
            for result in self.timed_courses[0]
            if isinstance(result, CourseResult)
            for stream in result.streams
        ]

    @property
    def lost(self) -> list[Lost]:
        """Courses whose process ended without a result."""
        if not self.wants_streams:
            return []
        return [result for result in self.timed_courses[0] if isinstance(result, Lost)]

    def violations(self, name: str) -> list[Violation]:
        """Return what refutes a property, the simplest first: explored, then from streams."""
        explored = self.timed_exploration[0].violations.get(name)
        found: Iterable[Violation] = [] if explored is None else [explored]
        streamed = [
            violation
            for result in self._finished()
            for violation in result.violations
            if violation.name == name
        ]
        return [*found, *sorted(streamed, key=lambda violation: violation.size)]

    @property
    def observed(self) -> tuple[int, int, float]:
        """Configurations tried, lengths drawn, and seconds taken."""
        explored, seconds = self.timed_exploration
        finished = self._finished()
        configurations = sum(len(result.course.configurations) for result in finished)
        draws = sum(stream.draws for result in finished for stream in result.streams)
        if finished:
            seconds += self.timed_courses[1]
        return explored.configurations + configurations, explored.draws + draws, seconds

    def _finished(self) -> list[CourseResult]:
        if not self.wants_streams:
            return []
        return [result for result in self.timed_courses[0] if isinstance(result, CourseResult)]


@dataclass
class AcceptSession:
    """The judging of one accept rule, which draws tokens in cases of its own.

    Attributes
    ----------
    target
        The rule.
    import_line, settings, progress, memo
        As for `Session`.
    """

    target: AcceptTarget
    import_line: str
    settings: Settings
    progress: Progress = field(default=lambda draws: None)
    memo: dict[str, Any] = field(default_factory=dict)
