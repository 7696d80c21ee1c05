"""Faulty and correct DFlash and EAGLE functions do what they state, beside the reference.

Each is called as the reference is, from equal generators, so that both force the same lengths: what
differs is compared with what is stated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from proptests.exact_counts import agrees
from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.consumers import rounding_eagle
from specsim.mutants.dflash import SampledDFlash
from specsim.mutants.eagle import SampledEagle
from specsim.mutants.executor_base import BufferExecutor
from specsim.mutants.sampler_faults import SAMPLER_FAULTS
from specsim.mutants.verify_all import (
    all_bundles,
    all_correct_dflash,
    all_correct_eagle,
    all_dflash_mutants,
    all_eagle_mutants,
)
from specsim.mutants.verify_registry import VerifyCorrect, VerifyMutant
from specsim.verify.dflash import apply_dflash_simulated_acceptance
from specsim.verify.eagle import generate_simulated_accept_index

GAMMA = 7
BS = 3
STALE = 7_777
FIXED = 100
MODES = ("real-draft-token", "fixed")
LAW = AcceptanceDistribution.match_expected(4.7, GAMMA + 1)
BY_SAMPLER = {fault.name for fault in SAMPLER_FAULTS}

# What differs from the reference in each mode. Beyond the commit, anything may.
DFLASH: dict[str, dict[str, set[str]]] = {
    "counts-one-too-many": {mode: {"accept_len", "commit_lens"} for mode in MODES},
    "two-draws": {mode: {"commit_lens"} for mode in MODES},
    "first-request-only": {mode: {"commit_lens"} for mode in MODES},
    "accept-len-counts-the-bonus": {mode: {"accept_len"} for mode in MODES},
    "bonus-of-the-position-before": {"real-draft-token": {"bonus", "out_tokens"}},
    "stale-token-inside": {"real-draft-token": {"out_tokens"}},
    "anchor-committed": {"real-draft-token": {"out_tokens"}},
    "drafts-replaced-by-a-constant": {"real-draft-token": {"out_tokens"}},
    "fixed-but-for-the-bonus": {"fixed": {"bonus", "out_tokens"}},
}
EAGLE: dict[str, dict[str, set[str]]] = {
    "two-draws": {mode: {"num_correct_drafts"} for mode in MODES},
    "first-request-only": {mode: {"num_correct_drafts"} for mode in MODES},
    "count-includes-the-bonus": {mode: {"num_correct_drafts"} for mode in MODES},
    "index-one-short": {mode: {"index"} for mode in MODES},
    "index-goes-on": {mode: {"index"} for mode in MODES},
    "index-zero-beyond": {mode: {"index"} for mode in MODES},
    "index-of-the-first-request": {mode: {"index"} for mode in MODES},
    "index-repeats-the-anchor": {mode: {"index"} for mode in MODES},
    "bonus-of-the-position-before": {"real-draft-token": {"predict"}},
    "stale-token-inside": {"real-draft-token": {"predict"}},
    "drafts-replaced-by-a-constant": {"real-draft-token": {"predict"}},
    "fixed-but-for-the-bonus": {"fixed": {"predict"}},
}


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (VerifyMutant, VerifyCorrect)) else None


def without_empty(shown: dict[str, set[str]]) -> dict[str, set[str]]:
    return {situation: fields for situation, fields in shown.items() if fields}


def dflash_arguments(mode: str, stale: int) -> dict[str, Any]:
    candidates = torch.arange(BS * (GAMMA + 1)).reshape(BS, GAMMA + 1) + 1_000
    return {
        "candidates": candidates,
        "target_predict": candidates + 4_000,
        "accept_len": torch.full((BS,), stale, dtype=torch.int32),
        "commit_lens": torch.full((BS,), stale, dtype=torch.int32),
        "bonus": torch.full((BS,), stale),
        "out_tokens": torch.full((BS, GAMMA + 1), stale, dtype=torch.int32),
        "simulate_acc_len": 4.7,
        "simulate_acc_method": "match-expected",
        "simulate_acc_token_mode": mode,
        "fixed_token_id": FIXED,
    }


def eagle_arguments(mode: str, width: int) -> dict[str, Any]:
    """Return arguments with more candidates than spec_steps + 1, and anchors out of order."""
    candidates = torch.arange(BS * (GAMMA + 3)).reshape(BS, GAMMA + 3) + 1_000
    accept_index = torch.full((BS, width), STALE)
    accept_index[:, 0] = torch.tensor([20, 0, 10])
    return {
        "accept_index": accept_index,
        "predict": torch.full((BS * (GAMMA + 3),), STALE, dtype=torch.int32),
        "num_correct_drafts": torch.full((BS,), STALE, dtype=torch.int32),
        "candidates": candidates,
        "target_predict": candidates + 4_000,
        "bs": BS,
        "spec_steps": GAMMA,
        "simulate_acc_len": 4.7,
        "simulate_acc_method": "match-expected",
        "simulate_acc_token_mode": mode,
    }


def seeded(seed: int, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return function(**arguments)


def dflash_differ(entry: VerifyMutant | VerifyCorrect) -> dict[str, set[str]]:
    shown: dict[str, set[str]] = {}
    for mode in MODES:
        found = shown.setdefault(mode, set())
        function = entry.factory()
        for seed in range(20):
            mine, reference = dflash_arguments(mode, STALE), dflash_arguments(mode, STALE)
            seeded(seed, apply_dflash_simulated_acceptance, reference)
            assert seeded(seed, function, mine) is None
            length = int(reference["commit_lens"][0])
            for name in ("accept_len", "commit_lens", "bonus"):
                if not torch.equal(mine[name], reference[name]):
                    found.add(name)
            if not torch.equal(mine["out_tokens"][:, :length], reference["out_tokens"][:, :length]):
                found.add("out_tokens")
    return without_empty(shown)


def eagle_differ(entry: VerifyMutant | VerifyCorrect) -> dict[str, set[str]]:
    """Return what differs; of `predict` only the nodes that the reference commits are read."""
    shown: dict[str, set[str]] = {}
    own_fixed = "fixed_token_id" not in inspect.signature(entry.factory()).parameters
    for mode in MODES:
        found = shown.setdefault(mode, set())
        function = entry.factory()
        for seed in range(20):
            mine, reference = (eagle_arguments(mode, 1 + seed % (GAMMA + 1)) for _ in range(2))
            reference["fixed_token_id"] = FIXED
            if not own_fixed:
                mine["fixed_token_id"] = FIXED
            expected = seeded(seed, generate_simulated_accept_index, reference)
            index = seeded(seed, function, mine)
            if not torch.equal(index.to(torch.int32), expected):
                found.add("index")
            if not torch.equal(mine["num_correct_drafts"], reference["num_correct_drafts"]):
                found.add("num_correct_drafts")
            nodes = expected[expected >= 0].to(torch.int64)
            if not torch.equal(mine["predict"][nodes], reference["predict"][nodes]):
                found.add("predict")
    return without_empty(shown)


@pytest.mark.parametrize(
    "entry", [e for e in all_dflash_mutants() if e.name not in BY_SAMPLER], ids=name_of
)
def test_a_faulty_dflash_differs_as_stated(entry: VerifyMutant) -> None:
    assert dflash_differ(entry) == DFLASH[entry.name]


@pytest.mark.parametrize("entry", all_correct_dflash(), ids=name_of)
def test_a_correct_dflash_gives_what_the_reference_gives(entry: VerifyCorrect) -> None:
    assert dflash_differ(entry) == {}


@pytest.mark.parametrize(
    "entry", [e for e in all_eagle_mutants() if e.name not in BY_SAMPLER], ids=name_of
)
def test_a_faulty_eagle_differs_as_stated(entry: VerifyMutant) -> None:
    assert eagle_differ(entry) == EAGLE[entry.name]


@pytest.mark.parametrize("entry", all_correct_eagle(), ids=name_of)
def test_a_correct_eagle_gives_what_the_reference_gives(entry: VerifyCorrect) -> None:
    assert eagle_differ(entry) == {}


def test_a_stale_token_is_the_last_draft_token() -> None:
    (entry,) = (e for e in all_dflash_mutants() if e.name == "stale-token-inside")
    arguments = {**dflash_arguments("real-draft-token", STALE), "simulate_acc_len": 4.0}
    entry.factory()(**arguments)
    stale = arguments["out_tokens"] == STALE
    assert stale[:, :4].tolist() == [[False, False, True, False]] * BS
    (entry,) = (e for e in all_eagle_mutants() if e.name == "stale-token-inside")
    arguments = {**eagle_arguments("real-draft-token", 1), "simulate_acc_len": 4.0}
    index = entry.factory()(**arguments)
    stale = arguments["predict"][index[:, :4].to(torch.int64)] == STALE
    assert stale.tolist() == [[False, False, True, False]] * BS


def test_what_lies_beyond_the_commit() -> None:
    for name, tail in (("in-steps", 0), ("stale-tail", STALE), ("fixed-everywhere", FIXED)):
        (entry,) = (e for e in all_correct_dflash() if e.name == name)
        arguments = {**dflash_arguments("fixed", STALE), "simulate_acc_len": 3.0}
        entry.factory()(**arguments)
        assert set(arguments["out_tokens"][:, 3:].flatten().tolist()) == {tail}
    for name, mode, tail in (
        ("in-steps", "fixed", STALE),
        ("fixed-everywhere", "fixed", FIXED),
        ("zero-tail", "real-draft-token", 0),
    ):
        (entry,) = (e for e in all_correct_eagle() if e.name == name)
        arguments = {**eagle_arguments(mode, 1), "simulate_acc_len": 3.0}
        arguments["fixed_token_id"] = FIXED
        index = entry.factory()(**arguments)
        beyond = torch.ones_like(arguments["predict"], dtype=torch.bool)
        beyond[index[index >= 0].to(torch.int64)] = False
        assert set(arguments["predict"][beyond].tolist()) == {tail}


def test_the_index_keeps_its_dtype_where_stated() -> None:
    dtypes = {
        entry.name: entry.factory()(
            **{**eagle_arguments("real-draft-token", 1), "simulate_acc_len": 3.0}
        ).dtype
        for entry in all_correct_eagle()
    }
    assert dtypes.pop("int64-index") == torch.int64
    assert set(dtypes.values()) == {torch.int32}


@pytest.mark.parametrize("fault", SAMPLER_FAULTS, ids=lambda fault: fault.name)
def test_a_faulty_sampler_is_the_one_that_is_named(fault: Any) -> None:
    for entries, kind in (
        (all_dflash_mutants(), SampledDFlash),
        (all_eagle_mutants(), SampledEagle),
    ):
        (entry,) = (e for e in entries if e.name == fault.name)
        function = entry.factory()
        assert isinstance(function, kind)
        assert type(function.sampler) is type(fault.factory(None))
        assert function.sampler is not entry.factory().sampler


def bundle_lengths(bundle: Any, consumer: str) -> list[int]:
    if consumer == "executor":
        executor = bundle.executor(GAMMA, 4.7, "match-expected")
        assert isinstance(executor, BufferExecutor)
        return [
            1 + int(executor._simulated_correct_len(bs=1, dtype=torch.int64, device="cpu")[0])
            for _ in range(1_000)
        ]
    function = getattr(bundle, consumer)()
    drawn = []
    for _ in range(1_000):
        if consumer == "dflash":
            arguments = dflash_arguments("fixed", STALE)
            function(**arguments)
            drawn.append(int(arguments["commit_lens"][0]))
        else:
            arguments = eagle_arguments("real-draft-token", 1)
            function(**arguments)
            drawn.append(1 + int(arguments["num_correct_drafts"][0]))
    return drawn


def test_only_the_stated_consumer_of_a_bundle_has_another_law() -> None:
    """False alarms: at most 5e-9, five consumers with the law; the twin has another one."""
    correct, rounds = all_bundles()
    assert correct.caught_by is None
    assert rounds.caught_by == "A.distribution"
    for bundle in (correct, rounds):
        for consumer in ("executor", "dflash", "eagle"):
            has_law = agrees(np.asarray(bundle_lengths(bundle, consumer)), LAW)
            assert has_law == (bundle is correct or consumer != "eagle")
    assert rounds.eagle is rounding_eagle


@pytest.mark.parametrize("changes", [{"simulate_acc_len": 0.0}, {"simulate_acc_token_mode": "x"}])
def test_other_peoples_functions_refuse_what_the_reference_refuses(changes: dict[str, Any]) -> None:
    for entry in all_correct_dflash():
        with pytest.raises(ValueError, match="simulate_acc"):
            entry.factory()(**{**dflash_arguments("fixed", STALE), **changes})
    for entry in all_correct_eagle():
        with pytest.raises(ValueError, match="simulate_acc"):
            entry.factory()(**{**eagle_arguments("fixed", 1), **changes})
