"""generate_simulated_accept_index: one forced length in every output, −1 beyond it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proptests.dispatched import HOST_READS, Dispatched
from proptests.exact_counts import agrees, pairs
from specsim.acceptance import AcceptanceDistribution
from specsim.sampler import sample_simulated_acc_len
from specsim.verify.dflash import apply_dflash_simulated_acceptance
from specsim.verify.eagle import generate_simulated_accept_index
from specsim.verify.executor import TargetVerifyExecutor

STALE = 7_777
FIXED = 99


def chain(
    bs: int, steps: int, extra: int = 0, dtype: torch.dtype = torch.int32, device: str = "cpu"
) -> dict[str, Any]:
    """Return arguments whose tokens are all different, in trees of steps + 1 + extra nodes."""
    nodes = steps + 1 + extra
    candidates = torch.arange(bs * nodes, device=device).reshape(bs, nodes) + 1_000
    first = torch.arange(bs, dtype=torch.int32, device=device) * nodes
    accept_index = torch.full((bs, steps + 1), -1, dtype=torch.int32, device=device)
    accept_index[:, 0] = first
    return {
        "accept_index": accept_index,
        "predict": torch.full((bs * nodes,), STALE, dtype=dtype, device=device),
        "num_correct_drafts": torch.full((bs,), STALE, dtype=torch.int32, device=device),
        "candidates": candidates,
        "target_predict": candidates + 4_000,
        "bs": bs,
        "spec_steps": steps,
        "simulate_acc_len": 2.5,
        "simulate_acc_method": "match-expected",
    }


@given(
    bs=st.integers(0, 5),
    steps=st.integers(0, 8),
    extra=st.integers(0, 3),
    acc_len=st.sampled_from([0.5, 1.0, 2.5, 4.7, 40.0]),
    method=st.sampled_from(["match-expected", "multinomial"]),
    mode=st.sampled_from(["real-draft-token", "fixed"]),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    seed=st.integers(0, 2**32),
)
def test_every_output_holds_the_forced_length(
    bs: int,
    steps: int,
    extra: int,
    acc_len: float,
    method: str,
    mode: str,
    dtype: torch.dtype,
    seed: int,
) -> None:
    arguments = chain(bs, steps, extra, dtype)
    given_index = arguments["accept_index"].clone()
    index = generate_simulated_accept_index(
        **{**arguments, "simulate_acc_len": acc_len, "simulate_acc_method": method},
        simulate_acc_token_mode=mode,
        fixed_token_id=FIXED if mode == "fixed" else None,
        generator=torch.Generator().manual_seed(seed),
    )
    length = sample_simulated_acc_len(
        acc_len, method, steps + 1, generator=torch.Generator().manual_seed(seed)
    )
    assert (index.dtype, tuple(index.shape)) == (torch.int32, (bs, steps + 1))
    assert torch.equal(arguments["accept_index"], given_index)
    assert arguments["num_correct_drafts"].tolist() == [length - 1] * bs
    unreached = set(range(arguments["predict"].numel()))
    for slot in range(bs):
        first = slot * (steps + 1 + extra)
        nodes = list(range(first, first + length))
        assert index[slot].tolist() == nodes + [-1] * (steps + 1 - length)
        unreached -= set(nodes)
        if mode == "fixed":
            committed = [FIXED] * length
        else:
            committed = arguments["candidates"][slot, 1:length].tolist()
            committed.append(int(arguments["target_predict"][slot, length - 1]))
        assert arguments["predict"][nodes].tolist() == committed
    beyond = FIXED if mode == "fixed" else STALE
    assert {int(arguments["predict"][node]) for node in unreached} <= {beyond}


@pytest.mark.parametrize(
    ("acc_len", "method"), [(4.7, "match-expected"), (2.2, "multinomial"), (7.9, "multinomial")]
)
def test_three_consumers_give_the_same_law(acc_len: float, method: str) -> None:
    """False alarms: at most 4e-9 a case; the twin is a consumer that lags by one token."""
    law = AcceptanceDistribution.from_method(acc_len, method, 8)
    count = 2_000
    executor = TargetVerifyExecutor(7, acc_len, method)
    cached = [
        int(executor._simulated_correct_len(bs=1, dtype=torch.int64, device="cpu")) + 1
        for _ in range(count)
    ]
    arguments = {**chain(1, 7), "simulate_acc_len": acc_len, "simulate_acc_method": method}
    eagle = [int((generate_simulated_accept_index(**arguments) >= 0).sum()) for _ in range(count)]
    assert int(arguments["num_correct_drafts"]) == eagle[-1] - 1
    commit_lens = torch.zeros(1, dtype=torch.int32)
    dflash = []
    for _ in range(count):
        apply_dflash_simulated_acceptance(
            candidates=arguments["candidates"],
            target_predict=arguments["target_predict"],
            accept_len=torch.zeros(1),
            commit_lens=commit_lens,
            bonus=torch.zeros(1),
            out_tokens=torch.zeros(1, 8),
            simulate_acc_len=acc_len,
            simulate_acc_method=method,
        )
        dflash.append(int(commit_lens))
    for drawn in (cached, eagle, dflash):
        assert agrees(drawn, law)
        assert not agrees([max(1, length - 1) for length in drawn], law)
    assert agrees(pairs(np.array(eagle), 8), np.outer(law.pmf, law.pmf).ravel())


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"simulate_acc_len": 0.0}, ValueError, "simulate_acc_len must be above 0.*got 0.0"),
        ({"simulate_acc_method": "mean"}, ValueError, "simulate_acc_method must be one of"),
        ({"simulate_acc_token_mode": "any"}, ValueError, "simulate_acc_token_mode must be one of"),
        ({"simulate_acc_token_mode": "fixed"}, ValueError, "fixed_token_id must be a token id"),
        ({"bs": 2}, ValueError, r"candidates must be \(2, draft_token_num\)"),
        ({"spec_steps": 4}, ValueError, "draft_token_num >= 5"),
        ({"spec_steps": -1}, ValueError, "spec_steps must be an integer >= 0, got -1"),
        ({"accept_index": torch.zeros(3, 0)}, ValueError, r"accept_index must be \(3, n\)"),
        ({"accept_index": torch.zeros(2, 4)}, ValueError, r"accept_index must be \(3, n\)"),
        ({"predict": torch.zeros(3, 4)}, ValueError, "predict must be one-dimensional"),
        ({"num_correct_drafts": torch.zeros(2)}, ValueError, "num_correct_drafts must have shape"),
        ({"target_predict": torch.zeros(3, 3)}, ValueError, "target_predict must have shape"),
    ],
)
def test_a_refused_call_writes_nothing(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    arguments = chain(3, 3)
    with pytest.raises(error, match=text):
        generate_simulated_accept_index(**{**arguments, **changes})
    for name in ("predict", "num_correct_drafts"):
        assert bool((arguments[name] == STALE).all())


@pytest.mark.parametrize("mode", ["real-draft-token", "fixed"])
def test_no_value_is_read_on_the_host(mode: str) -> None:
    with Dispatched() as seen:
        index = generate_simulated_accept_index(
            **{**chain(3, 4, device="meta"), "simulate_acc_len": 3.0},
            simulate_acc_token_mode=mode,
            fixed_token_id=FIXED,
        )
    assert index.device.type == "meta"
    assert not HOST_READS & set(seen.names)
