"""`TargetVerifyExecutor` with `sync`, over real gloo processes, with faults that must be seen.

Every rank runs all cases in turn, and the tests look at what the ranks handed back. Two ranks that
draw on their own agree at a step with probability 0.58, so at all 30 steps below 1e-7.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from specsim.acceptance import AcceptanceDistribution
from specsim.distributed import RankReport, check_ranks
from specsim.sampler import AcceptanceSampler
from specsim.verify.executor import TargetVerifyExecutor

CPU = torch.device("cpu")
GAMMA = 7
LAW = AcceptanceDistribution.match_expected(4.7, GAMMA + 1)
SEED = 40
STEPS = 30
BS = 5

SYNCS, COUPLINGS, REFRESHES = ("counter", "broadcast"), ("batch", "slot"), ("host", "device")
PROTOCOLS = ("buffer", "step")
SOUND = list(product(SYNCS, COUPLINGS, REFRESHES, PROTOCOLS))


def executor(
    seed: int | None, kind: type[TargetVerifyExecutor] = TargetVerifyExecutor, **options: Any
) -> TargetVerifyExecutor:
    return kind(GAMMA, 4.7, "match-expected", seed=seed, step_capacity=BS, **options)


def drafts(target: TargetVerifyExecutor, bs: int, dtype: torch.dtype = torch.int64) -> list[int]:
    drawn: list[int] = target._simulated_correct_len(bs=bs, dtype=dtype, device=CPU).tolist()
    return drawn


def verify(
    target: TargetVerifyExecutor, protocol: str = "buffer", bs: int = BS
) -> Callable[[int], torch.Tensor]:
    """Return a verify step, of which a rank says what it commits."""
    tokens = torch.zeros((bs, GAMMA), dtype=torch.int64)
    prefix_lens = torch.zeros(bs, dtype=torch.int64)
    target_tokens = torch.zeros((bs, GAMMA + 1), dtype=torch.int64)
    caps = torch.full((bs,), GAMMA + 1)

    def step(number: int) -> torch.Tensor:
        # The real accept differs from step to step, and one request is cut.
        target_tokens[:, number % (GAMMA + 1)] ^= 1
        caps[-1] = 3
        if protocol == "step":
            target.begin_step()
        with torch.inference_mode(number % 3 == 0):
            result = target.accept_and_finalize(
                draft_tokens=tokens, prefix_lens=prefix_lens, target_tokens=target_tokens, caps=caps
            )
        return torch.cat([result.commit_lens, result.new_seq_lens])

    return step


class BroadcastBefore(TargetVerifyExecutor):
    """Sends what is in the buffer, and then overrides it with a draw of its own."""

    def _simulated_correct_len(self, *, bs: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
        if self._buffer is not None:
            dist.broadcast(self._buffer, src=0)
        return super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)


def warmed_up(rank: int, put_back: bool, **options: Any) -> Callable[[int], torch.Tensor]:
    """Return a verify step of an executor that one rank warms up alone now and then."""
    target = executor(SEED, sync="counter", **options)
    step = verify(target)

    def stepping(number: int) -> torch.Tensor:
        if rank == 1 and number % 7 == 2:
            counter = target.step_counter(CPU)
            before = counter.clone()
            drafts(target, 600)
            drafts(target, 2, torch.int32)
            if put_back:
                counter.copy_(before)
        return step(number)

    return stepping


def other_batch(rank: int, target: TargetVerifyExecutor, first: int = 3) -> Callable[[int], Any]:
    """Return a step of which ranks have other batch sizes and dtypes, and compare what all have."""

    def step(number: int) -> list[int]:
        sizes = [first, 4 + number % 5, 600]
        dtype = torch.int32 if rank % 2 else torch.int64
        bs = sizes[rank % 3]
        return drafts(target, bs, dtype)[: min(first, 3)] if bs else []

    return step


def histories(rank: int) -> dict[str, Callable[[int], Any]]:
    """Return steps of ranks that have done other things before."""
    odd: dict[str, Any] = {"refresh": "device" if rank % 2 else "host"}

    def either(target: TargetVerifyExecutor) -> Callable[[int], Any]:
        return verify(target, "step" if rank % 2 else "buffer")

    found: dict[str, Callable[[int], Any]] = {}
    for coupling in COUPLINGS:
        options: dict[str, Any] = {"coupling": coupling}
        counted = {"sync": "counter", **options}
        found[f"counter, other batches, {coupling}"] = other_batch(rank, executor(SEED, **counted))
        found[f"counter, other refreshes, {coupling}"] = verify(executor(SEED, **counted, **odd))
        found[f"counter, other protocols, {coupling}"] = either(executor(SEED, **counted))
        for refresh in REFRESHES:
            found[f"counter, put back, {coupling}, {refresh}"] = warmed_up(
                rank, True, refresh=refresh, **options
            )
    found["broadcast, other batches, batch"] = other_batch(
        rank, executor(SEED + rank, sync="broadcast")
    )
    sent = executor(SEED, sync="broadcast", refresh="device")
    sent.step_counter(CPU).fill_(1_000 * rank)
    found["broadcast, other counts"] = verify(sent)
    torch.manual_seed(7)
    found["no sync, seeds of equal generators"] = verify(executor(None))
    return found


def faults(rank: int) -> dict[str, Callable[[int], Any]]:
    """Return steps on which ranks must be seen to differ."""
    torch.manual_seed(7 + rank)
    return {
        "no sync, each rank its own seed": verify(executor(SEED + rank)),
        "no sync, seeds of unequal generators": verify(executor(None)),
        "no sync, other batches": other_batch(rank, executor(SEED, coupling="slot")),
        "counter, unequal seeds": verify(executor(SEED + rank, sync="counter")),
        "counter, not put back, host": warmed_up(rank, False),
        "counter, not put back, device": warmed_up(rank, False, refresh="device"),
        "broadcast before the override": verify(executor(SEED + rank, BroadcastBefore)),
    }


def on_rank(rank: int, world_size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for case in SOUND:
        sync, coupling, refresh, protocol = case
        options: dict[str, Any] = {"sync": sync, "coupling": coupling, "refresh": refresh}
        seed = SEED + rank if sync == "broadcast" else SEED
        found["/".join(case)] = check_ranks(verify(executor(seed, **options), protocol), STEPS)
    for name, step in {**histories(rank), **faults(rank)}.items():
        found[name] = check_ranks(step, STEPS)

    for coupling, refresh in product(COUPLINGS, REFRESHES):
        options = {"coupling": coupling, "refresh": refresh, "sync": "broadcast"}
        target = executor(SEED + rank, **options)
        found[f"sent {coupling} {refresh}"] = [drafts(target, 6, torch.int16) for _ in range(20)]

    empty = executor(SEED + rank, sync="broadcast")
    slots = executor(SEED + rank, sync="broadcast", coupling="slot")
    found["empty"] = [drafts(empty, 0 if rank == 0 else 2)[:1] for _ in range(20)]
    found["all empty"] = [drafts(slots, 0), drafts(slots, 2)]

    # With simulation off nothing is sent: one rank's step waits for nobody.
    off = TargetVerifyExecutor(GAMMA, 0, "match-expected", seed=None, sync="broadcast")
    if rank == 0:
        off.begin_step()
        found["off"] = verify(off)(0).tolist()

    group = dist.new_group([world_size - 2, world_size - 1])
    if rank >= world_size - 2:
        target = executor(SEED + rank, sync="broadcast", group=group)
        found["group"] = [drafts(target, 2) for _ in range(20)]
    return found


@pytest.mark.parametrize("case", SOUND, ids="/".join)
def test_all_ranks_commit_the_same_whatever_their_generators(
    ranks: list[dict[str, Any]], case: tuple[str, ...]
) -> None:
    report: RankReport = ranks[0]["/".join(case)]
    assert report.equal.agree, str(report)
    assert report.unequal.agree, str(report)
    assert (report.equal.steps, report.equal.ranks) == (STEPS, len(ranks))


def test_ranks_agree_whatever_they_did_before(ranks: list[dict[str, Any]]) -> None:
    for name in (
        "counter, other batches, batch",
        "counter, other batches, slot",
        "counter, other refreshes, batch",
        "counter, other refreshes, slot",
        "counter, other protocols, batch",
        "counter, other protocols, slot",
        "counter, put back, batch, host",
        "counter, put back, slot, host",
        "counter, put back, batch, device",
        "counter, put back, slot, device",
        "broadcast, other batches, batch",
        "broadcast, other counts",
        "no sync, seeds of equal generators",
    ):
        report: RankReport = ranks[0][name]
        assert report.equal.agree, (name, str(report))
        assert report.unequal.agree, (name, str(report))


@pytest.mark.parametrize(
    "name",
    [
        "no sync, each rank its own seed",
        "no sync, seeds of unequal generators",
        "no sync, other batches",
        "counter, unequal seeds",
        "counter, not put back, host",
        "counter, not put back, device",
        "broadcast before the override",
    ],
)
def test_planted_faults_are_seen(ranks: list[dict[str, Any]], name: str) -> None:
    report: RankReport = ranks[0][name]
    assert not report.equal.agree
    assert not report.unequal.agree


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("refresh", REFRESHES)
def test_broadcast_forces_what_rank_0_drew(
    ranks: list[dict[str, Any]], coupling: str, refresh: str
) -> None:
    alone = executor(SEED, coupling=coupling, refresh=refresh)
    expected = [drafts(alone, 6) for _ in range(20)]
    assert all(found[f"sent {coupling} {refresh}"] == expected for found in ranks)


def test_broadcast_bears_an_empty_batch(ranks: list[dict[str, Any]]) -> None:
    alone = executor(SEED)
    expected = [drafts(alone, 1) for _ in range(20)]
    assert ranks[0]["empty"] == [[]] * 20
    assert all(found["empty"] == expected for found in ranks[1:])
    slots = executor(SEED, coupling="slot")
    assert all(found["all empty"] == [[], drafts(slots, 2)] for found in ranks[:1])
    assert all(found["all empty"] == ranks[0]["all empty"] for found in ranks)


def test_nothing_is_sent_with_simulation_off(ranks: list[dict[str, Any]]) -> None:
    # Draft tokens are 0, and the target's first one is not: the real accept takes none.
    assert ranks[0]["off"] == [1] * BS + [1] * BS


def test_broadcast_follows_its_groups_rank_0(ranks: list[dict[str, Any]]) -> None:
    alone = executor(SEED + len(ranks) - 2)
    expected = [drafts(alone, 2) for _ in range(20)]
    assert [found["group"] for found in ranks[-2:]] == [expected] * 2


class TestOneProcess:
    """What needs no second rank; and counter needs no process group at all."""

    @pytest.mark.parametrize("coupling", ["batch", "slot"])
    @pytest.mark.parametrize("refresh", REFRESHES)
    def test_counter_lengths_are_a_function_of_seed_step_and_slot(
        self, coupling: Any, refresh: str
    ) -> None:
        target = executor(9, sync="counter", coupling=coupling, refresh=refresh)
        sampler = AcceptanceSampler(LAW, seed=9, coupling=coupling)
        for step, bs in enumerate([3, 700, 0, 1, 5]):
            expected = [int(length) - 1 for length in sampler.at(step, np.arange(bs))]
            assert drafts(target, bs, torch.int32 if step % 2 else torch.int64) == expected
        target.begin_step()
        assert target.step_correct_len[0] == sampler.at(5, 0) - 1
        assert target.step_counter(CPU).tolist() == [6]

    def test_the_host_counter_serves_all_devices_and_is_put_back(self) -> None:
        target = executor(9, sync="counter")
        with torch.inference_mode():
            first = drafts(target, 2)
            counter = target.step_counter("meta")
        target._simulated_correct_len(bs=2, dtype=torch.int64, device="meta")
        assert counter is target.step_counter(CPU)
        assert (counter.tolist(), counter.device) == ([2], CPU)
        counter.zero_()
        assert drafts(target, 2) == first

    @pytest.mark.parametrize("refresh", REFRESHES)
    def test_a_counter_made_in_inference_mode_can_be_put_back_outside_of_it(
        self, refresh: str
    ) -> None:
        with torch.inference_mode():
            target = executor(9, sync="counter", refresh=refresh)
            first = drafts(target, 2)
        drafts(target, 2)
        target.step_counter(CPU).zero_()
        assert drafts(target, 2) == first

    def test_draws_of_a_stream_have_no_counter(self) -> None:
        with pytest.raises(RuntimeError, match="with refresh 'device' or sync 'counter'"):
            executor(9).step_counter(CPU)

    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({"sync": "no", "seed": 1}, ValueError, "sync must be one of .*, got 'no'"),
            ({"sync": "counter", "seed": None}, ValueError, "seed must be the same integer on"),
            ({"sync": "broadcast", "seed": 1}, RuntimeError, r"torch\.distributed must be init"),
        ],
    )
    def test_refuses_what_cannot_agree(
        self, options: dict[str, Any], error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            executor(**options)

    def test_a_seed_of_none_is_torchs(self) -> None:
        """Two seeds agree over 100 steps by chance with probability 0.58^100 < 1e-23."""
        streams = []
        with torch.random.fork_rng([]):
            for seed in (1, 1, 2):
                torch.manual_seed(seed)
                made = [executor(None), executor(None)]
                streams += [[drafts(target, 1)[0] for _ in range(100)] for target in made]
        assert streams[:2] == streams[2:4]
        assert streams[0] not in [streams[1], *streams[4:]]

    @pytest.mark.parametrize(("length", "seed"), [(0, None), (4.7, 3)])
    def test_nothing_else_draws_from_torchs_generator(
        self, length: float, seed: int | None
    ) -> None:
        before = torch.random.get_rng_state()
        target = TargetVerifyExecutor(GAMMA, length, "match-expected", seed=seed)
        target.begin_step()
        assert torch.equal(before, torch.random.get_rng_state())
