"""Bundles of the three consumers that share a sampler, one of which has another law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specsim.mutants.dflash import DFlash
from specsim.mutants.eagle import Eagle, SampledEagle
from specsim.mutants.executor_base import BufferExecutor
from specsim.mutants.registry import MUTANTS

_ROUNDED = MUTANTS["rounded-length"]


@dataclass(frozen=True)
class ConsumerBundle:
    """An engine's three consumers of one configuration.

    Attributes
    ----------
    name
        Unique, in words joined by hyphens.
    executor
        Called as ``(gamma, simulate_acc_len, simulate_acc_method)``.
    dflash, eagle
        Called without arguments, each returns a fresh instance of its function.
    caught_by
        Id of the property that must reject one of the three; None if all are correct.
    statement
        What is wrong, in one sentence.
    source
        Where the fault was seen, or what it stands for.
    """

    name: str
    executor: Callable[..., Any]
    dflash: Callable[[], Callable[..., None]]
    eagle: Callable[[], Callable[..., Any]]
    caught_by: str | None
    statement: str
    source: str


def rounding_eagle() -> SampledEagle:
    """Return an EAGLE function that rounds the length, and draws nothing under match-expected."""
    return SampledEagle(_ROUNDED)


BUNDLES = (
    ConsumerBundle(
        "one-law",
        BufferExecutor,
        DFlash,
        Eagle,
        None,
        "All three force lengths of one law.",
        "engines share the sampler for this",
    ),
    ConsumerBundle(
        "eagle-rounds",
        BufferExecutor,
        DFlash,
        rounding_eagle,
        "A.distribution",
        "EAGLE rounds the length that the executor and DFlash draw as configured.",
        "stands for a consumer that was left behind when the sampler was shared",
    ),
)
"""The correct bundle, and the one with another law in one consumer."""
