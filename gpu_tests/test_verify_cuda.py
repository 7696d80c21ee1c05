"""Executors and accept rules on a CUDA device: the same lengths and tokens as on the CPU."""

from __future__ import annotations

import pytest
import torch

import specsim
from specsim.adapters.executor import ExecutorTarget
from specsim.properties.executor_sequences import run_sequences
from specsim.sampler import Coupling
from specsim.verify import TargetVerifyExecutor, chain_accept, counter_uniforms, probabilities
from specsim.verify.refresh import Refresh

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: this says what has to hold on one"
)

BS, GAMMA, V = 64, 7, 50


def executor(refresh: Refresh, coupling: Coupling) -> TargetVerifyExecutor:
    return TargetVerifyExecutor(
        GAMMA, 4.7, "match-expected", refresh=refresh, coupling=coupling, seed=11
    )


@pytest.mark.parametrize("coupling", ["batch", "slot"])
@pytest.mark.parametrize("refresh", ["host", "device"])
def test_lengths_are_those_of_the_cpu(refresh: Refresh, coupling: Coupling) -> None:
    on_cpu, on_cuda = executor(refresh, coupling), executor(refresh, coupling)
    for step in range(50):
        bs = 1 + 13 * step % BS
        views = [
            one._simulated_correct_len(bs=bs, dtype=torch.int32, device=device)
            for one, device in ((on_cpu, "cpu"), (on_cuda, "cuda"))
        ]
        assert torch.equal(views[0], views[1].cpu())


@pytest.mark.parametrize("refresh", ["host", "device"])
def test_a_step_does_not_wait_for_the_device(refresh: Refresh) -> None:
    one = executor(refresh, "slot")
    draft = torch.zeros((BS, GAMMA), dtype=torch.int64, device="cuda")
    target = torch.zeros((BS, GAMMA + 1), dtype=torch.int64, device="cuda")
    prefix = torch.full((BS,), 100, dtype=torch.int64, device="cuda")

    def step() -> None:
        one.accept_and_finalize(draft_tokens=draft, prefix_lens=prefix, target_tokens=target)

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_accept_rules_give_the_tokens_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn((2, BS, GAMMA + 1, V), generator=generator)
    p, q = (probabilities(side, 1.0) for side in logits)
    draft = torch.randint(V, (BS, GAMMA), generator=generator)
    uniforms = counter_uniforms(3, 0, torch.arange(BS), GAMMA + 1)
    here = chain_accept(draft, q[:, :GAMMA], p, uniforms=uniforms)
    there = chain_accept(
        draft.cuda(),
        q[:, :GAMMA].cuda(),
        p.cuda(),
        uniforms=counter_uniforms(3, 0, torch.arange(BS, device="cuda"), GAMMA + 1),
    )
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))


def test_cuda_is_tried_as_a_second_device() -> None:
    seen = run_sequences(
        ExecutorTarget("TargetVerifyExecutor", TargetVerifyExecutor),
        ["match-expected"],
        0,
        50,
        steps_only=False,
    )
    assert "cuda:0" in seen.devices
    assert not seen.known
    assert not seen.found


def test_the_bare_device_keeps_the_buffer() -> None:
    report = specsim.check(
        TargetVerifyExecutor, effort="quick", properties=["E.device", "E.bare-device"]
    )
    assert report["E.device"].verdict == "pass", report["E.device"].detail
    assert report["E.bare-device"].verdict == "pass", report["E.bare-device"].detail


class ByName(TargetVerifyExecutor):
    """Compares devices as they are given."""

    def _simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: torch.device | str
    ) -> torch.Tensor:
        if self._buffer is not None and self._buffer.device != device:
            self._buffer = self._dtype = None
        return super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)


def test_the_twin_that_compares_devices_as_given_is_seen() -> None:
    report = specsim.check(ByName, effort="quick", properties=["E.bare-device"])
    assert report["E.bare-device"].verdict == "fail"
