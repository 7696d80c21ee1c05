"""All faulty and all correct executors, finalizers, DFlash, EAGLE and ranked targets."""

from __future__ import annotations

from specsim.mutants import (
    consumers,
    dflash,
    eagle,
    executors,
    executors_correct,
    executors_law,
    executors_partial,
    finalizers,
    ranks,
)
from specsim.mutants.consumers import BUNDLES, ConsumerBundle
from specsim.mutants.verify_registry import (
    DFLASH,
    EAGLE,
    EXECUTORS,
    FINALIZERS,
    RANKS,
    VerifyCorrect,
    VerifyMutant,
)

# Importing a module registers what is in it.
_MODULES = (
    consumers,
    dflash,
    eagle,
    executors,
    executors_law,
    executors_correct,
    executors_partial,
    finalizers,
    ranks,
)


def all_executor_mutants() -> tuple[VerifyMutant, ...]:
    """Return every executor whose draft lengths or buffer are faulty, in order of registration."""
    return tuple(EXECUTORS.mutants.values())


def all_correct_executors() -> tuple[VerifyCorrect, ...]:
    """Return every correct executor, in order of registration."""
    return tuple(EXECUTORS.corrects.values())


def all_finalizer_mutants() -> tuple[VerifyMutant, ...]:
    """Return every executor whose accept_and_finalize is faulty, in order of registration."""
    return tuple(FINALIZERS.mutants.values())


def all_correct_finalizers() -> tuple[VerifyCorrect, ...]:
    """Return every executor with a correct accept_and_finalize, in order of registration."""
    return tuple(FINALIZERS.corrects.values())


def all_dflash_mutants() -> tuple[VerifyMutant, ...]:
    """Return every faulty DFlash function, in order of registration."""
    return tuple(DFLASH.mutants.values())


def all_correct_dflash() -> tuple[VerifyCorrect, ...]:
    """Return every correct DFlash function, in order of registration."""
    return tuple(DFLASH.corrects.values())


def all_eagle_mutants() -> tuple[VerifyMutant, ...]:
    """Return every faulty EAGLE function, in order of registration."""
    return tuple(EAGLE.mutants.values())


def all_correct_eagle() -> tuple[VerifyCorrect, ...]:
    """Return every correct EAGLE function, in order of registration."""
    return tuple(EAGLE.corrects.values())


def all_rank_mutants() -> tuple[VerifyMutant, ...]:
    """Return every executor whose ranks disagree, in order of registration."""
    return tuple(RANKS.mutants.values())


def all_correct_ranks() -> tuple[VerifyCorrect, ...]:
    """Return every executor whose ranks agree, in order of registration."""
    return tuple(RANKS.corrects.values())


def all_bundles() -> tuple[ConsumerBundle, ...]:
    """Return the bundles of three consumers, the correct one among them."""
    return BUNDLES
