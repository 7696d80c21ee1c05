"""Faulty samplers that the catalogue must reject, and correct ones that it must not."""

from __future__ import annotations

from specsim.mutants import clamps, contract, correct, law, normal, stale
from specsim.mutants.registry import CORRECT, MUTANTS, PROPERTY_IDS, Correct, Mutant

__all__ = ["PROPERTY_IDS", "Correct", "Mutant", "all_correct", "all_mutants"]

# Importing a module registers what is in it.
_MODULES = (stale, law, normal, clamps, contract, correct)


def all_mutants() -> tuple[Mutant, ...]:
    """Return every mutant, in order of registration."""
    return tuple(MUTANTS.values())


def all_correct() -> tuple[Correct, ...]:
    """Return every correct sampler, in order of registration."""
    return tuple(CORRECT.values())
