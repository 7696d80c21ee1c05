"""Faulty and correct ranked executors do what they state, over real gloo processes.

Two ranks that draw apart agree at a step with probability 0.58, and at all 40 steps with 4e-10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from proptests.exact_counts import agrees
from proptests.rank_processes import run_on_ranks
from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.verify_all import all_correct_ranks, all_rank_mutants
from specsim.mutants.verify_registry import VerifyCorrect, VerifyMutant

STEPS = 40
ENTRIES: tuple[VerifyMutant | VerifyCorrect, ...] = (*all_rank_mutants(), *all_correct_ranks())

Seen = dict[str, tuple[list[list[int]], list[list[int]]]]


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (VerifyMutant, VerifyCorrect)) else None


def steps(executor: Any, count: int = STEPS) -> list[list[int]]:
    return [
        executor._simulated_correct_len(bs=3, dtype=torch.int64, device="cpu").tolist()
        for _ in range(count)
    ]


def run_all(rank: int, world_size: int) -> Seen:
    """Return each executor's steps with the ranks' generators equal, and then unequal."""
    assert dist.is_initialized()
    seen = {}
    for entry in ENTRIES:
        torch.manual_seed(1)
        executor = entry.factory(7, 4.7, "match-expected")
        equal = steps(executor)
        torch.manual_seed(2 + rank)
        seen[entry.name] = (equal, steps(executor))
    return seen


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    return run_on_ranks(run_all, [2], tmp_path_factory.mktemp("ranks"))[2]


def agreement(ranks: list[Seen], name: str) -> tuple[bool, bool]:
    (first_equal, first_unequal), (second_equal, second_unequal) = (seen[name] for seen in ranks)
    return first_equal == second_equal, first_unequal == second_unequal


@pytest.mark.parametrize("entry", all_rank_mutants(), ids=name_of)
def test_ranks_of_a_mutant_differ_where_stated(entry: VerifyMutant, ranks: list[Seen]) -> None:
    """A fault missed by chance: 4e-10 each."""
    assert agreement(ranks, entry.name) == (entry.caught_by == "R.unequal-generators", False)


@pytest.mark.parametrize("entry", all_correct_ranks(), ids=name_of)
def test_correct_ranks_agree(entry: VerifyCorrect, ranks: list[Seen]) -> None:
    assert agreement(ranks, entry.name) == (True, "R.unequal-generators" not in entry.fails)


def test_every_other_step_is_agreed_on(ranks: list[Seen]) -> None:
    first, second = (seen["broadcast-every-other-step"][1] for seen in ranks)
    assert first[::2] == second[::2]
    assert first[1::2] != second[1::2]


def test_only_the_last_slot_differs(ranks: list[Seen]) -> None:
    first, second = (seen["last-slot-of-its-own"][0] for seen in ranks)
    assert [step[:2] for step in first] == [step[:2] for step in second]


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_without_a_group_the_lengths_have_the_law(entry: VerifyMutant | VerifyCorrect) -> None:
    """False alarms: 1e-9 each; the twin is a law half a token away."""
    drawn = np.asarray(
        [step[0] + 1 for step in steps(entry.factory(7, 4.7, "match-expected"), 600)]
    )
    assert agrees(drawn, AcceptanceDistribution.match_expected(4.7, 8))
    assert not agrees(drawn, AcceptanceDistribution.match_expected(4.2, 8))
