"""Exact laws of emitted and accepted tokens, against sums written out by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proptests.exact_counts import agrees
from specsim.evidence.law import FloatArray, as_pmf
from specsim.evidence.lossless import (
    accepted_law,
    cells,
    chain_emitted_law,
    complete,
    completed_law,
    joint_law,
    position_tables,
    rows_after,
)

Model = tuple[FloatArray, ...]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Model, Model]:
    """Return a draft model and a target, with zeros among their probabilities."""
    size, gamma = draw(st.sampled_from([(1, 1), (2, 0), (2, 2), (3, 2), (2, 4)]))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    concentration = draw(st.sampled_from([0.02, 1.0]))

    def model(length: int) -> Model:
        return tuple(
            rng.dirichlet(np.full(size, concentration), size=(size,) * j) for j in range(length)
        )

    return model(gamma), model(gamma + 1)


@given(pairs())
def test_completing_the_chain_rules_tokens_gives_the_target(pair: tuple[Model, Model]) -> None:
    draft, target = pair
    emitted = chain_emitted_law(draft, target)
    assert [part.ndim for part in emitted] == list(range(1, len(target) + 1))
    np.testing.assert_allclose(completed_law(emitted, target), joint_law(target), atol=1e-12)


@given(pairs())
def test_accepted_tokens_are_a_sum_over_drafts(pair: tuple[Model, Model]) -> None:
    draft, target = pair
    size = target[0].shape[0]
    expected = np.zeros(len(target))
    for tokens in product(range(size), repeat=len(draft)):
        rates = []
        drafted = 1.0
        for j, token in enumerate(tokens):
            q, p = draft[j][tokens[:j]][token], target[j][tokens[:j]][token]
            drafted *= q
            rates.append(min(1.0, p / q) if q > 0 else 0.0)
        reached = np.cumprod([1.0, *rates])
        expected += drafted * (reached - np.append(reached[1:], 0.0))
    np.testing.assert_allclose(accepted_law(draft, target), expected, atol=1e-12)


@given(pairs())
def test_the_laws_are_pmfs_that_a_test_takes(pair: tuple[Model, Model]) -> None:
    for law in (accepted_law(*pair), joint_law(pair[1]).ravel()):
        np.testing.assert_allclose(as_pmf(law), law, atol=1e-12)


def test_two_tokens_by_hand() -> None:
    draft = position_tables([[0.25, 0.75]])
    target = position_tables([[0.5, 0.5], [0.9, 0.1]])
    # Token 0 is accepted always, token 1 with probability 2/3: a rejection leaves only token 0.
    np.testing.assert_allclose(accepted_law(draft, target), [0.25, 0.75])
    none, one = chain_emitted_law(draft, target)
    np.testing.assert_allclose(none, [0.25, 0.0])
    np.testing.assert_allclose(one, [[0.225, 0.025], [0.45, 0.05]])
    np.testing.assert_allclose(joint_law(target), [[0.45, 0.05], [0.45, 0.05]])


def test_a_prefix_is_completed_to_any_length() -> None:
    target = position_tables([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    np.testing.assert_allclose(
        completed_law([np.array([1.0, 0.0])], target),
        [[[0.18, 0.72], [0.02, 0.08]], [[0.0, 0.0], [0.0, 0.0]]],
    )


def test_rows_follow_their_prefixes() -> None:
    rng = np.random.default_rng(0)
    tables = tuple(rng.dirichlet(np.ones(3), size=(3,) * j) for j in range(3))
    tokens = np.array(list(product(range(3), repeat=2)))
    rows = rows_after(tables, tokens)
    assert rows.shape == (9, 3, 3)
    for (a, b), found in zip(tokens.tolist(), rows, strict=True):
        np.testing.assert_array_equal(found, [tables[0], tables[1][a], tables[2][a, b]])


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_completed_draws_keep_the_prefix_and_have_the_models_law(length: int) -> None:
    """False alarms at the rate of `agrees`, 1e-9."""
    rng = np.random.default_rng(length)
    tables = tuple(np.random.default_rng(9).dirichlet(np.ones(3), size=(3,) * j) for j in range(3))
    prefix = np.tile(np.array([2, 0, 1]), (20_000, 1))
    full = complete(prefix, np.full(20_000, length), tables, rng)
    assert full.dtype == np.int64
    assert (full[:, :length] == prefix[:, :length]).all()
    law = joint_law(tables)[tuple(prefix[0, :length])]
    law = law / law.sum()
    tail = np.atleast_1d(law.ravel())
    numbers = cells(full[:, length:], 3) if length < 3 else np.ones(20_000, dtype=np.int64)
    assert agrees(numbers, tail)
    if length < 3:
        assert not agrees(numbers, np.roll(tail, 1))


def test_a_token_of_probability_zero_is_never_completed() -> None:
    tables = position_tables([[0.0, 0.5, 0.0, 0.5, 0.0]])
    nothing = np.zeros((5_000, 0), dtype=np.int64)
    drawn = complete(nothing, np.zeros(5_000, dtype=np.int64), tables, np.random.default_rng(1))
    assert set(drawn.ravel().tolist()) == {1, 3}


def test_cells_are_numbered_like_the_joint_law() -> None:
    tokens = np.array(list(product(range(3), repeat=4)))
    assert cells(tokens, 3).tolist() == list(range(1, 82))


def test_refuses_what_are_no_tables() -> None:
    coin = np.array([0.5, 0.5])
    with pytest.raises(ValueError, match=r"rows must have shape \(n, V\), got \(2,\)"):
        position_tables(coin)
    with pytest.raises(ValueError, match=r"rows\[1\] must hold rows >= 0 that sum to 1"):
        position_tables([[0.5, 0.5], [0.5, 0.4]])
    with pytest.raises(ValueError, match=r"tables\[0\] must hold rows >= 0 that sum to 1"):
        joint_law((np.array([1.5, -0.5]),))
    with pytest.raises(ValueError, match=r"tables\[1\] must have shape \(2, 2\), got \(2,\)"):
        joint_law((coin, coin))
    with pytest.raises(ValueError, match="tables must hold at least one table, got none"):
        joint_law(())
    with pytest.raises(ValueError, match="draft must have 0 tables, got 1"):
        accepted_law((coin,), (coin,))
    with pytest.raises(ValueError, match="target must hold at least one table, got none"):
        completed_law([coin], ())
    with pytest.raises(ValueError, match="target must have at least 2 tables, got 1"):
        completed_law([coin, np.full((2, 2), 0.25)], (coin,))
