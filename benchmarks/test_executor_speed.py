"""Speed of TargetVerifyExecutor's refresh, as ratios to a baseline timed side by side.

Run with ``-s`` to see the ratios as they come; they are also in each benchmark's extra_info.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.side_by_side import ratio, record
from specsim.acceptance import AcceptanceDistribution
from specsim.sampler import AcceptanceSampler
from specsim.verify.executor import TargetVerifyExecutor

BS = 64
TWO = AcceptanceDistribution.match_expected(4.7, 8)


@pytest.fixture
def refresh() -> Callable[[], object]:
    """Return one call as an engine makes it: with the device of a tensor it just computed."""
    executor = TargetVerifyExecutor(7, 4.7, "match-expected", seed=0)
    correct_len = torch.zeros(BS, dtype=torch.int64)
    dtype, device = correct_len.dtype, correct_len.device
    return lambda: executor._simulated_correct_len(bs=BS, dtype=dtype, device=device)


def test_refresh_against_a_bare_fill(
    benchmark: BenchmarkFixture, refresh: Callable[[], object]
) -> None:
    draw = AcceptanceSampler(TWO, seed=0).draw
    buffer = torch.zeros(512, dtype=torch.int64)
    measured = ratio(refresh, lambda: buffer[:BS].fill_(draw()))
    record(benchmark, "refresh against buffer[:64].fill_(draw())", measured)
    benchmark(refresh)


def test_refresh_against_a_bare_fill_of_a_ready_slice(
    benchmark: BenchmarkFixture, refresh: Callable[[], object]
) -> None:
    draw = AcceptanceSampler(TWO, seed=0).draw
    view = torch.zeros(512, dtype=torch.int64)[:BS]
    measured = ratio(refresh, lambda: view.fill_(draw()))
    record(benchmark, "refresh against view.fill_(draw())", measured)
    benchmark(refresh)


def test_refresh_against_an_engines_sampler(
    benchmark: BenchmarkFixture,
    refresh: Callable[[], object],
    engine_sampler: Callable[[float, str, int], int],
) -> None:
    buffer = torch.zeros(512, dtype=torch.int64)

    def engine_refresh() -> torch.Tensor:
        return buffer[:BS].fill_(engine_sampler(4.7, "match-expected", 8) - 1)

    measured = ratio(refresh, engine_refresh)
    record(benchmark, f"refresh against an engine's (1/{1 / measured.median:.1f})", measured)
    benchmark(refresh)


@pytest.mark.parametrize("coupling", ["batch", "slot"])
def test_device_refresh_against_host_refresh(
    benchmark: BenchmarkFixture, refresh: Callable[[], object], coupling: str
) -> None:
    executor = TargetVerifyExecutor(
        7,
        4.7,
        "match-expected",
        seed=0,
        refresh="device",
        coupling="slot" if coupling == "slot" else "batch",
    )
    device = torch.device("cpu")

    def drawn_on_the_device() -> torch.Tensor:
        return executor._simulated_correct_len(bs=BS, dtype=torch.int64, device=device)

    measured = ratio(drawn_on_the_device, refresh)
    record(benchmark, f"refresh='device', coupling={coupling!r}, against host", measured)
    benchmark(drawn_on_the_device)
