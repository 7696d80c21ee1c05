"""Accept rules by their draws: correct ones are lossless, and every faulty one is caught.

A rule is judged by two sequential tests: of its emitted tokens, each completed from the target
to gamma + 1 tokens, against the target's joint law, and of the number accepted against the chain
rule's law. Each test rejects a correct rule at a rate of at most ALPHA, whenever it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch

from specsim.evidence.law import FloatArray
from specsim.evidence.lossless import (
    accepted_law,
    cells,
    complete,
    joint_law,
    position_tables,
    rows_after,
)
from specsim.evidence.sequential import SequentialTest
from specsim.mutants.accept import all_accept_mutants, all_correct_accepts
from specsim.mutants.accept_base import (
    ACCEPT_PROPERTY_IDS,
    AcceptMutant,
    AcceptRule,
    ChainRule,
    CorrectAccept,
    accept_mutant,
    correct_accept,
)
from specsim.verify.accept import chain_accept, counter_uniforms, probabilities

ALPHA = 1e-6
DRAWS = 40_960
BATCH = 256

Model = tuple[FloatArray, ...]
# Turns the models' rows, float64, into what the rule is given.
Scoring = Callable[[torch.Tensor], torch.Tensor]


def random_model(rng: np.random.Generator, size: int, length: int) -> Model:
    """Return conditional tables in which every prefix has laws of its own."""
    return tuple(rng.dirichlet(np.full(size, 0.7), size=(size,) * j) for j in range(length))


def random_pairs() -> list[tuple[Model, Model]]:
    """Return draft models and targets of three sizes."""
    rng = np.random.default_rng(2024)
    sizes = ((3, 2), (4, 3), (5, 1))
    return [
        (random_model(rng, size, gamma), random_model(rng, size, gamma + 1))
        for size, gamma in sizes
    ]


PAIRS = random_pairs()


@dataclass(frozen=True)
class Judged:
    """The two tests of a rule after its draws."""

    distribution: SequentialTest
    accepted: SequentialTest

    def rejected(self, property_id: str) -> bool:
        """Say whether the test of a property rejects."""
        tests = {"L.distribution": self.distribution, "L.accepted": self.accepted}
        return tests[property_id].rejected


def judge(
    rule: AcceptRule,
    draft: Model,
    target: Model,
    *,
    ragged: bool = False,
    scoring: Scoring = torch.Tensor.clone,
    scores: tuple[Model, Model] | None = None,
    seed: int = 1,
) -> Judged:
    """Run a rule on drafts from the draft model and test what it does.

    `scores` are tables that the rule is given, through `scoring`, in place of the models' own.
    """
    gamma, size = len(draft), target[0].shape[0]
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    judged = Judged(
        SequentialTest(joint_law(target).ravel(), ALPHA),
        SequentialTest(accepted_law(draft, target), ALPHA),
    )
    nothing = np.zeros((DRAWS, 0), dtype=np.int64)
    tokens = complete(nothing, np.zeros(DRAWS, dtype=np.int64), draft, rng)
    given = scores or (draft, target)
    q, p = (scoring(torch.from_numpy(rows_after(tables, tokens))) for tables in given)
    drafted = torch.from_numpy(tokens)
    lens = torch.from_numpy(rng.integers(1, gamma + 2, DRAWS)) if ragged else None
    results = [
        rule(
            drafted[start : start + BATCH],
            q[start : start + BATCH],
            p[start : start + BATCH],
            None if lens is None else lens[start : start + BATCH],
            generator=generator,
        )
        for start in range(0, DRAWS, BATCH)
    ]
    correct_len = torch.cat([result[0] for result in results]).numpy()
    emitted = np.concatenate([tokens, np.zeros((DRAWS, 1), dtype=np.int64)], axis=1)
    emitted[np.arange(DRAWS), correct_len] = torch.cat([result[1] for result in results]).numpy()
    judged.distribution.update(cells(complete(emitted, correct_len + 1, target, rng), size))
    judged.accepted.update(correct_len + 1)
    return judged


def counter_based(
    draft_tokens: torch.Tensor,
    draft_probs: torch.Tensor,
    target_probs: torch.Tensor,
    verify_lens: torch.Tensor | None = None,
    *,
    generator: torch.Generator | None = None,
    uniforms: torch.Tensor | None = None,
    steps: list[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Call `chain_accept` with counter-based numbers, one step of `steps` a call."""
    bs, gamma = draft_tokens.shape
    numbers = counter_uniforms(7, steps.pop(), torch.arange(bs), gamma + 1)
    return chain_accept(draft_tokens, draft_probs, target_probs, verify_lens, uniforms=numbers)


EVERY_RULE: dict[str, AcceptRule] = {
    **{entry.name: entry.rule for entry in all_accept_mutants()},
    **{entry.name: entry.rule for entry in all_correct_accepts()},
}


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (AcceptMutant, CorrectAccept)) else None


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Keep thousands of tiny calls from waiting for threads that other processes hold up."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class TestChainAccept:
    """False alarms: two tests of each pair of models, so at most 2 * ALPHA per test case."""

    @pytest.mark.parametrize("pair", PAIRS)
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_is_lossless_and_accepts_as_the_chain_rule(
        self, pair: tuple[Model, Model], dtype: torch.dtype
    ) -> None:
        judged = judge(chain_accept, *pair, scoring=lambda rows: rows.to(dtype))
        assert not judged.distribution.rejected
        assert not judged.accepted.rejected

    @pytest.mark.parametrize("pair", PAIRS)
    def test_with_counter_based_numbers(self, pair: tuple[Model, Model]) -> None:
        rule = partial(counter_based, steps=list(range(DRAWS)))
        judged = judge(rule, *pair)
        assert not judged.distribution.rejected
        assert not judged.accepted.rejected

    def test_a_step_counter_that_stands_still_is_caught(self) -> None:
        judged = judge(partial(counter_based, steps=[5] * DRAWS), *PAIRS[0])
        assert judged.distribution.rejected

    @pytest.mark.parametrize("pair", PAIRS)
    def test_is_lossless_when_requests_have_different_lengths(
        self, pair: tuple[Model, Model]
    ) -> None:
        assert not judge(chain_accept, *pair, ragged=True).distribution.rejected

    @pytest.mark.parametrize("temperature", [0.6, 1.5])
    def test_with_bfloat16_logits_and_a_temperature(self, temperature: float) -> None:
        """At most 2 * ALPHA, up to float32 rounding of the rows, which 40,960 draws can't see."""
        logits = self.logits()
        draft, target = (self.laws(tables, temperature) for tables in logits)
        judged = judge(
            chain_accept,
            draft,
            target,
            scores=logits,
            scoring=lambda rows: probabilities(rows.to(torch.bfloat16), temperature),
        )
        assert not judged.distribution.rejected
        assert not judged.accepted.rejected

    def test_another_temperature_for_the_draft_is_caught(self) -> None:
        logits = self.logits()
        draft, target = self.laws(logits[0], 0.6), self.laws(logits[1], 1.5)
        judged = judge(
            chain_accept,
            draft,
            target,
            scores=logits,
            scoring=lambda rows: probabilities(rows.to(torch.bfloat16), 1.5),
        )
        assert judged.distribution.rejected

    @staticmethod
    def logits() -> tuple[Model, Model]:
        draft, target = PAIRS[0]
        return tuple(np.log(t) for t in draft), tuple(np.log(t) for t in target)

    @staticmethod
    def laws(logits: Model, temperature: float) -> Model:
        """Return the float32 softmax of bfloat16 logits, as tables."""
        laws = []
        for table in logits:
            rounded = torch.from_numpy(table).to(torch.bfloat16)
            law = probabilities(rounded, temperature).double().numpy()
            laws.append(law / law.sum(axis=-1, keepdims=True))
        return tuple(laws)

    @pytest.mark.parametrize(
        ("q", "p"),
        [
            ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7]),
            ([0.0, 1.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]),
            ([0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0]),
            ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]),
            ([1e-9, 0.5, 0.5 - 1e-9, 0.0], [0.5 - 1e-9, 0.5, 0.0, 1e-9]),
        ],
        ids=["disjoint", "one-hot q", "one-hot p", "equal", "tiny"],
    )
    def test_edges(self, q: list[float], p: list[float]) -> None:
        draft, target = position_tables([q, q]), position_tables([p, p, p])
        judged = judge(chain_accept, draft, target)
        assert not judged.distribution.rejected
        assert not judged.accepted.rejected


class TestRules:
    @pytest.mark.parametrize("entry", all_accept_mutants(), ids=name_of)
    def test_every_fault_is_caught(self, entry: AcceptMutant) -> None:
        assert any(judge(entry.rule, *pair).rejected(entry.caught_by) for pair in PAIRS)

    @pytest.mark.parametrize("entry", all_correct_accepts(), ids=name_of)
    @pytest.mark.parametrize("ragged", [False, True])
    def test_correct_rules_pass(self, entry: CorrectAccept, ragged: bool) -> None:
        """Two tests for each of three pairs: false alarms at a rate of at most 6 * ALPHA."""
        for pair in PAIRS:
            judged = judge(entry.rule, *pair, ragged=ragged)
            assert not judged.distribution.rejected
            if entry.chain and not ragged:
                assert not judged.accepted.rejected

    def test_equal_samples_are_lossless(self) -> None:
        """The fault shows in the number accepted alone; false alarms at most 3 * ALPHA."""
        rule = EVERY_RULE["equal-samples"]
        assert not any(judge(rule, *pair).distribution.rejected for pair in PAIRS)

    def test_block_verification_accepts_more_than_the_chain_rule(self) -> None:
        """Sun et al. (2024), Theorem 2; the difference is dozens of standard errors here."""
        entry = {entry.name: entry for entry in all_correct_accepts()}["block"]
        assert not entry.chain
        draft, target = PAIRS[1]
        judged = judge(entry.rule, draft, target)
        chain = float(accepted_law(draft, target) @ np.arange(1, len(target) + 1))
        block = float(judged.accepted.counts @ np.arange(1, len(target) + 1)) / DRAWS
        assert block > chain + 0.02
        assert judged.accepted.rejected

    @pytest.mark.parametrize("rule", list(EVERY_RULE.values()), ids=list(EVERY_RULE))
    @pytest.mark.parametrize("shape", [(0, 3, 4), (5, 0, 4), (5, 3, 1), (5, 3, 4)])
    def test_takes_any_shape_and_padding(
        self, rule: AcceptRule, shape: tuple[int, int, int]
    ) -> None:
        bs, gamma, size = shape
        generator = torch.Generator().manual_seed(3)
        q = torch.rand((bs, gamma, size), generator=generator).softmax(dim=2)
        p = torch.rand((bs, gamma + 1, size), generator=generator).softmax(dim=2)
        tokens = torch.randint(0, size, (bs, gamma), generator=generator)
        lens = torch.arange(bs) % (gamma + 1) + 1
        for b, v in enumerate(lens.tolist()):
            tokens[b, v - 1 :] = -1
            q[b, v - 1 :] = torch.nan
            p[b, v:] = torch.nan
        correct_len, bonus = rule(tokens, q, p, lens, generator=generator)
        assert correct_len.shape == bonus.shape == (bs,)
        assert correct_len.dtype == bonus.dtype == torch.int64
        assert ((correct_len >= 0) & (correct_len < lens)).all()
        assert ((bonus >= 0) & (bonus < size)).all()


class TestRegistry:
    def test_every_property_has_a_fault_of_its_own(self) -> None:
        assert {entry.caught_by for entry in all_accept_mutants()} == set(ACCEPT_PROPERTY_IDS)

    def test_refuses_a_name_twice_and_an_unknown_property(self) -> None:
        with pytest.raises(ValueError, match="name must be new, got 'block' a second time"):
            accept_mutant("block", caught_by="L.accepted", statement="")(ChainRule)
        with pytest.raises(ValueError, match="name must be new, got 'chain' a second time"):
            correct_accept("chain", chain=True, statement="")(ChainRule)
        with pytest.raises(
            ValueError, match=r"caught_by must be one of L\.distribution, L\.accepted"
        ):
            accept_mutant("new", caught_by="L.none", statement="")(ChainRule)
