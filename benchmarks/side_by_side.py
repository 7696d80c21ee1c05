"""Times two functions in alternating rounds, so that a busy machine slows both alike."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

# A round of each function lasts about this long: far above the clock's resolution, and short
# enough that a change in the machine's speed falls between rounds rather than within one.
_ROUND_SECONDS = 0.02


@dataclass(frozen=True)
class Ratio:
    """How long a function takes as a multiple of a baseline.

    Attributes
    ----------
    median, low, high : float
        Median and quartiles of the rounds' ratios; below 1 the function is the faster one.
    seconds, baseline_seconds : float
        Median time of one call of the function and of the baseline.
    """

    median: float
    low: float
    high: float
    seconds: float
    baseline_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.median:.4g} [{self.low:.4g}, {self.high:.4g}] times the baseline "
            f"({self.seconds:.3g} s against {self.baseline_seconds:.3g} s a call)"
        )


def ratio(
    function: Callable[[], object],
    baseline: Callable[[], object],
    *,
    rounds: int = 30,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """Time a function against a baseline.

    Each round calls both in turn, as often as fills about 20 ms, with the order swapped from
    round to round and the garbage collector off.

    Parameters
    ----------
    function, baseline
        Take nothing; what they return is dropped.
    rounds
        At least 2.
    clock
        Returns the time in seconds.

    Raises
    ------
    ValueError
        If `rounds` is below 2.
    """
    if rounds < 2:
        raise ValueError(f"rounds must be at least 2, got {rounds}")
    timers = timeit.Timer(function, timer=clock), timeit.Timer(baseline, timer=clock)
    calls = [_calls_per_round(timer) for timer in timers]
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which].append(timers[which].timeit(calls[which]) / calls[which])
    ratios = [mine / other for mine, other in zip(*times, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(
        median=statistics.median(ratios),
        low=low,
        high=high,
        seconds=statistics.median(times[0]),
        baseline_seconds=statistics.median(times[1]),
    )


def _calls_per_round(timer: timeit.Timer) -> int:
    timer.timeit(1)  # what a first call builds is not part of what a call costs
    calls, seconds = timer.autorange()
    return max(1, round(calls * _ROUND_SECONDS / seconds))


def record(benchmark: BenchmarkFixture, name: str, measured: Ratio) -> None:
    """Keep a ratio with a benchmark's record, and print it."""
    benchmark.extra_info["ratio"] = measured.median
    benchmark.extra_info["ratio_quartiles"] = (measured.low, measured.high)
    print(f"\n{name}: {measured}")
