"""The reference: sample_simulated_acc_len.

Statistical tests compare counts with `agrees`, whose false-alarm rate is at most ALPHA a call;
the twin below them plants faults that must be caught.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proptests.exact_counts import agrees
from specsim.acceptance import AcceptanceDistribution
from specsim.sampler import _sample_simulated_acc_len, sample_simulated_acc_len

METHODS = ("match-expected", "multinomial")
FRACTIONAL = AcceptanceDistribution.match_expected(4.7, 8)

max_lens = st.integers(1, 64)
lengths = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-2.0, 70.0)


@given(lengths, st.sampled_from(METHODS), max_lens)
def test_returns_an_int_in_range(acc_len: float, method: str, max_len: int) -> None:
    drawn = sample_simulated_acc_len(acc_len, method, max_len)
    assert type(drawn) is int
    assert 1 <= drawn <= max_len
    if method == "match-expected":
        law = AcceptanceDistribution.match_expected(acc_len, max_len)
        assert drawn in law.support


@given(st.integers(-5, 70), max_lens)
def test_whole_lengths_are_returned_clamped(acc_len: int, max_len: int) -> None:
    drawn = sample_simulated_acc_len(acc_len, "match-expected", max_len)
    assert drawn == min(max(acc_len, 1), max_len)


def test_whole_lengths_take_no_draw() -> None:
    generator = torch.Generator()
    before = generator.get_state()
    sample_simulated_acc_len(5.0, "match-expected", 8, generator=generator)
    assert torch.equal(generator.get_state(), before)
    sample_simulated_acc_len(5.5, "match-expected", 8, generator=generator)
    assert not torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    ("acc_len", "noise", "expected"),
    [
        (4.5, 0.0, 4),  # half to even, down
        (5.5, 0.0, 6),  # half to even, up
        (5.0, 0.49, 5),
        (20.0, -12.4, 8),  # centred on 20 itself: 7.6; on the clamped 8 it would be 1
        (20.0, -19.5, 1),
        (-3.0, 0.0, 1),
        (8.4, 0.3, 8),
    ],
)
def test_multinomial_clamps_the_normal_then_rounds_half_to_even(
    monkeypatch: pytest.MonkeyPatch, acc_len: float, noise: float, expected: int
) -> None:
    monkeypatch.setattr(torch, "randn", lambda *_, **kw: torch.tensor(noise, dtype=kw["dtype"]))
    assert sample_simulated_acc_len(acc_len, "multinomial", 8) == expected


@pytest.mark.parametrize(("uniform", "expected"), [(0.0, 5), (0.7, 5), (0.75, 4), (0.99, 4)])
def test_match_expected_takes_the_longer_length_below_the_fraction(
    monkeypatch: pytest.MonkeyPatch, uniform: float, expected: int
) -> None:
    monkeypatch.setattr(torch, "rand", lambda *_, **kw: torch.tensor(uniform, dtype=kw["dtype"]))
    assert sample_simulated_acc_len(4.75, "match-expected", 8) == expected


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("acc_len", [0.3, 1.2, 4.7, 7.9, 9.6])
def test_follows_the_exact_law(acc_len: float, method: str) -> None:
    # False alarms: ALPHA for each of the ten.
    law = AcceptanceDistribution.from_method(acc_len, method, 8)
    drawn = [sample_simulated_acc_len(acc_len, method, 8) for _ in range(10_000)]
    assert agrees(drawn, law)


@pytest.mark.parametrize(
    "fault",
    [
        lambda: round(4.7),
        lambda: sample_simulated_acc_len(4.3, "match-expected", 8),
        lambda: sample_simulated_acc_len(4.7, "match-expected", 8) - 1,
        lambda: sample_simulated_acc_len(4.7, "multinomial", 8),
        lambda: int(np.clip(np.random.default_rng().normal(4.7), 4, 5)),
    ],
)
def test_faults_are_caught(fault: Callable[[], int]) -> None:
    assert not agrees([fault() for _ in range(10_000)], FRACTIONAL)


@pytest.mark.parametrize("method", METHODS)
def test_draws_from_the_given_generator_only(method: str) -> None:
    generator = torch.Generator().manual_seed(3)
    before = torch.get_rng_state()
    first = [sample_simulated_acc_len(4.7, method, 8, generator=generator) for _ in range(200)]
    assert torch.equal(torch.get_rng_state(), before)
    generator.manual_seed(3)
    again = [sample_simulated_acc_len(4.7, method, 8, generator=generator) for _ in range(200)]
    assert again == first
    # Two different sequences of 200 would be equal with probability below 0.6 ** 200.
    other = [sample_simulated_acc_len(4.7, method, 8, generator=generator) for _ in range(200)]
    assert other != first


def test_is_reproducible_under_torch_manual_seed() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        first = [sample_simulated_acc_len(4.7, "multinomial", 8) for _ in range(50)]
        torch.manual_seed(11)
        assert [sample_simulated_acc_len(4.7, "multinomial", 8) for _ in range(50)] == first


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 10**400])
@pytest.mark.parametrize("method", METHODS)
def test_refuses_lengths_that_are_not_finite(bad: float, method: str) -> None:
    with pytest.raises(ValueError, match="simulate_acc_len must be a finite number, got"):
        sample_simulated_acc_len(bad, method, 8)


@pytest.mark.parametrize("bad", [0, -3])
def test_refuses_max_len_below_one(bad: int) -> None:
    with pytest.raises(ValueError, match=f"max_len must be an integer >= 1, got {bad}"):
        sample_simulated_acc_len(4.7, "match-expected", bad)


@pytest.mark.parametrize("bad", ["match_expected", "", None])
def test_refuses_unknown_methods_and_names_the_known(bad: Any) -> None:
    message = f"simulate_acc_method must be one of 'match-expected', 'multinomial', got {bad!r}"
    with pytest.raises(ValueError, match=message):
        sample_simulated_acc_len(4.0, bad, 8)


def test_refuses_other_types() -> None:
    with pytest.raises(TypeError, match=r"simulate_acc_len must be a real number, got '4\.7'"):
        sample_simulated_acc_len("4.7", "match-expected", 8)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"max_len must be an integer, got 8\.0"):
        sample_simulated_acc_len(4.7, "match-expected", 8.0)  # type: ignore[arg-type]


def test_the_former_name_still_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="use sample_simulated_acc_len"):
        assert _sample_simulated_acc_len(6.0, "match-expected", 8) == 6
