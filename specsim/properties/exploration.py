"""Lets Hypothesis choose configurations, and holds a few lengths of each to the certificates.

Hypothesis chooses configurations only: the draws happen under specsim's own generator states,
and a violation is a proof by itself, so shrinking looks for a simpler proof, never for luck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hypothesis import strategies as st

from specsim.properties.certificates import failure, reseeding, violations
from specsim.properties.generators import GlobalStates, own_generators, reseeded
from specsim.properties.hypothesis_runs import search_and_shrink
from specsim.properties.lengths import as_length
from specsim.properties.registry import SAMPLER_KINDS
from specsim.targets import Configuration, LengthTarget, TargetFailed, Violation

DRAWS_EACH = 12
_LARGEST = 64


@dataclass(frozen=True)
class Exploration:
    """What a search through configurations showed.

    Attributes
    ----------
    configurations, draws
        How many configurations were tried, how many lengths were drawn from them.
    violations
        The simplest violation found for each property that was refuted.
    """

    configurations: int
    draws: int
    violations: dict[str, Violation]


def acceptance_lengths(max_len: int, *, forced: bool = False) -> st.SearchStrategy[float]:
    """Return a strategy for configured lengths: both ends, beyond them, and integers included.

    A length to force is above 0, as simulation is off below.
    """
    low = st.floats(0.01, 1.0) if forced else st.floats(-20.0, 1.0)
    return st.one_of(
        st.integers(1, max_len).map(float),
        st.integers(100, 100 * max_len).map(lambda hundredths: hundredths / 100),
        st.floats(1.0, float(max_len)),
        st.floats(max_len, max_len + 20.0),
        low,
    )


def configurations(kind: str, methods: Iterable[str]) -> st.SearchStrategy[Configuration]:
    """Return a strategy for the configurations of one kind of target."""
    tops = st.one_of(st.integers(1, 8), st.integers(1, _LARGEST))
    if kind == "rates-sampler":
        rate = st.one_of(st.sampled_from((0.0, 1.0)), st.integers(0, 1000).map(lambda x: x / 1000))
        return st.lists(rate, min_size=1, max_size=16).map(
            lambda rates: Configuration(
                None, None, len(rates) + 1, tuple(sorted(rates, reverse=True))
            )
        )
    return tops.flatmap(
        lambda top: st.builds(
            Configuration,
            acceptance_lengths(top, forced=kind not in SAMPLER_KINDS),
            st.sampled_from(list(methods)),
            st.just(top),
        )
    )


def explore(
    target: LengthTarget,
    methods: Iterable[str],
    seed: int,
    examples: int,
    progress: Callable[[int], None] = lambda draws: None,
) -> Exploration:
    """Draw from configurations that Hypothesis chooses, and shrink what is found.

    Parameters
    ----------
    target
        The code under test.
    methods
        Methods that it knows.
    seed
        Decides the configurations and the generators' states.
    examples
        Configurations to try; shrinking tries more.
    progress
        Told of the draws just made.
    """
    found: dict[str, Violation] = {}
    tried = drawn = 0

    def look(configuration: Configuration) -> set[str]:
        nonlocal tried, drawn
        tried += 1
        target.renew()
        with own_generators(seed, configuration):
            before = GlobalStates.capture()
            try:
                values = target.draw_many(configuration, DRAWS_EACH)
            except TargetFailed as failed:
                seen = [failure(configuration, failed)]
            else:
                drawn += sum(as_length(value) is not None for value in values)
                progress(len(values))
                seen = [*violations(configuration, values, target.gave), *target.noticed()]
            # Once is a proof, and following a generator far takes long.
            if "generators" not in found:
                names = reseeded(before, GlobalStates.capture())
                seen += [reseeding(configuration, names)] if names else []
        for violation in seen:
            best = found.get(violation.name)
            if best is None or violation.size < best.size:
                found[violation.name] = violation
        return {violation.name for violation in seen}

    search_and_shrink(
        configurations(target.kind, methods),
        look,
        lambda: found.keys() - {"generators"},
        seed=seed,
        examples=examples,
    )
    return Exploration(tried, drawn, found)
