"""Forces the acceptance length of an EAGLE or MTP verify step, as accept indices."""

from __future__ import annotations

from typing import SupportsIndex

import torch

from specsim.arguments import integer
from specsim.verify.forced import committed_tokens, forced_acc_len, must_have_shapes
from specsim.verify.tokens import token_to_fix

_NO_NODE = -1


def generate_simulated_accept_index(
    accept_index: torch.Tensor,
    predict: torch.Tensor,
    num_correct_drafts: torch.Tensor,
    candidates: torch.Tensor,
    target_predict: torch.Tensor,
    bs: int,
    spec_steps: int,
    simulate_acc_len: float,
    simulate_acc_method: str,
    simulate_acc_token_mode: str = "real-draft-token",
    *,
    fixed_token_id: SupportsIndex | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return the accept indices of one forced acceptance length for all requests.

    One draw of `sample_simulated_acc_len`, with spec_steps + 1 as the longest length, decides
    every output. A request's draft is a chain: its nodes in `predict` follow its first one.
    Nothing is written if an argument is refused.

    Parameters
    ----------
    accept_index : Tensor, shape (bs, any), integer
        Column 0 is the position of each request's first node in `predict`; the rest is not
        read.
    predict : Tensor, shape (nodes,), integer
        One token per node, in place. Real-draft-token mode writes the committed nodes, those
        that the returned indices name; fixed mode writes all.
    num_correct_drafts : Tensor, shape (bs,), integer
        Written: committed draft tokens, the forced length − 1.
    candidates : Tensor, shape (bs, draft_token_num), integer
        Column 0 is the anchor token, the others are the draft chain; draft_token_num is at least
        spec_steps + 1.
    target_predict : Tensor, shape (bs, draft_token_num), integer
        Column j is the target's token after the first j draft tokens.
    bs
        Requests.
    spec_steps
        Draft tokens per step, at least 0.
    simulate_acc_len
        Length to force, in tokens, the target's own one included; above 0.
    simulate_acc_method
        ``"match-expected"`` or ``"multinomial"``.
    simulate_acc_token_mode
        ``"real-draft-token"``: the draft tokens, then the target's token at the forced
        position. ``"fixed"``: `fixed_token_id` at every node.
    fixed_token_id
        Required in fixed mode.
    generator
        CPU generator to draw from; torch's default one if None.

    Returns
    -------
    Tensor, shape (bs, spec_steps + 1), int32
        Positions in `predict` of the committed tokens; −1 beyond the forced length.

    Raises
    ------
    TypeError
        If a number is not of its kind.
    ValueError
        If shapes do not fit together, simulation is off (`simulate_acc_len` ≤ 0), a choice is
        unknown, or `fixed_token_id` is missing in fixed mode.
    """
    requests, width = integer(bs, "bs", 0), integer(spec_steps, "spec_steps", 0) + 1
    if candidates.dim() != 2 or candidates.shape[0] != requests or candidates.shape[1] < width:
        raise ValueError(
            f"candidates must be ({requests}, draft_token_num) with draft_token_num >= {width}, "
            f"got {tuple(candidates.shape)}"
        )
    if accept_index.dim() != 2 or accept_index.shape[0] != requests or accept_index.shape[1] == 0:
        raise ValueError(
            f"accept_index must be ({requests}, n) with n >= 1, got {tuple(accept_index.shape)}"
        )
    if predict.dim() != 1:
        raise ValueError(f"predict must be one-dimensional, got shape {tuple(predict.shape)}")
    must_have_shapes(num_correct_drafts=(num_correct_drafts, (requests,)))
    fixed = token_to_fix(simulate_acc_token_mode, fixed_token_id, "simulate_acc_token_mode")
    if fixed is None:
        must_have_shapes(target_predict=(target_predict, tuple(candidates.shape)))
    length = forced_acc_len(simulate_acc_len, simulate_acc_method, width, generator)

    nodes = accept_index[:, :1].to(torch.int64) + torch.arange(length, device=accept_index.device)
    if fixed is None:
        tokens = committed_tokens(candidates, target_predict, None, length)
        predict.scatter_(0, nodes.reshape(-1), tokens.reshape(-1).to(predict.dtype))
    else:
        predict.fill_(fixed)
    num_correct_drafts.fill_(length - 1)
    index = torch.full((requests, width), _NO_NODE, dtype=torch.int32, device=nodes.device)
    index[:, :length].copy_(nodes)
    return index
