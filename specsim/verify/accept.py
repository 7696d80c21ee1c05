"""Accept rules: greedy prefix match and chain rejection sampling, batched, without a host sync."""

from __future__ import annotations

import torch

from specsim.arguments import finite, integer
from specsim.philox import WORD_MASK, philox4x32_tensor

_WORDS_PER_COUNTER = 4

# The fourth counter word: 0 and 1 are the streams of `AcceptanceSampler.at`.
ACCEPT_STREAM = 2
"""First of the Philox streams that hold the uniforms of an accept rule."""

_LEAST_TEMPERATURE = torch.finfo(torch.float32).tiny


def probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return softmax(logits / temperature) over the last dimension, computed in float32.

    Parameters
    ----------
    logits : Tensor, shape (..., V)
        Of any floating dtype; −inf masks a token.
    temperature
        0 for a one-hot row at the first largest logit (greedy decoding), else at least 2⁻¹²⁶,
        float32's smallest normal number.

    Returns
    -------
    Tensor, shape (..., V), float32

    Raises
    ------
    TypeError
        If `logits` are not floating-point, or `temperature` is not a real number.
    ValueError
        If `temperature` is out of range.
    """
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating-point, got {logits.dtype}")
    scale = finite(temperature, "temperature")
    if scale != 0.0 and scale < _LEAST_TEMPERATURE:
        raise ValueError(f"temperature must be 0 or at least 2**-126, got {temperature!r}")
    scores = logits.to(torch.float32)
    if scale == 0.0:
        best = scores.argmax(dim=-1, keepdim=True)
        return torch.zeros_like(scores).scatter_(-1, best, 1.0)
    # The largest score becomes 0 first, so that no division can overflow to +inf.
    return torch.softmax((scores - scores.amax(dim=-1, keepdim=True)) / scale, dim=-1)


def counter_uniforms(
    seed: int,
    step: int | torch.Tensor,
    slots: torch.Tensor,
    count: int,
    *,
    stream: int = ACCEPT_STREAM,
) -> torch.Tensor:
    """Return uniform numbers that are a pure function of (seed, step, slot, stream).

    Number j of a slot is (w + ½) / 2³², where w is word j mod 4 of Philox4x32-10 with the
    seed's low and high 32 bits as key and the counter (step's low bits, step's high bits, slot,
    stream + ⌊j/4⌋). The bits are the same on every device, on every rank and in a replayed CUDA
    graph (for that, give `step` as a tensor that the device counts up).

    Parameters
    ----------
    seed
        In [0, 2⁶⁴).
    step
        In [0, 2⁶⁴) as an int, or an integer tensor with one element, on the device of `slots`.
    slots : Tensor, shape (bs,), integer
        Numbers of the requests' slots, in [0, 2³²).
    count
        How many numbers each slot gets; gamma + 1 for `chain_accept`.
    stream
        First stream to use, in [0, 2³²); the numbers take ⌈count/4⌉ streams.

    Returns
    -------
    Tensor, shape (bs, count), float64, on the device of `slots`
        In (0, 1).

    Raises
    ------
    TypeError
        If `seed`, an int `step`, `count` or `stream` is not an integer.
    ValueError
        If one of them is out of range, or `slots` is not one-dimensional.
    """
    seed = _below(seed, "seed", 64)
    stream = _below(stream, "stream", 32)
    count = integer(count, "count", 0)
    if slots.dim() != 1:
        raise ValueError(f"slots must be one-dimensional, got shape {tuple(slots.shape)}")
    if isinstance(step, torch.Tensor):
        step = step.reshape(()).to(torch.int64)
    else:
        step = _below(step, "step", 64)
    low, high = step & WORD_MASK, (step >> 32) & WORD_MASK
    blocks = -(-count // _WORDS_PER_COUNTER)
    key = (seed & WORD_MASK, seed >> 32)
    streams = torch.arange(stream, stream + blocks, dtype=torch.int64, device=slots.device)
    words = philox4x32_tensor((low, high, slots[:, None], streams[None, :]), key)
    flat = torch.stack(words, dim=-1).reshape(slots.shape[0], blocks * _WORDS_PER_COUNTER)
    return (flat[:, :count].to(torch.float64) + 0.5) / 2.0**32


def greedy_accept(
    draft_tokens: torch.Tensor,
    target_tokens: torch.Tensor,
    verify_lens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Accept the longest prefix of the draft that the target would have chosen itself.

    Parameters
    ----------
    draft_tokens : Tensor, shape (bs, gamma), integer
        A request's tokens from its `verify_lens` − 1 on are never accepted.
    target_tokens : Tensor, shape (bs, gamma + 1), integer
        Entry j is the target's token after the first j draft tokens: its argmax.
    verify_lens : Tensor, shape (bs,), integer, optional
        Tokens to verify, the anchor token included, so that a request has `verify_lens` − 1
        drafts. In [1, gamma + 1], as values outside are taken; gamma + 1 by default.

    Returns
    -------
    correct_len : Tensor, shape (bs,), int64
        Accepted draft tokens, 0 … gamma.
    bonus : Tensor, shape (bs,), int64
        The target's token after the last accepted one.

    Raises
    ------
    ValueError
        If the shapes do not fit together.
    """
    if draft_tokens.dim() != 2:
        raise ValueError(f"draft_tokens must be (bs, gamma), got {tuple(draft_tokens.shape)}")
    bs, gamma = draft_tokens.shape
    _must_have_shape(target_tokens, "target_tokens", (bs, gamma + 1))
    drafts = _drafts(verify_lens, bs, gamma, draft_tokens.device)
    correct_len = _leading(draft_tokens == target_tokens[:, :gamma], drafts)
    bonus = target_tokens.to(torch.int64).gather(1, correct_len[:, None]).squeeze(1)
    return correct_len, bonus


def chain_accept(
    draft_tokens: torch.Tensor,
    draft_probs: torch.Tensor,
    target_probs: torch.Tensor,
    verify_lens: torch.Tensor | None = None,
    *,
    generator: torch.Generator | None = None,
    uniforms: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Accept a prefix of the draft by chain rejection sampling, and sample the token after it.

    Draft token x at position j is accepted with probability min(1, p(x)/q(x)). At the first
    rejection the bonus is drawn from the positive part of p − q, normalised; after a full
    acceptance from the target's last row. If draft j was drawn from q, the emitted tokens, that
    is the accepted ones and the bonus, have the law of sampling from p alone. No value is read
    on the host.

    Parameters
    ----------
    draft_tokens : Tensor, shape (bs, gamma), integer
        In [0, V). A request's tokens from its `verify_lens` − 1 on may hold anything.
    draft_probs : Tensor, shape (bs, gamma, V), floating
        Row j is the law q that draft token j was drawn from, given the tokens before it.
    target_probs : Tensor, shape (bs, gamma + 1, V), floating
        Row j is the target's law p after the first j draft tokens. V is at least 1.
    verify_lens : Tensor, shape (bs,), integer, optional
        Tokens to verify, the anchor token included, so that a request has `verify_lens` − 1
        drafts. In [1, gamma + 1], as values outside are taken; gamma + 1 by default.
    generator
        Generator on the device of `target_probs`, torch's default one if None.
    uniforms : Tensor, shape (bs, gamma + 1), floating, optional
        In [0, 1), instead of numbers from a generator: entry j < gamma decides on draft token
        j, the last one chooses the bonus. `counter_uniforms` makes such numbers.

    Returns
    -------
    correct_len : Tensor, shape (bs,), int64
        Accepted draft tokens, 0 … gamma.
    bonus : Tensor, shape (bs,), int64
        The token after the last accepted one; never a token whose weight is 0.

    Raises
    ------
    TypeError
        If the probabilities are not floating-point.
    ValueError
        If the shapes do not fit together, or both `generator` and `uniforms` are given.

    Notes
    -----
    Probabilities are rounded to float32 whatever their dtype, and p − q is taken in float32.
    Their products with the uniforms and the cumulative sum that the bonus is looked up in are
    float64, as the order of a sum differs between devices: uniforms given to 32 bits thus give
    the same tokens on all of them, unless a sum comes within some 2⁻⁵⁰ of its uniform. Rows are
    not normalised again. For half-precision logits, use `probabilities`, since softmax rows
    rounded to half precision no longer sum to 1.

    If p = q up to rounding, a rejection has a probability of the order of the rounding and can
    leave no positive part at all; the bonus is then drawn from p.

    References
    ----------
    Leviathan, Kalman and Matias (2023), Fast inference from transformers via speculative
    decoding. Chen et al. (2023), Accelerating large language model decoding with speculative
    sampling.
    """
    bs, gamma, _ = _chain_shape(draft_tokens, draft_probs, target_probs)
    if uniforms is None:
        uniforms = torch.rand(
            (bs, gamma + 1), generator=generator, dtype=torch.float64, device=target_probs.device
        )
    elif generator is not None:
        raise ValueError("generator must be None when uniforms are given")
    else:
        _must_have_shape(uniforms, "uniforms", (bs, gamma + 1))
        uniforms = uniforms.to(torch.float64)

    drafts = _drafts(verify_lens, bs, gamma, target_probs.device)
    position = torch.arange(gamma, device=target_probs.device)
    token = torch.where(position < drafts[:, None], draft_tokens.to(torch.int64), 0)[:, :, None]
    q = draft_probs.gather(2, token).squeeze(2).to(torch.float32)
    p = target_probs[:, :gamma].gather(2, token).squeeze(2).to(torch.float32)
    # A product instead of the ratio: no division by zero, and p = q accepts for every u < 1.
    correct_len = _leading(uniforms[:, :gamma] * q < p, drafts)

    p_row = _row(target_probs, correct_len).to(torch.float32)
    weights = p_row
    if gamma:
        q_row = _row(draft_probs, correct_len.clamp(max=gamma - 1)).to(torch.float32)
        residual = (p_row - q_row).clamp(min=0.0)
        rejected = (correct_len < drafts)[:, None] & (residual > 0.0).any(dim=1, keepdim=True)
        weights = torch.where(rejected, residual, p_row)
    return correct_len, _inverse_cdf(weights, uniforms[:, gamma])


def _inverse_cdf(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return one index per row of non-negative weights, shape (bs,); never one of weight 0."""
    cumulative = weights.cumsum(dim=1, dtype=torch.float64)
    # A parallel scan may round two neighbours differently, so that a weight of 0 seems to have a
    # step of its own or the last sum lies below an earlier one: only positive weights count.
    reach = torch.where(weights > 0.0, cumulative, 0.0)
    level = uniforms[:, None] * reach.amax(dim=1, keepdim=True)
    return (reach > level).to(torch.uint8).argmax(dim=1)


def _row(table: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Return table[b, position[b]], shape (bs, V)."""
    index = position[:, None, None].expand(-1, 1, table.shape[2])
    return table.gather(1, index).squeeze(1)


def _leading(accepted: torch.Tensor, drafts: torch.Tensor) -> torch.Tensor:
    """Count the accepted tokens before the first rejection among each request's drafts."""
    position = torch.arange(accepted.shape[1], device=accepted.device)
    within = accepted & (position < drafts[:, None])
    return within.to(torch.int64).cumprod(dim=1).sum(dim=1)


def _drafts(
    verify_lens: torch.Tensor | None, bs: int, gamma: int, device: torch.device
) -> torch.Tensor:
    """Return each request's number of draft tokens, shape (bs,), int64."""
    if verify_lens is None:
        return torch.full((bs,), gamma, dtype=torch.int64, device=device)
    _must_have_shape(verify_lens, "verify_lens", (bs,))
    return (verify_lens.to(torch.int64) - 1).clamp(0, gamma)


def _chain_shape(
    draft_tokens: torch.Tensor, draft_probs: torch.Tensor, target_probs: torch.Tensor
) -> tuple[int, int, int]:
    """Return (bs, gamma, V) of arguments that fit together."""
    if target_probs.dim() != 3 or 0 in target_probs.shape[1:]:
        shape = tuple(target_probs.shape)
        raise ValueError(f"target_probs must be (bs, gamma + 1, V) with V >= 1, got {shape}")
    for probs, name in ((draft_probs, "draft_probs"), (target_probs, "target_probs")):
        if not probs.is_floating_point():
            raise TypeError(f"{name} must be floating-point, got {probs.dtype}")
    bs, positions, size = target_probs.shape
    _must_have_shape(draft_tokens, "draft_tokens", (bs, positions - 1))
    _must_have_shape(draft_probs, "draft_probs", (bs, positions - 1, size))
    return bs, positions - 1, size


def _must_have_shape(tensor: torch.Tensor, name: str, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")


def _below(value: int, name: str, bits: int) -> int:
    number = integer(value, name, 0)
    if number >= 1 << bits:
        raise ValueError(f"{name} must be in [0, 2**{bits}), got {number}")
    return number
