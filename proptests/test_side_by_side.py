"""The benchmarks' timing helper, on a clock that the test controls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.side_by_side import ratio


class Machine:
    """A clock that only work moves, and a speed that drops once the clock passes a time."""

    def __init__(self, slow_from: float = float("inf")) -> None:
        self.now = 0.0
        self._slow_from = slow_from

    def clock(self) -> float:
        return self.now

    def work(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds if self.now < self._slow_from else 5.0 * seconds

        return run


def test_reports_the_ratio_and_both_times() -> None:
    machine = Machine()
    measured = ratio(machine.work(0.003), machine.work(0.002), rounds=4, clock=machine.clock)
    assert measured.median == pytest.approx(1.5)
    assert measured.low == pytest.approx(1.5)
    assert measured.high == pytest.approx(1.5)
    assert measured.seconds == pytest.approx(0.003)
    assert measured.baseline_seconds == pytest.approx(0.002)


def test_a_machine_that_slows_down_half_way_changes_nothing() -> None:
    steady = Machine()
    ratio(steady.work(0.003), steady.work(0.002), rounds=20, clock=steady.clock)
    # The calibration takes less than half of the time, so this falls among the rounds.
    machine = Machine(slow_from=0.75 * steady.now)
    measured = ratio(machine.work(0.003), machine.work(0.002), rounds=20, clock=machine.clock)
    assert machine.now > 1.2 * steady.now
    assert measured.median == pytest.approx(1.5)
    assert measured.high == pytest.approx(1.5)


def test_refuses_a_single_round() -> None:
    machine = Machine()
    with pytest.raises(ValueError, match="rounds must be at least 2, got 1"):
        ratio(machine.work(1.0), machine.work(1.0), rounds=1, clock=machine.clock)
