"""The L properties: every faulty accept rule is rejected, correct ones pass, and reports read well.

False alarms: a correct rule is rejected by all statistical properties of a run together at a rate
of at most ALPHA. That a correct rule passes, rather than staying open, takes less than half the
budget in every case.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specsim.adapters.accept import (
    ACCEPT_KINDS,
    AcceptTarget,
    adapt_accept,
    looks_like_accept,
)
from specsim.evidence.law import FloatArray
from specsim.evidence.lossless import complete
from specsim.evidence.sequential import SequentialTest
from specsim.loading.failures import TargetError, TargetRaised, TargetReturned
from specsim.mutants.accept import all_accept_mutants, all_correct_accepts
from specsim.mutants.accept_base import AcceptMutant, AcceptRule, CorrectAccept
from specsim.properties import lossless
from specsim.properties.lossless_cases import (
    LosslessCase,
    lossless_cases,
    simple_cases,
    to_bfloat16,
)
from specsim.properties.lossless_evidence import (
    PLACE_CELLS,
    LawTest,
    LosslessSettings,
    count_test,
    places,
)
from specsim.properties.lossless_runs import run_case
from specsim.properties.outcome import EFFORTS, Outcome
from specsim.properties.registry import Property, catalogue
from specsim.properties.session import AcceptSession, Settings
from specsim.verify.accept import chain_accept

ALPHA = 1e-6
SETTINGS = LosslessSettings(
    seed=0, alpha_run=ALPHA, alpha=1e-8, delta=0.05, tolerance=0.005, budget=60_000
)
PROPERTIES: dict[str, Property] = {p.id: p for p in catalogue() if p.id.startswith("L.")}

# Cases of the quick plan that between them show every fault: prefix-dependent tables, drafts like
# the target's, fewer drafts, zeros.
_FEW = (
    "3 tokens, 2 drafts, p and q unlike each other",
    "2 tokens, 5 drafts, p and q unlike each other",
    "3 tokens, 3 drafts, p and q unlike each other, some requests with fewer drafts",
    "4 tokens, 2 drafts, p and q on disjoint tokens",
)
_APART = "2 tokens, 8 drafts, q close to p"

Rule = Callable[..., Any]


@dataclass
class StandIn:
    """What the L properties use of a session."""

    target: AcceptTarget
    settings: Settings = field(default_factory=lambda: Settings(effort="quick", alpha=ALPHA))
    import_line: str = "from rules import rule"
    drawn: list[int] = field(default_factory=list)
    memo: dict[str, Any] = field(default_factory=dict)

    def progress(self, requests: int) -> None:
        self.drawn.append(requests)


def plan(*names: str) -> list[LosslessCase]:
    by_name = {case.name: case for case in lossless_cases("quick", 0)}
    return [by_name[name] for name in names]


def judged(
    rule: Rule,
    kind: str = "chain-accept",
    cases: Sequence[LosslessCase] | None = None,
    **more: Any,
) -> dict[str, Outcome]:
    """Return the outcomes of a rule on a few cases, or on the whole quick plan."""
    stand_in = StandIn(adapt_accept(rule, kind, "rule"), **more)
    session = cast("AcceptSession", stand_in)
    if cases is not None:
        stand_in.memo["lossless"] = lossless.run_cases(stand_in.target, cases, session)
    return {p.id: p.check(session) for p in PROPERTIES.values() if kind in p.kinds}


@cache
def mutant_outcomes(name: str) -> dict[str, Outcome]:
    rules = {entry.name: entry.rule for entry in all_accept_mutants()}
    return judged(rules[name], cases=plan(*_FEW))


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (AcceptMutant, CorrectAccept)) else None


def verdicts(outcomes: dict[str, Outcome]) -> dict[str, str]:
    return {property_id: outcome.verdict for property_id, outcome in outcomes.items()}


def run_program(snippet: str, rule: Rule) -> str:
    """Run a snippet with its import replaced by a rule at hand, and return what it prints."""
    assert "from rules import rule\n" in snippet
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(snippet.replace("from rules import rule\n", ""), {"rule": rule})
    return printed.getvalue()


class TestVerdicts:
    @pytest.mark.parametrize("entry", all_accept_mutants(), ids=name_of)
    def test_every_fault_is_rejected(self, entry: AcceptMutant) -> None:
        outcomes = mutant_outcomes(entry.name)
        outcome = outcomes[entry.caught_by]
        assert outcome.verdict == "fail", outcome.detail
        assert outcomes["L.returns"].verdict == "pass"
        assert outcome.snippet is not None
        assert outcome.configuration == (
            "rule(draft_tokens, draft_probs, target_probs, generator=generator)"
        )

    @pytest.mark.parametrize(
        ("rule", "chain"),
        [(chain_accept, True), *((e.rule, e.chain) for e in all_correct_accepts())],
        ids=["reference", *(e.name for e in all_correct_accepts())],
    )
    def test_correct_rules_pass(self, rule: AcceptRule, chain: bool) -> None:
        """False alarms at a rate of at most ALPHA for each rule."""
        outcomes = judged(rule, "chain-accept" if chain else "accept", plan(*_FEW, _APART))
        assert set(verdicts(outcomes).values()) == {"pass"}, outcomes
        assert ("L.accepted" in outcomes) == chain

    def test_equal_samples_are_lossless(self) -> None:
        """False alarms at a rate of at most ALPHA."""
        assert mutant_outcomes("equal-samples")["L.distribution"].verdict == "pass"

    def test_block_verification_is_no_chain_rule(self) -> None:
        rules = {entry.name: entry.rule for entry in all_correct_accepts()}
        outcomes = judged(rules["block"], "chain-accept", plan(_FEW[0]))
        assert verdicts(outcomes) == {
            "L.returns": "pass",
            "L.distribution": "pass",
            "L.accepted": "fail",
        }

    @pytest.mark.slow
    def test_the_whole_quick_plan_on_the_reference(self) -> None:
        """False alarms at a rate of at most ALPHA."""
        outcomes = judged(chain_accept)
        assert set(verdicts(outcomes).values()) == {"pass"}, outcomes
        detail = outcomes["L.distribution"].detail
        assert "no deviation of 0.05 or more in total variation" in detail
        assert "error 1e-06" in detail
        assert re.search(r"control: a planted rule .* was rejected after [\d,]+ and", detail)

    @pytest.mark.slow
    @pytest.mark.parametrize("entry", all_accept_mutants(), ids=name_of)
    def test_the_whole_quick_plan_on_every_fault(self, entry: AcceptMutant) -> None:
        assert judged(entry.rule)[entry.caught_by].verdict == "fail"

    @pytest.mark.slow
    @pytest.mark.parametrize("entry", all_correct_accepts(), ids=name_of)
    @pytest.mark.parametrize("effort", ["quick", "standard"])
    @pytest.mark.parametrize("seed", [0, 1])
    def test_the_whole_plan_on_correct_rules(
        self, entry: CorrectAccept, effort: Any, seed: int
    ) -> None:
        """False alarms at a rate of at most ALPHA for each."""
        settings = Settings(effort=effort, alpha=ALPHA, seed=seed)
        kind = "chain-accept" if entry.chain else "accept"
        outcomes = judged(entry.rule, kind, settings=settings)
        assert set(verdicts(outcomes).values()) == {"pass"}, outcomes

    def test_no_pass_without_the_control(self) -> None:
        """With p = q nothing is ever rejected, so that the planted fault cannot show."""
        model = np.array([0.25, 0.75]), np.full((2, 2), 0.5)
        case, control = (
            LosslessCase("p = q", model[:1], model, (1024,), control=planted)
            for planted in (False, True)
        )
        assert judged(chain_accept, cases=[case])["L.distribution"].verdict == "pass"
        outcome = judged(chain_accept, cases=[control])["L.distribution"]
        assert outcome.verdict == "inconclusive"
        assert "the planted fault was not rejected" in outcome.detail

    def test_too_few_requests_stay_open(self) -> None:
        target = adapt_accept(chain_accept, "chain-accept", "rule")
        few = LosslessSettings(0, ALPHA, 1e-8, delta=0.05, tolerance=0.005, budget=512)
        result = run_case(target, plan(_FEW[0])[0], few)
        assert result.tokens.verdict == "inconclusive"
        assert result.requests == 512


class TestReports:
    def test_a_deviation_is_named(self) -> None:
        outcome = mutant_outcomes("residual-is-target")["L.distribution"]
        first, remark, count = outcome.detail.splitlines()
        seen, expected = re.fullmatch(
            r"2 tokens, 1 draft: of the emitted tokens, completed from p to 2: the first token "
            r"was 0 in ([\d.]+)% of [\d,]+ requests; p gives ([\d.]+)%",
            first,
        ).groups()  # type: ignore[union-attr]
        # q = (3/4, 1/4) and p = (1/4, 3/4): a token 0 is accepted with probability 1/3, and after
        # a rejection comes again with probability 1/4. 5,952 draws: 12 standard errors are 7.5 %.
        assert float(seen) == pytest.approx(37.5, abs=7.5)
        assert float(expected) == 25.0
        assert remark.startswith("with exactly 0 accepted the bonus was 0 in 2")
        assert remark.endswith("requests; the chain rule gives 0.0%")
        assert count == "3 of 4 cases fail"

    def test_dependent_requests_are_named(self) -> None:
        detail = mutant_outcomes("uniform-shared-by-requests")["L.distribution"].detail
        assert "requests depend on each other" in detail

    def test_wrong_laws_are_not_called_dependent(self) -> None:
        for name in ("residual-is-target", "bonus-from-draft", "prefix-one-long"):
            detail = mutant_outcomes(name)["L.distribution"].detail
            assert "depend on each other" not in detail

    def test_the_numbers_accepted_are_compared(self) -> None:
        detail = mutant_outcomes("equal-samples")["L.accepted"].detail
        assert detail.startswith("2 tokens, 1 draft: accepted 0: 6")
        assert "; p and q imply 0: 50.0%, 1: 50.0%" in detail

    @pytest.mark.parametrize(
        ("name", "property_id"),
        [
            ("residual-is-target", "L.distribution"),
            ("bonus-from-draft", "L.distribution"),
            ("later-tokens-committed", "L.distribution"),
            ("equal-samples", "L.accepted"),
        ],
    )
    def test_the_program_shows_the_deviation(self, name: str, property_id: str) -> None:
        """All of these move some share by at least 4 points, over 6 standard errors."""
        rules = {entry.name: entry.rule for entry in all_accept_mutants()}
        snippet = mutant_outcomes(name)[property_id].snippet
        assert snippet is not None
        printed = run_program(snippet, rules[name])
        what = {"L.distribution": r"seen ([\d.]+), p gives ([\d.]+)",
                "L.accepted": r"accepted \d: ([\d.]+); the chain rule ([\d.]+)"}  # fmt: skip
        pairs = re.findall(what[property_id], printed)
        assert max(abs(float(seen) - float(expected)) for seen, expected in pairs) > 0.02

    def test_the_program_shows_dependence(self) -> None:
        rules = {entry.name: entry.rule for entry in all_accept_mutants()}
        name = "uniform-shared-by-requests"
        snippet = mutant_outcomes(name)["L.distribution"].snippet
        assert snippet is not None
        printed = run_program(snippet, rules[name])
        shares = re.search(r"request before: ([\d.]+); independent ([\d.]+)", printed)
        assert shares is not None
        assert float(shares[1]) > float(shares[2]) + 0.1

    def test_a_program_with_large_tables_finds_its_case(self) -> None:
        """A fault that no simple case shows: it begins at the third draft."""

        def late(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            correct_len, bonus = chain_accept(draft_tokens, draft_probs, target_probs)
            size = draft_probs.shape[2]
            return correct_len, torch.where(correct_len == 3, (bonus + 1) % size, bonus)

        (case,) = plan("4 tokens, 3 drafts, p and q unlike each other")
        outcome = judged(late, cases=[case])["L.distribution"]
        assert outcome.verdict == "fail"
        assert outcome.snippet is not None
        assert f"case = cases[{case.name!r}]" in outcome.snippet
        shorter = re.sub(r"range\(\d+\):\n    drafts", "range(2):\n    drafts", outcome.snippet)
        assert "seen" in run_program(shorter, late)

    def test_outcomes_hold_json_types_only(self) -> None:
        import json

        for name in ("residual-not-clipped", "uniform-shared-by-requests"):
            for outcome in mutant_outcomes(name).values():
                json.dumps(dict(outcome.evidence), allow_nan=False)


class TestFaultyCalls:
    def test_a_rule_that_raises(self) -> None:
        def raising(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            if draft_tokens.shape[1] == 5:
                raise RuntimeError("five drafts are too many")
            return chain_accept(draft_tokens, draft_probs, target_probs)

        outcomes = judged(raising, cases=plan(*_FEW[:2]))
        assert verdicts(outcomes) == {
            "L.returns": "fail",
            "L.distribution": "inconclusive",
            "L.accepted": "inconclusive",
        }
        detail = outcomes["L.returns"].detail
        assert detail.startswith(
            "raised RuntimeError: five drafts are too many\n2 tokens, 5 drafts"
        )
        assert "in raising" in detail
        assert "lossless_runs" not in detail
        assert "not judged: raised RuntimeError" in outcomes["L.distribution"].detail

    def test_a_rule_that_always_raises_shows_one_call(self) -> None:
        def raising(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            raise SystemExit(3)

        outcome = judged(raising, "accept", plan(_FEW[1]))["L.returns"]
        assert outcome.detail.startswith("raised SystemExit: 3\n2 tokens, 1 draft\n")
        assert outcome.snippet is not None
        with pytest.raises(SystemExit):
            run_program(outcome.snippet, raising)

    def test_a_token_outside_the_support_fails_at_once(self) -> None:
        def accepts_all(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            bs, gamma = draft_tokens.shape
            bonus = torch.multinomial(target_probs[:, gamma], 1).squeeze(1)
            return torch.full((bs,), gamma), bonus

        outcomes = judged(accepts_all, "accept", plan(_FEW[3]))
        outcome = outcomes["L.distribution"]
        assert outcome.verdict == "fail"
        assert outcome.draws == 256
        target = adapt_accept(accepts_all, "accept", "rule")
        result = run_case(target, plan(_FEW[3])[0], SETTINGS)
        assert result.stray is not None
        assert result.stray.accepted

    @pytest.mark.parametrize(
        ("correct_len", "bonus", "message"),
        [
            (torch.zeros(8), torch.zeros(8, dtype=torch.int64), "correct_len of dtype torch.flo"),
            (torch.zeros(8, dtype=torch.bool), torch.zeros(8, dtype=torch.int64), "torch.bool"),
            (
                torch.zeros(8, 1, dtype=torch.int64),
                torch.zeros(8, dtype=torch.int64),
                r"correct_len of shape \(8, 1\), expected an integer tensor of shape \(8,\)",
            ),
            (torch.zeros(8, dtype=torch.int64), [0] * 8, r"bonus \[0, 0"),
            (
                torch.tensor([0, 3, 0, 0, 0, 0, 0, 0]),
                torch.zeros(8, dtype=torch.int64),
                "correct_len 3 for request 1, which has 2 drafts",
            ),
            (
                torch.zeros(8, dtype=torch.int64),
                torch.tensor([0, 0, 0, -1, 0, 0, 0, 0]),
                "bonus -1 for request 3; tokens are 0 … 2",
            ),
        ],
    )
    def test_what_is_no_answer_is_refused(self, correct_len: Any, bonus: Any, message: str) -> None:
        with pytest.raises(TargetReturned, match=message):
            call(lambda draft_tokens, draft_probs, target_probs: (correct_len, bonus))

    def test_something_else_than_two_tensors_is_refused(self) -> None:
        for returned in (None, 3, (1, 2, 3), {"correct_len": 1}):
            with pytest.raises(TargetReturned, match="expected correct_len and bonus"):
                call(lambda *arguments, answer=returned: answer)


def call(rule: Rule, lens: Tensor | None = None) -> Any:
    """Call a rule on 8 requests of 2 drafts and 3 tokens."""
    target = adapt_accept(rule, "accept", "rule")
    q, p = torch.full((8, 2, 3), 1 / 3), torch.full((8, 3, 3), 1 / 3)
    tokens = torch.zeros(8, 2, dtype=torch.int64)
    return target.accept(tokens, q, p, lens, torch.Generator().manual_seed(1))


class Pair(NamedTuple):
    bonus: Tensor
    correct_len: Tensor


class TestAdapter:
    @pytest.mark.parametrize(
        ("wrap", "form"),
        [
            (lambda k, y: (k, y), "pair"),
            (lambda k, y: {"correct_len": k, "bonus": y, "more": 1}, "mapping"),
            (lambda k, y: Pair(y, k), "attributes"),
        ],
    )
    def test_answers_come_in_three_forms(self, wrap: Rule, form: str) -> None:
        k, y = torch.ones(8, dtype=torch.int32), torch.full((8,), 2)
        answer = call(lambda draft_tokens, draft_probs, target_probs: wrap(k, y))
        assert answer.form == form
        assert answer.correct_len.tolist() == [1] * 8
        assert answer.bonus.tolist() == [2] * 8

    @pytest.mark.parametrize("form", ["mapping", "attributes"])
    def test_programs_read_the_same_form(self, form: str) -> None:
        def rule(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            correct_len, _ = chain_accept(draft_tokens, draft_probs, target_probs)
            bonus = torch.zeros_like(correct_len)
            if form == "mapping":
                return {"correct_len": correct_len, "bonus": bonus}
            return Pair(bonus, correct_len)

        snippet = judged(rule, cases=plan(_FEW[0]))["L.distribution"].snippet
        assert snippet is not None
        assert "seen" in run_program(snippet, rule)

    def test_a_reused_buffer_is_copied(self) -> None:
        """False alarms at a rate of at most ALPHA: the rule is correct."""
        kept = torch.zeros(64, dtype=torch.int64), torch.zeros(64, dtype=torch.int64)

        def cached(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            for buffer, value in zip(
                kept, chain_accept(draft_tokens, draft_probs, target_probs), strict=True
            ):
                buffer.copy_(value)
            return kept

        assert judged(cached, cases=plan(_FEW[0]))["L.distribution"].verdict == "pass"

    def test_inputs_written_over_do_not_change_the_verdict(self) -> None:
        """False alarms at a rate of at most ALPHA: the rule is correct."""

        def spoiling(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            answer = chain_accept(draft_tokens, draft_probs, target_probs)
            for tensor in (draft_tokens, draft_probs, target_probs):
                tensor.zero_()
            return answer

        assert judged(spoiling, cases=plan(_FEW[0]))["L.distribution"].verdict == "pass"

    def test_verify_lens_and_generator_are_given_by_name(self) -> None:
        seen: dict[str, Any] = {}

        def rule(
            draft_tokens: Tensor,
            draft_probs: Tensor,
            target_probs: Tensor,
            *,
            generator: torch.Generator,
            verify_lens: Tensor | None = None,
        ) -> Any:
            seen.update(generator=generator, verify_lens=verify_lens)
            return torch.zeros(8, dtype=torch.int64), torch.zeros(8, dtype=torch.int64)

        lens = torch.tensor([1, 2, 3, 1, 2, 3, 1, 2])
        call(rule, lens)
        assert seen["generator"].initial_seed() == 1
        assert torch.equal(seen["verify_lens"], lens)

    def test_verify_lens_without_a_default_are_always_given(self) -> None:
        """The rule is faulty, so that there is a program to look at."""

        def rule(a: Tensor, b: Tensor, c: Tensor, verify_lens: Tensor) -> Any:
            assert verify_lens.shape == (len(a),)
            correct_len, bonus = chain_accept(a, b, c, verify_lens)
            return correct_len, torch.zeros_like(bonus)

        outcome = judged(rule, "accept", plan(_FEW[0], _FEW[2]))["L.distribution"]
        assert outcome.verdict == "fail"
        assert outcome.snippet is not None
        assert "verify_lens = torch.tensor([gamma + 1] * bs)" in outcome.snippet
        assert "seen" in run_program(outcome.snippet, rule)

    def test_drafts_beyond_verify_lens_are_out_of_range(self) -> None:
        lens = torch.tensor([3, 3, 1, 3, 3, 3, 3, 3])
        ones = torch.ones(8, dtype=torch.int64)
        with pytest.raises(TargetReturned, match="correct_len 1 for request 2, which has 0 drafts"):
            call(lambda a, b, c, verify_lens=None: (ones, ones), lens)

    def test_a_rule_without_verify_lens_is_not_asked_for_fewer_drafts(self) -> None:
        """False alarms at a rate of at most ALPHA: the rule is correct."""

        def plain(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            return chain_accept(draft_tokens, draft_probs, target_probs)

        outcome = judged(plain, "accept", plan(_FEW[0], _FEW[2]))["L.distribution"]
        assert outcome.verdict == "pass"
        assert "1 cases left out: the rule has no verify_lens" in outcome.detail

    def test_raising_becomes_a_finding(self) -> None:
        def rule(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            raise KeyError("x")

        with pytest.raises(TargetRaised, match="raised KeyError"):
            call(rule)

    def test_detection_goes_by_the_first_three_names(self) -> None:
        assert looks_like_accept(chain_accept)
        assert all(looks_like_accept(entry.rule) for entry in all_accept_mutants())
        assert not looks_like_accept(lambda target_probs, draft_probs, draft_tokens: None)
        assert not looks_like_accept(lambda acc_len, method, max_len: None)
        assert not looks_like_accept(dict)

    def test_what_cannot_be_called_is_refused(self) -> None:
        async def later(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> None:
            await asyncio.sleep(0)

        with pytest.raises(TargetError, match="kind must be one of accept, chain-accept, got 's'"):
            adapt_accept(chain_accept, "s", "rule")
        with pytest.raises(TargetError, match=r"rule is not callable; .* got 3"):
            adapt_accept(cast("Rule", 3), "accept", "rule")
        with pytest.raises(TargetError, match="rule is a coroutine function"):
            adapt_accept(later, "accept", "rule")
        with pytest.raises(TargetError, match=r"rule\(a, b\) cannot be called as an accept rule"):
            adapt_accept(lambda a, b: None, "accept", "rule")

    def test_kinds(self) -> None:
        assert PROPERTIES["L.distribution"].kinds == ACCEPT_KINDS
        assert PROPERTIES["L.accepted"].kinds == ("chain-accept",)


class TestCases:
    def test_every_kind_and_every_number_of_drafts_is_quick(self) -> None:
        cases = lossless_cases("quick", 0)
        assert {case.gamma for case in cases} == set(range(1, 9))
        words = ("one-hot p", "one-hot q", "p = q", "disjoint", "tiny", "zeros", "bfloat16",
                 "temperature 0.6", "temperature 1.5", "fewer drafts")  # fmt: skip
        for word in words:
            assert any(word in case.name for case in cases), word
        assert any(not case.joint for case in cases)
        assert sum(case.control for case in cases) == 2
        assert {case.joint for case in cases if case.control} == {True, False}

    @pytest.mark.parametrize("seed", [0, 7, 2**70])
    def test_models_are_what_they_are_called(self, seed: int) -> None:
        for case in lossless_cases("thorough", seed):
            np.testing.assert_allclose(case.joint_law.sum(), 1.0, atol=1e-12)
            np.testing.assert_allclose(case.accepted_law.sum(), 1.0, atol=1e-12)
            overlap = [np.minimum(p, q) for p, q in zip(case.target, case.draft, strict=False)]
            if "disjoint" in case.name:
                assert all(np.all(part == 0.0) for part in overlap)
            if "p = q" in case.name:
                assert case.accepted_law[-1] == pytest.approx(1.0, abs=1e-12)
            if "one-hot p" in case.name:
                assert np.count_nonzero(case.joint_law) == 1
            if "tiny" in case.name:
                least = min(table[table > 0].min() for table in case.target)
                assert np.finfo(np.float32).tiny < least < 1e-6

    def test_a_case_is_the_same_in_every_effort(self) -> None:
        by_name = {case.name: case for case in lossless_cases("thorough", 3)}
        assert len(by_name) == len(lossless_cases("thorough", 3))
        for effort in EFFORTS:
            for case in lossless_cases(effort, 3):
                for ours, same in zip(case.target, by_name[case.name].target, strict=True):
                    np.testing.assert_array_equal(ours, same)

    def test_seeds_give_other_tables_except_to_the_controls(self) -> None:
        for ours, other in zip(
            *(lossless_cases("quick", seed)[:20] for seed in (0, 1)), strict=True
        ):
            if "one-hot" in ours.name:
                continue
            assert np.array_equal(ours.target[0], other.target[0]) == ours.control

    def test_simple_cases_are_exact(self) -> None:
        for case in simple_cases():
            for table in (*case.draft, *case.target):
                np.testing.assert_array_equal(table, table.astype(np.float32))
                np.testing.assert_array_equal(table.sum(axis=-1), 1.0)

    @given(
        st.lists(
            st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
            min_size=1,
            max_size=20,
        )
    )
    def test_bfloat16_is_torchs(self, values: list[float]) -> None:
        expected = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16).double()
        np.testing.assert_array_equal(to_bfloat16(np.array(values)), expected.numpy())


def sequences(model: Sequence[FloatArray], n: int, rng: np.random.Generator) -> Any:
    nothing = np.zeros((n, 0), dtype=np.int64)
    return complete(nothing, np.zeros(n, dtype=np.int64), tuple(model), rng)


class TestPlaces:
    @pytest.mark.parametrize("name", [*_FEW, _APART])
    def test_places_of_the_targets_tokens_are_uniform(self, name: str) -> None:
        """Five cases of up to 9 positions, each a false alarm at a rate of at most ALPHA."""
        (case,) = plan(name)
        rng = np.random.default_rng(11)
        found = places(case, sequences(case.target, 20_000, rng), rng)
        for column in found.T:
            test = SequentialTest(np.full(PLACE_CELLS, 1 / PLACE_CELLS), ALPHA)
            test.update(column)
            assert not test.rejected

    def test_they_are_uniform_after_each_prefix(self) -> None:
        """Three tests, each a false alarm at a rate of at most ALPHA."""
        (case,) = plan("3 tokens, 8 drafts, p and q unlike each other")
        rng = np.random.default_rng(12)
        tokens = sequences(case.target, 40_000, rng)
        found = (places(case, tokens, rng)[:, 1] - 1) % 8 + 1
        for first in range(case.size):
            test = SequentialTest(np.full(8, 1 / 8), ALPHA)
            test.update(found[tokens[:, 0] == first])
            assert test.draws > 1_000
            assert not test.rejected

    def test_tokens_of_another_law_are_not_uniform(self) -> None:
        """At every position one token's law is the draft model's for an eighth of the requests."""
        (case,) = plan("3 tokens, 8 drafts, p and q unlike each other")
        rng = np.random.default_rng(13)
        for position in range(case.gamma):
            tokens = sequences(case.target, 40_000, rng)
            wrong = rng.random(len(tokens)) < 0.125
            lengths = np.full(int(wrong.sum()), position)
            mixed = (*case.target[:position], case.draft[position])
            head = complete(tokens[wrong, :position], lengths, mixed, rng)
            tokens[wrong] = complete(head, lengths + 1, case.target, rng)
            test = SequentialTest(np.full(PLACE_CELLS, 1 / PLACE_CELLS), ALPHA)
            test.update(places(case, tokens, rng)[:, position])
            assert test.rejected


class TestLawTest:
    law = np.array([0.5, 0.25, 0.125, 0.125])

    def test_a_law_within_the_tolerance_is_reported_only(self) -> None:
        """A false alarm at a rate of at most 1e-8: the law drawn from is 0.004 away."""
        rng = np.random.default_rng(5)
        near = self.law + np.array([0.004, 0.0, 0.0, -0.004])
        test = LawTest("tokens", self.law, SETTINGS, independent=True)
        test.update(rng.choice(4, size=1_000_000, p=near) + 1)
        assert test.verdict == "pass"
        assert test.tolerated

    def test_a_law_beyond_the_tolerance_fails(self) -> None:
        rng = np.random.default_rng(6)
        far = self.law + np.array([0.02, 0.0, 0.0, -0.02])
        test = LawTest("tokens", self.law, SETTINGS, independent=True)
        test.update(rng.choice(4, size=200_000, p=far) + 1)
        assert test.verdict == "fail"
        assert test.dependence() is None

    def test_dependence_fails_and_is_told_from_a_wrong_law(self) -> None:
        rng = np.random.default_rng(7)
        fresh = rng.choice(4, size=20_000, p=self.law) + 1
        twice = np.repeat(fresh[:10_000], 2)
        for values, independent in ((fresh, True), (twice, False)):
            test = LawTest("tokens", self.law, SETTINGS, independent=True)
            test.update(values)
            assert (test.verdict != "fail") == independent
            assert (test.dependence() is None) == independent

    def test_a_rejection_by_rounding_is_no_failure(self) -> None:
        """With p = q the chain rule accepts everything, but for float32's last digits."""
        (case,) = plan("3 tokens, 3 drafts, p = q")
        one, many = (count_test(case, SETTINGS) for _ in range(2))
        one.update(np.array([1] + [4] * 30_000))
        assert one.verdict == "pass"
        many.update(np.array(([1] + [4] * 60) * 500))
        assert many.verdict == "fail"


class TestRuns:
    def test_generators_and_threads_are_put_back(self) -> None:
        target = adapt_accept(chain_accept, "accept", "rule")
        before = torch.random.get_rng_state(), torch.get_num_threads()
        run_case(target, plan(_FEW[0])[0], SETTINGS)
        assert torch.equal(torch.random.get_rng_state(), before[0])
        assert torch.get_num_threads() == before[1]

    @pytest.mark.parametrize("explicit", [True, False])
    def test_runs_repeat_under_a_seed(self, explicit: bool) -> None:
        def from_global(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            return chain_accept(draft_tokens, draft_probs, target_probs)

        target = adapt_accept(chain_accept if explicit else from_global, "accept", "rule")
        first, second = (run_case(target, plan(_FEW[0])[0], SETTINGS) for _ in range(2))
        np.testing.assert_array_equal(first.tokens.counts, second.tokens.counts)

    def test_batches_have_the_cases_sizes(self) -> None:
        sizes: list[int] = []

        def noting(draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor) -> Any:
            sizes.append(len(draft_tokens))
            return chain_accept(draft_tokens, draft_probs, target_probs)

        (case,) = [c for c in lossless_cases("quick", 0) if c.batches == (1, 64, 3, 17)]
        result = run_case(adapt_accept(noting, "accept", "rule"), case, SETTINGS)
        assert sizes[:5] == [1, 64, 3, 17, 1]
        assert sum(sizes) == result.requests
        assert len(Counter(sizes)) == 4

    def test_what_lies_beyond_a_requests_drafts_is_not_the_models(self) -> None:
        """A rule that takes all drafts for real ones emits garbage and fails."""

        def deaf(
            draft_tokens: Tensor, draft_probs: Tensor, target_probs: Tensor, verify_lens: Any = None
        ) -> Any:
            correct_len, bonus = chain_accept(draft_tokens, draft_probs, target_probs)
            if verify_lens is not None:
                correct_len = torch.minimum(correct_len, verify_lens - 1)
            return correct_len, bonus

        assert judged(deaf, "accept", plan(_FEW[2]))["L.distribution"].verdict == "fail"
        assert judged(deaf, "accept", plan(_FEW[0]))["L.distribution"].verdict == "pass"
