"""The recorder: what it writes is what was given, in bounded memory, whatever ends the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proptests.trace_runs import CPU, GAMMA, recorded
from specsim.trace import recorder as recorder_module
from specsim.trace import storages
from specsim.trace.blocks import FIELDS
from specsim.trace.reader import TraceRun, read_steps
from specsim.trace.recorder import Recorder, record
from specsim.verify.executor import TargetVerifyExecutor

ROOT = Path(__file__).parents[1]


def rows(path: Path) -> list[dict[str, list[int]]]:
    return [{k: v.tolist() for k, v in step.values.items()} for step in read_steps(path)]


FORMS: dict[str, Callable[[list[int]], Any]] = {
    "int64": lambda v: torch.tensor(v, dtype=torch.int64),
    "int32": lambda v: torch.tensor(v, dtype=torch.int32),
    "strided": lambda v: torch.tensor([v, v], dtype=torch.int64).T[:, 0],
    "inference": lambda v: in_inference_mode(v),
    "numpy": lambda v: np.array(v, dtype=np.int16),
    "list": list,
}


def in_inference_mode(values: list[int]) -> torch.Tensor:
    with torch.inference_mode(True):
        return torch.tensor(values, dtype=torch.int64)


@given(
    given_steps=st.lists(
        st.dictionaries(
            st.sampled_from(FIELDS),
            st.tuples(
                st.sampled_from(sorted(FORMS)),
                st.lists(st.integers(-300, 30_000), min_size=1, max_size=4),
            ),
        ),
        max_size=8,
    ),
    block_steps=st.integers(1, 5),
)
def test_what_was_given_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    given_steps: list[dict[str, tuple[str, list[int]]]],
    block_steps: int,
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    with recorded(folder, block_steps=block_steps) as recorder:
        for step in given_steps:
            fields: dict[str, Any] = {k: FORMS[form](v) for k, (form, v) in step.items()}
            recorder.step(**fields)
    expected = [{name: values for name, (_, values) in step.items()} for step in given_steps]
    assert (rows(folder) if given_steps else []) == expected


def test_values_are_those_of_the_call_and_not_of_later(tmp_path: Path) -> None:
    buffer = torch.zeros(512, dtype=torch.int64)
    with recorded(tmp_path) as recorder:
        for value in range(5):
            buffer.fill_(value)
            recorder.step(correct_len=buffer[:2], commit_lens=buffer[:1].expand(2))
    assert rows(tmp_path) == [{"correct_len": [v, v], "commit_lens": [v, v]} for v in range(5)]


def test_a_number_and_a_batch_without_slots(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        recorder.step(correct_len=3)
        recorder.step(correct_len=torch.empty(0, dtype=torch.int64))
        recorder.step(out_tokens=torch.arange(8).reshape(2, 4))
    seen = rows(tmp_path)
    assert seen == [{"correct_len": [3]}, {"correct_len": []}, {"out_tokens": list(range(8))}]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"correct_len": torch.zeros(2)}, "correct_len"),
        ({"commit_lens": [1.5]}, "commit_lens"),
        ({"caps": torch.ones(2, dtype=torch.bool)}, "caps"),
        ({"caps": ["a"]}, "caps"),
        ({"buffer": [1, 2]}, "buffer"),
    ],
)
def test_what_is_no_integer_is_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], named: str
) -> None:
    with recorded(tmp_path) as recorder:
        with pytest.raises(TypeError, match=named):
            recorder.step(**fields)
        recorder.step(correct_len=2)
    assert rows(tmp_path) == [{"correct_len": [2]}]


def test_a_device_without_events_needs_sync(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder, pytest.raises(ValueError, match="correct_len must be on"):
        recorder.step(correct_len=torch.zeros(2, dtype=torch.int64, device="meta"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"gamma": 2.5}, "gamma"),
        ({"gamma": 7, "simulate_acc_len": float("nan")}, "simulate_acc_len"),
        ({"gamma": 7, "simulate_acc_method": "x"}, "simulate_acc_method"),
        ({"gamma": 7, "coupling": "x"}, "coupling"),
        ({"gamma": 2, "rates": [0.5]}, "rates"),
        ({"gamma": 7, "token_mode": "fixed"}, "fixed_token_id"),
        ({"gamma": 7, "rank": -1}, "rank"),
        ({"gamma": 7, "block_steps": 0}, "block_steps"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(
    tmp_path: Path, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        record(tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


# --- storages -----------------------------------------------------------------------------


def test_storages_are_told_apart_after_a_free(tmp_path: Path) -> None:
    # Without a reference kept, the allocator hands the same address out again and again.
    with recorded(tmp_path) as recorder:
        for _ in range(50):
            recorder.step(correct_len=1, buffer=torch.zeros(512, dtype=torch.int64)[:4])
    assert [step.storage for step in read_steps(tmp_path)] == list(range(50))


def test_views_of_one_storage_share_its_number_and_another_dtype_does_not(tmp_path: Path) -> None:
    buffer = torch.zeros(512, dtype=torch.int64)
    other = torch.zeros(512, dtype=torch.int64)
    with recorded(tmp_path) as recorder:
        for view in (buffer, buffer[:0], buffer[3:9], other, buffer, buffer.view(torch.int32)):
            recorder.step(correct_len=1, buffer=view)
    assert [step.storage for step in read_steps(tmp_path)] == [0, 0, 0, 1, 0, 2]
    (file,) = TraceRun.open(tmp_path).ranks[0]
    (block,) = file.blocks()
    assert block.offset.tolist() == [0, 0, 3, 0, 0, 0]
    assert [s.capacity for s in block.storages.values()] == [512, 512, 1_024]


def test_storages_without_memory_are_told_apart(tmp_path: Path) -> None:
    # All of them have the address 0.
    buffers = [torch.zeros(0, dtype=torch.int64) for _ in range(3)]
    buffers += [torch.zeros(512, dtype=torch.int64, device="meta") for _ in range(3)]
    with recorded(tmp_path) as recorder:
        for buffer in (*buffers, *buffers):
            recorder.step(correct_len=1, buffer=buffer)
    assert [step.storage for step in read_steps(tmp_path)] == [*range(6), *range(6)]


def test_a_storage_comes_back_as_itself_within_the_bound(tmp_path: Path) -> None:
    many = [torch.zeros(4, dtype=torch.int64) for _ in range(storages.KEPT + 1)]
    with recorded(tmp_path) as recorder:
        for buffer in (*many[:-1], many[0], many[-1], many[0], many[1]):
            recorder.step(correct_len=1, buffer=buffer)
    numbers = [step.storage for step in read_steps(tmp_path)]
    kept = storages.KEPT
    # many[1] was the longest unused when one too many came: it is numbered anew.
    assert numbers == [*range(kept), 0, kept, 0, kept + 1]


# --- memory -------------------------------------------------------------------------------


def test_memory_is_bounded_by_steps_bytes_and_storages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_BLOCK_BYTES", 4_096)
    most_rows = most_bytes = most_storages = 0
    with recorded(tmp_path, block_steps=32) as recorder:
        for step in range(500):
            slots = 1 if step < 250 else 128
            recorder.step(
                correct_len=torch.ones(slots, dtype=torch.int64),
                buffer=torch.zeros(8, dtype=torch.int64),
            )
            most_rows = max(most_rows, len(recorder._rows))
            most_bytes = max(most_bytes, recorder._bytes)
            most_storages = max(most_storages, len(recorder._storages._known))
    assert most_rows == 31
    assert most_bytes < 4_096
    assert most_storages == storages.KEPT
    assert len(rows(tmp_path)) == 500


def test_a_block_is_written_when_its_first_step_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("specsim.trace.recorder.time.monotonic", lambda: now)
    with recorded(tmp_path) as recorder:
        recorder.step(correct_len=1)
        assert len(rows(tmp_path)) == 0
        now += 1.0
        recorder.step(correct_len=2)
        assert len(rows(tmp_path)) == 2


# --- ends ---------------------------------------------------------------------------------


def test_closing_twice_and_stepping_after_it_do_nothing(tmp_path: Path) -> None:
    recorder = recorded(tmp_path)
    recorder.step(correct_len=1)
    recorder.close()
    recorder.close()
    recorder.step(correct_len=2)
    assert len(rows(tmp_path)) == 1
    (file,) = TraceRun.open(tmp_path).ranks[0]
    assert file.ending().closed


def test_no_step_no_file(tmp_path: Path) -> None:
    with recorded(tmp_path / "run"):
        pass
    assert list((tmp_path / "run").iterdir()) == []


def test_an_exception_in_the_loop_keeps_the_steps(tmp_path: Path) -> None:
    def loop() -> None:
        with recorded(tmp_path) as recorder:
            recorder.step(correct_len=1)
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        loop()
    assert len(rows(tmp_path)) == 1


def test_a_file_that_cannot_be_written_ends_the_recording_and_not_the_worker(
    tmp_path: Path,
) -> None:
    recorder = recorded(tmp_path, block_steps=2)
    recorder.step(correct_len=1)
    recorder.step(correct_len=2)
    assert recorder._descriptor is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, recorder._descriptor)
    os.close(full)
    recorder.step(correct_len=3)
    with pytest.warns(RuntimeWarning, match="no more steps are recorded"):
        recorder.step(correct_len=4)
    recorder.step(correct_len=5)
    recorder.close()
    assert rows(tmp_path) == [{"correct_len": [1]}, {"correct_len": [2]}]


def test_a_folder_that_is_gone_ends_the_recording_and_not_the_worker(tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "run")
    (tmp_path / "run").rmdir()
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        recorder.step(correct_len=1)
    recorder.step(correct_len=1)
    recorder.close()


# How a process can end, each a program of a child that has `record` and a folder F of its own.
ENDS = {
    # 9 of 25 steps are not written yet.
    "killed": """
r = record(F, gamma=7, simulate_acc_len=4.7, block_steps=16)
for step in range(25):
    r.step(correct_len=[step % 8] * 3)
os.kill(os.getpid(), signal.SIGKILL)
""",
    # The kernel takes a part of the second block, and then kills the process.
    "killed in a write": """
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
r = record(F, gamma=7, simulate_acc_len=4.7, block_steps=16)
for step in range(32):
    if step == 31:
        size = r.file.stat().st_size + 100
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    r.step(correct_len=[step % 8] * 3)
""",
    "exits": """
r = record(F, gamma=7)
r.step(correct_len=1)
r.step(correct_len=2)
sys.exit(3)
""",
    # One child records, and one does not; both exit in order.
    "forks": """
r = record(F, gamma=7, rank=0)
r.step(correct_len=1)
for records in (True, False):
    child = os.fork()
    if child == 0:
        if records:
            r.step(correct_len=6)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
r.step(correct_len=2)
""",
    "imports": """
assert not {"scipy", "hypothesis", "rich", "typer"} & set(sys.modules), sorted(sys.modules)
""",
}
PARENT = """
import json, os, resource, signal, sys
from specsim.trace.recorder import record

ends, folder = json.loads(sys.argv[1]), sys.argv[2]
status = {}
for name, program in ends.items():
    child = os.fork()
    if child == 0:
        F = os.path.join(folder, name)
        exec(program)
        sys.exit()
    status[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(status))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Return where processes that ended have recorded, and with which status they did."""
    folder = tmp_path_factory.mktemp("ends")
    result = subprocess.run(
        [sys.executable, "-c", PARENT, json.dumps(ENDS), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return folder, json.loads(result.stdout)


def test_a_killed_process_leaves_all_but_its_last_block(
    ended: tuple[Path, dict[str, int]],
) -> None:
    folder, status = ended
    assert status["killed"] == -signal.SIGKILL
    assert [row["correct_len"][0] for row in rows(folder / "killed")] == [k % 8 for k in range(16)]
    (file,) = TraceRun.open(folder / "killed").ranks[0]
    assert not file.ending().closed
    assert "without closing" in file.ending().text


def test_a_process_killed_within_a_write_leaves_a_readable_file(
    ended: tuple[Path, dict[str, int]],
) -> None:
    folder, status = ended
    assert status["killed in a write"] == -signal.SIGXFSZ
    assert len(rows(folder / "killed in a write")) == 16
    (file,) = TraceRun.open(folder / "killed in a write").ranks[0]
    assert "the last 100 bytes are an incomplete block" in file.ending().text


def test_a_process_that_exits_in_order_loses_nothing(ended: tuple[Path, dict[str, int]]) -> None:
    folder, status = ended
    assert status["exits"] == 3
    assert len(rows(folder / "exits")) == 2
    (file,) = TraceRun.open(folder / "exits").ranks[0]
    assert file.ending().closed


def test_a_forked_child_writes_neither_the_parents_steps_nor_into_its_file(
    ended: tuple[Path, dict[str, int]],
) -> None:
    folder, status = ended
    assert status["forks"] == 0
    per_process: dict[int, list[int]] = {}
    for step in read_steps(folder / "forks"):
        per_process.setdefault(step.process, []).append(int(step.values["correct_len"][0]))
    assert sorted(per_process.values()) == [[1, 2], [6]]


def test_importing_the_recorder_loads_neither_scipy_nor_hypothesis(
    ended: tuple[Path, dict[str, int]],
) -> None:
    assert ended[1]["imports"] == 0


def test_names_have_the_rank_and_the_process(tmp_path: Path) -> None:
    with recorded(tmp_path, rank=3) as recorder:
        recorder.step(correct_len=1)
        assert recorder.file is not None
        name = recorder.file.name
    assert name.startswith("rank0003-")
    assert name.endswith(f"-{os.getpid()}.trace")


def test_two_recorders_of_one_process_have_a_file_each(tmp_path: Path) -> None:
    with recorded(tmp_path, rank=0) as one, recorded(tmp_path, rank=1) as other:
        one.step(correct_len=1)
        other.step(correct_len=2)
    assert [step.rank for step in read_steps(tmp_path)] == [0, 1]
    assert [step.lengths for step in read_steps(tmp_path, rank=1)] == [[3]]


def test_a_step_on_the_cpu_leaves_cuda_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a CPU worker asked for CUDA")

    for name in ("synchronize", "current_stream", "is_current_stream_capturing", "Event"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    executor = TargetVerifyExecutor(GAMMA, 4.7, "match-expected")
    recorder: Recorder
    with recorded(tmp_path) as recorder:
        for _ in range(3):
            view = executor._simulated_correct_len(bs=2, dtype=torch.int64, device=CPU)
            recorder.step(correct_len=view, buffer=view, graph=True)
    assert len(rows(tmp_path)) == 3
