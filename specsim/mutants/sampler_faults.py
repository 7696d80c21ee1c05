"""Sampler mutants that the consumers of a sampler are given, to be faulty in their law only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specsim.mutants import clamps, contract, law, stale
from specsim.mutants.registry import MUTANTS, Mutant
from specsim.mutants.verify_registry import VerifyRegistry

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


class DrawsFromFault:
    """The constructor and the draw of a consumer that is given a sampler.

    Parameters
    ----------
    fault
        The sampler mutant to draw from, seeded by the operating system.

    Attributes
    ----------
    configuration : tuple of (float, str, int)
        What the present call draws with, set by the consumer.
    """

    configuration: tuple[float, str, int]

    def __init__(self, fault: Mutant) -> None:
        self.sampler = fault.factory(None)

    def draw(self) -> int:
        """Return one acceptance length of the sampler."""
        drawn = self.sampler(*self.configuration)
        assert isinstance(drawn, int)
        return drawn


def register_sampler_faults(
    registry: VerifyRegistry, letter: str, factory_of: Callable[[Mutant], Callable[..., Any]]
) -> None:
    """Register a consumer of each of `SAMPLER_FAULTS` as a mutant.

    Parameters
    ----------
    registry
        Of the consumer's kind.
    letter
        Of its properties: E, D or A.
    factory_of
        Returns the factory of the consumer that draws from a fault.
    """
    for fault in SAMPLER_FAULTS:
        registry.mutant(
            fault.name,
            caught_by=property_of(fault, letter),
            statement=fault.statement,
            source=fault.source,
        )(factory_of(fault))
