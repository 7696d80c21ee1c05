"""What is known of each faulty and each correct sampler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from specsim.acceptance import AcceptanceDistribution

PROPERTY_IDS = (
    "S.returns",
    "S.type",
    "S.range",
    "S.support",
    "S.integers",
    "S.clamping",
    "S.method",
    "S.generators",
    "S.distribution",
    "S.mean",
    "S.freshness",
)
"""The required sampler properties: each mutant names the one that must reject it."""

Sampler: TypeAlias = Callable[[float, str, int], object]
"""Called with acc_len, method and max_len; a correct one returns an int."""

Law: TypeAlias = Callable[[float, str, int], AcceptanceDistribution]
Factory = TypeVar("Factory", bound=Callable[[int | None], Sampler])


@dataclass(frozen=True)
class Mutant:
    """A complete faulty sampler.

    Attributes
    ----------
    name
        Unique, in words joined by hyphens.
    factory
        Builds a fresh instance from a seed, or from the operating system's entropy for None.
    caught_by
        Id of the property that must reject it; others may too.
    statement
        What is wrong, in one sentence.
    law
        The law q of its independent draws, where they are independent and within [1, max_len];
        otherwise ``None``.
    source
        Where the fault was seen, or what it stands for.
    """

    name: str
    factory: Callable[[int | None], Sampler]
    caught_by: str
    statement: str
    law: Law | None
    source: str


@dataclass(frozen=True)
class Correct:
    """A complete correct sampler: every required property must hold for it.

    Attributes
    ----------
    name
        Unique, in words joined by hyphens.
    factory
        Builds a fresh instance; the seed is of no effect where the numbers come from a global
        generator or from the operating system.
    statement
        Where its randomness comes from, in one sentence.
    """

    name: str
    factory: Callable[[int | None], Sampler]
    statement: str


MUTANTS: dict[str, Mutant] = {}
CORRECT: dict[str, Correct] = {}


def mutant(
    name: str, *, caught_by: str, statement: str, source: str
) -> Callable[[Factory], Factory]:
    """Register a class or function as the factory of a mutant; its attribute `law` is q.

    Raises
    ------
    ValueError
        If the name is taken or the property unknown.
    """

    def register(factory: Factory) -> Factory:
        _must_be_new(name)
        if caught_by not in PROPERTY_IDS:
            raise ValueError(f"caught_by must be one of {', '.join(PROPERTY_IDS)}, got {caught_by}")
        law = getattr(factory, "law", None)
        MUTANTS[name] = Mutant(name, factory, caught_by, statement, law, source)
        return factory

    return register


def correct(name: str, *, statement: str) -> Callable[[Factory], Factory]:
    """Register a class or function as the factory of a correct sampler.

    Raises
    ------
    ValueError
        If the name is taken.
    """

    def register(factory: Factory) -> Factory:
        _must_be_new(name)
        CORRECT[name] = Correct(name, factory, statement)
        return factory

    return register


def _must_be_new(name: str) -> None:
    if name in MUTANTS or name in CORRECT:
        raise ValueError(f"name must be new, got {name!r} a second time")
