"""Faulty accept rules that the lossless properties must reject, and correct ones."""

from __future__ import annotations

import torch
from torch import Tensor

from specsim.mutants.accept_base import (
    ACCEPT_MUTANTS,
    CORRECT_ACCEPTS,
    AcceptMutant,
    Batch,
    ChainRule,
    CorrectAccept,
    accept_mutant,
    correct_accept,
    first_above,
    row,
)


def all_accept_mutants() -> tuple[AcceptMutant, ...]:
    """Return every faulty accept rule, in order of registration."""
    return tuple(ACCEPT_MUTANTS.values())


def all_correct_accepts() -> tuple[CorrectAccept, ...]:
    """Return every correct accept rule, in order of registration."""
    return tuple(CORRECT_ACCEPTS.values())


@accept_mutant(
    "equal-samples",
    caught_by="L.accepted",
    statement="A draft token is accepted if a sample from p equals it: lossless, but it accepts "
    "with probability p(x) instead of min(1, p(x)/q(x)).",
)
class EqualSamples(ChainRule):
    """Samples the target at every position and compares."""

    def samples(self, batch: Batch) -> Tensor:
        """Return one token of the target per position, shape (bs, gamma + 1)."""
        bs, positions, size = batch.p.shape
        flat = batch.p.reshape(bs * positions, size)
        return self.pick(flat, batch.uniforms.reshape(-1, 1)).reshape(bs, positions)

    def taken(self, batch: Batch) -> Tensor:
        """Compare the draft with the samples."""
        return batch.tokens == self.samples(batch)[:, : batch.gamma]

    def weights(self, batch: Batch, accepted: Tensor) -> Tensor:
        """Return the sample after the prefix as a one-hot row."""
        bonus = self.samples(batch).gather(1, accepted[:, None])
        return torch.zeros_like(batch.p[:, 0]).scatter_(1, bonus, 1.0)


@accept_mutant(
    "residual-not-normalised",
    caught_by="L.distribution",
    statement="The residual's cumulative sum is compared with a uniform of [0, 1) as it is, so "
    "what is missing to 1 falls to the last token.",
)
class ResidualNotNormalised(ChainRule):
    """Takes the residual for a law."""

    def pick(self, weights: Tensor, uniforms: Tensor) -> Tensor:
        """Compare with the uniform itself."""
        return first_above(weights, uniforms[:, :1])


@accept_mutant(
    "residual-not-clipped",
    caught_by="L.distribution",
    statement="The bonus is looked up in the cumulative sum of p - q with its negative parts.",
)
class ResidualNotClipped(ChainRule):
    """Keeps the negative differences."""

    def weights(self, batch: Batch, accepted: Tensor) -> Tensor:
        """Return p - q."""
        return row(batch.p, accepted) - row(batch.q, accepted)


@accept_mutant(
    "residual-is-target",
    caught_by="L.distribution",
    statement="After a rejection the bonus is drawn from p instead of the residual.",
)
class ResidualIsTarget(ChainRule):
    """Draws every bonus from the target."""

    def weights(self, batch: Batch, accepted: Tensor) -> Tensor:
        """Return p."""
        return row(batch.p, accepted)


@accept_mutant(
    "bonus-from-draft",
    caught_by="L.distribution",
    statement="After a full acceptance the bonus is drawn from the draft model's last row.",
)
class BonusFromDraft(ChainRule):
    """Draws the last bonus from q."""

    def weights(self, batch: Batch, accepted: Tensor) -> Tensor:
        """Return the last draft row where there is one and all drafts were accepted."""
        last = row(batch.q, (batch.drafts - 1).clamp(min=0))
        from_draft = (accepted == batch.drafts) & (batch.drafts > 0)
        return torch.where(from_draft[:, None], last, super().weights(batch, accepted))


@accept_mutant(
    "other-temperature",
    caught_by="L.distribution",
    statement="The draft is scored at half the temperature that it was drawn with.",
)
class OtherTemperature(ChainRule):
    """Squares the draft probabilities and normalises them."""

    def scored(self, q: Tensor) -> Tensor:
        """Return q² over its sum: softmax of twice the logits."""
        return q.square() / q.square().sum(dim=2, keepdim=True)


@accept_mutant(
    "other-dtype",
    caught_by="L.distribution",
    statement="The draft is scored with logits rounded to bfloat16, at a level of 100 where its "
    "spacing is 1/2, but was drawn with exact ones.",
)
class OtherDtype(ChainRule):
    """Rounds the logits, as large as language models have them, to bfloat16."""

    def scored(self, q: Tensor) -> Tensor:
        """Return the softmax of the rounded logits."""
        logits = (q.log() + 100.0).to(torch.bfloat16)
        return torch.softmax(logits.to(torch.float32), dim=2)


@accept_mutant(
    "uniform-shared-by-positions",
    caught_by="L.distribution",
    statement="One uniform decides on all draft tokens of a request.",
)
class SharedByPositions(ChainRule):
    """Uses the first position's uniform everywhere but for the bonus."""

    def spread(self, uniforms: Tensor, gamma: int) -> Tensor:
        """Repeat the first column."""
        first = uniforms[:, :1].expand(-1, gamma)
        return torch.cat([first, uniforms[:, gamma:]], dim=1)


@accept_mutant(
    "uniform-shared-by-requests",
    caught_by="L.distribution",
    statement="All requests of a batch use the first one's uniforms: each request's law is "
    "right, but requests depend on each other.",
)
class SharedByRequests(ChainRule):
    """Uses the first request's uniforms everywhere."""

    def spread(self, uniforms: Tensor, gamma: int) -> Tensor:
        """Repeat the first row."""
        return uniforms[:1].expand_as(uniforms)


@accept_mutant(
    "prefix-one-short",
    caught_by="L.distribution",
    statement="The last accepted token is dropped, and the bonus for after it comes in its place.",
)
class PrefixOneShort(ChainRule):
    """Reports one accepted token less."""

    def reported(self, accepted: Tensor, drafts: Tensor) -> Tensor:
        """Count down, but not below 0."""
        return (accepted - 1).clamp(min=0)


@accept_mutant(
    "prefix-one-long",
    caught_by="L.distribution",
    statement="The rejected token is committed too, and the bonus for its place comes after it.",
)
class PrefixOneLong(ChainRule):
    """Reports one accepted token more."""

    def reported(self, accepted: Tensor, drafts: Tensor) -> Tensor:
        """Count up, but not above the number of drafts."""
        return torch.minimum(accepted + 1, drafts)


@accept_mutant(
    "later-tokens-committed",
    caught_by="L.distribution",
    statement="Accepted tokens are counted behind a rejection too, so that many are committed.",
)
class LaterTokensCommitted(ChainRule):
    """Counts all accepted tokens instead of the leading ones."""

    def length(self, batch: Batch) -> Tensor:
        """Count without stopping at a rejection."""
        return (self.taken(batch) & batch.within).to(torch.int64).sum(dim=1)


@correct_accept("log-space", chain=True, statement="Compares log u with log p - log q.")
class LogSpace(ChainRule):
    """Accepts in logarithms."""

    def taken(self, batch: Batch) -> Tensor:
        """Compare logarithms; 0/0 gives a nan, which accepts nothing."""
        level = batch.uniforms[:, : batch.gamma].log()
        return level < batch.of_token(batch.p).log() - batch.of_token(batch.q).log()


@correct_accept(
    "gumbel-max",
    chain=True,
    statement="Draws the bonus as the largest of log-weights plus Gumbel noise; takes gamma + V "
    "uniforms a request.",
)
class GumbelMax(ChainRule):
    """Draws the bonus by the Gumbel-max trick."""

    def width(self, gamma: int, size: int) -> int:
        """Return one uniform a draft token and one a token of the vocabulary."""
        return gamma + size

    def pick(self, weights: Tensor, uniforms: Tensor) -> Tensor:
        """Return the largest perturbed log-weight's token."""
        noise = -torch.log(-torch.log(uniforms))
        return (weights.to(torch.float64).log() + noise).argmax(dim=1)


@correct_accept(
    "block",
    chain=False,
    statement="Block verification of Sun et al. (2024): decides on whole prefixes, and accepts "
    "more tokens than the chain rule.",
)
class BlockVerification(ChainRule):
    """Accepts the longest prefix whose own test passes (Sun et al. 2024, Algorithm 2).

    With w_0 = 1 and w_i = min(1, w_(i-1) · p(x_i)/q(x_i)), the prefix of i < gamma tokens passes
    with probability S / (S + 1 - w_i), where S is the sum of (w_i · p - q)⁺ over the next token,
    and the whole draft with probability w_gamma. The bonus comes from (w_i · p - q)⁺.
    """

    def scale(self, batch: Batch) -> Tensor:
        """Return w_0 … w_gamma, shape (bs, gamma + 1)."""
        ratio = (batch.of_token(batch.p) / batch.of_token(batch.q)).nan_to_num(0.0)
        steps = [torch.ones_like(batch.p[:, 0, 0])]
        for j in range(batch.gamma):
            steps.append((steps[-1] * ratio[:, j]).clamp(max=1.0))
        return torch.stack(steps, dim=1)

    def length(self, batch: Batch) -> Tensor:
        """Return the longest prefix that passes."""
        scale = self.scale(batch)
        extra = (scale[:, :, None] * batch.p - batch.q).clamp(min=0.0).sum(dim=2)
        # 0/0 means w = 1 and p = q: the next prefix then passes for certain, so 1 will do.
        chance = (extra / (extra + 1.0 - scale)).nan_to_num(1.0)
        last = torch.arange(batch.gamma + 1, device=scale.device) == batch.drafts[:, None]
        chance = torch.where(last, scale, chance)[:, 1:]
        passes = (batch.uniforms[:, : batch.gamma] < chance) & batch.within
        prefix = torch.arange(1, batch.gamma + 1, device=scale.device)
        longest = torch.where(passes, prefix, 0)
        return torch.cat([torch.zeros_like(batch.drafts)[:, None], longest], dim=1).amax(dim=1)

    def weights(self, batch: Batch, accepted: Tensor) -> Tensor:
        """Return the positive part of w · p - q."""
        p = row(batch.p, accepted)
        scale = self.scale(batch).gather(1, accepted[:, None])
        residual = (scale * p - row(batch.q, accepted)).clamp(min=0.0)
        return torch.where((residual > 0.0).any(dim=1, keepdim=True), residual, p)
