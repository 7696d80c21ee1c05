"""Ranks of a recorded run: they agree at every step, or the trace says where they do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from proptests.trace_runs import Fields, judged, record_lengths, record_steps, recorded, verdicts
from specsim.properties.session import Settings
from specsim.targets import TargetError
from specsim.trace.frames import HEADER, MAGIC, frame, read_frames
from specsim.trace.header import TraceHeader
from specsim.trace.session import open_trace

ROOT = Path(__file__).parents[1]
STEPS = 40


def record_ranks(path: Path, ranks: int = 3, steps: int = STEPS) -> None:
    for rank in range(ranks):
        record_steps(path, steps, rank=rank, seed=11)


def test_ranks_that_agree_pass(tmp_path: Path) -> None:
    record_ranks(tmp_path)
    outcome = judged("R.agreement", tmp_path)
    assert outcome.verdict == "pass"
    assert f"3 ranks agree at all {STEPS} steps" in outcome.detail
    assert judged("R.complete", tmp_path).verdict == "pass"


def test_a_rank_that_draws_its_own_is_caught(tmp_path: Path) -> None:
    record_ranks(tmp_path, 2)
    record_steps(tmp_path, STEPS, rank=2, seed=12)
    outcome = judged("R.agreement", tmp_path)
    assert outcome.verdict == "fail"
    assert "on rank 0" in outcome.detail
    assert "on rank 2" in outcome.detail
    assert outcome.snippet is not None
    shown = subprocess.run(
        [sys.executable, "-c", outcome.snippet],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert [line[0] for line in shown] == ["0", "1", "2"]
    assert shown[0][2:] == shown[1][2:] != shown[2][2:]


def test_one_slot_of_one_step_of_one_rank_is_enough(tmp_path: Path) -> None:
    record_ranks(tmp_path, 2)

    def change(step: int, fields: Fields) -> None:
        if step == 17:
            fields["commit_lens"][3] -= 1

    record_steps(tmp_path, STEPS, change, rank=2, seed=11)
    outcome = judged("R.agreement", tmp_path)
    assert outcome.verdict == "fail"
    assert "step 17: commit_lens" in outcome.detail
    assert f"1 of {STEPS} steps differ" in outcome.detail


def test_another_batch_size_is_a_difference(tmp_path: Path) -> None:
    for rank in range(2):
        with recorded(tmp_path, rank=rank) as recorder:
            recorder.step(commit_lens=[3] * (rank + 1))
    assert judged("R.agreement", tmp_path).verdict == "fail"


def test_a_rank_that_skips_a_step_is_caught_by_what_follows(tmp_path: Path) -> None:
    lengths = [1 + (7 * step) % 5 for step in range(STEPS)]
    for rank in range(2):
        with recorded(tmp_path, rank=rank) as recorder:
            for step, length in enumerate(lengths):
                if (rank, step) != (1, 30):
                    recorder.step(commit_lens=[length])
    assert "step 30" in judged("R.agreement", tmp_path).detail
    assert judged("R.complete", tmp_path).verdict == "fail"


def test_steps_that_a_rank_lacks_are_reported(tmp_path: Path) -> None:
    for rank, steps in ((0, STEPS), (1, STEPS - 7)):
        record_steps(tmp_path, steps, rank=rank, seed=11, block_steps=8)
    outcome = judged("R.agreement", tmp_path)
    assert outcome.verdict == "pass"
    assert "7 more are missing in some rank" in outcome.detail
    assert "7 steps are missing" in judged("R.complete", tmp_path).detail


def test_ranks_that_recorded_different_things_are_not_said_to_agree(tmp_path: Path) -> None:
    given: list[Fields] = [{"commit_lens": [3]}, {"correct_len": [2]}]
    for rank, fields in enumerate(given):
        with recorded(tmp_path, rank=rank) as recorder:
            recorder.step(**fields)
    outcome = judged("R.agreement", tmp_path)
    assert outcome.verdict == "inconclusive"
    assert "no step with lengths in common" in outcome.detail


def test_blocks_of_other_sizes_do_not_matter(tmp_path: Path) -> None:
    for rank, block_steps in enumerate((1, 7, 256)):
        record_steps(tmp_path, STEPS, rank=rank, seed=11, block_steps=block_steps)
    assert judged("R.agreement", tmp_path).verdict == "pass"


def test_ranks_of_a_run_started_again_are_compared_process_by_process(tmp_path: Path) -> None:
    for seed in (1, 2):
        for rank in range(2):
            record_steps(tmp_path, STEPS, rank=rank, seed=seed)
    outcome = judged("R.agreement", tmp_path)
    assert outcome.verdict == "pass"
    assert outcome.draws == 2 * STEPS
    record_steps(tmp_path, STEPS, rank=0, seed=3)
    record_steps(tmp_path, STEPS, rank=1, seed=4)
    assert "of process 2" in judged("R.agreement", tmp_path).detail


def test_ranks_with_other_configurations_are_caught(tmp_path: Path) -> None:
    record_lengths(tmp_path, STEPS, acc_len=3.0, rank=0)
    record_lengths(tmp_path, STEPS, acc_len=4.0, rank=1)
    outcome = judged("R.agreement", tmp_path)
    assert outcome.verdict == "fail"
    record_lengths(tmp_path / "b", STEPS, acc_len=3.0, rank=0)
    record_lengths(tmp_path / "b", STEPS, acc_len=2.0, rank=1, change=lambda s, f: same(f))
    assert "rank 0 is configured with acc_len 3.0" in judged("R.agreement", tmp_path / "b").detail


def same(fields: Fields) -> None:
    fields["correct_len"] = torch.full((2,), 2)


def moved(path: Path, seconds: float) -> None:
    """Make a file's process have started earlier or later."""
    with path.open("rb") as file:
        first = next(read_frames(file))
        rest = file.read()
    document = json.loads(first.payload)
    document["started"] += seconds
    path.write_bytes(MAGIC + frame(HEADER, json.dumps(document).encode()) + rest)
    assert TraceHeader.from_bytes(json.dumps(document).encode()).started == document["started"]


def test_two_processes_of_one_rank_at_a_time_cannot_be_judged_as_ranks(tmp_path: Path) -> None:
    for _ in range(2):
        record_steps(tmp_path, STEPS, rank=0, seed=11)
    assert judged("R.agreement", tmp_path).verdict == "skip"
    # The first of them went on until long after the second had started.
    first, second = sorted(tmp_path.iterdir())
    moved(first, -60.0)
    moved(second, -30.0)
    outcome = judged("R.agreement", tmp_path)
    assert outcome.verdict == "inconclusive"
    assert "pass rank=" in outcome.detail


def test_runs_are_folders_and_are_not_compared_with_each_other(tmp_path: Path) -> None:
    record_steps(tmp_path / "a", STEPS, rank=0, seed=1)
    record_steps(tmp_path / "b", STEPS, rank=0, seed=2)
    assert judged("R.agreement", tmp_path / "a", tmp_path / "b").verdict == "skip"
    record_steps(tmp_path / "b", STEPS, rank=1, seed=3)
    outcome = judged("R.agreement", tmp_path / "a", tmp_path / "b")
    assert outcome.verdict == "fail"
    assert outcome.detail.startswith(str(tmp_path / "b"))


def test_alpha_is_shared_by_all_streams_of_all_runs(tmp_path: Path) -> None:
    for run in ("a", "b"):
        for rank in range(2):
            record_lengths(tmp_path / run, 500, lambda s, f: same(f), rank=rank)
    alone = judged("E.distribution", tmp_path / "a").evidence["log_threshold"]
    both = judged("E.distribution", tmp_path / "a", tmp_path / "b").evidence["log_threshold"]
    # Twice the streams, half of alpha for each: log 2 more.
    assert both - alone == pytest.approx(0.693147, abs=1e-5)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    record_steps(tmp_path / "a", 3)
    with pytest.raises(TargetError, match="at least one folder"):
        open_trace([])
    with pytest.raises(TargetError, match="no folder"):
        open_trace([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(TargetError, match="named twice"):
        open_trace([tmp_path / "a", f"{tmp_path}/a/../a"])


def test_the_session_has_what_front_ends_ask_for(tmp_path: Path) -> None:
    record_steps(tmp_path / "a", 3)
    told: list[int] = []
    session = open_trace([tmp_path / "a"], Settings("quick", seed=4), told.append)
    assert session.target.kind == "trace"
    assert session.target.name == str(tmp_path / "a")
    assert session.settings.seed == 4
    found = verdicts(tmp_path / "a")
    assert found["R.complete"] == "pass"


def test_a_damaged_block_is_a_refusal_and_no_verdict(tmp_path: Path) -> None:
    record_steps(tmp_path, 3)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[-200] ^= 1
    path.write_bytes(content)
    for property_id in ("E.range", "E.distribution", "E.reuse", "T.bonus", "R.complete"):
        with pytest.raises(TargetError, match="does not match its checksum"):
            judged(property_id, tmp_path)
