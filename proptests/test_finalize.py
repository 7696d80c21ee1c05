"""What a verify step commits: forced lengths, caps, ragged batches and tokens."""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proptests.dispatched import HOST_READS, Dispatched
from proptests.exact_counts import agrees
from specsim.sampler import AcceptanceSampler
from specsim.verify.accept import chain_accept, greedy_accept
from specsim.verify.executor import TargetVerifyExecutor
from specsim.verify.finalize import AcceptResult

VOCABULARY = 5
FIXED = 99


def step_inputs(gamma: int, bs: int, seed: int, accept: str, device: str = "cpu") -> dict[str, Any]:
    random = torch.Generator().manual_seed(seed)
    target = torch.randn(bs, gamma + 1, VOCABULARY, generator=random).softmax(-1)
    inputs: dict[str, Any] = {
        "draft_tokens": torch.randint(0, VOCABULARY, (bs, gamma), generator=random),
        "prefix_lens": torch.randint(0, 1_000, (bs,), generator=random, dtype=torch.int32),
    }
    if accept == "greedy":
        inputs["target_tokens"] = target.argmax(-1)
    else:
        inputs["draft_probs"] = torch.randn(bs, gamma, VOCABULARY, generator=random).softmax(-1)
        inputs["target_probs"] = target
        inputs["uniforms"] = torch.rand(bs, gamma + 1, generator=random)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def check_consistent(result: AcceptResult, inputs: dict[str, Any], gamma: int) -> None:
    """Assert what holds of every result, on values read one by one."""
    bs = inputs["draft_tokens"].shape[0]
    assert result.out_tokens.shape == (bs, gamma + 1)
    for field in fields(result):
        assert getattr(result, field.name).shape[0] == bs
    dtypes = [getattr(result, field.name).dtype for field in fields(result)]
    assert dtypes == [
        torch.int64,
        torch.int64,
        torch.int32,
        torch.int32,
        inputs["prefix_lens"].dtype,
        torch.int64,
    ]
    for slot in range(bs):
        correct, commit = int(result.correct_len[slot]), int(result.commit_lens[slot])
        assert 0 <= correct <= gamma
        assert commit == correct + 1
        assert int(result.new_seq_lens[slot]) == int(inputs["prefix_lens"][slot]) + commit
        tokens = result.out_tokens[slot].tolist()
        assert tokens[correct] == int(result.bonus[slot])
        assert tokens[commit:] == [-1] * (gamma + 1 - commit)


limits = st.one_of(st.none(), st.lists(st.integers(-1, 10), min_size=6, max_size=6))


def as_limit(values: list[int] | None, bs: int, dtype: torch.dtype) -> torch.Tensor | None:
    return None if values is None else torch.tensor(values[:bs], dtype=dtype)


@given(
    gamma=st.integers(0, 7),
    bs=st.integers(0, 6),
    seed=st.integers(0, 2**32),
    accept=st.sampled_from(["greedy", "chain"]),
    coupling=st.sampled_from(["batch", "slot"]),
    acc_len=st.sampled_from([-1.0, 1.0, 2.5, 4.7, 20.0]),
    mode=st.sampled_from(["real-draft-token", "fixed"]),
    protocol=st.sampled_from(["buffer", "step"]),
    verify_lens=limits,
    caps=limits,
)
def test_a_step_against_the_definition(
    gamma: int,
    bs: int,
    seed: int,
    accept: Any,
    coupling: Any,
    acc_len: float,
    mode: Any,
    protocol: str,
    verify_lens: list[int] | None,
    caps: list[int] | None,
) -> None:
    target = TargetVerifyExecutor(
        gamma,
        acc_len,
        "match-expected",
        token_mode=mode,
        fixed_token_id=FIXED,
        coupling=coupling,
        accept=accept,
        seed=seed,
        step_capacity=6,
    )
    inputs = step_inputs(gamma, bs, seed, accept)
    verify, cap = as_limit(verify_lens, bs, torch.int32), as_limit(caps, bs, torch.int64)
    if protocol == "step":
        target.begin_step()
    result = target.accept_and_finalize(**inputs, verify_lens=verify, caps=cap)
    check_consistent(result, inputs, gamma)

    rows = [[gamma + 1] * bs if limit is None else limit.tolist() for limit in (verify, cap)]
    most = [max(1, min(gamma + 1, v, c)) for v, c in zip(*rows, strict=True)]
    if accept == "greedy":
        real, token = greedy_accept(
            inputs["draft_tokens"], inputs["target_tokens"], torch.tensor(most, dtype=torch.int64)
        )
        uncapped, _ = greedy_accept(inputs["draft_tokens"], inputs["target_tokens"], verify)
    else:
        chain = {name: inputs[name] for name in ("draft_tokens", "draft_probs", "target_probs")}
        real, token = chain_accept(
            **chain, verify_lens=torch.tensor(most, dtype=torch.int64), uniforms=inputs["uniforms"]
        )
        uncapped, _ = chain_accept(**chain, verify_lens=verify, uniforms=inputs["uniforms"])

    if acc_len <= 0:
        assert torch.equal(result.correct_len, real)
        assert torch.equal(result.bonus, token)
        assert (result.commit_lens + result.cap_trim_lens).tolist() == (uncapped + 1).tolist()
        expected = [*real.tolist()]
    else:
        sampler = AcceptanceSampler(target.distribution, seed=seed)
        if coupling == "batch":
            forced = [sampler.draw()] * bs
        else:
            forced = sampler.draws(6 if protocol == "step" else bs)[:bs].tolist()
        expected = [min(length, limit) - 1 for length, limit in zip(forced, most, strict=True)]
        assert (result.commit_lens + result.cap_trim_lens).tolist() == forced
    assert result.correct_len.tolist() == expected
    for slot, correct in enumerate(expected):
        committed = result.out_tokens[slot, : correct + 1].tolist()
        if acc_len > 0 and mode == "fixed":
            assert committed == [FIXED] * (correct + 1)
            continue
        assert committed[:-1] == inputs["draft_tokens"][slot, :correct].tolist()
        if accept == "greedy":
            assert committed[-1] == int(inputs["target_tokens"][slot, correct])


@pytest.mark.parametrize("acc_len", [-1.0, 3.5])
def test_a_chain_step_draws_as_the_rule_does(acc_len: float) -> None:
    """The numbers taken from a generator are the rule's own, with simulation on or off."""
    target = TargetVerifyExecutor(4, acc_len, "match-expected", accept="chain")
    inputs = step_inputs(4, 3, 0, "chain")
    del inputs["uniforms"]
    mine, rules = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    result = target.accept_and_finalize(**inputs, generator=mine)
    chain = {name: inputs[name] for name in ("draft_tokens", "draft_probs", "target_probs")}
    real, token = chain_accept(**chain, generator=rules)
    assert torch.equal(mine.get_state(), rules.get_state())
    if acc_len < 0:
        assert torch.equal(result.correct_len, real)
        assert torch.equal(result.bonus, token)
        assert result.cap_trim_lens.tolist() == [0, 0, 0]


@pytest.mark.parametrize("length", [1, 3, 5])
def test_the_forced_bonus_of_a_chain_has_the_targets_law(length: int) -> None:
    """False alarms: at most 1e-9 each. The rows' laws differ, so another position would show."""
    bs, gamma = 20_000, 4
    rows = torch.tensor([[8, 1, 1, 1], [1, 8, 1, 1], [1, 1, 8, 1], [1, 1, 1, 8], [4, 4, 1, 2.0]])
    rows = rows / rows.sum(1, keepdim=True)
    target = TargetVerifyExecutor(gamma, length, "match-expected", accept="chain")
    result = target.accept_and_finalize(
        draft_tokens=torch.zeros(bs, gamma, dtype=torch.int64),
        prefix_lens=torch.zeros(bs, dtype=torch.int64),
        draft_probs=torch.full((bs, gamma, 4), 0.25),
        target_probs=rows.expand(bs, gamma + 1, 4),
    )
    laws = rows.to(torch.float64).numpy()
    laws = laws / laws.sum(1, keepdims=True)
    bonus = result.bonus.numpy() + 1
    assert agrees(bonus, laws[length - 1])
    assert not any(agrees(bonus, laws[other]) for other in range(5) if other != length - 1)


def test_results_are_not_changed_by_a_later_step() -> None:
    for protocol, coupling in product(["buffer", "step"], ["batch", "slot"]):
        options: Any = {"coupling": coupling}
        target = TargetVerifyExecutor(7, 4.5, "match-expected", **options)
        inputs = step_inputs(7, 4, 1, "greedy")
        kept = []
        for _ in range(60):
            if protocol == "step":
                target.begin_step()
            result = target.accept_and_finalize(**inputs)
            kept.append((result.correct_len, result.correct_len.clone()))
        assert all(torch.equal(now, then) for now, then in kept)
        # All 60 steps are alike by chance with probability 2^-59.
        assert len({tuple(then.tolist()) for _, then in kept}) > 1


def test_strict_length_names_the_slot_the_length_and_the_cap() -> None:
    target = TargetVerifyExecutor(4, 5.0, "match-expected", strict_length=True)
    inputs = step_inputs(4, 3, 0, "greedy")
    whole = target.accept_and_finalize(**inputs, caps=torch.tensor([5, 9, 5]))
    assert whole.commit_lens.tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="slot 1 has forced acceptance length 5 and a cap of 2"):
        target.accept_and_finalize(**inputs, verify_lens=torch.tensor([5, 2, 1]))


def test_strict_length_lets_a_real_length_be_capped() -> None:
    target = TargetVerifyExecutor(4, 0.0, "match-expected", strict_length=True)
    inputs = step_inputs(4, 2, 0, "greedy")
    inputs["draft_tokens"] = inputs["target_tokens"][:, :4].clone()
    result = target.accept_and_finalize(**inputs, caps=torch.tensor([2, 5]))
    assert result.commit_lens.tolist() == [2, 5]
    assert result.cap_trim_lens.tolist() == [3, 0]


@pytest.mark.parametrize("mode", ["real-draft-token", "fixed"])
@pytest.mark.parametrize("accept", ["greedy", "chain"])
@pytest.mark.parametrize("acc_len", [-1.0, 2.5])
@pytest.mark.parametrize(
    ("coupling", "refresh"), list(product(["batch", "slot"], ["host", "device"]))
)
def test_no_value_is_read_on_the_host(
    acc_len: float, accept: str, mode: str, coupling: str, refresh: str
) -> None:
    """On the meta device a read raises; on the CPU it would be dispatched."""
    for device, protocol in product(["cpu", "meta"], ["buffer", "step"]):
        options: Any = {
            "coupling": coupling,
            "refresh": refresh,
            "token_mode": mode,
            "accept": accept,
        }
        target = TargetVerifyExecutor(
            4,
            acc_len,
            "match-expected",
            fixed_token_id=FIXED,
            device=device,
            **options,
        )
        inputs = step_inputs(4, 3, 0, accept, device)
        limit = torch.full((3,), 2, device=device)
        with Dispatched() as seen:
            if protocol == "step":
                target.begin_step()
            result = target.accept_and_finalize(**inputs, verify_lens=limit, caps=limit)
        assert seen.names
        assert not HOST_READS & set(seen.names)
        assert {getattr(result, field.name).device.type for field in fields(result)} == {device}


def test_a_host_read_is_seen() -> None:
    """Twin: strict_length reads the lengths."""
    target = TargetVerifyExecutor(4, 2.5, "match-expected", strict_length=True, device="meta")
    inputs = step_inputs(4, 3, 0, "greedy", "meta")
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        target.accept_and_finalize(**inputs)
    with Dispatched() as seen:
        torch.ones(1).item()
    assert HOST_READS & set(seen.names)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (
            {"draft_tokens": torch.zeros(3, 5)},
            ValueError,
            r"draft_tokens must have shape \(bs, gamma\)",
        ),
        (
            {"prefix_lens": torch.zeros(2)},
            ValueError,
            r"prefix_lens must have shape \(3,\), got \(2,\)",
        ),
        ({"caps": torch.ones(3, 1)}, ValueError, r"caps must have shape \(3,\), got \(3, 1\)"),
        ({"verify_lens": torch.ones(4)}, ValueError, r"verify_lens must have shape \(3,\)"),
        ({"target_tokens": None}, TypeError, "target_tokens must be given for accept 'greedy'"),
        ({"target_tokens": torch.zeros(3, 4)}, ValueError, "target_tokens must have shape"),
    ],
)
def test_arguments_that_do_not_fit(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    target = TargetVerifyExecutor(4, 2.5, "match-expected")
    with pytest.raises(error, match=text):
        target.accept_and_finalize(**{**step_inputs(4, 3, 0, "greedy"), **changes})


@pytest.mark.parametrize("missing", ["draft_probs", "target_probs"])
def test_a_chain_needs_both_laws(missing: str) -> None:
    target = TargetVerifyExecutor(4, 2.5, "match-expected", accept="chain")
    with pytest.raises(TypeError, match=f"{missing} must be given for accept 'chain', got None"):
        target.accept_and_finalize(**{**step_inputs(4, 3, 0, "chain"), missing: None})


def test_uniforms_and_a_generator_exclude_each_other() -> None:
    target = TargetVerifyExecutor(4, 2.5, "match-expected", accept="chain")
    with pytest.raises(ValueError, match="generator must be None when uniforms are given"):
        target.accept_and_finalize(**step_inputs(4, 3, 0, "chain"), generator=torch.Generator())


def test_the_committed_length_has_the_configured_law() -> None:
    """False alarms: at most 1e-9. Its twin, a step that lags by one token, must be caught."""
    target = TargetVerifyExecutor(7, 4.7, "match-expected")
    inputs = step_inputs(7, 2, 0, "greedy")
    commits = np.array(
        [int(target.accept_and_finalize(**inputs).commit_lens[1]) for _ in range(1_500)]
    )
    assert agrees(commits, target.distribution)
    assert not agrees(commits - 1, target.distribution)
