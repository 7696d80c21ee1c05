"""AcceptanceSampler: construction, and the stream of draw() and draws().

Statistical tests compare counts with `agrees`, whose false-alarm rate is at most ALPHA a call;
each has a twin in which a planted fault must be caught.
"""

from __future__ import annotations

import gc
import random
import weakref
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proptests.exact_counts import agrees, pairs
from specsim.acceptance import AcceptanceDistribution
from specsim.sampler import AcceptanceSampler, Method

FRACTIONAL = AcceptanceDistribution.match_expected(4.7, 8)
NORMAL = AcceptanceDistribution.multinomial(8.2, 16)
GAPPED = AcceptanceDistribution([0.3, 0.0, 0.7])

max_lens = st.integers(1, 64)
seeds = st.integers(0, (1 << 64) - 1)


class TestStream:
    @pytest.mark.parametrize("law", [FRACTIONAL, NORMAL, GAPPED, AcceptanceDistribution([1.0])])
    def test_types(self, law: AcceptanceDistribution) -> None:
        sampler = AcceptanceSampler(law, seed=1)
        assert type(sampler.draw()) is int
        drawn = sampler.draws(7)
        assert drawn.dtype == np.int64
        assert drawn.shape == (7,)
        assert sampler.draws(0).shape == (0,)

    @pytest.mark.parametrize("method", ["independent", "systematic"])
    @given(st.lists(st.one_of(st.none(), st.sampled_from([0, 1, 9, 1500, 40_000])), max_size=8))
    def test_is_one_sequence_however_it_is_read(
        self, method: Method, calls: list[int | None]
    ) -> None:
        split, whole = (AcceptanceSampler(FRACTIONAL, seed=5, method=method) for _ in range(2))
        got: list[int] = []
        for n in calls:
            got.extend([split.draw()] if n is None else split.draws(n).tolist())
        assert got == whole.draws(len(got)).tolist()

    # 15, 63 and 16 lengths: thresholds inside cells, many of them, and none.
    @pytest.mark.parametrize(
        "law",
        [
            FRACTIONAL,
            NORMAL,
            GAPPED,
            AcceptanceDistribution([1 / 15] * 15),
            AcceptanceDistribution([1 / 63] * 63),
            AcceptanceDistribution([1 / 16] * 16),
        ],
    )
    def test_follows_the_exact_law_and_is_independent(self, law: AcceptanceDistribution) -> None:
        # False alarms: ALPHA for each of the three comparisons.
        sampler = AcceptanceSampler(law)
        drawn = sampler.draws(400_000)
        assert agrees(drawn, law)
        assert agrees(pairs(drawn, law.max_len), np.outer(law.pmf, law.pmf).ravel())
        assert agrees([sampler.draw() for _ in range(50_000)], law)

    def test_a_deviation_of_one_percent_is_caught(self) -> None:
        shifted = AcceptanceSampler(AcceptanceDistribution.match_expected(4.69, 8))
        assert not agrees(shifted.draws(400_000), FRACTIONAL)

    def test_dependence_is_caught(self) -> None:
        law = AcceptanceDistribution.match_expected(4.7, 5)
        product = np.outer(law.pmf, law.pmf).ravel()
        systematic = AcceptanceSampler(law, method="systematic").draws(400_000)
        assert not agrees(pairs(systematic, 5), product)
        repeated = np.repeat(AcceptanceSampler(law).draws(200_000), 2)
        assert not agrees(pairs(repeated, 5), product)

    def test_follows_the_seed(self) -> None:
        # Different seeds agree in 200 draws with probability below 0.6 ** 200.
        drawn = [AcceptanceSampler(FRACTIONAL, seed=seed).draws(200).tolist() for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]
        fresh = [AcceptanceSampler(FRACTIONAL) for _ in range(2)]
        assert fresh[0].seed != fresh[1].seed
        assert fresh[0].draws(200).tolist() != fresh[1].draws(200).tolist()
        again = AcceptanceSampler(FRACTIONAL, seed=fresh[0].seed)
        assert again.at(3, 4) == fresh[0].at(3, 4)

    def test_is_freed_with_its_last_reference(self) -> None:
        # A table and two blocks are a megabyte: too much to wait for the cycle collector.
        gc.disable()
        try:
            sampler = AcceptanceSampler(NORMAL)
            sampler.draw()
            held = weakref.ref(sampler), weakref.ref(sampler._stream)
            del sampler
            assert [reference() for reference in held] == [None, None]
        finally:
            gc.enable()

    def test_leaves_global_generators_alone(self) -> None:
        python, pytorch = random.getstate(), torch.get_rng_state()
        _, numpy_words, numpy_position, *_ = cast("tuple[Any, ...]", np.random.get_state())
        sampler = AcceptanceSampler(NORMAL)
        sampler.draw()
        sampler.draws(10)
        sampler.at(torch.tensor(1), torch.arange(4))
        assert random.getstate() == python
        _, words, position, *_ = cast("tuple[Any, ...]", np.random.get_state())
        assert position == numpy_position
        assert np.array_equal(words, numpy_words)
        assert torch.equal(torch.get_rng_state(), pytorch)

    @given(st.floats(0.0, 70.0), max_lens, seeds, st.integers(1, 50_000))
    def test_systematic_mean_is_within_one_over_n(
        self, acc_len: float, max_len: int, seed: int, n: int
    ) -> None:
        law = AcceptanceDistribution.match_expected(acc_len, max_len)
        sampler = AcceptanceSampler(law, seed=seed, method="systematic")
        sampler.draws(17)
        mean = Fraction(int(sampler.draws(n).sum()), n)
        clamped = Fraction(min(max(acc_len, 1.0), float(max_len)))
        assert abs(mean - clamped) < Fraction(1, n) + Fraction(1, 1 << 32)

    def test_independent_draws_break_the_systematic_bound(self) -> None:
        # The sum of 10,000 has a standard deviation of 46: within ±1 with probability below 0.03,
        # so all six of six samplers with probability below 1e-9.
        sums = [AcceptanceSampler(FRACTIONAL).draws(10_000).sum() for _ in range(6)]
        assert any(abs(int(total) - 47_000) > 1 for total in sums)


class TestConstruction:
    @pytest.mark.parametrize("bad", [-1, 1 << 64])
    def test_refuses_seeds_out_of_range(self, bad: int) -> None:
        with pytest.raises(ValueError, match=f"seed must be .*, got {bad}"):
            AcceptanceSampler(FRACTIONAL, seed=bad)

    def test_refuses_other_arguments(self) -> None:
        make: Any = AcceptanceSampler
        with pytest.raises(TypeError, match="seed must be an integer, got 'x'"):
            make(FRACTIONAL, seed="x")
        with pytest.raises(TypeError, match="distribution must be an AcceptanceDistribution"):
            make([0.3, 0.7])
        with pytest.raises(ValueError, match="coupling must be one of 'slot', 'batch', got 'rank'"):
            make(FRACTIONAL, coupling="rank")
        with pytest.raises(
            ValueError, match="method must be one of 'independent', 'systematic', got 'sobol'"
        ):
            make(FRACTIONAL, method="sobol")
        for law in (NORMAL, AcceptanceDistribution([0.25, 0.5, 0.25])):
            with pytest.raises(ValueError, match="at most two lengths for method 'systematic'"):
                make(law, method="systematic")
        with pytest.raises(ValueError, match="n must be an integer >= 0, got -1"):
            make(FRACTIONAL).draws(-1)
        with pytest.raises(TypeError, match=r"n must be an integer, got 2\.5"):
            make(FRACTIONAL).draws(2.5)

    def test_repr_says_what_rebuilds_it(self) -> None:
        shown = repr(AcceptanceSampler(FRACTIONAL, seed=7, coupling="batch", method="systematic"))
        assert shown.endswith(", seed=7, coupling='batch', method='systematic')")
