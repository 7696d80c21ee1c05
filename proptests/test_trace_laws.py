"""The law of recorded lengths: right traces pass, and wrong laws and frozen lengths are caught.

Each judged trace is wrongly failed with probability at most 1e-6, the default alpha of a run. A
right trace of 12,000 steps is 5 standard deviations of its share from missing its pass; the
planted faults are far beyond what 12,000 steps tell apart.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from proptests.trace_runs import GAMMA, Fields, judged, record_lengths, recorded, verdicts
from specsim.acceptance import AcceptanceDistribution
from specsim.evidence.region import tv_interval
from specsim.sampler import AcceptanceSampler
from specsim.trace.laws import lengths_for_a_pass
from specsim.trace.recorder import record

ROOT = Path(__file__).parents[1]
STEPS = 12_000
LAWS = ("E.distribution", "E.mean", "E.freshness")
GRAPH_LAWS = ("G.distribution", "G.freshness")


def every_other_is_a_graph(step: int, fields: Fields) -> None:
    fields["graph"] = step % 2 == 1


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a right trace, half of it a graph's."""
    folder = tmp_path_factory.mktemp("right")
    record_lengths(folder, 2 * STEPS, every_other_is_a_graph)
    return folder


def test_a_right_trace_passes(right: Path) -> None:
    found = verdicts(right)
    assert {p: found[p] for p in (*LAWS, *GRAPH_LAWS)} == dict.fromkeys(
        (*LAWS, *GRAPH_LAWS), "pass"
    )
    assert "no deviation of 0.05 or more" in judged("E.distribution", right).detail


def failing(*paths: Path) -> set[str]:
    return {property_id for property_id, verdict in verdicts(*paths).items() if verdict == "fail"}


def test_a_length_rounded_once_is_caught(tmp_path: Path) -> None:
    def frozen(step: int, fields: Fields) -> None:
        every_other_is_a_graph(step, fields)
        fields["correct_len"] = torch.full((2,), 4)

    record_lengths(tmp_path, STEPS, frozen)
    assert failing(tmp_path) == {*LAWS, *GRAPH_LAWS}
    assert "seen 5: 100.0%; claimed 4: 30.0%, 5: 70.0%" in judged("E.distribution", tmp_path).detail


def test_a_length_frozen_under_graphs_only_is_caught_there(tmp_path: Path) -> None:
    def frozen(step: int, fields: Fields) -> None:
        every_other_is_a_graph(step, fields)
        if fields["graph"]:
            fields["correct_len"] = torch.full((2,), 4)

    record_lengths(tmp_path, STEPS, frozen)
    assert set(GRAPH_LAWS) <= failing(tmp_path)
    detail = judged("G.freshness", tmp_path).detail
    assert f"graph steps: all {STEPS // 2:,} lengths are 5" in detail


def test_a_refresh_at_every_other_step_is_caught(tmp_path: Path) -> None:
    held = torch.zeros(2, dtype=torch.int64)

    def every_other(step: int, fields: Fields) -> None:
        if step % 2 == 0:
            held.copy_(fields["correct_len"])
        fields["correct_len"] = held

    record_lengths(tmp_path, STEPS, every_other)
    # With each length counted twice, the law may seem wrong as well.
    assert "E.freshness" in failing(tmp_path)


def test_the_right_mean_with_another_spread_is_caught(tmp_path: Path) -> None:
    # 1 or 8 with mean 4.7: the support is wrong, so one length decides.
    spread = AcceptanceSampler(
        AcceptanceDistribution([3.3 / 7, 0, 0, 0, 0, 0, 0, 3.7 / 7]), seed=None
    )

    def other(step: int, fields: Fields) -> None:
        fields["correct_len"] = torch.full((2,), spread.draw() - 1)

    record_lengths(tmp_path, 500, other)
    assert {"E.distribution", "E.support"} <= failing(tmp_path)


def test_lengths_for_another_mean_are_caught(tmp_path: Path) -> None:
    record_lengths(tmp_path / "a", STEPS, acc_len=4.5)
    assert failing(tmp_path / "a") == set()
    with recorded(tmp_path / "b", 4.7) as recorder:
        sampler = AcceptanceSampler(AcceptanceDistribution.match_expected(4.5, GAMMA + 1))
        for length in sampler.draws(STEPS).tolist():
            recorder.step(commit_lens=[length] * 2)
    assert failing(tmp_path / "b") == {"E.distribution", "E.mean"}


def test_slots_drawn_apart_under_batch_coupling_are_caught(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        sampler = AcceptanceSampler(AcceptanceDistribution.match_expected(4.7, GAMMA + 1))
        for pair in sampler.draws(2 * 500).reshape(-1, 2) - 1:
            recorder.step(correct_len=pair)
    assert failing(tmp_path) == {"E.coupling"}
    assert "one draw a step is shared by all" in judged("E.coupling", tmp_path).detail


def test_one_draw_for_all_slots_under_slot_coupling_is_caught(tmp_path: Path) -> None:
    record_lengths(tmp_path / "apart", STEPS, coupling="slot", bs=4)
    found = verdicts(tmp_path / "apart")
    assert {p: found[p] for p in (*LAWS, "E.coupling")} == dict.fromkeys(
        (*LAWS, "E.coupling"), "pass"
    )

    def together(step: int, fields: Fields) -> None:
        fields["correct_len"] = fields["correct_len"][:1].expand(4)

    record_lengths(tmp_path / "together", STEPS, together, coupling="slot", bs=4)
    # With each length counted four times, the law may seem wrong as well.
    assert {"E.coupling", "E.freshness"} <= failing(tmp_path / "together")


def test_rates_are_judged(tmp_path: Path) -> None:
    rates = (0.906, 0.497, 0.203)
    for name, drawn_from in (("right", rates), ("wrong", (0.906, 0.4, 0.203))):
        sampler = AcceptanceSampler(AcceptanceDistribution.from_rates(drawn_from))
        with record(tmp_path / name, gamma=3, rates=rates, coupling="slot") as recorder:
            for lengths in sampler.draws(8 * 4_000).reshape(-1, 8):
                recorder.step(commit_lens=lengths)
    assert verdicts(tmp_path / "right")["E.distribution"] == "pass"
    assert failing(tmp_path / "wrong") == {"E.distribution", "E.mean"}


def test_without_a_simulated_length_the_law_is_not_judged(tmp_path: Path) -> None:
    for acc_len in (None, -1.0):
        with recorded(tmp_path / str(acc_len), acc_len) as recorder:
            for step in range(200):
                recorder.step(correct_len=[step % 8, 3], commit_lens=[step % 8 + 1, 4])
        found = verdicts(tmp_path / str(acc_len))
        assert {found[p] for p in (*LAWS, "E.support", "E.coupling")} == {"skip"}
        assert found["F.commit-lens"] == "pass"


def test_a_short_trace_is_inconclusive_and_says_how_long_it_has_to_be(tmp_path: Path) -> None:
    record_lengths(tmp_path, 300, every_other_is_a_graph)
    for property_id in (*LAWS, *GRAPH_LAWS):
        outcome = judged(property_id, tmp_path)
        assert outcome.verdict == "inconclusive"
        steps = 150 if property_id in GRAPH_LAWS else 300
        assert f"{steps} steps recorded, a pass takes about 4,368" in outcome.detail


@pytest.mark.parametrize(
    ("law", "delta"),
    [
        (AcceptanceDistribution.match_expected(4.7, 8), 0.05),
        (AcceptanceDistribution.multinomial(4.7, 8), 0.05),
        (AcceptanceDistribution.match_expected(3.0, 8), 0.02),
    ],
)
def test_the_lengths_that_a_pass_takes_are_about_right(
    law: AcceptanceDistribution, delta: float
) -> None:
    """At that number about half of all traces pass, at twice it nearly all, at half it none.

    Of 60 traces that pass with probability above 0.95, fewer than 40 do so with probability
    below 1e-11; at half the number the region alone is wider than delta.
    """
    needed = lengths_for_a_pass(law, delta=delta, alpha=1e-6)
    support = np.flatnonzero(law.pmf)
    rng = np.random.default_rng()

    def passes(draws: int) -> bool:
        counts = rng.multinomial(draws, law.pmf[support])
        return tv_interval(counts.astype(np.int64), law.pmf[support], 1e-6).upper <= delta

    assert sum(passes(2 * needed) for _ in range(60)) >= 40
    assert not any(passes(needed // 2) for _ in range(60))


def test_a_worker_started_again_goes_on_with_its_stream(tmp_path: Path) -> None:
    for _ in range(3):
        record_lengths(tmp_path, STEPS // 3)
    outcome = judged("E.distribution", tmp_path)
    assert outcome.verdict == "pass"
    assert outcome.draws == 3 * (STEPS // 3)


def test_a_worker_configured_anew_is_another_stream(tmp_path: Path) -> None:
    record_lengths(tmp_path, STEPS, acc_len=4.7)
    record_lengths(tmp_path, STEPS, acc_len=2.2)
    outcome = judged("E.distribution", tmp_path)
    assert outcome.verdict == "pass"
    assert len(outcome.evidence["streams"]) == 2


def test_a_failure_shows_itself_again(tmp_path: Path) -> None:
    def frozen(step: int, fields: Fields) -> None:
        fields["correct_len"] = torch.full((2,), 4)

    record_lengths(tmp_path, 500, frozen)
    outcome = judged("E.distribution", tmp_path)
    assert outcome.snippet is not None
    shown = subprocess.run(
        [sys.executable, "-c", outcome.snippet],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "seen {5: 500}" in shown
    assert "claimed {4: 0.3, 5: 0.7}" in shown
