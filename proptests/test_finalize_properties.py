"""F and T properties and E.off of executors: no false alarm, and each fault caught.

Every verdict here is decided by single results, so a correct executor is never rejected: the
false-alarm rate is 0. Faults that depend on a draw are looked for in hundreds of steps; the
largest chance that one of these tests misses its fault is stated where it is not 0.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim.adapters.executor import ExecutorTarget
from specsim.adapters.finalizing import Batch, Column, Commit, Finalizer, Offer, Request, offer_of
from specsim.mutants.verify_all import all_correct_finalizers, all_finalizer_mutants
from specsim.properties.configurations import LEVELS, METHODS, EffortLevel
from specsim.properties.finalize_cases import cases, distinct_requests, known_cases
from specsim.properties.finalize_model import Case, Finding, judge, real_accept
from specsim.properties.finalize_steps import Steps, run_steps
from specsim.sampler import sample_simulated_acc_len
from specsim.targets import Configuration
from specsim.verify import TargetVerifyExecutor, greedy_accept

IDS = (
    "F.commit-lens",
    "F.seq-lens",
    "F.caps",
    "F.cap-trim",
    "T.real-draft-token",
    "T.fixed",
    "T.bonus",
    "E.off",
)
WANTED = list(IDS)
# What many commits decide, and no single step.
BY_LAW = "F.distribution"
PROBE = Configuration(4.7, "match-expected", 8)
LARGEST = 640
MUTANTS = {mutant.name: mutant for mutant in all_finalizer_mutants()}
CORRECTS = {correct.name: correct for correct in all_correct_finalizers()}


@pytest.fixture
def few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Hypothesis choose a few executors only: the known cases are enough here."""
    quick = LEVELS["quick"]
    monkeypatch.setitem(LEVELS, "quick", EffortLevel(quick.delta, quick.budget, 3))


def steps_of(factory: Callable[..., object], *, coupling: str = "batch", **names: Any) -> Steps:
    """Run the known cases, and the simplest of Hypothesis' own."""
    target = ExecutorTarget("target", factory, coupling=coupling, **names)
    return run_steps(target, offer_of(target, PROBE), METHODS, 0, 1)


def refuted(factory: Callable[..., object], **options: Any) -> dict[str, str]:
    return {name: r.finding.message for name, r in steps_of(factory, **options).refutations.items()}


def check(factory: Callable[..., object], **options: Any) -> specsim.Report:
    return specsim.check(factory, effort="quick", properties=WANTED, **options)


def test_the_reference_has_all_of_them() -> None:
    report = check(TargetVerifyExecutor)
    assert {o.property_id: o.verdict for o in report.outcomes} == dict.fromkeys(IDS, "pass")
    assert report["E.off"].detail.endswith("steps")
    assert [o.property_id for o in report.outcomes if not o.required] == ["F.cap-trim", "T.bonus"]


def law_outcome(factory: Callable[..., object], **options: Any) -> specsim.Outcome:
    return specsim.check(factory, effort="quick", properties=[BY_LAW], **options)[BY_LAW]


@pytest.mark.parametrize("step_method", [None, "begin_step"])
def test_the_law_of_what_the_reference_commits(step_method: str | None) -> None:
    # Rejected with probability at most 1e-6 each.
    outcome = law_outcome(TargetVerifyExecutor, methods=["match-expected"], step_method=step_method)
    assert outcome.verdict == "pass", outcome.detail


def test_slots_that_commit_draws_of_their_own_have_the_law() -> None:
    # Rejected with probability at most 1e-6; its twin repeats each length.
    assert law_outcome(per_slot, methods=["match-expected"], coupling="slot").verdict == "pass"
    shared = law_outcome(TargetVerifyExecutor, methods=["match-expected"], coupling="slot")
    assert shared.verdict == "fail"


@pytest.mark.parametrize("name", [n for n, m in MUTANTS.items() if m.caught_by == BY_LAW])
def test_each_executor_that_commits_another_law_is_rejected(name: str) -> None:
    # Rejected for certain but for 1e-6: it commits one length for ever.
    outcome = law_outcome(MUTANTS[name].factory, methods=["match-expected"])
    assert outcome.verdict == "fail"
    assert "committed lengths: seen" in outcome.detail
    assert outcome.snippet
    compile(outcome.snippet, name, "exec")


@pytest.mark.parametrize("name", [n for n, c in CORRECTS.items() if not c.fails])
def test_correct_executors_are_not_refuted(name: str) -> None:
    assert refuted(CORRECTS[name].factory) == {}


def test_an_executor_that_keeps_the_real_bonus_lacks_the_advisory_property_alone() -> None:
    found = refuted(CORRECTS["real-bonus-kept"].factory)
    assert set(found) == {"bonus"}
    assert "ending in the real accept's bonus" in found["bonus"]


# Two draws of 4.7 agree with probability 0.58: in 14 steps of it and as
# many of multinomial, a miss of two-draws is below 1e-7.
@pytest.mark.parametrize("name", [n for n, m in MUTANTS.items() if m.caught_by != BY_LAW])
def test_each_faulty_executor_is_refuted(name: str) -> None:
    mutant = MUTANTS[name]
    assert mutant.caught_by.partition(".")[2] in refuted(mutant.factory)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CORRECTS, *MUTANTS])
def test_whole_checks_of_all_finalizers(name: str) -> None:
    if name in CORRECTS:
        report = check(CORRECTS[name].factory)
        failed = {o.property_id for o in report.outcomes if o.verdict != "pass"}
        assert failed == set(CORRECTS[name].fails)
    else:
        mutant = MUTANTS[name]
        wanted = [*WANTED, BY_LAW]
        report = specsim.check(mutant.factory, effort="quick", properties=wanted)
        assert report[mutant.caught_by].verdict == "fail"


def per_slot(gamma: int, acc_len: float, method: str) -> TargetVerifyExecutor:
    return TargetVerifyExecutor(gamma, acc_len, method, coupling="slot", step_capacity=LARGEST)


def small_step_capacity(gamma: int, acc_len: float, method: str) -> TargetVerifyExecutor:
    return TargetVerifyExecutor(gamma, acc_len, method, coupling="slot", step_capacity=6)


def test_slots_with_draws_of_their_own_pass_as_such_and_not_as_one_draw() -> None:
    """A miss: 5 slots of 4.7 agree with probability 0.17, those of 8 batches below 1e-6."""
    assert refuted(per_slot, coupling="slot") == {}
    found = refuted(per_slot)
    assert "commit-lens" in found
    assert "as in its other requests" in found["commit-lens"]


@pytest.mark.parametrize("factory", [TargetVerifyExecutor, per_slot, small_step_capacity])
def test_the_step_protocol_is_stepped_before_each_batch(factory: Callable[..., object]) -> None:
    coupling = "batch" if factory is TargetVerifyExecutor else "slot"
    seen = steps_of(factory, coupling=coupling, step_method="begin_step")
    assert seen.refutations == {}
    assert seen.judged["commit-lens"] > 100


class Plain:
    """An executor as a user may write one: no limits, no fixed token, a mapping of int32."""

    def __init__(self, gamma: int, acc_len: float, method: str) -> None:
        self.gamma, self.acc_len, self.method = gamma, acc_len, method

    def _simulated_correct_len(self, *, bs: int, dtype: Any, device: Any) -> torch.Tensor:
        drawn = sample_simulated_acc_len(self.acc_len, self.method, self.gamma + 1) - 1
        return torch.full((bs,), drawn, dtype=dtype, device=device)

    def accept_and_finalize(
        self,
        draft_tokens: torch.Tensor,
        prefix_lens: torch.Tensor,
        target_tokens: torch.Tensor,
    ) -> Any:
        correct = greedy_accept(draft_tokens, target_tokens)[0].to(torch.int32)
        bs = draft_tokens.shape[0]
        if self.acc_len > 0.0:
            correct = self._simulated_correct_len(bs=bs, dtype=torch.int32, device="cpu")
        return self.result(correct, draft_tokens, prefix_lens, target_tokens)

    def result(
        self,
        correct: torch.Tensor,
        drafts: torch.Tensor,
        prefix_lens: torch.Tensor,
        targets: torch.Tensor,
    ) -> Any:
        tokens = torch.cat([drafts, drafts.new_zeros(len(drafts), 1)], dim=1)
        position = correct[:, None].to(torch.int64)
        return {
            "correct_len": correct,
            "commit_lens": correct + 1,
            "new_seq_lens": prefix_lens + (correct + 1).to(prefix_lens.dtype),
            "out_tokens": tokens.scatter(1, position, targets.gather(1, position)),
        }


@pytest.mark.usefixtures("few_examples")
def test_what_an_executor_does_not_offer_is_skipped_with_the_reason() -> None:
    report = check(Plain)
    verdicts = {o.property_id: o.verdict for o in report.outcomes}
    skipped = {"F.caps", "F.cap-trim", "T.fixed"}
    assert verdicts == {i: "skip" if i in skipped else "pass" for i in IDS}
    assert "neither verify_lens nor caps" in report["F.caps"].detail
    assert "token_mode and fixed_token_id" in report["T.fixed"].detail
    assert report.ok


class WithoutTokens(Plain):
    def result(self, *arguments: torch.Tensor) -> Any:
        result = super().result(*arguments)
        del result["out_tokens"], result["new_seq_lens"]
        return result


@pytest.mark.usefixtures("few_examples")
def test_a_result_without_tokens_is_judged_by_its_lengths_alone() -> None:
    report = check(WithoutTokens)
    verdicts = {o.property_id: o.verdict for o in report.outcomes if o.verdict != "skip"}
    assert verdicts == {"F.commit-lens": "pass", "E.off": "pass"}
    assert "hold nothing that shows it" in report["F.seq-lens"].detail


class LengthsOnly(Plain):
    accept_and_finalize = None  # type: ignore[assignment]


class OtherArguments(Plain):
    def accept_and_finalize(self, logits: torch.Tensor) -> Any:  # type: ignore[override]
        raise AssertionError(logits)


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (LengthsOnly, "no accept_and_finalize: only the lengths that it forces can be judged"),
        (OtherArguments, "cannot be called with draft_tokens, prefix_lens, target_tokens"),
    ],
)
def test_executors_that_do_not_commit_are_skipped(
    factory: Callable[..., object], reason: str
) -> None:
    report = check(factory)
    assert {o.property_id: o.verdict for o in report.outcomes} == dict.fromkeys(IDS, "skip")
    assert reason in report["T.real-draft-token"].detail
    assert "specsim.record" in report["T.real-draft-token"].detail


class Raises(Plain):
    def result(self, *arguments: torch.Tensor) -> Any:
        raise RuntimeError("no such kernel")


class ReturnsNone(Plain):
    def result(self, *arguments: torch.Tensor) -> Any:
        return None


@pytest.mark.usefixtures("few_examples")
@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (Raises, "raised RuntimeError: no such kernel"),
        (ReturnsNone, "returned None without correct_len and commit_lens"),
    ],
)
def test_an_executor_that_does_not_return_fails_and_passes_nothing(
    factory: Callable[..., object], said: str
) -> None:
    report = check(factory)
    verdicts = {o.property_id: o.verdict for o in report.judged}
    assert verdicts.pop("F.commit-lens") == verdicts.pop("E.off") == "fail"
    assert set(verdicts.values()) == {"inconclusive"}
    assert said in report["F.commit-lens"].detail
    assert "not judged: " in report["F.seq-lens"].detail


class BrokenFactory(TargetVerifyExecutor):
    def __init__(self, *arguments: Any) -> None:
        raise RuntimeError("no device")


def test_a_factory_that_raises_leaves_all_inconclusive() -> None:
    report = check(BrokenFactory)
    assert {o.verdict for o in report.outcomes} == {"inconclusive"}
    assert "raised RuntimeError: no device" in report["F.caps"].detail


class WrongAboveCapacity(Plain):
    """A fault that only a batch above 512 shows."""

    def result(self, correct: torch.Tensor, *more: torch.Tensor) -> Any:
        result = super().result(correct, *more)
        if len(correct) > 512:
            result["new_seq_lens"] = result["commit_lens"]
        return result


def test_a_large_batch_is_shrunk_to_the_least_that_shows_the_fault() -> None:
    target = ExecutorTarget("target", WrongAboveCapacity)
    seen = run_steps(target, offer_of(target, PROBE), METHODS, 0, 20)
    assert set(seen.refutations) == {"seq-lens", "off"}
    (batch,) = seen.refutations["seq-lens"].case.batches
    assert (batch.bs, len(batch.pattern)) == (513, 1)


class Malformed(Plain):
    changed: Callable[[dict[str, torch.Tensor]], None]

    def result(self, *arguments: torch.Tensor) -> Any:
        result = super().result(*arguments)
        type(self).changed(result)
        return result


@pytest.mark.parametrize(
    ("changed", "name", "said"),
    [
        (lambda r: r.update(out_tokens=r["out_tokens"].flatten()), "commit-lens", "gamma + 1"),
        (lambda r: r.update(out_tokens=r["out_tokens"][:, :1]), "commit-lens", "that many token"),
        (lambda r: r.update(commit_lens=r["commit_lens"][:1]), "commit-lens", "has shape"),
        (lambda r: r.update(commit_lens=r["commit_lens"].double()), "commit-lens", "float64"),
        (lambda r: r.update(new_seq_lens=r["new_seq_lens"].int()), "seq-lens", "int32, expected"),
        (lambda r: r.update(bonus=r["out_tokens"]), "bonus", "has shape"),
        (lambda r: r.update(cap_trim_lens=r["correct_len"] * 0 + 1), "cap-trim", "expected 0"),
        (lambda r: r.update(cap_trim_lens=r["correct_len"].long() * 0), "cap-trim", "int64"),
    ],
)
def test_results_of_the_wrong_form_are_refuted(
    changed: Callable[[dict[str, torch.Tensor]], None], name: str, said: str
) -> None:
    found = refuted(type("Changed", (Malformed,), {"changed": staticmethod(changed)}))
    assert said in found[name]


class DrawsWhenOff(Plain):
    def result(self, *arguments: torch.Tensor) -> Any:
        random.random()
        return super().result(*arguments)


@pytest.mark.usefixtures("few_examples")
def test_a_draw_with_simulation_off_is_noted_and_no_fault() -> None:
    outcome = check(DrawsWhenOff)["E.off"]
    assert outcome.verdict == "pass"
    assert "it drew from random all the same" in outcome.detail


class Steps1:
    """The step protocol alone."""

    def __init__(self, gamma: int, acc_len: float, method: str) -> None:
        self.drawn = (acc_len, method, gamma + 1)
        self._simulated_correct_len = torch.zeros(1, dtype=torch.int64) if self.on else None

    @property
    def on(self) -> bool:
        return self.drawn[0] > 0.0

    def begin_simulated_step(self) -> None:
        if self.on:
            self.fill()

    def fill(self) -> None:
        drawn = sample_simulated_acc_len(*self.drawn)
        self._simulated_correct_len = torch.full((1,), drawn - 1, dtype=torch.int64)


class StepsKeepATensor(Steps1):
    def __init__(self, gamma: int, acc_len: float, method: str) -> None:
        super().__init__(gamma, acc_len, method)
        self._simulated_correct_len = torch.zeros(1, dtype=torch.int64)


class StepsAlways(Steps1):
    def begin_simulated_step(self) -> None:
        self.fill()


class StepsAlwaysInPlace(StepsKeepATensor):
    def begin_simulated_step(self) -> None:
        assert self._simulated_correct_len is not None
        self._simulated_correct_len.fill_(sample_simulated_acc_len(*self.drawn) - 1)


class StepsRaiseWhenOff(Steps1):
    def begin_simulated_step(self) -> None:
        if not self.on:
            raise ValueError("simulate_acc_len")
        self.fill()


@pytest.mark.parametrize("factory", [Steps1, StepsKeepATensor])
def test_off_leaves_the_tensor_of_the_step_protocol_alone(factory: Callable[..., object]) -> None:
    outcome = check(factory)["E.off"]
    assert outcome.verdict == "pass"
    assert "leaves _simulated_correct_len as it was" in outcome.detail


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (StepsAlways, "that was None, with tensor([0])"),
        (StepsAlwaysInPlace, "that held 77, with tensor([0])"),
        (StepsRaiseWhenOff, "it raised ValueError: simulate_acc_len"),
    ],
)
def test_a_step_that_forces_with_simulation_off_fails(
    factory: Callable[..., object], said: str
) -> None:
    outcome = check(factory)["E.off"]
    assert outcome.verdict == "fail"
    assert said in outcome.detail


def run_snippet(snippet: str | None) -> str:
    assert snippet is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet, "snippet", "exec"), {})
    return printed.getvalue()


@pytest.mark.usefixtures("few_examples")
def test_a_failure_says_which_request_and_its_snippet_shows_it_again() -> None:
    outcome = check(MUTANTS["cap-leaves-one-more"].factory)["F.caps"]
    first, request = outcome.detail.splitlines()
    assert first == "accept_and_finalize, 1 request: commit_lens 2, expected at most 1"
    assert request.startswith("request 0: draft tokens [")
    assert "cap 1" in request or "verify_lens 1" in request
    assert outcome.configuration is not None
    assert f"executor = {outcome.configuration}" in (outcome.snippet or "")
    assert "'commit_lens': 2" in run_snippet(outcome.snippet)


@pytest.mark.usefixtures("few_examples")
def test_snippets_of_fixed_tokens_run() -> None:
    fixed = check(MUTANTS["fixed-but-for-the-bonus"].factory)["T.fixed"]
    assert fixed.configuration is not None
    assert "token_mode='fixed', fixed_token_id=" in fixed.configuration
    assert "'out_tokens': [" in run_snippet(fixed.snippet)


@given(st.data())
def test_the_model_accepts_no_other_length_than_the_one_committed(data: st.DataObject) -> None:
    """A result of the reference passes; with one number of it changed, something is refuted."""
    offer = Offer(None, None, ("verify_lens", "caps"), fixed=True)
    case = data.draw(cases(METHODS, offer))
    batch = case.batches[0]
    target = ExecutorTarget("reference", TargetVerifyExecutor)
    commit = Finalizer(target, offer, case.configuration, case.fixed_token_id).commit(batch)
    verdicts = judge(case, batch, commit, per_slot=False)
    assert set(verdicts.values()) <= {None}
    if batch.bs == 0:
        return
    name = data.draw(st.sampled_from(sorted(commit.columns)))
    slot = data.draw(st.integers(0, batch.bs - 1))
    column = commit.columns[name]
    values = list(column.values)
    if name == "out_tokens":
        position = data.draw(st.integers(0, commit.columns["commit_lens"].values[slot] - 1))
        values[slot] = list(values[slot])
        values[slot][position] += 1
    else:
        values[slot] += data.draw(st.sampled_from((-1, 1)))
    changed = {**commit.columns, name: Column(column.dtype, column.shape, values)}
    found = judge(case, batch, Commit(changed, False), per_slot=False)
    if case.fixed_token_id is not None and name == "bonus":
        return
    assert any(isinstance(finding, Finding) for finding in found.values())


@given(st.lists(st.integers(0, 1), min_size=0, max_size=6), st.data())
def test_the_real_accept_is_greedy_accept(drafts: list[int], data: st.DataObject) -> None:
    size = len(drafts) + 1
    targets = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    limit = data.draw(st.integers(1, size))
    accepted = greedy_accept(
        torch.tensor([drafts], dtype=torch.int64),
        torch.tensor([targets]),
        torch.tensor([limit]),
    )[0]
    assert real_accept(Request(tuple(drafts), tuple(targets), 0), limit) == accepted.item()


def test_known_cases_have_distinct_tokens_ragged_caps_and_every_size() -> None:
    offer = Offer(None, None, ("verify_lens", "caps"), fixed=True)
    batches = [b for c in known_cases(METHODS, offer) for b in c.batches]
    assert {b.bs for b in batches} >= {0, 1, 600}
    assert {(b.token_dtype, b.prefix_dtype) for b in batches} >= {
        ("int64", "int64"),
        ("int32", "int32"),
    }
    caps = {r.cap for b in batches if b.gamma == 7 for r in b.pattern}
    assert caps >= {None, 1, 8, 9}
    for request, following in zip(*[iter(distinct_requests(7, 10, 1_000))] * 2, strict=True):
        ids = [*request.draft_tokens, *following.draft_tokens]
        assert len(set(ids)) == 14
        assert set(request.target_tokens).isdisjoint(following.target_tokens)


def test_successive_batches_share_no_committed_token_at_one_place() -> None:
    """Else a stale token could pass for a fresh one."""
    case: Case = known_cases(METHODS, Offer(None, None, ("verify_lens", "caps")))[0]
    tokens: list[list[tuple[int, ...]]] = [
        [(*r.draft_tokens, *r.target_tokens) for r in batch.pattern] for batch in case.batches
    ]
    for before, after in itertools.pairwise(tokens):
        for old, new in zip(before, after, strict=False):
            assert all(x != y for x, y in zip(old, new, strict=True))


def test_arguments_repeat_the_pattern() -> None:
    batch = Batch(1, 3, (Request((1,), (2, 3), 4, cap=2), Request((5,), (6, 7), 8, cap=1)), "int32")
    arguments = batch.arguments()
    assert set(arguments) == {"draft_tokens", "prefix_lens", "target_tokens", "caps"}
    assert arguments["draft_tokens"].tolist() == [[1], [5], [1]]
    assert arguments["draft_tokens"].dtype == torch.int32
    assert arguments["caps"].tolist() == [2, 1, 2]
    assert Batch(3, 0, ()).arguments()["target_tokens"].shape == (0, 4)
