"""Global generator states: put back after use, and reseeding told from drawing."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest
import torch

import specsim
from specsim.properties.generators import (
    GlobalStates,
    comparable_generators,
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
        lambda: [random.random() for _ in range(400_000)],
        lambda: random.gauss(0, 1),
        lambda: np.random.random(5_000_000),
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


def test_states_that_specsim_sets_meanwhile_are_not_taken_for_reseeding() -> None:
    with own_generators(0, "outside"):
        before = GlobalStates.capture()
        # As another thread's check would.
        seed_global_generators(1)
        assert reseeded(before, GlobalStates.capture()) == []


def test_reseeding_after_a_long_way_is_told_from_drawing() -> None:
    with own_generators(0, "far"):
        before = GlobalStates.capture()
        np.random.random(5_000_000)
        np.random.seed(1)
        assert reseeded(before, GlobalStates.capture()) == ["numpy.random"]


@pytest.fixture
def other_bit_generator() -> Iterator[np.random.PCG64]:
    """Let NumPy's global functions draw from PCG64 for the length of a test."""
    usual = np.random.get_bit_generator()  # type: ignore[attr-defined]
    chosen = np.random.PCG64(3)
    np.random.set_bit_generator(chosen)  # type: ignore[attr-defined]
    yield chosen
    np.random.set_bit_generator(usual)  # type: ignore[attr-defined]


def test_another_bit_generator_is_left_in_place(other_bit_generator: np.random.PCG64) -> None:
    expected = np.random.Generator(np.random.PCG64(3)).random(2)
    with own_generators(0, "other"):
        before = GlobalStates.capture()
        np.random.random()
        assert reseeded(before, GlobalStates.capture()) == []
    assert np.random.get_bit_generator() is other_bit_generator  # type: ignore[attr-defined]
    # Put back where it was before the block.
    assert np.random.random() == expected[0]
    assert comparable_generators() == ["random", "torch"]


def test_a_bit_generator_set_inside_is_put_back() -> None:
    usual = np.random.get_bit_generator()  # type: ignore[attr-defined]
    with own_generators(0, "inside"):
        before = GlobalStates.capture()
        np.random.set_bit_generator(np.random.PCG64())  # type: ignore[attr-defined]
        assert reseeded(before, GlobalStates.capture()) == []
    assert np.random.get_bit_generator() is usual  # type: ignore[attr-defined]


@pytest.mark.parametrize("stub", [mock.MagicMock(), types.ModuleType("torch"), None])
def test_a_stand_in_for_torch_is_not_used(monkeypatch: pytest.MonkeyPatch, stub: object) -> None:
    monkeypatch.setitem(sys.modules, "torch", stub)
    with own_generators(0, "stub"):
        before = GlobalStates.capture()
        random.random()
        assert reseeded(before, GlobalStates.capture()) == []
    assert comparable_generators() == ["random", "numpy.random"]
    report = specsim.check(_uniform, kind="sampler", effort="quick", properties=["S.generators"])
    assert report.ok
    assert "torch" not in report.versions


def _uniform(acc_len: float, method: str, max_len: int) -> int:
    lower = int(min(max(acc_len, 1.0), float(max_len)))
    return min(lower + (random.random() < acc_len - lower), max_len)


def test_a_pool_drawn_in_advance_is_not_reseeding() -> None:
    pool: list[float] = []

    def pooled(acc_len: float, method: str, max_len: int) -> int:
        if not pool:
            pool.extend(random.random() for _ in range(400_000))
        return _uniform(acc_len, method, max_len)

    report = specsim.check(pooled, effort="quick", properties=["S.generators"])
    assert report["S.generators"].verdict == "pass", report["S.generators"].detail
