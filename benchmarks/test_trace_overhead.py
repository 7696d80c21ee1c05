"""Cost of recording a step, as ratios to a baseline timed side by side.

Run with ``-s`` to see the ratios as they come; they are also in each benchmark's extra_info. The
seconds beside them are of the process's own time, per step on average, the writing of every
256th step's block among them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.side_by_side import ratio
from benchmarks.side_by_side import record as note
from specsim.trace.recorder import record
from specsim.verify.executor import TargetVerifyExecutor

BS, GAMMA = 64, 7


@pytest.fixture(scope="module")
def step() -> tuple[Callable[[], object], dict[str, torch.Tensor]]:
    """Return a whole verify step on the CPU, and what one of them gave."""
    executor = TargetVerifyExecutor(GAMMA, 4.7, "match-expected", seed=0)
    draft = torch.zeros(BS, GAMMA, dtype=torch.int64)
    target = torch.zeros(BS, GAMMA + 1, dtype=torch.int64)
    prefix = torch.full((BS,), 1_000)

    def verify() -> object:
        return executor.accept_and_finalize(
            draft_tokens=draft, prefix_lens=prefix, target_tokens=target
        )

    result = executor.accept_and_finalize(
        draft_tokens=draft, prefix_lens=prefix, target_tokens=target
    )
    assert executor._buffer is not None
    fields = {
        "correct_len": result.correct_len,
        "commit_lens": result.commit_lens,
        "buffer": executor._buffer,
        "prefix_lens": prefix,
        "new_seq_lens": result.new_seq_lens,
    }
    return verify, fields


FIELDS = {
    "lengths": ("correct_len",),
    "lengths, commits and buffer": ("correct_len", "commit_lens", "buffer"),
    "and sequence lengths": (
        *("correct_len", "commit_lens", "buffer", "prefix_lens", "new_seq_lens"),
    ),
}


@pytest.mark.parametrize("names", FIELDS)
def test_recording_against_the_step_itself(
    benchmark: BenchmarkFixture,
    step: tuple[Callable[[], object], dict[str, torch.Tensor]],
    tmp_path: Path,
    names: str,
) -> None:
    verify, everything = step
    fields: dict[str, Any] = {name: everything[name] for name in FIELDS[names]}
    with record(tmp_path, gamma=GAMMA, simulate_acc_len=4.7) as recorder:
        measured = ratio(lambda: recorder.step(**fields), verify, clock=time.process_time)
        note(benchmark, f"record {names}, against a verify step on the CPU", measured)
        benchmark(lambda: recorder.step(**fields))


def test_recording_against_a_line_of_json(
    benchmark: BenchmarkFixture,
    step: tuple[Callable[[], object], dict[str, torch.Tensor]],
    tmp_path: Path,
) -> None:
    correct_len, commit_lens = step[1]["correct_len"], step[1]["commit_lens"]
    with (
        record(tmp_path, gamma=GAMMA, simulate_acc_len=4.7) as recorder,
        (tmp_path / "lines.json").open("w") as file,
    ):

        def line() -> None:
            lengths = {"correct_len": correct_len.tolist(), "commit_lens": commit_lens.tolist()}
            file.write(json.dumps(lengths) + "\n")

        def hook() -> None:
            recorder.step(correct_len=correct_len, commit_lens=commit_lens)

        note(
            benchmark,
            "record, against a line of JSON a step",
            ratio(hook, line, clock=time.process_time),
        )
        benchmark(hook)
