"""Draws the lengths of one course from the target, and feeds the streams that judge them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specsim.properties.certificates import (
    failure,
    no_length,
    reseeding,
    violations,
)
from specsim.properties.configurations import Course, law_of
from specsim.properties.generators import GlobalStates, own_generators, reseeded
from specsim.properties.lengths import as_length
from specsim.properties.pairs import PairStream
from specsim.properties.stream import Stream, StreamResult, StreamSettings
from specsim.targets import (
    Configuration,
    LengthTarget,
    TargetFailed,
    TargetReturned,
    Violation,
)

# Each block is half as long again as the one before: a frozen length shows after dozens of
# draws, and a look costs milliseconds that long streams should not pay often.
_FIRST_BLOCK, _GROWTH, _LARGEST_BLOCK = 32, 1.5, 50_000
# What is beyond any length is cut to what arrays of lengths can hold.
_LARGEST_INTEGER = 2**62
# A vector kind is asked for small vectors too: state may be kept between calls.
_VECTOR_KINDS = ("vector-sampler", "rates-sampler")
_VECTOR_SIZES = (1, 2, 3, 7, 16, 64, 256)


@dataclass(frozen=True)
class CourseResult:
    """What one course showed: its streams, and every certificate that was broken."""

    course: Course
    streams: tuple[StreamResult, ...]
    violations: tuple[Violation, ...]


def run_course(
    target: LengthTarget,
    course: Course,
    settings: StreamSettings,
    progress: Callable[[int], None] = lambda draws: None,
) -> CourseResult:
    """Draw until every stream of the course is settled or its budget spent.

    Parameters
    ----------
    target
        The code under test.
    course
        Which configurations, and in which order.
    settings
        Error rates and budgets.
    progress
        Called with the number of new draws after each block.
    """
    started = time.perf_counter()
    configs = course.configurations
    streams = _streams(target.kind, course, settings)
    order = np.random.default_rng([settings.seed, len(course.name)])
    broken: str | None = None
    found: dict[str, Violation] = {}
    drawn, block = 0, float(_FIRST_BLOCK)
    target.renew()
    with own_generators(settings.seed, course.name):
        while broken is None and drawn < settings.budget:
            if all(stream.settled for stream in streams):
                break
            size = min(int(block), settings.budget - drawn)
            before = GlobalStates.capture()
            try:
                values_of_each = _draw(target, course, size, order)
                _look_at_generators(before, configs, found)
                lengths = [
                    _lengths(config, values, found, target.gave)
                    for config, values in zip(configs, values_of_each, strict=True)
                ]
                for violation in target.noticed():
                    found.setdefault(violation.name, violation)
            except _BrokenError as error:
                found.setdefault("returns", failure(error.configuration, error.failed))
                broken = error.failed.summary
                break
            for stream, values in zip(streams, lengths, strict=course.mode != "joint"):
                if isinstance(stream, PairStream):
                    stream.update_pairs(*lengths)
                else:
                    stream.update(values)
            drawn += size
            block = min(block * _GROWTH, _LARGEST_BLOCK)
            progress(size * len(streams))
    seconds = time.perf_counter() - started
    results = tuple(stream.result(seconds / len(streams), broken) for stream in streams)
    return CourseResult(course, results, tuple(found.values()))


@np.errstate(all="ignore")
def _streams(kind: str, course: Course, settings: StreamSettings) -> list[Stream]:
    laws = [law_of(config) for config in course.configurations]
    if course.mode != "joint":
        return [
            Stream(config.label, law, tuple(str(k + 1) for k in range(law.max_len)), settings)
            for config, law in zip(course.configurations, laws, strict=True)
        ]
    label = " with ".join(config.label for config in course.configurations)
    return [PairStream(label, laws[0], laws[1], settings)]


def _draw(
    target: LengthTarget, course: Course, size: int, order: np.random.Generator
) -> list[list[object]]:
    """Draw `size` values from each configuration of the course."""
    configs = course.configurations
    values: list[list[object]] = [[] for _ in configs]

    def call(index: int, n: int) -> None:
        try:
            values[index] += target.draw_many(configs[index], n)
        except TargetFailed as failed:
            raise _BrokenError(configs[index], failed) from None

    if course.mode == "alone":
        if target.kind not in _VECTOR_KINDS:
            call(0, size)
        while len(values[0]) < size:
            wanted = int(order.choice(_VECTOR_SIZES)) if size < 1_000 else size
            call(0, min(wanted, size - len(values[0])))
        return values
    for _ in range(size):
        turn = range(len(configs)) if course.mode == "joint" else order.permutation(len(configs))
        for index in turn:
            call(int(index), 1)
    return values


def _look_at_generators(
    before: GlobalStates, configs: tuple[Configuration, ...], found: dict[str, Violation]
) -> None:
    """Note if the calls of one block reseeded a global generator."""
    if "generators" in found:
        return
    names = reseeded(before, GlobalStates.capture())
    if names:
        found["generators"] = reseeding(configs[0], names)


def _lengths(
    config: Configuration, values: list[object], found: dict[str, Violation], gave: str
) -> list[int]:
    """Note what is wrong with the values of one block, and return the lengths among them."""
    if set(map(type, values)) == {int} and set(values) <= set(law_of(config).support):
        return values  # type: ignore[return-value]
    for violation in violations(config, values, gave):
        found.setdefault(violation.name, violation)
    lengths = [as_length(value) for value in values]
    if None in lengths:
        culprit = values[lengths.index(None)]
        raise _BrokenError(config, TargetReturned(no_length(culprit)))
    limit = _LARGEST_INTEGER
    return [min(max(length, -limit), limit) for length in lengths if length is not None]


class _BrokenError(Exception):
    """The target failed at one configuration of a course."""

    def __init__(self, configuration: Configuration, failed: TargetFailed) -> None:
        super().__init__(failed.summary)
        self.configuration, self.failed = configuration, failed
