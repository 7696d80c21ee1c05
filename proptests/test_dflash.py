"""apply_dflash_simulated_acceptance: one forced length in every output, nothing stale."""

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

STALE = 7_777
FIXED = 99


def block(
    bs: int, size: int, dtype: torch.dtype = torch.int64, device: str = "cpu"
) -> dict[str, Any]:
    """Return arguments whose tokens are all different, and outputs full of stale values."""
    candidates = torch.arange(bs * size, device=device).reshape(bs, size) + 1_000
    return {
        "candidates": candidates,
        "target_predict": candidates + 4_000,
        "accept_len": torch.full((bs,), STALE, dtype=torch.int32, device=device),
        "commit_lens": torch.full((bs,), STALE, dtype=torch.int32, device=device),
        "bonus": torch.full((bs,), STALE, dtype=dtype, device=device),
        "out_tokens": torch.full((bs, size), STALE, dtype=dtype, device=device),
        "simulate_acc_len": 2.5,
        "simulate_acc_method": "match-expected",
    }


OUTPUTS = ("accept_len", "commit_lens", "bonus", "out_tokens")


@given(
    bs=st.integers(0, 5),
    size=st.integers(1, 9),
    acc_len=st.sampled_from([0.5, 1.0, 2.5, 4.7, 40.0]),
    method=st.sampled_from(["match-expected", "multinomial"]),
    mode=st.sampled_from(["real-draft-token", "fixed"]),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    seed=st.integers(0, 2**32),
)
def test_every_output_holds_the_forced_length(
    bs: int, size: int, acc_len: float, method: str, mode: str, dtype: torch.dtype, seed: int
) -> None:
    arguments = block(bs, size, dtype)
    memory = {name: arguments[name].data_ptr() for name in OUTPUTS}
    apply_dflash_simulated_acceptance(
        **{**arguments, "simulate_acc_len": acc_len, "simulate_acc_method": method},
        simulate_acc_token_mode=mode,
        fixed_token_id=FIXED if mode == "fixed" else None,
        generator=torch.Generator().manual_seed(seed),
    )
    length = sample_simulated_acc_len(
        acc_len, method, size, generator=torch.Generator().manual_seed(seed)
    )
    assert {name: arguments[name].data_ptr() for name in OUTPUTS} == memory
    assert arguments["accept_len"].tolist() == [length - 1] * bs
    assert arguments["commit_lens"].tolist() == [length] * bs
    for slot in range(bs):
        if mode == "fixed":
            committed = [FIXED] * length
        else:
            committed = arguments["candidates"][slot, 1:length].tolist()
            committed.append(int(arguments["target_predict"][slot, length - 1]))
        assert arguments["out_tokens"][slot].tolist() == committed + [0] * (size - length)
        assert int(arguments["bonus"][slot]) == committed[-1]


@pytest.mark.parametrize("flat", [True, False])
def test_logits_stand_for_the_targets_tokens(flat: bool) -> None:
    arguments = block(3, 4)
    logits = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(0))
    arguments["target_predict"] = None
    apply_dflash_simulated_acceptance(
        **{**arguments, "simulate_acc_len": 3.0},
        next_token_logits=logits.reshape(12, 50) if flat else logits,
    )
    assert arguments["bonus"].tolist() == logits[:, 2].argmax(-1).tolist()


def test_fixed_mode_needs_no_target() -> None:
    arguments = block(3, 4)
    arguments["target_predict"] = None
    apply_dflash_simulated_acceptance(
        **arguments, simulate_acc_token_mode="fixed", fixed_token_id=FIXED
    )
    assert arguments["bonus"].tolist() == [FIXED] * 3


@pytest.mark.parametrize(
    ("acc_len", "method"), [(4.7, "match-expected"), (2.2, "multinomial"), (7.9, "multinomial")]
)
def test_the_lengths_have_the_law(acc_len: float, method: str) -> None:
    """False alarms: at most 2e-9 a case; the twin is a law half a token away."""
    law = AcceptanceDistribution.from_method(acc_len, method, 8)
    arguments = {**block(1, 8), "simulate_acc_len": acc_len, "simulate_acc_method": method}
    drawn = np.empty(3_000, dtype=np.int64)
    for step in range(drawn.size):
        apply_dflash_simulated_acceptance(**arguments)
        drawn[step] = int(arguments["commit_lens"])
    assert agrees(drawn, law)
    assert agrees(pairs(drawn, 8), np.outer(law.pmf, law.pmf).ravel())
    assert not agrees(drawn, AcceptanceDistribution.from_method(acc_len - 0.5, method, 8))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"simulate_acc_len": 0}, ValueError, "simulate_acc_len must be above 0.*got 0"),
        ({"simulate_acc_len": -1.0}, ValueError, "simulate_acc_len must be above 0.*got -1.0"),
        ({"simulate_acc_len": "4"}, TypeError, "simulate_acc_len must be a real number"),
        ({"simulate_acc_method": "mean"}, ValueError, "simulate_acc_method must be one of"),
        ({"simulate_acc_token_mode": "any"}, ValueError, "simulate_acc_token_mode must be one of"),
        ({"simulate_acc_token_mode": "fixed"}, ValueError, "fixed_token_id must be a token id"),
        ({"candidates": torch.zeros(3, 0)}, ValueError, "candidates must be"),
        ({"candidates": torch.zeros(3)}, ValueError, "candidates must be"),
        ({"target_predict": None}, ValueError, "target_predict or next_token_logits"),
        ({"target_predict": torch.zeros(3, 5)}, ValueError, "target_predict must have shape"),
        (
            {"target_predict": None, "next_token_logits": torch.zeros(3, 9)},
            ValueError,
            "next_token_logits must have shape",
        ),
        ({"accept_len": torch.zeros(2)}, ValueError, "accept_len must have shape"),
        ({"commit_lens": torch.zeros(4)}, ValueError, "commit_lens must have shape"),
        ({"bonus": torch.zeros(3, 1)}, ValueError, "bonus must have shape"),
        ({"out_tokens": torch.zeros(3, 3)}, ValueError, "out_tokens must have shape"),
    ],
)
def test_a_refused_call_writes_nothing(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    arguments = block(3, 4)
    with pytest.raises(error, match=text):
        apply_dflash_simulated_acceptance(**{**arguments, **changes})
    for name in OUTPUTS:
        assert bool((arguments[name] == STALE).all())


@pytest.mark.parametrize("mode", ["real-draft-token", "fixed"])
def test_no_value_is_read_on_the_host(mode: str) -> None:
    with Dispatched() as seen:
        apply_dflash_simulated_acceptance(
            **{**block(3, 4, device="meta"), "simulate_acc_len": 3.0},
            simulate_acc_token_mode=mode,
            fixed_token_id=FIXED,
        )
    assert seen.names
    assert not HOST_READS & set(seen.names)
