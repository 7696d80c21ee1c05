"""What accept rules compute with: counter-based uniforms and float32 probabilities."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.philox import philox4x32
from specsim.verify.accept import ACCEPT_STREAM, counter_uniforms, probabilities


class TestCounterUniforms:
    @given(
        st.integers(0, (1 << 64) - 1),
        st.integers(0, (1 << 64) - 1),
        st.lists(st.integers(0, (1 << 32) - 1), max_size=3),
        st.integers(0, 9),
        st.sampled_from([ACCEPT_STREAM, 77]),
    )
    @settings(max_examples=25)
    def test_is_the_documented_function(
        self, seed: int, step: int, slots: list[int], count: int, stream: int
    ) -> None:
        numbers = counter_uniforms(
            seed, step, torch.tensor(slots, dtype=torch.int64), count, stream=stream
        )
        expected = [
            [
                (philox4x32((step % 2**32, step >> 32, slot, stream + j // 4), key)[j % 4] + 0.5)
                / 2**32
                for j in range(count)
            ]
            for key in [(seed % 2**32, seed >> 32)]
            for slot in slots
        ]
        assert numbers.dtype == torch.float64
        assert numbers.shape == (len(slots), count)
        assert numbers.tolist() == expected
        assert ((numbers > 0) & (numbers < 1)).all()

    def test_a_step_on_the_device_gives_the_same(self) -> None:
        slots = torch.tensor([0, 3])
        for shape in ((), (1,)):
            step = torch.full(shape, (1 << 33) + 5)
            assert torch.equal(
                counter_uniforms(9, step, slots, 6), counter_uniforms(9, (1 << 33) + 5, slots, 6)
            )

    def test_keeps_off_the_streams_of_the_lengths(self) -> None:
        # `AcceptanceSampler.at` draws from streams 0 and 1.
        assert ACCEPT_STREAM > 1

    def test_refuses_what_is_out_of_range(self) -> None:
        slots = torch.arange(2)
        with pytest.raises(ValueError, match=r"seed must be in \[0, 2\*\*64\), got"):
            counter_uniforms(1 << 64, 0, slots, 1)
        with pytest.raises(ValueError, match="step must be an integer >= 0, got -1"):
            counter_uniforms(0, -1, slots, 1)
        with pytest.raises(ValueError, match=r"stream must be in \[0, 2\*\*32\), got"):
            counter_uniforms(0, 0, slots, 1, stream=1 << 32)
        with pytest.raises(ValueError, match=r"slots must be one-dimensional, got shape \(\)"):
            counter_uniforms(0, 0, torch.tensor(1), 1)


class TestProbabilities:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
    @pytest.mark.parametrize("temperature", [1.0, 0.6, 2.5])
    def test_is_a_softmax_in_float32(self, dtype: torch.dtype, temperature: float) -> None:
        logits = (5.0 * torch.randn((3, 4, 9), generator=torch.Generator().manual_seed(0))).to(
            dtype
        )
        found = probabilities(logits, temperature)
        assert found.dtype == torch.float32
        expected = torch.softmax(logits.double() / temperature, dim=-1)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-7)

    def test_temperature_zero_is_the_argmax(self) -> None:
        logits = torch.tensor([[1.0, 3.0, 3.0], [-torch.inf, -2.0, -torch.inf]])
        assert probabilities(logits, 0.0).tolist() == [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]

    def test_extremes_stay_finite(self) -> None:
        logits = torch.tensor([3e38, -3e38, 3e38, -torch.inf])
        for temperature in (2.0**-126, 1.0, 1e30):
            row = probabilities(logits, temperature)
            assert torch.isfinite(row).all()
            assert row.sum().item() == pytest.approx(1.0, abs=1e-6)
            assert row[3].item() == 0.0

    def test_refuses_what_it_cannot_use(self) -> None:
        with pytest.raises(TypeError, match=r"logits must be floating-point, got torch.int64"):
            probabilities(torch.ones(3).long(), 1.0)
        for wrong in (-1.0, 1e-39):
            with pytest.raises(
                ValueError, match=f"temperature must be 0 or at least .* got {wrong}"
            ):
                probabilities(torch.ones(3), wrong)
        with pytest.raises(ValueError, match="temperature must be a finite number, got nan"):
            probabilities(torch.ones(3), float("nan"))
