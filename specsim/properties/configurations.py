"""The fixed list of streams that each effort draws, so that alpha's shares are fixed too.

Both ends of the range are always there: a truncated normal at 4.7 of 16 cannot be told from a
clamped one in a million draws, at 1.2 it takes hundreds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from specsim.acceptance import AcceptanceDistribution
from specsim.properties.outcome import EFFORTS, Effort
from specsim.properties.registry import SAMPLER_KINDS
from specsim.targets import Configuration

Mode: TypeAlias = Literal["alone", "interleaved", "joint"]
METHODS = ("match-expected", "multinomial")


@dataclass(frozen=True)
class EffortLevel:
    """How far one effort goes.

    Attributes
    ----------
    delta
        Total variation that a pass rules out.
    budget
        Draws of one stream after which an undecided verdict stays inconclusive.
    examples
        Configurations that Hypothesis chooses for the properties of single lengths.
    """

    delta: float
    budget: int
    examples: int


LEVELS: dict[Effort, EffortLevel] = {
    "quick": EffortLevel(delta=0.05, budget=30_000, examples=100),
    "standard": EffortLevel(delta=0.02, budget=200_000, examples=300),
    "thorough": EffortLevel(delta=0.01, budget=800_000, examples=1_000),
}


@dataclass(frozen=True)
class Course:
    """Configurations drawn from in one go, in one process.

    Attributes
    ----------
    name
        Unique within a plan.
    mode
        ``"alone"``: one configuration. ``"interleaved"``: several in random order, each a
        stream of its own, so that state kept from another configuration shows.
        ``"joint"``: two in turn, judged as one stream of pairs, so that lengths which are
        right in each configuration but depend on the other's show.
    configurations
        What is drawn from.
    """

    name: str
    mode: Mode
    configurations: tuple[Configuration, ...]

    @property
    def streams(self) -> int:
        """How many streams of lengths are judged."""
        return len(self.configurations) if self.mode == "interleaved" else 1


@np.errstate(all="ignore")  # the target may have set it to raise
def law_of(configuration: Configuration) -> AcceptanceDistribution:
    """Return the distribution that a configuration claims."""
    if configuration.rates is not None:
        return AcceptanceDistribution.from_rates(configuration.rates)
    assert configuration.acc_len is not None
    assert configuration.method is not None
    return AcceptanceDistribution.from_method(
        configuration.acc_len, configuration.method, configuration.max_len
    )


_LENGTHS: dict[str, dict[Effort, tuple[tuple[float, int], ...]]] = {
    "match-expected": {
        "quick": (
            (4.7, 8), (1.2, 8), (7.9, 8), (1.5, 2), (2.25, 16), (40.3, 64), (3.0, 4),
        ),
        "standard": ((3.35, 4), (1.05, 16), (12.66, 16), (5.5, 6), (63.6, 64)),
        "thorough": ((1.9, 2), (2.0, 3), (6.15, 8), (8.01, 16), (31.5, 32)),
    },
    "multinomial": {
        "quick": (
            (1.2, 8), (4.7, 8), (7.6, 8), (0.3, 4), (17.0, 16), (15.5, 16), (2.0, 3), (1.5, 2),
        ),
        "standard": ((1.0, 8), (3.5, 5), (-1.0, 8), (6.25, 16), (62.5, 64)),
        "thorough": ((5.0, 5), (2.5, 4), (9.3, 8), (10.75, 16), (33.3, 64)),
    },
}  # fmt: skip

_RATES: dict[Effort, tuple[tuple[float, ...], ...]] = {
    "quick": (
        (0.906, 0.497, 0.203),
        (0.7,),
        (0.02,),
        (0.999, 0.01),
        (1.0, 1.0, 1.0, 0.7, 0.0, 0.0, 0.0),
        (0.8, 0.64, 0.512, 0.41, 0.328, 0.262, 0.21),
        (0.5, 0.5, 0.5, 0.5),
        (1.0, 1.0, 1.0),
        (0.0, 0.0),
        tuple(round(1 - k / 16, 4) for k in range(1, 16)),
        tuple(round(0.9**k, 4) for k in range(1, 16)),
        (0.95, 0.9, 0.85, 0.05),
    ),
    "standard": (
        (0.3, 0.2, 0.1),
        (1.0, 0.5),
        (0.55, 0.54, 0.53, 0.52, 0.51),
        tuple(round(0.97**k, 4) for k in range(1, 32)),
        (0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.93),
        (0.25, 0.25, 0.0, 0.0),
    ),
    "thorough": (
        (0.1, 0.01),
        (1.0, 0.333, 0.333, 0.1),
        tuple(round(1 - k / 64, 4) for k in range(1, 64)),
        (0.645, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05),
        (0.9999,),
        (0.6, 0.6, 0.2, 0.2),
    ),
}


def plan(
    kind: str, effort: Effort, methods: Sequence[str] = METHODS, *, seed: int = 0
) -> tuple[Course, ...]:
    """Return the courses of one effort: a fixed list, and two that the seed chooses.

    Their number is fixed too, so that alpha's shares are known before anything is drawn.

    Parameters
    ----------
    kind
        A kind of target that draws lengths.
    effort
        A higher effort adds courses to those of the lower ones.
    methods
        Methods that the target knows.
    seed
        Decides the configurations of two courses.

    Returns
    -------
    tuple of Course
        24 streams for quick, 34 for standard, 44 for thorough, fewer for one method or rates.
    """
    efforts = EFFORTS[: EFFORTS.index(effort) + 1]
    # At 0 or below an executor's simulation is off.
    least = -math.inf if kind in SAMPLER_KINDS else 0.0
    if kind == "rates-sampler":
        alone = [
            Configuration(None, None, len(rates) + 1, rates)
            for level in efforts
            for rates in _RATES[level]
        ]
        mixed = [alone[0], alone[5], Configuration(None, None, 4, (0.9, 0.4, 0.2))]
        pair = [alone[1], alone[6]]
    else:
        alone = [
            Configuration(acc_len, method, max_len)
            for method in methods
            for level in efforts
            for acc_len, max_len in _LENGTHS[method][level]
            if acc_len > least
        ]
        # Alike in all but one thing each, which a coarse cache key would leave out: the
        # fraction, its second decimal, max_len and the method.
        near = {
            "match-expected": ((4.7, 8), (4.3, 8), (4.74, 8), (4.7, 6)),
            "multinomial": ((4.7, 8), (4.3, 8)),
        }
        mixed = [Configuration(a, m, top) for m in methods for a, top in near[m]]
        pair = [Configuration(4.7, methods[0], 8), Configuration(2.4, methods[-1], 4)]
    courses = [Course(f"alone {c.label}", "alone", (c,)) for c in alone]
    courses += [
        Course(f"of this seed {number}: {c.label}", "alone", (c,))
        for number, c in enumerate(_chosen(kind, methods, seed), 1)
    ]
    courses.append(Course("interleaved", "interleaved", tuple(mixed)))
    if kind != "executor":
        # Executors are objects: two with one fixed seed each may agree, and an engine has one.
        courses.append(Course("joint", "joint", tuple(pair)))
    return tuple(courses)


def _chosen(kind: str, methods: Sequence[str], seed: int) -> list[Configuration]:
    """Return two configurations with something to draw, a function of the arguments alone."""
    chosen = []
    for number in range(2):
        method = methods[number % len(methods)]
        rng = random.Random(f"{seed} {kind} {method} {number}")
        max_len = rng.randint(2, 16)
        if kind == "rates-sampler":
            rates = sorted((rng.randint(1, 99) / 100 for _ in range(max_len - 1)), reverse=True)
            chosen.append(Configuration(None, None, max_len, tuple(rates)))
        else:
            acc_len = round(rng.randint(1, max_len - 1) + rng.randint(1, 99) / 100, 2)
            chosen.append(Configuration(acc_len, method, max_len))
    return chosen
