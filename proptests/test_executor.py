"""The executor's cached buffer, its draws and the step protocol."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from proptests.dispatched import HOST_READS, Dispatched, storage_of
from proptests.exact_counts import agrees, pairs
from specsim.acceptance import AcceptanceDistribution
from specsim.sampler import AcceptanceSampler
from specsim.verify.executor import TargetVerifyExecutor
from specsim.verify.refresh import indexed

CPU = torch.device("cpu")
GAMMA = 7
LAW = AcceptanceDistribution.match_expected(4.7, GAMMA + 1)


def executor(**options: Any) -> TargetVerifyExecutor:
    return TargetVerifyExecutor(GAMMA, 4.7, "match-expected", **options)


def lengths(
    target: TargetVerifyExecutor,
    bs: int,
    dtype: torch.dtype = torch.int64,
    device: torch.device = CPU,
) -> torch.Tensor:
    return target._simulated_correct_len(bs=bs, dtype=dtype, device=device)


class BufferModel:
    """What an executor must do, in plain Python: capacity, dtype, device, and each draw."""

    def __init__(self, seed: int, coupling: str, refresh: str, sync: str | None) -> None:
        self.sampler = AcceptanceSampler(
            LAW, seed=seed, coupling="slot" if coupling == "slot" else "batch"
        )
        self.per_slot = coupling == "slot"
        self.on_device = refresh == "device"
        self.counted = self.on_device or sync == "counter"
        self.capacity = 0
        self.kind: tuple[torch.dtype, str] | None = None
        self.generation = 0
        self.steps: dict[str, int] = {}

    def call(self, bs: int, dtype: torch.dtype, device: str) -> list[int]:
        if self.kind != (dtype, device) or bs > self.capacity:
            self.kind = (dtype, device)
            self.capacity = max(bs, 512)
            self.generation += 1
        if self.counted:
            # The host's counter is one for all devices.
            place = device if self.on_device else "host"
            step = self.steps.setdefault(place, len(self.steps) << 48)
            self.steps[place] += 1
            return [int(length) - 1 for length in self.sampler.at(step, np.arange(bs))]
        if self.per_slot:
            return [int(length) - 1 for length in self.sampler.draws(bs)]
        return [self.sampler.draw() - 1] * bs


class ExecutorMachine(RuleBasedStateMachine):
    """Calls an executor with random batches, dtypes and devices, beside the model."""

    make: Callable[..., TargetVerifyExecutor] = staticmethod(executor)

    @initialize(
        coupling=st.sampled_from(["batch", "slot"]),
        refresh=st.sampled_from(["host", "device"]),
        sync=st.sampled_from([None, "counter"]),
        seed=st.integers(0, 2**64 - 1),
    )
    def build(self, coupling: str, refresh: str, sync: str | None, seed: int) -> None:
        self.target = self.make(coupling=coupling, refresh=refresh, sync=sync, seed=seed)
        self.model = BufferModel(seed, coupling, refresh, sync)
        # Views of all generations are kept: a freed storage's address may come back.
        self.views: dict[int, torch.Tensor] = {}
        self.history: list[torch.Tensor] = []

    @rule(
        bs=st.one_of(st.sampled_from([0, 1, 64, 511, 512, 513, 700]), st.integers(0, 1100)),
        dtype=st.sampled_from([torch.int32, torch.int64]),
        device=st.sampled_from(["cpu", "cpu", "meta"]),
        inference=st.booleans(),
    )
    def step(self, bs: int, dtype: torch.dtype, device: str, inference: bool) -> None:
        expected = self.model.call(bs, dtype, device)
        with torch.inference_mode(inference):
            view = lengths(self.target, bs, dtype, torch.device(device))
            if device == "cpu":
                assert view.tolist() == expected
        assert tuple(view.shape) == (bs,)
        assert (view.dtype, view.device.type) == (dtype, device)
        assert self.target.buffer_generation == self.model.generation
        assert view.untyped_storage().nbytes() == self.model.capacity * view.itemsize
        first = self.views.setdefault(self.model.generation, view)
        assert storage_of(view) == storage_of(first)
        assert view.storage_offset() == 0
        others = [v for g, v in self.views.items() if g != self.model.generation]
        assert storage_of(view) not in {storage_of(other) for other in others}
        self.history.append(view)


TestExecutorMachine = ExecutorMachine.TestCase
TestExecutorMachine.settings = settings(stateful_step_count=12)


class DrawnOnce(TargetVerifyExecutor):
    def _simulated_correct_len(self, *, bs: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
        before = self.buffer_generation
        kept = self._buffer.clone() if self._buffer is not None else None
        view = super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)
        if kept is not None and before == self.buffer_generation:
            view.copy_(kept[:bs])
        return view


class Copied(TargetVerifyExecutor):
    def _simulated_correct_len(self, **arguments: Any) -> torch.Tensor:
        return super()._simulated_correct_len(**arguments).clone()


class ShrinksWithTheBatch(TargetVerifyExecutor):
    def _simulated_correct_len(self, *, bs: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
        if self._buffer is not None and max(bs, 512) < self._buffer.shape[0]:
            self._dtype = None
        return super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)


class IgnoresDtype(TargetVerifyExecutor):
    def _simulated_correct_len(self, *, bs: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
        return super()._simulated_correct_len(bs=bs, dtype=self._dtype or dtype, device=device)


class LastSlotLeft(TargetVerifyExecutor):
    def _simulated_correct_len(self, *, bs: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
        view = super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)
        view[-1:].fill_(0)
        return view


@pytest.mark.parametrize(
    "fault", [DrawnOnce, Copied, ShrinksWithTheBatch, IgnoresDtype, LastSlotLeft]
)
def test_the_machine_catches_a_faulty_executor(fault: type[TargetVerifyExecutor]) -> None:
    class Machine(ExecutorMachine):
        make = staticmethod(lambda **options: fault(GAMMA, 4.7, "match-expected", **options))

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=200,
                stateful_step_count=10,
                phases=[Phase.generate],
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.parametrize("coupling", ["batch", "slot"])
@pytest.mark.parametrize("refresh", ["host", "device"])
@pytest.mark.parametrize(
    ("acc_len", "method", "gamma"),
    [
        (4.7, "match-expected", 7),
        (2.2, "multinomial", 3),
        (9.0, "match-expected", 3),
        (0.1, "match-expected", 0),
    ],
)
def test_lengths_have_the_law(
    acc_len: float, method: str, gamma: int, refresh: str, coupling: str
) -> None:
    """False alarms: at most 3e-9 a case, exact tails of the counts of values and of pairs."""
    steps, bs = (400, 16) if coupling == "slot" else (2_000, 3)
    options: Any = {"refresh": refresh, "coupling": coupling, "seed": secrets.randbits(64)}
    target = TargetVerifyExecutor(gamma, acc_len, method, **options)
    law = AcceptanceDistribution.from_method(acc_len, method, gamma + 1)
    assert target.distribution == law
    drawn = np.stack([lengths(target, bs).numpy().copy() for _ in range(steps)]) + 1
    if coupling == "batch":
        assert (drawn == drawn[:, :1]).all()
        drawn = drawn[:, :1]
    assert agrees(drawn.ravel(), law)
    # Pairs of steps, and for independent slots pairs of slots, see a repeated draw.
    joint = np.outer(law.pmf, law.pmf).ravel()
    assert agrees(pairs(drawn.T.ravel(), law.max_len), joint)
    assert agrees(pairs(drawn.ravel(), law.max_len), joint)


def test_the_law_test_sees_a_repeated_draw() -> None:
    """Twin: each draw used for two steps fits the law of values but not that of pairs."""
    target = executor(seed=3)
    drawn = np.repeat([lengths(target, 1).item() + 1 for _ in range(1_000)], 2).astype(np.int64)
    assert not agrees(pairs(drawn, 8), np.outer(LAW.pmf, LAW.pmf).ravel())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("bs", [0, 1, 64, 512, 2_000])
def test_no_allocation_in_the_steady_state(dtype: torch.dtype, bs: int) -> None:
    target = executor()
    lengths(target, bs, dtype)
    with Dispatched() as seen:
        for _ in range(3):
            lengths(target, bs, dtype)
    assert seen.allocating == []
    assert seen.names == ["aten::fill_"] * 3


def test_an_allocation_is_seen() -> None:
    """Twin: a change of dtype between the calls."""
    target = executor()
    lengths(target, 4)
    with Dispatched() as seen:
        lengths(target, 4, torch.int32)
    assert seen.allocating == ["aten::zeros"]


@pytest.mark.parametrize(
    ("coupling", "refresh"), list(product(["batch", "slot"], ["host", "device"]))
)
def test_no_host_read_in_a_draw(coupling: str, refresh: str) -> None:
    target = executor(coupling=coupling, refresh=refresh)
    lengths(target, 8)
    with Dispatched() as seen:
        lengths(target, 8)
        target.begin_step()
        lengths(target, 8)
    assert seen.names
    assert not HOST_READS & set(seen.names)


def test_a_buffer_made_in_inference_mode_can_be_written_outside_of_it() -> None:
    target = executor(refresh="device", coupling="slot")
    with torch.inference_mode():
        inside = lengths(target, 4)
        target.begin_step()
    outside = lengths(target, 4)
    target.begin_step()
    assert storage_of(inside) == storage_of(outside)
    assert outside._is_view()
    assert not outside.is_inference()


def test_the_view_of_a_smaller_batch_leaves_the_other_slots() -> None:
    target = executor()
    whole = lengths(target, 6)
    whole.fill_(77)
    lengths(target, 4)
    assert whole[4:].tolist() == [77, 77]


@pytest.mark.parametrize("name", ["cpu", "cpu:0"])
def test_a_device_by_name_is_the_same_device(name: str) -> None:
    target = executor()
    first = lengths(target, 4)
    again = target._simulated_correct_len(bs=4, dtype=torch.int64, device=name)
    assert storage_of(first) == storage_of(again)
    assert target.buffer_generation == 1


def test_a_device_without_an_index_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert indexed("cuda") == torch.device("cuda", 3)
    assert indexed(torch.device("cuda", 1)) == torch.device("cuda", 1)
    assert indexed("cpu:0") == indexed(CPU) == CPU


@pytest.mark.parametrize("length", [0, -1, -2.5])
def test_off_raises_instead_of_a_forced_length(length: float) -> None:
    target = TargetVerifyExecutor(GAMMA, length, "match-expected")
    assert not target.simulating
    with pytest.raises(RuntimeError, match="simulate_acc_len must be above 0"):
        lengths(target, 4)
    target.begin_step()
    assert target.step_correct_len.tolist() == [0]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"bs": -1}, ValueError, "bs must be an integer >= 0, got -1"),
        ({"bs": 2.5}, TypeError, "bs must be an integer, got 2.5"),
        ({"dtype": torch.float32}, TypeError, "dtype must be an integer dtype, got torch.float32"),
        ({"dtype": torch.bool}, TypeError, "dtype must be an integer dtype, got torch.bool"),
    ],
)
def test_a_refused_call_leaves_the_buffer(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    target = executor()
    first = lengths(target, 4)
    with pytest.raises(error, match=text):
        target._simulated_correct_len(**{"bs": 4, "dtype": torch.int64, "device": CPU, **arguments})
    assert storage_of(lengths(target, 4)) == storage_of(first)
    assert target.buffer_generation == 1


def test_a_dtype_too_small_for_gamma_is_refused() -> None:
    target = TargetVerifyExecutor(200, 150.5, "match-expected")
    with pytest.raises(ValueError, match=r"dtype must hold gamma = 200, got torch\.int8"):
        lengths(target, 4, torch.int8)
    assert set(lengths(target, 4, torch.uint8).tolist()) <= {149, 150}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"gamma": -1}, ValueError, "gamma must be an integer >= 0, got -1"),
        (
            {"simulate_acc_len": float("nan")},
            ValueError,
            "simulate_acc_len must be a finite number",
        ),
        ({"simulate_acc_method": "median"}, ValueError, "median"),
        ({"token_mode": "draft"}, ValueError, "token_mode must be one of .*got 'draft'"),
        ({"token_mode": "fixed"}, ValueError, "fixed_token_id must be a token id"),
        ({"token_mode": "fixed", "fixed_token_id": -5}, ValueError, "fixed_token_id must be"),
        ({"refresh": "gpu"}, ValueError, "refresh must be one of 'host', 'device', got 'gpu'"),
        ({"coupling": "row"}, ValueError, "coupling must be one of"),
        ({"accept": "tree"}, ValueError, "accept must be one of 'greedy', 'chain', got 'tree'"),
        ({"seed": -1}, ValueError, "seed must be"),
        ({"sync": "rank"}, ValueError, "sync must be one of .*got 'rank'"),
        ({"coupling": "slot", "step_capacity": 0}, ValueError, "step_capacity must be"),
    ],
)
def test_wrong_configurations(options: dict[str, Any], error: type[Exception], text: str) -> None:
    arguments: dict[str, Any] = {
        "gamma": 4,
        "simulate_acc_len": 3.5,
        "simulate_acc_method": "match-expected",
    }
    with pytest.raises(error, match=text):
        TargetVerifyExecutor(**{**arguments, **options})


@pytest.mark.parametrize("refresh", ["host", "device"])
@pytest.mark.parametrize("coupling", ["batch", "slot"])
def test_all_reads_of_a_step_agree(coupling: str, refresh: str) -> None:
    """All 150 steps are alike by chance with probability at most 2 · 0.7^150 < 2e-23."""
    target = executor(coupling=coupling, refresh=refresh, step_capacity=8)
    step, before, seen = target.step_correct_len, lengths(target, 5), set()
    for _ in range(150):
        target.begin_step()
        assert target.step_correct_len is step
        expected = step.expand(8)[:5] if coupling == "batch" else step[:5]
        for dtype in (torch.int64, torch.int64, torch.int32):
            assert lengths(target, 5, dtype).tolist() == expected.tolist()
        assert 0 <= int(step.min()) <= int(step.max()) <= GAMMA
        seen.add(tuple(expected.tolist()))
    assert len(seen) > 1
    assert before.shape == (5,)


@pytest.mark.parametrize("refresh", ["host", "device"])
def test_a_step_uses_one_draw(refresh: str) -> None:
    """Reading a step more often must not run one rank's draws ahead of another's."""
    once, often = executor(seed=5, refresh=refresh), executor(seed=5, refresh=refresh)
    for _ in range(40):
        once.begin_step()
        often.begin_step()
        lengths(often, 3)
        lengths(often, 9)
        assert torch.equal(once.step_correct_len, often.step_correct_len)


def test_the_step_protocol_refuses_what_its_tensor_cannot_serve() -> None:
    target = executor(coupling="slot", step_capacity=4)
    assert target.step_correct_len.shape == (4,)
    target.begin_step()
    with pytest.raises(ValueError, match="bs must be at most step_capacity = 4, got 5"):
        lengths(target, 5)
    with pytest.raises(ValueError, match="device must be cpu in the step protocol, got meta"):
        lengths(target, 4, device=torch.device("meta"))
    assert target.buffer_generation == 0


def test_the_step_counter_is_advanced_in_place_and_can_be_put_back() -> None:
    target = executor(refresh="device", coupling="slot", seed=9)
    counter = target.step_counter(CPU)
    first = lengths(target, 64).tolist()
    second = lengths(target, 64).tolist()
    assert target.step_counter("cpu") is counter
    assert counter.tolist() == [2]
    counter.fill_(1)
    assert lengths(target, 64).tolist() == second
    counter.zero_()
    assert lengths(target, 64).tolist() == first
    assert first != second  # by chance with probability 0.58^64 < 1e-15


def test_two_seeds_differ_and_equal_seeds_agree() -> None:
    """Two seeds agree over 100 steps by chance with probability 0.58^100 < 1e-23."""
    streams = [
        [int(lengths(target, 1)) for _ in range(100)]
        for target in (executor(seed=1), executor(seed=1), executor(seed=2), executor())
    ]
    assert streams[0] == streams[1]
    assert streams[0] != streams[2]
    assert streams[3] not in streams[:3]


def test_the_package_offers_its_names_without_loading_torch() -> None:
    lines = [
        "import sys, specsim.verify as verify",
        "assert 'torch' not in sys.modules",
        "assert all(getattr(verify, name) for name in verify.__all__)",
        "assert dir(verify) == sorted(verify.__all__) and not hasattr(verify, 'other')",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
