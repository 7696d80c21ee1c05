"""Forces the acceptance length of a DFlash block, in place."""

from __future__ import annotations

from typing import SupportsIndex

import torch

from specsim.verify.forced import committed_tokens, forced_acc_len, must_have_shapes
from specsim.verify.tokens import token_to_fix


def apply_dflash_simulated_acceptance(
    *,
    candidates: torch.Tensor,
    target_predict: torch.Tensor | None,
    accept_len: torch.Tensor,
    commit_lens: torch.Tensor,
    bonus: torch.Tensor,
    out_tokens: torch.Tensor,
    simulate_acc_len: float,
    simulate_acc_method: str,
    simulate_acc_token_mode: str = "real-draft-token",
    next_token_logits: torch.Tensor | None = None,
    fixed_token_id: SupportsIndex | None = None,
    generator: torch.Generator | None = None,
) -> None:
    """Overwrite a verify step's outputs with one forced acceptance length for all requests.

    One draw of `sample_simulated_acc_len`, with `block_size` as the longest length, is written
    everywhere. Nothing is written if an argument is refused.

    Parameters
    ----------
    candidates : Tensor, shape (bs, block_size), integer
        Column 0 is the anchor token, the others are the draft tokens.
    target_predict : Tensor, shape (bs, block_size), integer, optional
        Column j is the target's token after the first j draft tokens. If None, the argmax of
        `next_token_logits`. Not needed in fixed mode.
    accept_len : Tensor, shape (bs,), integer
        Written: committed draft tokens, the forced length − 1.
    commit_lens : Tensor, shape (bs,), integer
        Written: the forced length.
    bonus : Tensor, shape (bs,), integer
        Written: the last committed token, the target's one at the forced position.
    out_tokens : Tensor, shape (bs, block_size), integer
        Written: a request's first `commit_lens` entries are its committed tokens; 0 beyond.
    simulate_acc_len
        Length to force, in tokens, the target's own one included; above 0.
    simulate_acc_method
        ``"match-expected"`` or ``"multinomial"``.
    simulate_acc_token_mode
        ``"real-draft-token"``: the draft tokens, then the target's token at the forced
        position. ``"fixed"``: `fixed_token_id` for each committed token.
    next_token_logits : Tensor, shape (bs · block_size, V) or (bs, block_size, V), optional
        The target's logits, request by request.
    fixed_token_id
        Required in fixed mode.
    generator
        CPU generator to draw from; torch's default one if None.

    Raises
    ------
    TypeError
        If a number is not of its kind.
    ValueError
        If shapes do not fit together, simulation is off (`simulate_acc_len` ≤ 0), a choice is
        unknown, or what a token mode needs is missing.
    """
    if candidates.dim() != 2 or candidates.shape[1] == 0:
        shape = tuple(candidates.shape)
        raise ValueError(f"candidates must be (bs, block_size) with block_size >= 1, got {shape}")
    bs, block_size = candidates.shape
    must_have_shapes(
        accept_len=(accept_len, (bs,)),
        commit_lens=(commit_lens, (bs,)),
        bonus=(bonus, (bs,)),
        out_tokens=(out_tokens, (bs, block_size)),
    )
    fixed = token_to_fix(simulate_acc_token_mode, fixed_token_id, "simulate_acc_token_mode")
    target = target_predict
    if fixed is None:
        target = _target_tokens(target_predict, next_token_logits, bs, block_size)
    length = forced_acc_len(simulate_acc_len, simulate_acc_method, block_size, generator)

    tokens = committed_tokens(candidates, target, fixed, length)
    out_tokens[:, :length].copy_(tokens)
    out_tokens[:, length:].zero_()
    bonus.copy_(tokens[:, -1])
    accept_len.fill_(length - 1)
    commit_lens.fill_(length)


def _target_tokens(
    target_predict: torch.Tensor | None,
    next_token_logits: torch.Tensor | None,
    bs: int,
    block_size: int,
) -> torch.Tensor:
    """Return the target's tokens, shape (bs, block_size), from whichever of the two is there."""
    if target_predict is not None:
        must_have_shapes(target_predict=(target_predict, (bs, block_size)))
        return target_predict
    if next_token_logits is None:
        raise ValueError(
            "target_predict or next_token_logits must be given in mode 'real-draft-token', got "
            "None for both"
        )
    rows, size = bs * block_size, next_token_logits.shape[-1]
    if tuple(next_token_logits.shape) not in ((rows, size), (bs, block_size, size)):
        raise ValueError(
            f"next_token_logits must have shape ({rows}, V) or ({bs}, {block_size}, V), got "
            f"{tuple(next_token_logits.shape)}"
        )
    return next_token_logits.argmax(dim=-1).reshape(bs, block_size)
