"""Rank agreement over real gloo processes, with planted faults that `check_ranks` must see.

Each world size is started once; every rank runs all cases in turn, and the tests look at what
the ranks handed back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from specsim.acceptance import AcceptanceDistribution
from specsim.distributed import AgreedSampler, RankReport, check_ranks
from specsim.sampler import AcceptanceSampler, sample_simulated_acc_len
from specsim.verify.accept import greedy_accept

LAW = AcceptanceDistribution.multinomial(4.7, 8)
GAMMA = LAW.max_len - 1
BS = 3
SEED = 20
STEPS = 60

Step = Callable[[int], torch.Tensor]


def verify_step(override: Callable[[torch.Tensor, int], None]) -> Step:
    """Return a verify step: the real accept, the same on all ranks, then the override."""
    tokens = torch.zeros((BS, GAMMA), dtype=torch.int64)
    target = torch.zeros((BS, GAMMA + 1), dtype=torch.int64)

    def step(number: int) -> torch.Tensor:
        target[:, number % (GAMMA + 1)] ^= 1
        correct_len, _ = greedy_accept(tokens, target)
        override(correct_len, number)
        return correct_len + 1

    return step


def steps_of(rank: int) -> dict[str, Step]:
    """Return the steps to check, sound and faulty."""
    counter = AgreedSampler(LAW, seed=SEED, sync="counter")
    broadcast = AgreedSampler(LAW, seed=SEED + rank, sync="broadcast")
    by_slot = {
        "counter by slot": AgreedSampler(LAW, seed=SEED, sync="counter", coupling="slot"),
        "broadcast by slot": AgreedSampler(
            LAW, seed=SEED + rank, sync="broadcast", coupling="slot"
        ),
    }
    unequal_seeds = AgreedSampler(LAW, seed=SEED + rank, sync="counter")
    own = AcceptanceSampler(LAW, seed=SEED + rank)

    def draw_own(correct_len: torch.Tensor, number: int) -> None:
        correct_len.fill_(own.draw() - 1)

    def broadcast_before(correct_len: torch.Tensor, number: int) -> None:
        dist.broadcast(correct_len, src=0)
        draw_own(correct_len, number)

    def broadcast_after(correct_len: torch.Tensor, number: int) -> None:
        draw_own(correct_len, number)
        dist.broadcast(correct_len, src=0)

    def draw_global(correct_len: torch.Tensor, number: int) -> None:
        correct_len.fill_(sample_simulated_acc_len(4.7, "multinomial", LAW.max_len) - 1)

    def once(correct_len: torch.Tensor, number: int) -> None:
        correct_len.fill_(counter.draw(number) - 1)
        if number == 37 and rank == 1:
            correct_len[2] = (correct_len[2] + 1) % (GAMMA + 1)

    def agreed(sampler: AgreedSampler) -> Callable[[torch.Tensor, int], None]:
        def override(correct_len: torch.Tensor, number: int) -> None:
            sampler.fill(correct_len, number)
            correct_len -= 1

        return override

    def by_draw(sampler: AgreedSampler) -> Callable[[torch.Tensor, int], None]:
        def override(correct_len: torch.Tensor, number: int) -> None:
            correct_len.fill_(sampler.draw(number) - 1)

        return override

    overrides: dict[str, Callable[[torch.Tensor, int], None]] = {
        "no override": lambda correct_len, number: None,
        "counter": by_draw(counter),
        "broadcast": by_draw(broadcast),
        **{name: agreed(sampler) for name, sampler in by_slot.items()},
        "broadcast after the override": broadcast_after,
        "counter with unequal seeds": agreed(unequal_seeds),
        "each rank draws its own": draw_own,
        "broadcast before the override": broadcast_before,
        "global generator": draw_global,
        "one step": once,
    }
    return {name: verify_step(override) for name, override in overrides.items()}


def raised(call: Callable[[], object]) -> str:
    """Return the message of the RuntimeError that a call raises."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return "nothing raised"


def generators() -> tuple[Any, ...]:
    """Return the states of the global generators."""
    numpy = np.random.get_state(legacy=False)["state"]
    return (
        random.getstate(),
        (numpy["key"].tolist(), numpy["pos"]),
        torch.random.get_rng_state().tolist(),
    )


def on_rank(rank: int, world_size: int) -> dict[str, Any]:
    """Run every case on one rank."""
    before = generators()
    found: dict[str, Any] = {
        name: check_ranks(step, STEPS) for name, step in steps_of(rank).items()
    }
    found["generators kept"] = generators() == before

    def fails(step: int) -> int:
        if rank == 1 and step == 5:
            raise KeyError("slot")
        return 1

    found["raises"] = raised(lambda: check_ranks(fails, 10))
    found["ranks"] = check_ranks(lambda step: rank // (world_size - 1), 4)
    found["shapes"] = check_ranks(lambda step: [1] * (1 + rank), 2)

    # Group ranks are not global ones: the group's rank 0 is the world's last rank but one.
    group = dist.new_group([world_size - 2, world_size - 1])
    if rank >= world_size - 2:
        sampler = AgreedSampler(LAW, seed=SEED + rank, sync="broadcast", group=group)
        found["group"] = [sampler.draw(step) for step in range(50)]
        found["group report"] = check_ranks(sampler.draw, 20, group)

    sampler = AgreedSampler(LAW, seed=SEED + rank, sync="broadcast", coupling="slot")
    strided = torch.zeros((4, 2), dtype=torch.int32)
    sampler.fill(strided[:, 1], 9)
    found["strided"] = strided.tolist()
    return found


AGREE = (
    "no override",
    "counter",
    "broadcast",
    "counter by slot",
    "broadcast by slot",
    "broadcast after the override",
)


@pytest.mark.parametrize("name", AGREE)
def test_sound_steps_agree_whatever_the_generators(ranks: list[dict[str, Any]], name: str) -> None:
    report: RankReport = ranks[0][name]
    assert report.passed
    assert report.equal.agree
    assert report.unequal.agree
    assert (report.equal.steps, report.equal.ranks) == (STEPS, len(ranks))
    assert str(report.equal) == f"{len(ranks)} ranks agree at all {STEPS} steps"


@pytest.mark.parametrize(
    "name",
    ["each rank draws its own", "broadcast before the override", "counter with unequal seeds"],
)
def test_planted_faults_are_caught(ranks: list[dict[str, Any]], name: str) -> None:
    """Two ranks draw the same with a probability below 0.3, so at all steps below 1e-30."""
    report: RankReport = ranks[0][name]
    assert not report.passed
    assert not report.unequal.agree
    assert report.equal.differing_steps > STEPS // 4
    first = report.equal.first_step
    assert first is not None
    assert len(set(report.equal.lengths)) > 1


def test_a_global_generator_is_reported_apart(ranks: list[dict[str, Any]]) -> None:
    report: RankReport = ranks[0]["global generator"]
    assert report.passed
    assert not report.unequal.agree
    assert "unequal generators: rank " in str(report)


def test_the_first_step_and_rank_are_named(ranks: list[dict[str, Any]]) -> None:
    report: RankReport = ranks[0]["one step"]
    length = AcceptanceSampler(LAW, seed=SEED).at(37, 0)
    other = length % LAW.max_len + 1
    assert (report.equal.first_step, report.equal.first_rank) == (37, 1)
    assert report.equal.differing_steps == 1
    assert report.equal.lengths[0] == (length,) * BS
    assert report.equal.lengths[1] == (length, length, other)
    assert report.unequal.agree
    assert str(report.equal) == (
        f"rank 1 first differs from rank 0 at step 37: ({length}, {length}, {other}) instead of "
        f"({length}, {length}, {length}); ranks differ at 1 of {STEPS} steps"
    )


def test_the_first_rank_is_the_lowest_that_differs(ranks: list[dict[str, Any]]) -> None:
    report: RankReport = ranks[0]["ranks"]
    assert (report.equal.first_step, report.equal.first_rank) == (0, len(ranks) - 1)
    assert report.unequal.first_step == 4


def test_another_number_of_requests_is_a_difference(ranks: list[dict[str, Any]]) -> None:
    report: RankReport = ranks[0]["shapes"]
    assert report.equal.lengths[:2] == ((1,), (1, 1))


def test_every_rank_has_the_same_report(ranks: list[dict[str, Any]]) -> None:
    reports = [
        {name: value for name, value in found.items() if name not in ("group", "group report")}
        for found in ranks
    ]
    assert all(report == reports[0] for report in reports)


def test_a_step_that_raises_is_named_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    assert [found["raises"] for found in ranks] == [
        "step 5 raised on rank 1: KeyError: 'slot'"
    ] * len(ranks)


def test_the_global_generators_are_put_back(ranks: list[dict[str, Any]]) -> None:
    assert all(found["generators kept"] for found in ranks)


def test_a_group_follows_its_own_rank_0(ranks: list[dict[str, Any]]) -> None:
    source = len(ranks) - 2
    sampler = AcceptanceSampler(LAW, seed=SEED + source)
    expected = [sampler.at(step, 0) for step in range(50)]
    for found in ranks[source:]:
        assert found["group"] == expected
        assert found["group report"].unequal.agree
        assert found["group report"].equal.ranks == 2


def test_broadcast_fills_a_strided_view(ranks: list[dict[str, Any]]) -> None:
    sampler = AcceptanceSampler(LAW, seed=SEED)
    expected = [[0, sampler.at(9, slot)] for slot in range(4)]
    assert all(found["strided"] == expected for found in ranks)


class TestOneProcess:
    """What needs no second rank."""

    def test_counter_draws_are_the_samplers(self) -> None:
        agreed = AgreedSampler(LAW, seed=5, sync="counter")
        sampler = AcceptanceSampler(LAW, seed=5, coupling="batch")
        assert [agreed.draw(s) for s in range(50)] == [sampler.at(s, 0) for s in range(50)]
        lengths = torch.zeros(6, dtype=torch.int32)
        agreed.fill(lengths, torch.tensor(3))
        assert lengths.tolist() == [sampler.at(3, 0)] * 6
        by_slot = AgreedSampler(LAW, seed=5, sync="counter", coupling="slot")
        by_slot.fill(lengths, 3)
        assert lengths.tolist() == [AcceptanceSampler(LAW, seed=5).at(3, i) for i in range(6)]

    def test_refuses_what_it_cannot_use(self) -> None:
        with pytest.raises(
            ValueError, match="sync must be one of 'counter', 'broadcast', got 'no'"
        ):
            AgreedSampler(LAW, seed=5, sync="no")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="seed must be the same integer on every rank"):
            AgreedSampler(LAW, seed=None, sync="counter")
        agreed = AgreedSampler(LAW, seed=5, sync="counter")
        with pytest.raises(
            TypeError, match=r"lengths must hold integers, got a tensor of torch\.fl"
        ):
            agreed.fill(torch.zeros(3), 0)
        with pytest.raises(ValueError, match=r"lengths must have shape \(bs,\), got \(\)"):
            agreed.fill(torch.tensor(0), 0)

    def test_needs_torch_distributed(self) -> None:
        for call in (
            lambda: AgreedSampler(LAW, seed=5, sync="broadcast"),
            lambda: check_ranks(lambda step: 1, 3),
        ):
            with pytest.raises(RuntimeError, match=r"torch\.distributed must be initialised"):
                call()
