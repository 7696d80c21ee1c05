"""Global generator states: put back after use, and reseeding told from drawing."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from specsim.properties.generators import (
    GlobalStates,
    own_generators,
    reseeded,
    seed_global_generators,
)


def _some_draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_states_are_put_back() -> None:
    seed_global_generators(3)
    expected = _some_draws()
    seed_global_generators(3)
    with own_generators(5, "inside"):
        inside = _some_draws()
    assert _some_draws() == expected
    assert inside != expected


def test_states_depend_on_the_whole_path_and_on_nothing_else() -> None:
    def first(seed: int, *path: object) -> tuple[float, float, float]:
        with own_generators(seed, *path):
            return _some_draws()

    assert first(1, "a", 2) == first(1, "a", 2)
    assert len({first(1, "a"), first(2, "a"), first(1, "b"), first(1, "a", "a")}) == 4


@pytest.mark.parametrize(
    "draw",
    [
        lambda: None,
        lambda: [random.random() for _ in range(20_000)],
        lambda: random.gauss(0, 1),
        lambda: np.random.random(20_000),
        lambda: np.random.normal(),
        lambda: torch.rand(20_000),
        lambda: torch.normal(0.0, 1.0, (1,)),
        lambda: torch.multinomial(torch.tensor([0.3, 0.7]), 1),
    ],
)
def test_drawing_is_not_reseeding(draw: Callable[[], object]) -> None:
    with own_generators(0, "drawing"):
        before = GlobalStates.capture()
        draw()
        assert reseeded(before, GlobalStates.capture()) == []


@pytest.mark.parametrize(
    ("reseed", "name"),
    [
        (lambda: random.seed(1), "random"),
        (lambda: random.seed(), "random"),
        (lambda: np.random.seed(1), "numpy.random"),
        (lambda: np.random.seed(None), "numpy.random"),
        (lambda: torch.manual_seed(1), "torch"),
        (lambda: torch.seed(), "torch"),
    ],
)
def test_reseeding_is_told_by_name(reseed: Callable[[], object], name: str) -> None:
    with own_generators(0, "reseeding"):
        before = GlobalStates.capture()
        _some_draws()
        reseed()
        _some_draws()
        assert reseeded(before, GlobalStates.capture()) == [name]
