"""Accept rules: exact laws by integrating over the uniforms, and their agreement with a loop.

What the faulty and the other correct rules do statistically is in test_accept_rules.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specsim.evidence.law import FloatArray
from specsim.evidence.lossless import (
    accepted_law,
    chain_emitted_law,
    completed_law,
    joint_law,
    rows_after,
)
from specsim.mutants.accept import all_accept_mutants
from specsim.mutants.accept_base import AcceptRule
from specsim.verify.accept import (
    chain_accept,
    counter_uniforms,
    greedy_accept,
    probabilities,
)

Model = tuple[FloatArray, ...]

LARGEST_BELOW_1 = 1.0 - 2.0**-53
_GRAIN = 64


@st.composite
def models(draw: st.DrawFn, size: int, length: int) -> Model:
    """Return conditional tables in multiples of 1/64, so that float32 holds them exactly."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    # Small concentrations give zeros and one-hot rows.
    concentration = draw(st.sampled_from([0.05, 0.5, 3.0]))
    tables = []
    for j in range(length):
        laws = rng.dirichlet(np.full(size, concentration), size=(size,) * j)
        tables.append(rng.multinomial(_GRAIN, laws) / _GRAIN)
    return tuple(tables)


@st.composite
def pairs_of_models(draw: st.DrawFn) -> tuple[Model, Model]:
    """Return a draft model and a target, sometimes the same, sometimes disjoint."""
    size, gamma = draw(st.sampled_from([(1, 2), (2, 0), (2, 3), (3, 1), (3, 2), (4, 1)]))
    target = draw(models(size, gamma + 1))
    kind = draw(st.sampled_from(["any", "same", "shifted"]))
    if kind == "any":
        return draw(models(size, gamma)), target
    if kind == "same":
        return target[:-1], target
    return tuple(np.roll(table, 1, axis=-1) for table in target[:-1]), target


def integrate(rule: AcceptRule, draft: Model, target: Model) -> tuple[FloatArray, ...]:
    """Return the exact law of what a rule emits, like `chain_emitted_law`.

    A rule of the chain's kind is constant where no uniform crosses one of its edges: an
    acceptance probability, or a step of the bonus's distribution function. So it is called just
    inside both ends of every box between edges, must do the same at both, and counts with the
    box's volume.
    """
    size, gamma = target[0].shape[0], len(draft)
    law = tuple(np.zeros((size,) * (k + 1)) for k in range(gamma + 1))
    for tokens in product(range(size), repeat=gamma):
        p = rows_after(target, np.array([tokens], dtype=np.int64))[0]
        q = rows_after(draft, np.array([tokens], dtype=np.int64))[0] if gamma else p[:0]
        drafted = float(np.prod([q[j, x] for j, x in enumerate(tokens)]))
        if drafted == 0.0:
            continue
        edges = [[0.0, min(1.0, p[j, x] / q[j, x]), 1.0] for j, x in enumerate(tokens)]
        steps = {0.0, 1.0}
        for row in (*np.maximum(p[:gamma] - q, 0.0), *p, *q):
            if row.sum():
                steps.update((np.cumsum(row) / row.sum()).tolist())
        edges.append(sorted(steps))
        boxes = [[(a, b) for a, b in pairwise(e) if b - a > 1e-12] for e in edges]
        corners = list(product(*boxes))
        low = torch.tensor([[a + 1e-13 for a, _ in box] for box in corners], dtype=torch.float64)
        high = torch.tensor([[b - 1e-13 for _, b in box] for box in corners], dtype=torch.float64)
        n = len(corners)
        arguments = (
            torch.tensor([tokens], dtype=torch.int64).reshape(1, gamma).expand(n, -1),
            torch.from_numpy(q).expand(n, -1, -1),
            torch.from_numpy(p).expand(n, -1, -1),
        )
        correct_len, bonus = rule(*arguments, uniforms=low)
        again = rule(*arguments, uniforms=high)
        assert torch.equal(correct_len, again[0])
        assert torch.equal(bonus, again[1])
        volumes = np.prod([[b - a for a, b in box] for box in corners], axis=1)
        for k, y, volume in zip(correct_len.tolist(), bonus.tolist(), volumes, strict=True):
            law[k][(*tokens[:k], y)] += drafted * volume
    return law


class TestExactLaw:
    @given(pairs_of_models())
    def test_emitted_tokens_have_the_chain_rules_law(self, pair: tuple[Model, Model]) -> None:
        draft, target = pair
        emitted = integrate(chain_accept, draft, target)
        for found, expected in zip(emitted, chain_emitted_law(draft, target), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-9)

    @given(pairs_of_models())
    def test_accepted_tokens_have_the_chain_rules_count(self, pair: tuple[Model, Model]) -> None:
        draft, target = pair
        counted = [float(part.sum()) for part in integrate(chain_accept, draft, target)]
        np.testing.assert_allclose(counted, accepted_law(draft, target), atol=1e-9)

    @given(pairs_of_models())
    def test_completed_tokens_have_the_targets_law(self, pair: tuple[Model, Model]) -> None:
        draft, target = pair
        completed = completed_law(integrate(chain_accept, draft, target), target)
        np.testing.assert_allclose(completed, joint_law(target), atol=1e-9)

    @pytest.mark.parametrize("name", ["residual-is-target", "bonus-from-draft"])
    def test_a_fault_shows_in_the_completed_law(self, name: str) -> None:
        rule = {entry.name: entry.rule for entry in all_accept_mutants()}[name]
        # The ratio, 1/2, is exact in float32 too, in which the faulty rules take it.
        draft = (np.array([0.25, 0.75]),)
        target = (np.array([0.625, 0.375]), np.array([[0.5, 0.5], [0.25, 0.75]]))
        completed = completed_law(integrate(rule, draft, target), target)
        assert np.abs(completed - joint_law(target)).sum() > 0.05

    def test_disjoint_supports_accept_nothing(self) -> None:
        p, q = torch.tensor([[0.0, 0.0, 0.3, 0.7]]), torch.tensor([[0.6, 0.4, 0.0, 0.0]])
        for token, u in product((0, 1), (0.0, 0.5, LARGEST_BELOW_1)):
            uniforms = torch.tensor([[0.0, u]], dtype=torch.float64)
            correct_len, bonus = chain_accept(
                torch.tensor([[token]]), q[None], torch.stack([p, p], 1), uniforms=uniforms
            )
            assert correct_len.item() == 0
            assert bonus.item() == (2 if u == 0.0 else 3)

    def test_one_hot_target_accepts_only_its_token(self) -> None:
        q = torch.full((3, 1, 3), 1.0 / 3.0)
        p = torch.tensor([0.0, 1.0, 0.0]).expand(3, 2, 3)
        uniforms = torch.full((3, 2), LARGEST_BELOW_1, dtype=torch.float64)
        correct_len, bonus = chain_accept(torch.arange(3)[:, None], q, p, uniforms=uniforms)
        assert correct_len.tolist() == [0, 1, 0]
        assert bonus.tolist() == [1, 1, 1]

    @given(
        st.lists(st.floats(0.0, 1.0, width=32), min_size=1, max_size=6).filter(any),
        st.floats(0.0, 1.0, exclude_max=True),
    )
    def test_equal_laws_accept_whatever_the_uniform(self, weights: list[float], u: float) -> None:
        row = torch.tensor(weights) / sum(weights)
        bs = int((row > 0).sum())
        tokens = torch.nonzero(row)
        q, p = row.expand(bs, 1, -1), row.expand(bs, 2, -1)
        correct_len, bonus = chain_accept(
            tokens, q, p, uniforms=torch.full((bs, 2), u, dtype=torch.float64)
        )
        assert correct_len.tolist() == [1] * bs
        assert (row[bonus] > 0).all()

    def test_a_rejection_without_a_residual_draws_from_the_target(self) -> None:
        # p lies below q at the draft token by rounding and above it nowhere.
        q = torch.tensor([[[0.0, 0.5, 0.5, 0.0]]])
        p = torch.tensor([[[0.0, 0.5, 0.5 - 2.0**-25, 0.0]]]).expand(1, 2, 4)
        for u, token in ((0.0, 1), (LARGEST_BELOW_1, 2)):
            uniforms = torch.tensor([[LARGEST_BELOW_1, u]], dtype=torch.float64)
            correct_len, bonus = chain_accept(torch.tensor([[2]]), q, p, uniforms=uniforms)
            assert correct_len.item() == 0
            assert bonus.item() == token

    def test_tiny_probabilities_keep_their_ratio_and_their_residual(self) -> None:
        # Subnormal in float32: 1e-40 against 4e-40 accepts a quarter of the time.
        q = torch.tensor([[[4e-40, 1.0, 0.0]]])
        p = torch.tensor([[[1e-40, 1.0, 3e-40]]]).expand(1, 2, 3)
        for u, accepted in ((0.2499, 1), (0.2501, 0)):
            uniforms = torch.tensor([[u, 0.5]], dtype=torch.float64)
            correct_len, bonus = chain_accept(torch.tensor([[0]]), q, p, uniforms=uniforms)
            assert correct_len.item() == accepted
            assert bonus.item() == (1 if accepted else 2)


class TestGreedy:
    @given(st.data(), st.integers(0, 5), st.integers(0, 4), st.booleans())
    def test_is_the_longest_common_prefix(
        self, data: st.DataObject, gamma: int, bs: int, ragged: bool
    ) -> None:
        token = st.integers(0, 1)
        draft = data.draw(
            st.lists(st.lists(token, min_size=gamma, max_size=gamma), min_size=bs, max_size=bs)
        )
        target = data.draw(
            st.lists(
                st.lists(token, min_size=gamma + 1, max_size=gamma + 1), min_size=bs, max_size=bs
            )
        )
        lens = data.draw(st.lists(st.integers(1, gamma + 1), min_size=bs, max_size=bs))
        correct_len, bonus = greedy_accept(
            torch.tensor(draft, dtype=torch.int64).reshape(bs, gamma),
            torch.tensor(target, dtype=torch.int64).reshape(bs, gamma + 1),
            torch.tensor(lens, dtype=torch.int32) if ragged else None,
        )
        for b in range(bs):
            most = lens[b] - 1 if ragged else gamma
            expected = 0
            while expected < most and draft[b][expected] == target[b][expected]:
                expected += 1
            assert correct_len[b].item() == expected
            assert bonus[b].item() == target[b][expected]
        assert correct_len.shape == bonus.shape == (bs,)
        assert correct_len.dtype == bonus.dtype == torch.int64

    def test_is_the_chain_rule_between_one_hot_rows(self) -> None:
        generator = torch.Generator().manual_seed(1)
        draft = torch.randint(0, 2, (64, 3), generator=generator)
        target = torch.randint(0, 2, (64, 4), generator=generator)
        greedy = greedy_accept(draft, target)
        q, p = torch.eye(2)[draft], torch.eye(2)[target]
        chain = chain_accept(draft, q, p, generator=generator)
        assert torch.equal(greedy[0], chain[0])
        assert torch.equal(greedy[1], chain[1])

    def test_refuses_shapes_that_do_not_fit(self) -> None:
        draft, target = torch.zeros((2, 3)).long(), torch.zeros((2, 4)).long()
        with pytest.raises(
            ValueError, match=r"target_tokens must have shape \(2, 4\), got \(2, 3\)"
        ):
            greedy_accept(draft, draft)
        with pytest.raises(ValueError, match=r"verify_lens must have shape \(2,\), got \(3,\)"):
            greedy_accept(draft, target, torch.ones(3).long())
        with pytest.raises(ValueError, match=r"draft_tokens must be \(bs, gamma\), got \(3,\)"):
            greedy_accept(draft[0], target)


def random_batch(bs: int, gamma: int, size: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Return tokens, draft rows, target rows and uniforms."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.softmax(2.0 * torch.randn((bs, gamma, size), generator=generator), dim=-1)
    p = torch.softmax(2.0 * torch.randn((bs, gamma + 1, size), generator=generator), dim=-1)
    tokens = torch.randint(0, size, (bs, gamma), generator=generator)
    uniforms = torch.rand((bs, gamma + 1), generator=generator, dtype=torch.float64)
    return tokens, q, p, uniforms


class TestBatches:
    @given(st.integers(0, 1 << 32), st.integers(0, 4), st.integers(1, 6), st.booleans())
    def test_ragged_is_each_request_alone(
        self, seed: int, gamma: int, size: int, garbage: bool
    ) -> None:
        bs = 20
        tokens, q, p, uniforms = random_batch(bs, gamma, size, seed)
        lens = torch.randint(1, gamma + 2, (bs,), generator=torch.Generator().manual_seed(seed))
        # What lies beyond a request's drafts may be anything.
        padded = [tokens.clone(), q.clone(), p.clone()]
        for b, v in enumerate(lens.tolist() if garbage else ()):
            padded[0][b, v - 1 :] = -1
            padded[1][b, v - 1 :] = torch.nan
            padded[2][b, v:] = torch.nan
        correct_len, bonus = chain_accept(padded[0], padded[1], padded[2], lens, uniforms=uniforms)
        for b, v in enumerate(lens.tolist()):
            alone = chain_accept(
                tokens[b : b + 1, : v - 1],
                q[b : b + 1, : v - 1],
                p[b : b + 1, :v],
                uniforms=torch.cat([uniforms[b : b + 1, : v - 1], uniforms[b : b + 1, gamma:]], 1),
            )
            assert (correct_len[b].item(), bonus[b].item()) == (alone[0].item(), alone[1].item())

    @pytest.mark.parametrize(("low", "high"), [(0, 9), (-5, 100)])
    def test_verify_lens_out_of_range_are_clamped(self, low: int, high: int) -> None:
        bs = 500
        tokens, q, p, uniforms = random_batch(bs, 3, 5, 0)
        for outside, inside in ((low, 1), (high, 4)):
            found, expected = (
                chain_accept(tokens, q, p, torch.full((bs,), value), uniforms=uniforms)
                for value in (outside, inside)
            )
            assert torch.equal(found[0], expected[0])
            assert torch.equal(found[1], expected[1])

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_arithmetic_is_float32_whatever_the_dtype(self, dtype: torch.dtype) -> None:
        tokens, q, p, uniforms = random_batch(4096, 3, 7, 1)
        q, p = q.to(dtype), p.to(dtype)
        found = chain_accept(tokens, q, p, uniforms=uniforms)
        expected = chain_accept(tokens, q.float(), p.float(), uniforms=uniforms)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])
        assert found[0].dtype == found[1].dtype == torch.int64

    def test_float64_probabilities_are_rounded_to_float32_first(self) -> None:
        q = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
        half = 0.5 + 2.0**-30
        p = torch.tensor([half, 1.0 - half], dtype=torch.float64).expand(1, 2, 2)
        uniforms = torch.full((1, 2), 0.5, dtype=torch.float64)
        correct_len, _ = chain_accept(torch.tensor([[0]]), q, p, uniforms=uniforms)
        assert correct_len.item() == 0

    @pytest.mark.parametrize(("bs", "gamma", "size"), [(0, 3, 4), (0, 0, 1), (3, 0, 4), (3, 2, 1)])
    def test_empty_and_smallest_shapes(self, bs: int, gamma: int, size: int) -> None:
        tokens, q, p, uniforms = random_batch(bs, gamma, size, 2)
        for numbers in (uniforms, None):
            correct_len, bonus = chain_accept(tokens, q, p, uniforms=numbers)
            assert correct_len.shape == bonus.shape == (bs,)
            assert correct_len.dtype == bonus.dtype == torch.int64
            if size == 1:
                assert correct_len.tolist() == [gamma] * bs
                assert bonus.tolist() == [0] * bs

    def test_arguments_are_not_changed(self) -> None:
        arguments = random_batch(8, 3, 5, 3)
        before = [tensor.clone() for tensor in arguments]
        chain_accept(*arguments[:3], uniforms=arguments[3])
        assert all(torch.equal(a, b) for a, b in zip(arguments, before, strict=True))

    def test_an_explicit_generator_is_the_only_one_drawn_from(self) -> None:
        tokens, q, p, _ = random_batch(64, 3, 5, 4)
        before = torch.random.get_rng_state()
        runs = [
            chain_accept(tokens, q, p, generator=torch.Generator().manual_seed(seed))
            for seed in (5, 5, 6)
        ]
        assert torch.equal(torch.random.get_rng_state(), before)
        assert torch.equal(runs[0][0], runs[1][0])
        assert torch.equal(runs[0][1], runs[1][1])
        assert not torch.equal(runs[0][1], runs[2][1])

    def test_tokens_that_a_float32_sum_would_skip_are_drawn(self) -> None:
        row = torch.tensor([0.5, *[2.0**-30] * 100, 0.5], dtype=torch.float64)
        cumulative = row.cumsum(0)
        middles = (cumulative - row / 2) / cumulative[-1]
        bs, size = len(middles), len(row)
        _, bonus = chain_accept(
            torch.zeros((bs, 0)).long(),
            torch.zeros((bs, 0, size)),
            row.expand(bs, 1, -1),
            uniforms=middles[:, None],
        )
        assert bonus.tolist() == list(range(size))

    def test_no_token_of_weight_zero_is_ever_drawn(self) -> None:
        # Sums of 50,000 float32 numbers round; every other token has weight 0.
        size = 50_000
        p = torch.rand((1, 1, size), generator=torch.Generator().manual_seed(7))
        p[..., ::2] = 0.0
        p /= p.sum()
        p[..., -1] = 0.0
        steps = torch.linspace(0.0, 1.0, 200, dtype=torch.float64)[:, None]
        uniforms = torch.cat([steps[:-1], torch.tensor([[LARGEST_BELOW_1]], dtype=torch.float64)])
        bs = len(uniforms)
        _, bonus = chain_accept(
            torch.zeros((bs, 0)).long(),
            torch.zeros((bs, 0, size)),
            p.expand(bs, -1, -1),
            uniforms=uniforms,
        )
        assert (p[0, 0, bonus] > 0).all()


class TestHost:
    """A `meta` tensor has no values: reading one, or a shape that depends on one, raises."""

    def test_no_value_is_read_on_the_host(self) -> None:
        device = "meta"
        tokens = torch.zeros((4, 3), dtype=torch.int64, device=device)
        q = torch.rand((4, 3, 5), device=device)
        p = torch.rand((4, 4, 5), device=device)
        lens = torch.ones(4, dtype=torch.int64, device=device)
        step = torch.zeros((), dtype=torch.int64, device=device)
        numbers = counter_uniforms(1, step, torch.arange(4, device=device), 4)
        for verify_lens in (None, lens):
            correct_len, bonus = chain_accept(tokens, q, p, verify_lens)
            assert correct_len.is_meta
            assert bonus.is_meta
            chain_accept(tokens, q, p, verify_lens, uniforms=numbers)
            greedy_accept(tokens, torch.zeros_like(p[:, :, 0]).long(), verify_lens)
        probabilities(p, 0.7)
        probabilities(p, 0.0)

    @pytest.mark.parametrize(
        "read", [lambda x: x.sum().item(), lambda x: x[x > 0], lambda x: x.nonzero()]
    )
    def test_a_read_would_have_raised(self, read: Callable[[torch.Tensor], object]) -> None:
        with pytest.raises((RuntimeError, NotImplementedError)):
            read(torch.ones(3, device="meta"))


def test_refuses_arguments_that_do_not_fit() -> None:
    tokens, q, p, uniforms = random_batch(2, 3, 5, 0)
    with pytest.raises(ValueError, match=r"target_probs must be \(bs, gamma \+ 1, V\)"):
        chain_accept(tokens, q, p[0])
    with pytest.raises(ValueError, match=r"target_probs must be .* V >= 1, got \(2, 4, 0\)"):
        chain_accept(tokens, q[:, :, :0], p[:, :, :0])
    with pytest.raises(
        ValueError, match=r"draft_probs must have shape \(2, 3, 5\), got \(2, 4, 5\)"
    ):
        chain_accept(tokens, p, p)
    with pytest.raises(ValueError, match=r"draft_tokens must have shape \(2, 3\), got \(2, 2\)"):
        chain_accept(tokens[:, 1:], q, p)
    with pytest.raises(TypeError, match=r"draft_probs must be floating-point, got torch.int64"):
        chain_accept(tokens, q.long(), p)
    with pytest.raises(ValueError, match=r"uniforms must have shape \(2, 4\), got \(2, 3\)"):
        chain_accept(tokens, q, p, uniforms=uniforms[:, 1:])
    with pytest.raises(ValueError, match="generator must be None when uniforms are given"):
        chain_accept(tokens, q, p, uniforms=uniforms, generator=torch.Generator())
