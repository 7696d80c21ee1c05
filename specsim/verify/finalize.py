"""What a verify step commits: caps, commit lengths, and the tokens up to the commit."""

from __future__ import annotations

from dataclasses import dataclass

import torch

NO_TOKEN = -1
"""What `AcceptResult.out_tokens` holds beyond the commit."""


@dataclass(frozen=True, eq=False)
class AcceptResult:
    """What one verify step commits for each request of a batch.

    The tensors are on the device of the draft tokens and have memory of their own: a later step
    does not change them.

    Attributes
    ----------
    correct_len : Tensor, shape (bs,), int64
        Committed draft tokens, 0 … gamma, after any cap.
    bonus : Tensor, shape (bs,), int64
        The last committed token: the target's one after the committed draft tokens, or the
        fixed token.
    cap_trim_lens : Tensor, shape (bs,), int32
        Tokens that a cap took off: commit_lens + cap_trim_lens is the uncapped length.
    commit_lens : Tensor, shape (bs,), int32
        correct_len + 1.
    new_seq_lens : Tensor, shape (bs,), dtype of the prefix lengths
        prefix_lens + commit_lens.
    out_tokens : Tensor, shape (bs, gamma + 1), int64
        A request's first `commit_lens` entries are its committed tokens, `bonus` the last of
        them; −1 beyond.
    """

    correct_len: torch.Tensor
    bonus: torch.Tensor
    cap_trim_lens: torch.Tensor
    commit_lens: torch.Tensor
    new_seq_lens: torch.Tensor
    out_tokens: torch.Tensor


def least_limit(verify_lens: torch.Tensor | None, caps: torch.Tensor | None) -> torch.Tensor | None:
    """Return the tighter of two limits on the tokens to commit; None is no limit.

    Parameters
    ----------
    verify_lens, caps : Tensor, shape (bs,), integer, optional
        Most tokens to commit per request.

    Returns
    -------
    Tensor, shape (bs,), int64, or None
    """
    if verify_lens is None or caps is None:
        one = caps if verify_lens is None else verify_lens
        return None if one is None else one.to(torch.int64)
    return torch.minimum(verify_lens.to(torch.int64), caps.to(torch.int64))


def capped(correct_len: torch.Tensor, limit: torch.Tensor | None) -> torch.Tensor:
    """Return draft lengths cut so that each request commits at most its limit.

    Parameters
    ----------
    correct_len : Tensor, shape (bs,), int64
        Draft tokens to commit, 0 … gamma.
    limit : Tensor, shape (bs,), int64, optional
        Most tokens to commit, the target's own one included. Below 1 it counts as 1.

    Returns
    -------
    Tensor, shape (bs,), int64
        A new tensor.
    """
    if limit is None:
        return correct_len.clone()
    return torch.minimum(correct_len, (limit - 1).clamp(min=0))


def finalize(
    draft_tokens: torch.Tensor,
    correct_len: torch.Tensor,
    uncapped_len: torch.Tensor,
    bonus: torch.Tensor,
    prefix_lens: torch.Tensor,
    fixed_token_id: int | None = None,
) -> AcceptResult:
    """Build a step's result from its accepted lengths and bonus tokens.

    Parameters
    ----------
    draft_tokens : Tensor, shape (bs, gamma), integer
    correct_len : Tensor, shape (bs,), int64
        Draft tokens to commit, after any cap.
    uncapped_len : Tensor, shape (bs,), int64
        Draft tokens that would be committed without a cap.
    bonus : Tensor, shape (bs,), int64
        The token at position `correct_len`.
    prefix_lens : Tensor, shape (bs,), integer
        Tokens of each sequence before the step.
    fixed_token_id
        Committed in place of every token, if given.

    Returns
    -------
    AcceptResult
        With `correct_len` and `bonus` themselves, not copies.
    """
    bs, gamma = draft_tokens.shape
    device = draft_tokens.device
    position = torch.arange(gamma + 1, device=device)
    committed = position <= correct_len[:, None]
    if fixed_token_id is None:
        tokens = torch.nn.functional.pad(draft_tokens.to(torch.int64), (0, 1))
        tokens = torch.where(position < correct_len[:, None], tokens, bonus[:, None])
    else:
        tokens = torch.full((bs, gamma + 1), fixed_token_id, dtype=torch.int64, device=device)
        bonus = torch.full((bs,), fixed_token_id, dtype=torch.int64, device=device)
    commit_lens = (correct_len + 1).to(torch.int32)
    return AcceptResult(
        correct_len=correct_len,
        bonus=bonus,
        cap_trim_lens=(uncapped_len - correct_len).to(torch.int32),
        commit_lens=commit_lens,
        new_seq_lens=prefix_lens + commit_lens.to(prefix_lens.dtype),
        out_tokens=torch.where(committed, tokens, NO_TOKEN),
    )


def must_not_trim(uncapped_len: torch.Tensor, correct_len: torch.Tensor) -> None:
    """Raise if a cap took tokens off a forced length; waits for the device.

    Parameters
    ----------
    uncapped_len, correct_len : Tensor, shape (bs,), int64
        Draft tokens before and after the cap.

    Raises
    ------
    ValueError
        Naming the first such slot, its forced acceptance length and its cap.
    """
    before, after = uncapped_len.tolist(), correct_len.tolist()
    for slot, (forced, kept) in enumerate(zip(before, after, strict=True)):
        if kept < forced:
            raise ValueError(
                f"caps must leave every forced length whole under strict_length: slot {slot} has "
                f"forced acceptance length {forced + 1} and a cap of {kept + 1}"
            )
