"""Single calls of DFlash and EAGLE functions, on the batches where they go wrong first.

Known are an empty batch, a batch of one request, a large one, and blocks of one token. Which
others to try is Hypothesis' choice, and it shrinks what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from specsim.adapters.batches import FIXED, REAL, BatchShape, CallViolation
from specsim.adapters.consumers import BatchTarget
from specsim.loading.failures import TargetFailed
from specsim.properties.configurations import METHODS
from specsim.properties.exploration import acceptance_lengths
from specsim.properties.generators import own_generators
from specsim.properties.hypothesis_runs import search_and_shrink
from specsim.targets import Configuration

_LARGEST_TOP, _LARGEST_BATCH, _MOST_NODES = 17, 64, 3
# A row of logits is as long as the vocabulary, which grows with the batch.
_LARGEST_OF_LOGITS = 4
_KNOWN_BATCHES = (3, 1, 0, 600)
_KNOWN_LENGTHS = ((3.0, 4), (1.0, 4), (4.0, 4), (1.0, 1), (2.5, 17))
_DTYPES = ("int64", "int32")


@dataclass
class Calls:
    """What single calls showed.

    Attributes
    ----------
    made : dict of str to int
        How many calls were made, by token mode.
    with_logits
        How many of them had logits for the target's tokens.
    largest
        The most requests of a batch.
    found
        The simplest violation of each property, by its name.
    """

    made: dict[str, int] = field(default_factory=lambda: {REAL: 0, FIXED: 0})
    with_logits: int = 0
    largest: int = 0
    found: dict[str, CallViolation] = field(default_factory=dict)


def make_calls(target: BatchTarget, methods: Sequence[str], seed: int, examples: int) -> Calls:
    """Call a function on known batches, and on those that Hypothesis chooses.

    Parameters
    ----------
    target
        The function.
    methods
        Methods that it knows.
    seed
        Decides the batches that are chosen, and the generators' states.
    examples
        Batches that Hypothesis chooses; shrinking tries more.
    """
    calls = Calls()
    for mode in target.modes:
        for bs in _KNOWN_BATCHES:
            for logits in _choices_of_logits(target, mode, bs):
                for acc_len, top in _KNOWN_LENGTHS:
                    config = Configuration(acc_len, methods[0], top)
                    _look(target, config, BatchShape(bs, mode=mode, logits=logits), seed, calls)
    search_and_shrink(
        st.tuples(_configurations(methods), _shapes(target)),
        lambda chosen: _look(target, *chosen, seed, calls),
        lambda: list(calls.found),
        seed=seed,
        examples=examples,
    )
    return calls


def _choices_of_logits(target: BatchTarget, mode: str, bs: int) -> tuple[bool, ...]:
    possible = mode == REAL and bs <= _LARGEST_OF_LOGITS and target.takes("next_token_logits")
    return (False, True) if possible else (False,)


def _look(
    target: BatchTarget, config: Configuration, shape: BatchShape, seed: int, calls: Calls
) -> set[str]:
    """Make one call, note what it shows, and return the names of what it refutes."""
    calls.made[shape.mode] += 1
    calls.with_logits += shape.logits
    calls.largest = max(calls.largest, shape.bs)
    try:
        with own_generators(seed, config, shape):
            seen = target.call(config, shape)
    except TargetFailed as failed:
        message = f"with {shape} {failed.summary}"
        name = "fixed" if shape.mode == FIXED else "same-length"
        name = "real-draft-token" if shape.logits else name
        seen = [CallViolation(name, config, message, (), failed.frames_text, shape)]
    for violation in seen:
        best = calls.found.get(violation.name)
        if best is None or violation.size < best.size:
            calls.found[violation.name] = violation
    return {violation.name for violation in seen}


@st.composite
def _configurations(draw: st.DrawFn, methods: Sequence[str]) -> Configuration:
    top = draw(st.integers(1, _LARGEST_TOP))
    # An integer length under match-expected is the same in every run.
    if METHODS[0] in methods and draw(st.integers(0, 2)) < 2:
        return Configuration(float(draw(st.integers(1, top))), METHODS[0], top)
    acc_len = draw(acceptance_lengths(top, forced=True))
    return Configuration(acc_len, draw(st.sampled_from(list(methods))), top)


@st.composite
def _shapes(draw: st.DrawFn, target: BatchTarget) -> BatchShape:
    bs = draw(st.one_of(st.integers(0, 4), st.integers(0, _LARGEST_BATCH)))
    mode = draw(st.sampled_from(target.modes))
    return BatchShape(
        bs,
        draw(st.sampled_from(_DTYPES)),
        draw(st.sampled_from(_DTYPES)),
        draw(st.integers(0, _MOST_NODES)) if target.spare_nodes else 0,
        mode,
        draw(st.sampled_from(_choices_of_logits(target, mode, bs))),
    )
