"""AcceptanceSampler.at: draws that are a function of seed, step and slot.

Statistical tests compare counts with `agrees`, whose false-alarm rate is at most ALPHA a call;
each has a twin in which a planted fault must be caught.
"""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proptests.exact_counts import agrees, pairs
from specsim.acceptance import AcceptanceDistribution
from specsim.philox import philox4x32
from specsim.sampler import AcceptanceSampler, Coupling, Method

COUPLINGS: tuple[Coupling, ...] = ("slot", "batch")

FRACTIONAL = AcceptanceDistribution.match_expected(4.7, 8)
NORMAL = AcceptanceDistribution.multinomial(8.2, 16)
GAPPED = AcceptanceDistribution([0.3, 0.0, 0.7])

seeds = st.integers(0, (1 << 64) - 1)
steps = st.integers(0, (1 << 64) - 1) | st.sampled_from(
    [0, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
)
slots = st.integers(0, (1 << 32) - 1) | st.sampled_from([0, 1 << 31, (1 << 32) - 1])
two_lengths = st.builds(
    AcceptanceDistribution.match_expected, st.floats(0.0, 20.0), st.integers(1, 20)
)
laws = two_lengths | st.builds(
    AcceptanceDistribution.multinomial, st.floats(0.0, 20.0), st.integers(1, 20)
)


def rule(distribution: AcceptanceDistribution, word: int) -> int:
    """Return the length that a 32-bit word stands for, from the cdf in exact arithmetic."""
    position = Fraction(word, 1 << 32)
    return 1 + sum(
        Fraction(float(distribution.cdf(k))) <= position for k in range(1, distribution.max_len)
    )


class TestCounter:
    @given(laws, seeds, steps, slots, st.sampled_from(["slot", "batch"]))
    def test_is_the_documented_function(
        self,
        law: AcceptanceDistribution,
        seed: int,
        step: int,
        slot: int,
        coupling: Coupling,
    ) -> None:
        sampler = AcceptanceSampler(law, seed=seed, coupling=coupling)
        counter = (step % (1 << 32), step >> 32, slot if coupling == "slot" else 0, 0)
        word = philox4x32(counter, (seed % (1 << 32), seed >> 32))[0]
        assert sampler.at(step, slot) == rule(law, word)

    @given(two_lengths, seeds, steps, slots, st.sampled_from(["slot", "batch"]))
    def test_systematic_is_the_documented_function(
        self,
        law: AcceptanceDistribution,
        seed: int,
        step: int,
        slot: int,
        coupling: Coupling,
    ) -> None:
        # Adding a constant modulo 2³² permutes the words, so with U uniform every step has
        # exactly the law of the thresholds.
        sampler = AcceptanceSampler(law, seed=seed, coupling=coupling, method="systematic")
        key = (seed % (1 << 32), seed >> 32)
        offset = philox4x32((0, 0, slot if coupling == "slot" else 0, 1), key)[0]
        longer = int((1 - Fraction(float(law.cdf(law.support[0])))) * (1 << 32))
        assert sampler.at(step, slot) == rule(law, (offset + step * longer) % (1 << 32))

    @pytest.mark.parametrize("coupling", ["slot", "batch"])
    @pytest.mark.parametrize("method", ["independent", "systematic"])
    @given(seeds, st.integers(0, (1 << 63) - 1), st.lists(slots, max_size=8), st.randoms())
    def test_is_the_same_one_by_one_and_as_a_batch_in_any_order(
        self,
        coupling: Coupling,
        method: Method,
        seed: int,
        step: int,
        batch: list[int],
        rng: random.Random,
    ) -> None:
        sampler = AcceptanceSampler(GAPPED, seed=seed, coupling=coupling, method=method)
        single = {slot: sampler.at(step, slot) for slot in batch}
        rng.shuffle(batch)
        expected = [single[slot] for slot in batch]
        tensor = torch.tensor(batch, dtype=torch.int64)
        assert sampler.at(step, batch).tolist() == expected
        assert sampler.at(step, np.array(batch, dtype=np.int64)).tolist() == expected
        assert sampler.at(step, tensor).tolist() == expected
        assert sampler.at(torch.tensor(step), tensor).tolist() == expected

    @pytest.mark.parametrize("coupling", ["slot", "batch"])
    @pytest.mark.parametrize("method", ["independent", "systematic"])
    def test_shapes_and_dtypes(self, coupling: Coupling, method: Method) -> None:
        sampler = AcceptanceSampler(GAPPED, seed=2, coupling=coupling, method=method)
        many_steps = [0, 5, 1 << 32, (1 << 63) - 1]
        table = [[sampler.at(step, slot) for slot in range(3)] for step in many_steps]
        column = np.array(many_steps)[:, None]

        assert type(sampler.at(5, 1)) is int
        assert type(sampler.at(np.int32(5), np.uint8(1))) is int
        by_array = sampler.at(column, range(3))
        assert by_array.dtype == np.int64
        assert by_array.tolist() == table
        assert sampler.at(many_steps, 1).tolist() == [row[1] for row in table]
        assert sampler.at([1 << 63, (1 << 64) - 1], 0).tolist() == [
            sampler.at(1 << 63, 0),
            sampler.at((1 << 64) - 1, 0),
        ]

        slot_tensor = torch.arange(3, dtype=torch.int32)
        by_tensor = sampler.at(torch.from_numpy(column), slot_tensor)
        assert by_tensor.dtype == torch.int64
        assert by_tensor.tolist() == table
        assert sampler.at(torch.tensor(5), 1).item() == table[1][1]
        transposed = torch.arange(12).reshape(3, 4).T
        assert sampler.at(5, transposed).tolist() == [
            [sampler.at(5, slot) for slot in row] for row in transposed.tolist()
        ]
        # The result is the caller's to write into.
        sampler.at(torch.tensor(5), slot_tensor).add_(1)
        sampler.at(5, np.arange(3)).fill(0)
        assert sampler.at(torch.tensor(5), slot_tensor).tolist() == table[1]

    @given(seeds, st.integers(0, (1 << 63) - 1), slots)
    def test_the_longer_length_starts_exactly_at_the_threshold(
        self, seed: int, step: int, slot: int
    ) -> None:
        counter = (step % (1 << 32), step >> 32, slot, 0)
        word = philox4x32(counter, (seed % (1 << 32), seed >> 32))[0]
        for threshold, expected in ((word, 2), (word + 1, 1)):
            shorter = threshold / (1 << 32)
            sampler = AcceptanceSampler(AcceptanceDistribution([shorter, 1 - shorter]), seed=seed)
            assert sampler.at(step, slot) == expected
            assert sampler.at(step, [slot]).tolist() == [expected]
            assert sampler.at(step, torch.tensor([slot])).tolist() == [expected]

    @pytest.mark.parametrize("method", ["independent", "systematic"])
    def test_a_single_length_needs_no_threshold(self, method: Method) -> None:
        sampler = AcceptanceSampler(AcceptanceDistribution([1.0]), method=method)
        assert sampler.at(3, 4) == 1
        assert sampler.at(3, [4, 5]).tolist() == [1, 1]
        assert sampler.at(torch.tensor(3), torch.arange(2)).tolist() == [1, 1]
        assert sampler.draws(3).tolist() == [1, 1, 1]

    @pytest.mark.parametrize("method", ["independent", "systematic"])
    def test_batch_coupling_shares_slot_zero(self, method: Method) -> None:
        shared = AcceptanceSampler(FRACTIONAL, seed=9, coupling="batch", method=method)
        single = AcceptanceSampler(FRACTIONAL, seed=9, coupling="slot", method=method)
        many = np.arange(64)[:, None]
        first = single.at(many, 0)
        assert np.array_equal(shared.at(many, np.arange(8)), np.repeat(first, 8, axis=1))
        # Equal for all slots and steps with probability below 0.6 ** 448 if they were drawn.
        assert not np.array_equal(single.at(many, np.arange(8)), np.repeat(first, 8, axis=1))

    def test_tensors_are_never_read_on_the_host(self) -> None:
        # A meta tensor has no values, so any read of one raises.
        step = torch.empty((), dtype=torch.int64, device="meta")
        for law, method in ((NORMAL, "independent"), (FRACTIONAL, "systematic")):
            for coupling in COUPLINGS:
                sampler = AcceptanceSampler(law, coupling=coupling, method=cast(Method, method))
                drawn = sampler.at(step, torch.empty(4, dtype=torch.int64, device="meta"))
                assert drawn.device.type == "meta"
                assert drawn.shape == (4,)

    @pytest.mark.parametrize("law", [FRACTIONAL, NORMAL, GAPPED])
    def test_follows_the_exact_law_over_steps_and_slots(self, law: AcceptanceDistribution) -> None:
        # False alarms: ALPHA for each of the four comparisons.
        sampler = AcceptanceSampler(law)
        product = np.outer(law.pmf, law.pmf).ravel()
        for drawn in (
            sampler.at(np.arange(200_000), 0),
            sampler.at(12_345, np.arange(200_000)),
        ):
            assert agrees(drawn, law)
            assert agrees(pairs(drawn, law.max_len), product)

    def test_systematic_slots_follow_the_exact_law_at_any_step(self) -> None:
        # False alarms: ALPHA for each of the four comparisons.
        sampler = AcceptanceSampler(FRACTIONAL, method="systematic")
        product = np.outer(FRACTIONAL.pmf, FRACTIONAL.pmf).ravel()
        for step in (0, 987_654_321):
            drawn = sampler.at(step, np.arange(200_000))
            assert agrees(drawn, FRACTIONAL)
            assert agrees(pairs(drawn, 8), product)

    def test_slots_that_share_an_offset_are_caught(self) -> None:
        sampler = AcceptanceSampler(FRACTIONAL, method="systematic", coupling="batch")
        assert not agrees(sampler.at(0, np.arange(200_000)), FRACTIONAL)

    @given(
        st.sampled_from([FRACTIONAL, GAPPED]) | two_lengths,
        seeds,
        steps,
        slots,
        st.integers(1, 5000),
    )
    def test_systematic_counts_are_floor_or_ceiling(
        self, law: AcceptanceDistribution, seed: int, start: int, slot: int, n: int
    ) -> None:
        sampler = AcceptanceSampler(law, seed=seed, method="systematic")
        start = min(start, (1 << 64) - n)
        drawn = sampler.at(np.arange(n, dtype=np.uint64) + np.uint64(start), slot)
        shorter, longer = law.support[0], law.support[-1]
        weight = int((1 - Fraction(float(law.cdf(shorter)))) * (1 << 32))
        expected = Fraction(n * weight, 1 << 32)
        count = Counter(drawn.tolist())
        assert count[shorter] + (count[longer] if longer != shorter else 0) == n
        if longer != shorter:
            assert abs(count[longer] - expected) < 1
            gap = longer - shorter
            error = abs(Fraction(int(drawn.sum()), n) - Fraction(law.mean))
            # law.mean is itself rounded, by less than 1e-14.
            bound = gap * (Fraction(1, n) + Fraction(1, 1 << 32)) + Fraction(1, 10**14)
            assert error < bound

    @pytest.mark.parametrize("bad", [-1, 1 << 64])
    def test_refuses_steps_out_of_range(self, bad: int) -> None:
        sampler = AcceptanceSampler(FRACTIONAL)
        message = rf"step must be in \[0, 2\*\*64\), got {bad}"
        with pytest.raises(ValueError, match=message):
            sampler.at(bad, 0)
        with pytest.raises(ValueError, match=message):
            sampler.at(bad, torch.arange(3))

    @pytest.mark.parametrize("bad", [-1, 1 << 32])
    def test_refuses_slots_out_of_range(self, bad: int) -> None:
        message = rf"slots must be in \[0, 2\*\*32\), got {bad}"
        for coupling in COUPLINGS:
            sampler = AcceptanceSampler(FRACTIONAL, coupling=coupling)
            with pytest.raises(ValueError, match=message):
                sampler.at(0, bad)
            with pytest.raises(ValueError, match=message):
                sampler.at(0, [0, bad])
            with pytest.raises(ValueError, match=message):
                sampler.at(torch.tensor(0), bad)

    def test_refuses_other_types(self) -> None:
        sampler: Any = AcceptanceSampler(FRACTIONAL)
        with pytest.raises(
            TypeError, match=r"step must hold integers in \[0, 2\*\*64\), got float"
        ):
            sampler.at(1.0, 0)
        with pytest.raises(TypeError, match="slots must hold integers"):
            sampler.at(1, np.zeros(3))
        with pytest.raises(TypeError, match="slots must hold integers"):
            sampler.at(1, "3")
        with pytest.raises(
            TypeError, match=r"slots must hold integers, got a tensor of torch\.bool"
        ):
            sampler.at(1, torch.zeros(3, dtype=torch.bool))
        with pytest.raises(TypeError, match="step must hold integers, got a tensor of"):
            sampler.at(torch.tensor(1.0), 0)
        with pytest.raises(TypeError, match="slots must be an int or a tensor beside a tensor"):
            sampler.at(torch.tensor(1), np.arange(3))
        with pytest.raises(ValueError, match="step must be on the device of slots, cpu, got meta"):
            sampler.at(torch.empty((), dtype=torch.int64, device="meta"), torch.arange(3))
