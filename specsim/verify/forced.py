"""One forced length for a whole batch: its draw, and the tokens that it commits."""

from __future__ import annotations

import torch

from specsim.arguments import finite
from specsim.sampler import sample_simulated_acc_len


def forced_acc_len(
    simulate_acc_len: float,
    simulate_acc_method: str,
    max_len: int,
    generator: torch.Generator | None,
) -> int:
    """Draw a step's acceptance length, as `sample_simulated_acc_len` does.

    Raises
    ------
    TypeError, ValueError
        As `sample_simulated_acc_len` does; ValueError if `simulate_acc_len` is 0 or below.
    """
    if finite(simulate_acc_len, "simulate_acc_len") <= 0.0:
        raise ValueError(
            f"simulate_acc_len must be above 0, as simulation is off below: got {simulate_acc_len}"
        )
    return sample_simulated_acc_len(
        simulate_acc_len, simulate_acc_method, max_len, generator=generator
    )


def committed_tokens(
    candidates: torch.Tensor,
    target_predict: torch.Tensor | None,
    fixed_token_id: int | None,
    length: int,
) -> torch.Tensor:
    """Return the tokens that a forced length commits.

    Parameters
    ----------
    candidates : Tensor, shape (bs, block_size), integer
        Column 0 is the anchor token, the others are the draft tokens.
    target_predict : Tensor, shape (bs, block_size), integer, or None
        Column j is the target's token after the first j draft tokens. Not read if
        `fixed_token_id` is given, else required.
    fixed_token_id
        Committed in place of every token, if given.
    length
        In 1 … block_size.

    Returns
    -------
    Tensor, shape (bs, length), integer
        The draft tokens and then the target's token, or the fixed token. A new tensor.
    """
    if fixed_token_id is not None:
        shape = (candidates.shape[0], length)
        return torch.full(shape, fixed_token_id, dtype=torch.int64, device=candidates.device)
    if target_predict is None:
        raise ValueError("target_predict must be given without a fixed token, got None")
    return torch.cat([candidates[:, 1:length], target_predict[:, length - 1 : length]], dim=1)


def must_have_shapes(**expected: tuple[torch.Tensor, tuple[int, ...]]) -> None:
    """Raise ValueError for the first named tensor whose shape is not the one beside it."""
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
