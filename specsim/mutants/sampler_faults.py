"""Sampler mutants that the consumers of a sampler are given, to be faulty in their law only."""

from __future__ import annotations

from specsim.mutants import clamps, contract, law, stale
from specsim.mutants.registry import MUTANTS, Mutant

# Importing a module registers what is in it.
_MODULES = (clamps, contract, law, stale)

# No sampler that leaves 1 … max_len: a consumer that cuts tensors at such a length raises.
_NAMES = (
    "raises-at-max-len-1",
    "spread-by-one",
    "integers-jitter",
    "never-max-len",
    "rounded-length",
    "method-ignored",
    "length-read-as-drafts",
    "truncated-length",
    "draw-cached",
    "refreshed-every-2nd-call",
)

SAMPLER_FAULTS: tuple[Mutant, ...] = tuple(MUTANTS[name] for name in _NAMES)
"""At least one for each property of lengths but the range."""


def property_of(fault: Mutant, letter: str) -> str:
    """Return the id of the property that rejects a consumer of a faulty sampler.

    Parameters
    ----------
    fault
        One of `SAMPLER_FAULTS`.
    letter
        Of the consumer's properties: E, D or A.
    """
    return f"{letter}.{fault.caught_by.partition('.')[2]}"
