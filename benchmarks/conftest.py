"""What the benchmarks share: one thread, and an engine's sampler to compare with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import torch

from specsim.extract import extract

PEER = "sglang==0.5.23/sglang/srt/speculative/spec_utils.py"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def engine_style(acc_len: float, method: str, max_len: int) -> int:
    """Draw as serving engines do: a tensor of two weights and one torch.multinomial."""
    assert method == "match-expected"
    length = min(max(acc_len, 1.0), float(max_len))
    floor = int(length)
    weights = torch.tensor([1.0 - (length - floor), length - floor])
    return floor + int(torch.multinomial(weights, 1).item())


@pytest.fixture
def engine_sampler(request: pytest.FixtureRequest) -> Callable[[float, str, int], int]:
    """Return a real engine's sampler where peers are, else one in their style."""
    sampler: Callable[..., int] = engine_style
    peers = os.environ.get("SPECSIM_PEERS")
    source = Path(peers or ".") / PEER
    if source.exists():
        sampler = cast("Callable[..., int]", extract(source, "sample_simulated_acc_len"))
    print(f"\n{request.node.name}: baseline {PEER if source.exists() else 'engine-style'}", end="")
    return sampler


@pytest.fixture
def engine(engine_sampler: Callable[[float, str, int], int]) -> Callable[[], object]:
    """Return one call of `engine_sampler`."""
    return lambda: engine_sampler(4.7, "match-expected", 8)
