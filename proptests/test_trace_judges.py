"""What one recorded step can refute: a right trace passes, and each planted fault is caught.

No chance is involved: a step either refutes a statement or does not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from proptests.trace_runs import (
    CPU,
    GAMMA,
    Change,
    Fields,
    judged,
    record_steps,
    recorded,
    verdicts,
)
from specsim.trace.buffers import LEAST_CAPACITY
from specsim.trace.judges import JUDGES, STATEMENTS
from specsim.verify.executor import TargetVerifyExecutor

ROOT = Path(__file__).parents[1]
STEPS = 60
# Statements that a single step can refute, and that whole steps as recorded here speak of.
BY_ONE_STEP = (
    *("E.range", "E.support", "E.reuse", "E.minimum-capacity", "E.coupling"),
    *("F.commit-lens", "F.seq-lens", "T.real-draft-token", "T.bonus", "G.storage", "G.replay"),
    "R.complete",
)


def every_third_cap(step: int) -> torch.Tensor:
    return torch.tensor([3, 8, 5 if step % 2 else 8, 0])


def failing(*paths: Path) -> set[str]:
    return {property_id for property_id, verdict in verdicts(*paths).items() if verdict == "fail"}


@pytest.mark.parametrize("capped", [False, True])
def test_a_right_trace_fails_nowhere(tmp_path: Path, capped: bool) -> None:
    record_steps(tmp_path, STEPS, caps=every_third_cap if capped else None)
    found = verdicts(tmp_path)
    assert "fail" not in found.values()
    passing = {property_id for property_id, verdict in found.items() if verdict == "pass"}
    assert passing >= {*BY_ONE_STEP, *(["F.caps"] if capped else [])}
    assert found["T.fixed"] == "skip"
    assert found["R.agreement"] == "skip"
    assert found["E.distribution"] == "inconclusive"


def test_a_right_trace_of_fixed_tokens_passes(tmp_path: Path) -> None:
    record_steps(tmp_path, STEPS, token_mode="fixed")
    found = verdicts(tmp_path)
    assert found["T.fixed"] == "pass"
    assert (found["T.real-draft-token"], found["T.bonus"]) == ("skip", "skip")


# --- planted faults -------------------------------------------------------------------------


def at(steps: Callable[[int], bool]) -> Callable[[Change], Change]:
    """Return a decorator that plants a fault at some steps only."""

    def only(change: Change) -> Change:
        def planted(step: int, fields: Fields) -> None:
            if steps(step):
                change(step, fields)

        return planted

    return only


def rewrite(name: str, new: Callable[[Fields], Any]) -> Change:
    def change(step: int, fields: Fields) -> None:
        fields[name] = new(fields)

    return change


def shifted(name: str, by: int) -> Change:
    return rewrite(name, lambda fields: fields[name] + by)


def in_slot(name: str, slot: int, value: int) -> Change:
    def new(fields: Fields) -> torch.Tensor:
        tensor: torch.Tensor = fields[name].clone()
        tensor[slot] = value
        return tensor

    return rewrite(name, new)


def length_for_draft_length(step: int, fields: Fields) -> None:
    """Write the acceptance length where one less belongs, and commit accordingly."""
    for name in ("correct_len", "commit_lens", "new_seq_lens"):
        fields[name] = fields[name] + 1


def without(*names: str) -> Change:
    def change(step: int, fields: Fields) -> None:
        for name in names:
            del fields[name]

    return change


def stale_token(step: int, fields: Fields) -> None:
    fields["out_tokens"][1, 2] = 31


def bonus_from_the_position_before(step: int, fields: Fields) -> None:
    last = fields["commit_lens"].to(torch.int64) - 1
    rows = torch.arange(last.shape[0])
    fields["out_tokens"][rows, last] = fields["target_tokens"][rows, last - 1]


def new_storage(step: int, fields: Fields) -> None:
    fields["buffer"] = torch.zeros(512, dtype=torch.int64)


def is_graph(step: int) -> bool:
    return step % 3 == 2


SMALL = torch.zeros(64, dtype=torch.int64)
FAULTS: dict[str, tuple[Change, set[str]]] = {
    "lengths off by one": (
        length_for_draft_length,
        {"E.support", "E.distribution", "G.distribution", "T.real-draft-token", "T.bonus"},
    ),
    "commit equals correct_len": (
        rewrite("commit_lens", lambda f: f["correct_len"]),
        {"F.commit-lens", "F.seq-lens", "T.bonus"},
    ),
    "the sequence forgets the bonus": (shifted("new_seq_lens", -1), {"F.seq-lens"}),
    "one slot's sequence stays": (
        rewrite("new_seq_lens", lambda f: torch.cat([f["new_seq_lens"][:3], f["prefix_lens"][3:]])),
        {"F.seq-lens"},
    ),
    "beyond gamma": (
        at(lambda step: step == 40)(in_slot("correct_len", 2, GAMMA + 1)),
        {"E.range", "E.support", "E.coupling", "F.commit-lens"},
    ),
    "below zero": (
        at(lambda step: step == 40)(in_slot("correct_len", 2, -1)),
        {"E.range", "E.support", "E.coupling", "F.commit-lens"},
    ),
    "last slot not written": (
        in_slot("correct_len", 3, 0),
        {"E.support", "E.coupling", "F.commit-lens"},
    ),
    "a field of another size": (
        rewrite("prefix_lens", lambda f: f["prefix_lens"][:3]),
        {"F.commit-lens"},
    ),
    "a stale token inside the commit": (stale_token, {"T.real-draft-token"}),
    "the bonus from the position before": (bonus_from_the_position_before, {"T.bonus"}),
    "a new storage at every step": (new_storage, {"E.reuse"}),
    "a small buffer": (
        rewrite("buffer", lambda f: SMALL),
        {"E.minimum-capacity"},
    ),
    "graphs commit the captured length": (
        at(is_graph)(rewrite("commit_lens", lambda f: torch.full((4,), 2))),
        {"F.commit-lens", "F.seq-lens", "T.bonus", "G.replay"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught_where_it_is(tmp_path: Path, name: str) -> None:
    change, expected = FAULTS[name]
    record_steps(tmp_path, STEPS, change)
    assert failing(tmp_path) == expected


def test_a_fixed_token_that_is_another_is_caught(tmp_path: Path) -> None:
    record_steps(tmp_path, STEPS, at(lambda step: step == 7)(stale_token), token_mode="fixed")
    assert failing(tmp_path) == {"T.fixed"}
    assert "step 7, slot 1: commits token 31 at position 2" in judged("T.fixed", tmp_path).detail


def test_tokens_beyond_the_commit_are_not_judged(tmp_path: Path) -> None:
    def change(step: int, fields: Fields) -> None:
        beyond = torch.arange(GAMMA + 1) >= fields["commit_lens"][:, None]
        fields["out_tokens"][beyond] = 99_999

    record_steps(tmp_path, STEPS, change)
    assert failing(tmp_path) == set()


# --- caps -----------------------------------------------------------------------------------


def test_draft_lengths_may_be_from_before_the_cap_or_after_it(tmp_path: Path) -> None:
    def uncapped(step: int, fields: Fields) -> None:
        fields["correct_len"] = fields["correct_len"] + fields["cap_trim_lens"]

    record_steps(tmp_path / "after", STEPS, caps=every_third_cap)
    record_steps(tmp_path / "before", STEPS, uncapped, caps=every_third_cap)
    for run in ("after", "before"):
        assert failing(tmp_path / run) == set()


def test_draft_lengths_now_from_before_and_now_from_after_are_caught(tmp_path: Path) -> None:
    @at(lambda step: step % 2 == 0)
    def uncapped(step: int, fields: Fields) -> None:
        fields["correct_len"] = fields["correct_len"] + fields["cap_trim_lens"]

    record_steps(tmp_path, STEPS, uncapped, caps=every_third_cap)
    assert failing(tmp_path) == {"F.commit-lens"}


def test_a_cap_that_is_passed_is_caught(tmp_path: Path) -> None:
    record_steps(tmp_path, STEPS, in_slot("caps", 1, 2), caps=every_third_cap)
    assert failing(tmp_path) == {"F.caps"}


def test_a_trim_without_a_cap_is_caught(tmp_path: Path) -> None:
    record_steps(tmp_path, STEPS, in_slot("cap_trim_lens", 1, 1), caps=every_third_cap)
    # An uncapped length that is one too large is no other slot's, and now and then impossible.
    assert {"F.caps", "E.coupling", "E.support"} <= failing(tmp_path)


def test_a_cap_that_puts_tokens_on_is_caught(tmp_path: Path) -> None:
    def added(step: int, fields: Fields) -> None:
        fields["commit_lens"] = fields["commit_lens"] + 1
        fields["cap_trim_lens"] = torch.full_like(fields["commit_lens"], -1)

    record_steps(tmp_path, STEPS, added)
    assert "F.commit-lens" in failing(tmp_path)


def test_capped_lengths_without_a_record_of_the_trim_are_not_judged(tmp_path: Path) -> None:
    record_steps(tmp_path, STEPS, without("cap_trim_lens"), caps=every_third_cap)
    assert failing(tmp_path) == set()
    detail = judged("E.distribution", tmp_path).detail
    # Slots 0, 2 at every second step, and 3.
    assert f"{STEPS * 2 + STEPS // 2:,} lengths with a cap in force were not judged" in detail
    assert f"{STEPS} steps recorded" in detail


def test_draft_lengths_from_before_a_cap_need_no_record_of_the_trim(tmp_path: Path) -> None:
    def uncapped(step: int, fields: Fields) -> None:
        fields["correct_len"] = fields["correct_len"] + fields.pop("cap_trim_lens")

    record_steps(tmp_path, STEPS, uncapped, caps=every_third_cap)
    assert failing(tmp_path) == set()
    assert judged("F.commit-lens", tmp_path).verdict == "pass"


def test_a_cap_that_cuts_no_length_leaves_them_to_be_judged(tmp_path: Path) -> None:
    change, caps = without("cap_trim_lens"), torch.full((4,), GAMMA + 1)
    record_steps(tmp_path, STEPS, change, caps=lambda step: caps)
    assert f"{STEPS} steps recorded" in judged("E.distribution", tmp_path).detail


def test_nothing_but_capped_lengths_says_what_to_record(tmp_path: Path) -> None:
    change, caps = without("cap_trim_lens"), torch.full((4,), GAMMA)
    record_steps(tmp_path, STEPS, change, caps=lambda step: caps)
    outcome = judged("E.distribution", tmp_path)
    assert outcome.verdict == "inconclusive"
    assert "record cap_trim_lens" in outcome.detail


def test_a_cap_that_was_not_recorded_is_named_as_a_possible_reason(tmp_path: Path) -> None:
    change = without("cap_trim_lens", "caps")
    record_steps(tmp_path, STEPS, change, caps=every_third_cap)
    outcome = judged("E.support", tmp_path)
    assert outcome.verdict == "fail"
    assert "a cap, if that is why, was not recorded" in outcome.detail


# --- buffers --------------------------------------------------------------------------------


class Buffered:
    """A worker whose buffers the test chooses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recorder = recorded(path, None)

    def step(self, buffer: torch.Tensor, bs: int = 4, graph: bool = False) -> None:
        self.recorder.step(
            correct_len=torch.ones(bs, dtype=torch.int64), buffer=buffer, graph=graph
        )

    def failing(self) -> set[str]:
        self.recorder.close()
        return failing(self.path)


@pytest.fixture
def worker(tmp_path: Path) -> Buffered:
    return Buffered(tmp_path)


def slots(count: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(count, dtype=dtype)


def test_a_buffer_may_grow_or_change_its_dtype(worker: Buffered) -> None:
    first, larger, other = slots(512), slots(600), slots(600, torch.int32)
    worker.step(first, 512)
    worker.step(larger, 513)
    worker.step(larger, 4)
    worker.step(other, 4)
    worker.step(other, 4, graph=True)
    assert worker.failing() == set()


def test_a_buffer_rebuilt_at_capacity_is_caught(worker: Buffered) -> None:
    first, again = slots(512), slots(512)
    worker.step(first, 4)
    worker.step(again, 512)
    assert worker.failing() == {"E.reuse"}
    detail = judged("E.reuse", worker.path).detail
    assert "step 1: reads another storage" in detail
    assert "room for 512 slots of int64 on cpu, and the step has 512" in detail


def test_a_buffer_rebuilt_as_the_batch_shrinks_is_caught(worker: Buffered) -> None:
    first, larger, smaller = slots(512), slots(600), slots(512)
    worker.step(first, 4)
    worker.step(larger, 600)
    worker.step(smaller, 4)
    assert worker.failing() == {"E.reuse"}


def test_a_graph_that_reads_the_buffer_of_its_capture_after_growth_is_caught(
    worker: Buffered,
) -> None:
    captured, grown = slots(512), slots(600)
    worker.step(captured, 4, graph=True)
    worker.step(grown, 600)
    worker.step(captured, 4, graph=True)
    assert worker.failing() == {"G.storage"}
    assert (
        "step 2: the graph reads storage 0, which storage 1 had replaced"
        in judged("G.storage", worker.path).detail
    )


def test_a_graph_captured_again_after_growth_passes(worker: Buffered) -> None:
    captured, grown = slots(512), slots(600)
    worker.step(captured, 4, graph=True)
    worker.step(grown, 600)
    worker.step(grown, 4, graph=True)
    assert worker.failing() == set()
    assert judged("G.storage", worker.path).verdict == "pass"


def test_graphs_with_a_buffer_of_their_own_are_caught(worker: Buffered) -> None:
    buffers = (slots(512), slots(512))
    for step in range(6):
        worker.step(buffers[step % 2], graph=step % 2 == 1)
    assert worker.failing() == {"G.storage"}
    detail = judged("G.storage", worker.path).detail
    assert "step 2: eager code reads storage 0, where graphs read storage 1" in detail


def test_a_buffer_for_each_dtype_passes(worker: Buffered) -> None:
    eager, captured = slots(512), slots(512, torch.int32)
    for step in range(6):
        graph = step % 2 == 1
        worker.step(captured if graph else eager, 4, graph=graph)
    assert worker.failing() == set()
    assert judged("G.storage", worker.path).verdict == "pass"


def test_a_view_that_moves_within_its_storage_is_caught(worker: Buffered) -> None:
    memory = slots(2_000)
    worker.step(memory[:600], 4)
    worker.step(memory[600:], 4)
    assert worker.failing() == {"E.reuse"}
    assert "from 600 on" in judged("E.reuse", worker.path).detail


def test_a_scalar_of_the_step_protocol_has_no_capacity_to_judge(tmp_path: Path) -> None:
    executor = TargetVerifyExecutor(GAMMA, 4.7, "match-expected", seed=3)
    with recorded(tmp_path) as recorder:
        for _ in range(STEPS):
            executor.begin_step()
            step = executor.step_correct_len
            commit = (step + 1).expand(6)
            recorder.step(correct_len=step, commit_lens=commit, buffer=step, graph=True)
    found = verdicts(tmp_path)
    assert "fail" not in found.values()
    assert found["E.minimum-capacity"] == "skip"
    assert found["E.reuse"] == "pass"
    # The scalar stands for all six slots.
    assert f"{6 * STEPS} slots" in judged("F.commit-lens", tmp_path).detail


def test_a_real_executor_grows_its_buffer_for_a_reason(tmp_path: Path) -> None:
    executor = TargetVerifyExecutor(GAMMA, 4.7, "match-expected", seed=3)
    with recorded(tmp_path) as recorder:
        for bs in (4, 512, 513, 4, 600, 2_000, 1):
            view = executor._simulated_correct_len(bs=bs, dtype=torch.int64, device=CPU)
            recorder.step(correct_len=view, buffer=view)
    assert failing(tmp_path) == set()
    assert f"{executor.buffer_generation} storages" in judged("E.reuse", tmp_path).detail


# --- reports --------------------------------------------------------------------------------


@pytest.mark.parametrize("property_id", ["F.seq-lens", "E.reuse"])
def test_the_snippet_of_a_failure_shows_the_step(tmp_path: Path, property_id: str) -> None:
    def change(step: int, fields: Fields) -> None:
        if step == 20:
            fields["new_seq_lens"] = fields["new_seq_lens"] - 1
            fields["buffer"] = slots(LEAST_CAPACITY)

    record_steps(tmp_path, STEPS, change)
    outcome = judged(property_id, tmp_path)
    assert "step 20" in outcome.detail
    assert outcome.configuration is not None
    assert str(tmp_path) in outcome.configuration
    assert outcome.snippet is not None
    shown = subprocess.run(
        [sys.executable, "-c", outcome.snippet],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "step=19" in shown
    assert "step=20" in shown
    assert "step=21" not in shown


def test_every_statement_of_traces_alone_has_a_judge() -> None:
    assert set(STATEMENTS) <= set(JUDGES)
    assert {property_id[0] for property_id in JUDGES} == set("EFTGR")


def test_nothing_recorded_is_skipped_and_never_passed(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        for _ in range(3):
            recorder.step(graph=True)
    found = verdicts(tmp_path)
    assert set(found.values()) <= {"skip", "inconclusive", "pass"}
    assert {p for p, verdict in found.items() if verdict == "pass"} == {"R.complete"}
