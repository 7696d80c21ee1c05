"""The registries of faulty and correct verify targets."""

from __future__ import annotations

import pytest

from specsim.mutants.executor_base import BufferExecutor
from specsim.mutants.registry import MUTANTS
from specsim.mutants.sampler_faults import SAMPLER_FAULTS
from specsim.mutants.verify_all import (
    all_correct_dflash,
    all_correct_eagle,
    all_correct_executors,
    all_correct_finalizers,
    all_correct_ranks,
    all_dflash_mutants,
    all_eagle_mutants,
    all_executor_mutants,
    all_finalizer_mutants,
    all_rank_mutants,
)
from specsim.mutants.verify_registry import (
    DFLASH_IDS,
    EAGLE_IDS,
    EXECUTOR_IDS,
    FINALIZER_IDS,
    RANK_IDS,
    VerifyMutant,
    VerifyRegistry,
)


@pytest.mark.parametrize(
    ("ids", "mutants"),
    [
        (set(EXECUTOR_IDS) - {"E.off"}, all_executor_mutants()),
        (set(FINALIZER_IDS), all_finalizer_mutants()),
        (set(DFLASH_IDS) - {"T.bonus"}, all_dflash_mutants()),
        (set(EAGLE_IDS) - {"T.bonus", "A.range"}, all_eagle_mutants()),
        (set(RANK_IDS), all_rank_mutants()),
    ],
)
def test_each_property_has_a_mutant(ids: set[str], mutants: tuple[VerifyMutant, ...]) -> None:
    """E.off needs accept_and_finalize; a range beyond an accept index has no form of its own."""
    assert {entry.caught_by for entry in mutants} == ids


def test_entries_say_what_they_are() -> None:
    mutants = (
        *all_executor_mutants(),
        *all_finalizer_mutants(),
        *all_dflash_mutants(),
        *all_eagle_mutants(),
        *all_rank_mutants(),
    )
    corrects = (
        *all_correct_executors(),
        *all_correct_finalizers(),
        *all_correct_dflash(),
        *all_correct_eagle(),
        *all_correct_ranks(),
    )
    assert all(entry.source for entry in mutants)
    assert all(entry.statement.endswith(".") for entry in mutants)
    assert all(entry.statement.endswith(".") for entry in corrects)


def test_a_name_is_given_once_and_a_property_is_known() -> None:
    registry = VerifyRegistry(("E.reuse",))
    registry.correct("right", statement="Is right.")(BufferExecutor)
    with pytest.raises(ValueError, match="name must be new, got 'right'"):
        registry.mutant("right", caught_by="E.reuse", statement="", source="")(BufferExecutor)
    with pytest.raises(ValueError, match=r"caught_by must be one of E\.reuse, got E\.resue"):
        registry.mutant("wrong", caught_by="E.resue", statement="", source="")(BufferExecutor)
    assert not registry.mutants


def test_sampler_faults_are_registered_samplers() -> None:
    assert all(MUTANTS[fault.name] is fault for fault in SAMPLER_FAULTS)
