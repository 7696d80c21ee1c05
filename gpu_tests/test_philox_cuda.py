"""Philox and the counter-based draws on CUDA: the same bits as on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from specsim.acceptance import AcceptanceDistribution
from specsim.philox import philox4x32, philox4x32_tensor
from specsim.sampler import AcceptanceSampler, Coupling, Method

if not torch.cuda.is_available():
    pytest.skip("no CUDA device is available", allow_module_level=True)

CUDA = torch.device("cuda")
SLOTS = torch.tensor([0, 1, 2, 511, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
STEPS = [0, 1, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1]
SEEDS = [0, 0x299F31D0A4093822, (1 << 64) - 1]

# Random123's kat_vectors for philox4x32 with 10 rounds: counter, key, words.
KNOWN_ANSWERS = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]

INDEPENDENT_LAWS = [
    AcceptanceDistribution.match_expected(4.7, 8),
    AcceptanceDistribution.multinomial(8.2, 16),
    AcceptanceDistribution([1.0]),
]
SYSTEMATIC_LAWS = [
    AcceptanceDistribution.match_expected(4.7, 8),
    AcceptanceDistribution([0.3, 0.0, 0.7]),
]
CASES = [(law, "independent") for law in INDEPENDENT_LAWS] + [
    (law, "systematic") for law in SYSTEMATIC_LAWS
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    c0, c1, c2, c3 = (torch.tensor([int(word, 16)], device=CUDA) for word in counter.split())
    k0, k1 = (int(word, 16) for word in key.split())
    words = philox4x32_tensor((c0, c1, c2, c3), (k0, k1))
    assert [f"{int(word):08x}" for word in words] == answer.split()


def test_words_equal_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    c0, c1, c2, c3 = torch.randint(1 << 32, (4, 100_000), generator=generator)
    on_cpu = philox4x32_tensor((c0, c1, c2, c3), (0x80000000, 0xFFFFFFFF))
    on_cuda = philox4x32_tensor(
        (c0.to(CUDA), c1.to(CUDA), c2.to(CUDA), c3.to(CUDA)), (0x80000000, 0xFFFFFFFF)
    )
    for cpu_word, cuda_word in zip(on_cpu, on_cuda, strict=True):
        assert cuda_word.device.type == "cuda"
        assert torch.equal(cuda_word.cpu(), cpu_word)


@pytest.mark.parametrize("coupling", ["slot", "batch"])
@pytest.mark.parametrize(("law", "method"), CASES)
def test_draws_equal_the_cpu(
    law: AcceptanceDistribution, method: Method, coupling: Coupling
) -> None:
    for seed in SEEDS:
        sampler = AcceptanceSampler(law, seed=seed, coupling=coupling, method=method)
        for step in STEPS:
            expected = [sampler.at(step, slot) for slot in SLOTS.tolist()]
            by_int = sampler.at(step, SLOTS.to(CUDA))
            by_tensor = sampler.at(torch.tensor(step, device=CUDA), SLOTS.to(CUDA))
            assert by_int.device.type == by_tensor.device.type == "cuda"
            assert by_int.dtype == by_tensor.dtype == torch.int64
            assert by_int.tolist() == by_tensor.tolist() == expected
            assert sampler.at(step, SLOTS).tolist() == expected
            assert sampler.at(step, SLOTS.numpy()).tolist() == expected
        many = np.arange(4096)[:, None]
        assert np.array_equal(
            sampler.at(torch.from_numpy(many).to(CUDA), SLOTS.to(CUDA)).cpu().numpy(),
            sampler.at(many, SLOTS.numpy()),
        )


@pytest.mark.parametrize("coupling", ["slot", "batch"])
@pytest.mark.parametrize(("law", "method"), CASES)
def test_a_replayed_graph_draws_what_the_step_on_the_device_says(
    law: AcceptanceDistribution, method: Method, coupling: Coupling
) -> None:
    sampler = AcceptanceSampler(law, seed=7, coupling=coupling, method=method)
    slots = torch.arange(64, device=CUDA)
    step = torch.zeros((), dtype=torch.int64, device=CUDA)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        sampler.at(step, slots)  # puts the thresholds on the device
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = sampler.at(step, slots)
        step.add_(1)
    for expected_step in range(50):
        graph.replay()
        assert drawn.tolist() == sampler.at(expected_step, np.arange(64)).tolist()


def test_a_step_on_the_host_is_refused_beside_slots_on_the_device() -> None:
    sampler = AcceptanceSampler(INDEPENDENT_LAWS[0])
    with pytest.raises(ValueError, match="step must be on the device of slots"):
        sampler.at(torch.tensor(3), torch.arange(4, device=CUDA))


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_equals_triton_on_the_device() -> None:
    script = Path(__file__).parents[1] / "proptests" / "triton_philox.py"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(script), "cuda"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows
    for row in rows:
        counter, seed = tuple(row["counter"]), row["seed"]
        key = (seed & 0xFFFFFFFF, seed >> 32)
        assert tuple(row["philox"]) == philox4x32(counter, key)
        assert tuple(row["randint4x"]) == philox4x32((counter[0], 0, 0, 0), key)
