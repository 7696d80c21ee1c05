"""Recording on CUDA: the right values, no wait for the device, and graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from specsim.trace.reader import read_steps
from specsim.trace.recorder import WAITING_STEPS, Recorder, record
from specsim.verify.executor import TargetVerifyExecutor

if not torch.cuda.is_available():
    pytest.skip("no CUDA device is available", allow_module_level=True)

CUDA = torch.device("cuda", torch.cuda.current_device())
GAMMA = 7
# Some hundred milliseconds of a GPU's clock: longer than a hundred calls of the hook.
_CYCLES = 1_000_000_000


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with record(tmp_path, gamma=GAMMA, simulate_acc_len=4.7) as made:
        yield made


def warm_up(recorder: Recorder) -> None:
    """Record a step, since the driver may wait for the device while it pins memory."""
    zeros = torch.zeros(4, dtype=torch.int64, device=CUDA)
    recorder.step(correct_len=zeros, commit_lens=zeros)
    torch.cuda.synchronize()


def test_values_are_those_of_the_call_and_not_of_later(tmp_path: Path, recorder: Recorder) -> None:
    buffer = torch.zeros(512, dtype=torch.int64, device=CUDA)
    for value in range(200):
        buffer.fill_(value % 8)
        recorder.step(
            correct_len=buffer[:3],
            commit_lens=(buffer[:3] + 1).to(torch.int32),
            new_seq_lens=[value],
            buffer=buffer,
        )
        if value % 50 == 49:
            torch.cuda.synchronize()
    recorder.close()
    seen = list(read_steps(tmp_path))
    assert len(seen) + recorder.dropped == 200
    for step in seen:
        value = step.step % 8
        assert step.values["correct_len"].tolist() == [value] * 3
        assert step.values["commit_lens"].tolist() == [value + 1] * 3
        assert step.values["new_seq_lens"].tolist() == [step.step]
        assert step.storage == 0


def test_a_step_does_not_wait_for_the_device(recorder: Recorder) -> None:
    """Torch itself raises at what synchronises, and the device is busy all the while."""
    warm_up(recorder)
    lengths = torch.full((4,), 3, device=CUDA)
    spread = torch.full((1,), 3, device=CUDA).expand(4)
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]
    done.record()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(8):
            recorder.step(correct_len=lengths, commit_lens=spread, buffer=lengths)
        assert not done.query()  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_steps_beyond_the_ring_are_dropped_and_counted(tmp_path: Path, recorder: Recorder) -> None:
    warm_up(recorder)
    lengths = torch.full((4,), 3, device=CUDA)
    torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]
    for _ in range(WAITING_STEPS + 10):
        recorder.step(correct_len=lengths)
    assert recorder.dropped == 10
    recorder.close()
    assert len(list(read_steps(tmp_path))) == recorder.steps - recorder.dropped


def test_sync_records_every_step(tmp_path: Path) -> None:
    lengths = torch.full((4,), 3, device=CUDA)
    with record(tmp_path, gamma=GAMMA, sync=True) as recorder:
        torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]
        for _ in range(WAITING_STEPS + 10):
            recorder.step(correct_len=lengths)
        assert recorder.dropped == 0
    assert len(list(read_steps(tmp_path))) == WAITING_STEPS + 10


def test_a_call_inside_a_captured_region_is_refused(recorder: Recorder) -> None:
    lengths = torch.zeros(4, dtype=torch.int64, device=CUDA)
    warm_up(recorder)
    graph = torch.cuda.CUDAGraph()
    with (
        torch.cuda.graph(graph),
        pytest.raises(RuntimeError, match="outside of the region"),
    ):
        recorder.step(correct_len=lengths)


def test_replays_are_recorded_with_what_they_committed(tmp_path: Path, recorder: Recorder) -> None:
    executor = TargetVerifyExecutor(GAMMA, 4.7, "match-expected", seed=1, device=CUDA)
    step = executor.step_correct_len
    executor.begin_step()
    commit = torch.zeros(4, dtype=torch.int64, device=CUDA)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        commit.copy_((step + 1).expand(4))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        commit.copy_((step + 1).expand(4))
    for number in range(40):
        executor.begin_step()
        graph.replay()
        recorder.step(correct_len=step, commit_lens=commit, buffer=step, graph=True)
        if number % 20 == 19:
            torch.cuda.synchronize()
    recorder.close()
    seen = list(read_steps(tmp_path))
    assert len(seen) == 40
    for each in seen:
        assert each.values["commit_lens"].tolist() == [each.values["correct_len"][0] + 1] * 4
    assert len({each.lengths[0] for each in seen}) == 2
