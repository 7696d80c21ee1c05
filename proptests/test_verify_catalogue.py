"""Ranked executors, the three consumers together and accept rules, held against the catalogue."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest
import torch

import specsim
from specsim.mutants.accept import all_accept_mutants, all_correct_accepts
from specsim.mutants.consumers import ConsumerBundle
from specsim.mutants.verify_all import all_bundles, all_correct_ranks, all_rank_mutants
from specsim.mutants.verify_registry import VerifyCorrect, VerifyMutant
from specsim.properties.registry import catalogue
from specsim.verify import chain_accept


@pytest.mark.parametrize("mutant", all_rank_mutants(), ids=lambda mutant: mutant.name)
def test_each_faulty_rank_is_rejected_by_its_property(mutant: VerifyMutant) -> None:
    # Ranks that draw 2,000 lengths apart agree on all of them with a chance far below 1e-100.
    report = specsim.check(
        mutant.factory,
        kind="executor",
        effort="quick",
        coupling=mutant.options.coupling,
        properties=[mutant.caught_by],
    )
    outcome = report[mutant.caught_by]
    assert outcome.verdict == "fail", outcome.detail
    assert outcome.snippet
    compile(outcome.snippet, mutant.name, "exec")


# Broadcasts of correct ranks are held against both R properties in test_ranks_property.py, too.
CORRECT_RANKS = [
    pytest.param(
        correct, id=correct.name, marks=[pytest.mark.slow] * correct.name.startswith("broadcast")
    )
    for correct in all_correct_ranks()
]


@pytest.mark.parametrize("variant", CORRECT_RANKS)
def test_each_correct_rank_passes(variant: VerifyCorrect) -> None:
    # Nothing here is decided by chance.
    report = specsim.check(variant.factory, kind="executor", effort="quick", properties=["R"])
    failed = {o.property_id for o in report.outcomes if o.verdict != "pass"}
    assert failed == set(variant.fails), [(o.property_id, o.detail) for o in report.outcomes]


def consumers(bundle: ConsumerBundle) -> dict[str, Callable[..., object]]:
    return {"E": bundle.executor, "D": bundle.dflash(), "A": bundle.eagle()}


def law_verdict(letter: str, target: Callable[..., object]) -> str:
    report = specsim.check(
        target,
        effort="quick",
        properties=[f"{letter}.distribution"],
        methods=["match-expected"],
    )
    return report[f"{letter}.distribution"].verdict


def test_a_consumer_with_another_law_than_the_two_others_is_rejected() -> None:
    # Rejected for certain: it rounds.
    bundle = next(bundle for bundle in all_bundles() if bundle.caught_by is not None)
    assert bundle.caught_by == "A.distribution"
    assert law_verdict("A", consumers(bundle)["A"]) == "fail"


@pytest.mark.slow
def test_the_other_consumers_and_all_of_a_correct_bundle_pass() -> None:
    # Rejected with probability at most 1e-6 each.
    for bundle in all_bundles():
        for letter, target in consumers(bundle).items():
            wrong = bundle.caught_by == f"{letter}.distribution"
            assert (law_verdict(letter, target) == "pass") != wrong, (bundle.name, letter)


def test_an_accept_rule_is_told_from_its_arguments_and_judged_as_any_lossless_one() -> None:
    assert {p.id for p in catalogue("accept")} == {"L.returns", "L.distribution"}
    assert {p.id for p in catalogue("chain-accept")} - {p.id for p in catalogue("accept")} == {
        "L.accepted"
    }


def test_accept_mutants_and_correct_rules_name_properties_that_exist() -> None:
    known = {p.id for p in catalogue("chain-accept")}
    assert {mutant.caught_by for mutant in all_accept_mutants()} <= known
    assert {rule.name for rule in all_correct_accepts()} == {
        "chain",
        "log-space",
        "gumbel-max",
        "block",
    }


def test_the_frames_of_an_accept_rule_that_raises_are_its_own() -> None:
    def broken(
        draft_tokens: torch.Tensor, draft_probs: torch.Tensor, target_probs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return chain_accept(draft_tokens, draft_probs.squeeze(0)[0], target_probs)

    report = specsim.check(broken, effort="quick", seed=secrets.randbits(16))
    assert report["L.returns"].verdict == "fail"
    assert "in broken" in report["L.returns"].detail
    assert "specsim/properties" not in report["L.returns"].detail
    assert report["L.distribution"].verdict == "inconclusive"
