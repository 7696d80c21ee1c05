"""The ring of copies from a device, with events that pass when the test says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from proptests.trace_runs import recorded
from specsim.trace.reader import TraceRun, read_steps
from specsim.trace.recorder import Recorder
from specsim.trace.rows import Row
from specsim.trace.staging import DeviceCopies, Event


class Device:
    """A device whose work is done when it is told so."""

    def __init__(self) -> None:
        self.queued = self.done = self.waits = 0

    def event(self) -> Event:
        return DeviceEvent(self)


class DeviceEvent(Event):
    def __init__(self, device: Device) -> None:
        self._device, self._mark = device, 0

    def record(self) -> None:
        self._device.queued += 1
        self._mark = self._device.queued

    def query(self) -> bool:
        return self._mark <= self._device.done

    def synchronize(self) -> None:
        self._device.waits += 1
        self._device.done = max(self._device.done, self._mark)


def row(step: int) -> Row:
    return Row((step, False, -1, 0), [], [])


def lengths(value: int, size: int = 2) -> list[tuple[str, torch.Tensor]]:
    return [("correct_len", torch.full((size,), value))]


def steps(done: list[Row]) -> list[int]:
    return [each.head[0] for each in done]


def test_steps_come_out_in_order_once_their_copies_are_made() -> None:
    device = Device()
    copies = DeviceCopies(4, device.event, pinned=False)
    for step in range(3):
        assert copies.put(row(step), lengths(step))
    assert list(copies.done()) == []
    device.done = 2
    done = list(copies.done())
    assert steps(done) == [0, 1]
    assert [
        torch.frombuffer(bytearray(d.contents[0]), dtype=torch.int64).tolist() for d in done
    ] == [
        [0, 0],
        [1, 1],
    ]
    assert device.waits == 0
    assert steps(list(copies.done(wait=True))) == [2]
    assert device.waits == 1


def test_a_full_ring_refuses_and_never_waits() -> None:
    device = Device()
    copies = DeviceCopies(4, device.event, pinned=False)
    taken = [copies.put(row(step), lengths(step)) for step in range(6)]
    assert taken == [True] * 4 + [False] * 2
    assert device.waits == 0
    device.done = 1
    assert steps(list(copies.done())) == [0]
    assert copies.put(row(6), lengths(6))


def test_a_step_without_device_tensors_keeps_its_place() -> None:
    device = Device()
    copies = DeviceCopies(4, device.event, pinned=False)
    copies.put(row(0), lengths(0))
    copies.put(row(1), [])
    assert list(copies.done()) == []
    device.done = 1
    assert steps(list(copies.done())) == [0, 1]


def test_host_memory_is_made_once_and_grows_only_for_more() -> None:
    device = Device()
    copies = DeviceCopies(3, device.event, pinned=False)
    seen = set()
    for step in range(60):
        assert copies.put(row(step), lengths(step, 1 + 10 * (step % 40)))
        if step % 3 == 2:
            device.done = device.queued
            list(copies.done())
        seen |= {held.data_ptr() for held in copies._host.values()}
    assert len(seen) == 1
    assert copies._host["correct_len", torch.int64].shape == (3, 512)
    copies.put(row(60), lengths(1, 513))
    assert copies._host["correct_len", torch.int64].shape == (3, 1_024)


def test_copies_under_way_outlive_a_growth_of_their_memory() -> None:
    device = Device()
    copies = DeviceCopies(3, device.event, pinned=False)
    copies.put(row(0), lengths(5, 2))
    copies.put(row(1), lengths(6, 600))
    device.done = 2
    contents = [each.contents[0] for each in copies.done()]
    values = [torch.frombuffer(bytearray(c), dtype=torch.int64).tolist() for c in contents]
    assert values == [[5] * 2, [6] * 600]


@pytest.fixture
def recorder(tmp_path: Path) -> tuple[Recorder, Device]:
    """Return a recorder that takes CPU tensors through the ring, and the device that it has."""
    device = Device()
    made = recorded(tmp_path)
    made._copies = DeviceCopies(4, device.event, pinned=False)
    return made, device


def through_the_ring(recorder: Recorder, step: int) -> None:
    """Record a step as one with device tensors is."""
    assert recorder._copies is not None
    recorder.steps += 1
    recorder._keep_in_turn(recorder._copies, row(step), lengths(step))


def test_dropped_steps_are_counted_and_leave_a_gap(
    tmp_path: Path, recorder: tuple[Recorder, Device]
) -> None:
    made, device = recorder
    made.step(correct_len=1)  # opens the file, and waits for nothing
    for step in range(1, 8):
        through_the_ring(made, step)
    assert made.dropped == 3
    device.done = device.queued
    through_the_ring(made, 8)
    made.close()
    assert [step.step for step in read_steps(tmp_path)] == [0, 1, 2, 3, 4, 8]
    (file,) = TraceRun.open(tmp_path).ranks[0]
    assert (file.ending().closed, file.ending().dropped) == (True, 3)


def test_a_device_that_fails_at_the_end_costs_its_steps_only(
    tmp_path: Path, recorder: tuple[Recorder, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = recorder
    made.step(correct_len=1)
    through_the_ring(made, 1)
    through_the_ring(made, 2)

    def fail(self: DeviceEvent) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(DeviceEvent, "synchronize", fail)
    made.close()
    assert [step.step for step in read_steps(tmp_path)] == [0]
    (file,) = TraceRun.open(tmp_path).ranks[0]
    assert file.ending().dropped == 2
