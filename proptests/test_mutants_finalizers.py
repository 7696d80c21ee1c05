"""Faulty and correct finalizers do what they state, beside the reference.

Each is called as the reference is, with one seed, so that both force the same lengths: what differs
is compared with what is stated.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from specsim.mutants.verify_all import all_correct_finalizers, all_finalizer_mutants
from specsim.mutants.verify_registry import VerifyCorrect, VerifyMutant
from specsim.verify.executor import TargetVerifyExecutor
from specsim.verify.finalize import AcceptResult

GAMMA = 7
BS = 3
FIXED = 100

# What differs from the reference, by what it was called for. Beyond the commit, anything may.
FINALIZERS: dict[str, dict[str, set[str]]] = {
    "bonus-not-counted": {
        "forced": {"commit_lens", "new_seq_lens"},
        "fixed": {"commit_lens", "new_seq_lens"},
        "capped": {"commit_lens", "new_seq_lens"},
    },
    "sequences-uncapped": {"capped": {"new_seq_lens"}},
    "cap-ignored": {
        "capped": {
            "correct_len", "commit_lens", "new_seq_lens", "cap_trim_lens", "out_tokens", "bonus",
        }
    },
    "cap-leaves-one-more": {
        "capped": {
            "correct_len", "commit_lens", "new_seq_lens", "cap_trim_lens", "out_tokens", "bonus",
        }
    },
    "trim-not-reported": {"capped": {"cap_trim_lens"}},
    "bonus-of-the-position-before": {
        "forced": {"bonus", "out_tokens"},
        "capped": {"bonus", "out_tokens"},
    },
    "stale-token-inside": {
        "forced": {"out_tokens"}, "fixed": {"out_tokens"}, "capped": {"out_tokens"},
    },
    "drafts-replaced-by-a-constant": {"forced": {"out_tokens"}, "capped": {"out_tokens"}},
    "fixed-but-for-the-bonus": {"fixed": {"bonus", "out_tokens"}},
    "forced-when-off": {
        "off at 0": {"correct_len", "commit_lens", "new_seq_lens", "out_tokens", "bonus"},
        "off below 0": {"correct_len", "commit_lens", "new_seq_lens", "out_tokens", "bonus"},
    },
    "forced-at-zero": {
        "off at 0": {"correct_len", "commit_lens", "new_seq_lens", "out_tokens", "bonus"}
    },
    "other-dtype-when-off": {"off at 0": {"correct_len"}, "off below 0": {"correct_len"}},
    "draft-as-bonus-when-off": {"off at 0": {"bonus"}, "off below 0": {"bonus"}},
    "real-bonus-kept": {"forced": {"bonus", "out_tokens"}, "capped": {"bonus", "out_tokens"}},
}  # fmt: skip


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (VerifyMutant, VerifyCorrect)) else None


def step_of(number: int) -> dict[str, Any]:
    """Return one step's arguments: no two tokens are equal but for some accepted drafts."""
    draft = torch.arange(BS * GAMMA).reshape(BS, GAMMA) + 1_000 + 10_000 * number
    target = torch.arange(BS * (GAMMA + 1)).reshape(BS, GAMMA + 1) + 5_000 + 10_000 * number
    # The real accept is of 1 … 4 draft tokens.
    for slot in range(BS):
        accepted = 1 + (slot + number) % 4
        target[slot, :accepted] = draft[slot, :accepted]
    return {
        "draft_tokens": draft,
        "target_tokens": target,
        "prefix_lens": torch.tensor([5, 60, 700], dtype=torch.int32),
    }


SITUATIONS: dict[str, tuple[float, dict[str, Any], dict[str, Any]]] = {
    "forced": (4.7, {}, {}),
    "fixed": (4.7, {"token_mode": "fixed", "fixed_token_id": FIXED}, {}),
    "capped": (4.7, {}, {"caps": torch.tensor([1, 2, 8]), "verify_lens": torch.tensor([8, 4, 4])}),
    "off at 0": (0.0, {}, {}),
    "off below 0": (-1.0, {}, {}),
}


def differing(mine: Any, reference: Any) -> Iterator[str]:
    """Yield the names of the outputs that differ in values or dtype, up to the commit."""
    for name, expected in vars(reference).items():
        given = getattr(mine, name)
        assert given.shape == expected.shape
        where = (
            expected >= 0 if name == "out_tokens" else torch.ones_like(expected, dtype=torch.bool)
        )
        if given.dtype != expected.dtype or not torch.equal(given[where], expected[where]):
            yield name


@cache
def reference_results(situation: str, seed: int) -> list[AcceptResult]:
    acc_len, options, limits = SITUATIONS[situation]
    target = TargetVerifyExecutor(GAMMA, acc_len, "match-expected", seed=seed, **options)
    return [target.accept_and_finalize(**step_of(number), **limits) for number in (1, 2)]


def finalizers_differ(entry: VerifyMutant | VerifyCorrect) -> dict[str, set[str]]:
    """Return what differs from the reference in ten executors of two steps each."""
    shown: dict[str, set[str]] = {}
    for situation, (acc_len, options, limits) in SITUATIONS.items():
        for seed in range(10):
            target = entry.factory(GAMMA, acc_len, "match-expected", seed=seed, **options)
            for number, expected in enumerate(reference_results(situation, seed), 1):
                given = target.accept_and_finalize(**step_of(number), **limits)
                for name in differing(given, expected):
                    shown.setdefault(situation, set()).add(name)
    return shown


@pytest.mark.parametrize(
    "entry",
    [e for e in all_finalizer_mutants() if e.name not in ("two-draws", "commits-frozen")],
    ids=name_of,
)
def test_a_faulty_finalizer_differs_as_stated(entry: VerifyMutant) -> None:
    assert finalizers_differ(entry) == FINALIZERS[entry.name]


@pytest.mark.parametrize("entry", all_correct_finalizers(), ids=name_of)
def test_a_correct_finalizer_gives_what_the_reference_gives(entry: VerifyCorrect) -> None:
    assert finalizers_differ(entry) == FINALIZERS.get(entry.name, {})


def test_a_finalizer_that_commits_its_first_length_for_ever() -> None:
    # 64 draws of 4.5 are all the same with probability 1e-19.
    (entry,) = (e for e in all_finalizer_mutants() if e.name == "commits-frozen")
    frozen = entry.factory(GAMMA, 4.5, "match-expected", seed=1)
    committed = {
        tuple(frozen.accept_and_finalize(**step_of(1)).commit_lens.tolist()) for _ in range(64)
    }
    assert len(committed) == 1
    cpu = torch.device("cpu")
    forced = {
        int(frozen._simulated_correct_len(bs=3, dtype=torch.int64, device=cpu)[0])
        for _ in range(64)
    }
    assert len(forced) == 2


def test_a_finalizer_of_two_draws_commits_the_second() -> None:
    (entry,) = (e for e in all_finalizer_mutants() if e.name == "two-draws")
    differ = 0
    for seed in range(20):
        result = entry.factory(GAMMA, 4.7, "match-expected", seed=seed).accept_and_finalize(
            **step_of(1)
        )
        twin = TargetVerifyExecutor(GAMMA, 4.7, "match-expected", seed=seed)
        first, second = (
            twin._simulated_correct_len(bs=BS, dtype=torch.int64, device="cpu").tolist()
            for _ in range(2)
        )
        assert result.correct_len.tolist() == first
        assert result.commit_lens.tolist() == [drafts + 1 for drafts in second]
        differ += first != second
    assert differ


@pytest.mark.parametrize("name", ["stale-tail", "whole-draft-as-tail"])
def test_a_tail_is_left_beyond_the_commit(name: str) -> None:
    (entry,) = (e for e in all_correct_finalizers() if e.name == name)
    target = entry.factory(GAMMA, 2.0, "match-expected")
    beyond = target.accept_and_finalize(**step_of(1)).out_tokens[:, 2:]
    assert (beyond >= 0).all()


def test_chain_sampling_goes_through_a_finalizer() -> None:
    (entry,) = (e for e in all_correct_finalizers() if e.name == "in-steps")
    generator = torch.Generator().manual_seed(5)
    probs = torch.softmax(torch.randn((BS, GAMMA + 1, 11), generator=generator), dim=-1)
    step: dict[str, Any] = {
        "draft_tokens": torch.zeros((BS, GAMMA), dtype=torch.int64),
        "prefix_lens": torch.zeros(BS, dtype=torch.int64),
        "draft_probs": probs[:, :GAMMA],
        "target_probs": probs.flip(0),
        "uniforms": torch.rand((BS, GAMMA + 1), generator=generator),
    }
    made = [
        kind(GAMMA, 4.7, "match-expected", seed=3, accept="chain")
        for kind in (entry.factory, TargetVerifyExecutor)
    ]
    results = [target.accept_and_finalize(**step) for target in made]
    assert not list(differing(*results))
