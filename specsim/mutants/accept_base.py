"""A correct accept rule in a few steps, each of which another rule may replace, and a registry.

Each rule is called like `specsim.verify.accept.chain_accept`, from which none of this is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

ACCEPT_PROPERTY_IDS = ("L.distribution", "L.accepted")
"""The properties that reject a faulty accept rule."""


class AcceptRule(Protocol):
    """What an accept rule is called with; see `specsim.verify.accept.chain_accept`."""

    def __call__(
        self,
        draft_tokens: Tensor,
        draft_probs: Tensor,
        target_probs: Tensor,
        verify_lens: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
        uniforms: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return correct_len and bonus, each int64 of shape (bs,)."""


@dataclass(frozen=True)
class AcceptMutant:
    """A complete faulty accept rule.

    Attributes
    ----------
    name
        Unique, in words joined by hyphens.
    rule
        Keeps no state.
    caught_by
        Id of the property that must reject it; others may too.
    statement
        What is wrong, in one sentence.
    """

    name: str
    rule: AcceptRule
    caught_by: str
    statement: str


@dataclass(frozen=True)
class CorrectAccept:
    """A complete lossless accept rule.

    Attributes
    ----------
    name
        Unique, in words joined by hyphens.
    rule
        Keeps no state.
    chain
        Whether the number of accepted tokens has the law of the chain rule.
    statement
        How it differs from `chain_accept`, in one sentence.
    """

    name: str
    rule: AcceptRule
    chain: bool
    statement: str


ACCEPT_MUTANTS: dict[str, AcceptMutant] = {}
CORRECT_ACCEPTS: dict[str, CorrectAccept] = {}

_Rule = TypeVar("_Rule", bound=Callable[[], AcceptRule])


def accept_mutant(name: str, *, caught_by: str, statement: str) -> Callable[[_Rule], _Rule]:
    """Register a class's instance as a faulty accept rule.

    Raises
    ------
    ValueError
        If the name is taken or the property unknown.
    """

    def register(rule: _Rule) -> _Rule:
        _must_be_new(name)
        if caught_by not in ACCEPT_PROPERTY_IDS:
            known = ", ".join(ACCEPT_PROPERTY_IDS)
            raise ValueError(f"caught_by must be one of {known}, got {caught_by}")
        ACCEPT_MUTANTS[name] = AcceptMutant(name, rule(), caught_by, statement)
        return rule

    return register


def correct_accept(name: str, *, chain: bool, statement: str) -> Callable[[_Rule], _Rule]:
    """Register a class's instance as a correct accept rule.

    Raises
    ------
    ValueError
        If the name is taken.
    """

    def register(rule: _Rule) -> _Rule:
        _must_be_new(name)
        CORRECT_ACCEPTS[name] = CorrectAccept(name, rule(), chain, statement)
        return rule

    return register


def _must_be_new(name: str) -> None:
    if name in ACCEPT_MUTANTS or name in CORRECT_ACCEPTS:
        raise ValueError(f"name must be new, got {name!r} a second time")


@dataclass(frozen=True)
class Batch:
    """One call's tensors, with the rows beyond each request's drafts made harmless.

    Attributes
    ----------
    tokens : Tensor, shape (bs, gamma), int64
    q : Tensor, shape (bs, gamma + 1, V), float32
        Zero from a request's number of drafts on, so that there the residual is p.
    p : Tensor, shape (bs, gamma + 1, V), float32
    uniforms : Tensor, shape (bs, width), float64
    drafts : Tensor, shape (bs,), int64
        Number of each request's draft tokens.
    """

    tokens: Tensor
    q: Tensor
    p: Tensor
    uniforms: Tensor
    drafts: Tensor

    @property
    def gamma(self) -> int:
        """Draft tokens per request, at most."""
        return self.tokens.shape[1]

    @property
    def within(self) -> Tensor:
        """Which positions hold a draft token, shape (bs, gamma), bool."""
        return torch.arange(self.gamma, device=self.drafts.device) < self.drafts[:, None]

    def of_token(self, table: Tensor) -> Tensor:
        """Return a table's entry for every draft token, shape (bs, gamma)."""
        return table[:, : self.gamma].gather(2, self.tokens[:, :, None]).squeeze(2)

    def ratio(self) -> Tensor:
        """Return min(1, p/q) of every draft token, shape (bs, gamma)."""
        return (self.of_token(self.p) / self.of_token(self.q)).nan_to_num(0.0).clamp(max=1.0)


@correct_accept("chain", chain=True, statement="The chain rule, as all others here change it.")
class ChainRule:
    """Chain rejection sampling in a few steps, each of which a rule may replace."""

    def __call__(
        self,
        draft_tokens: Tensor,
        draft_probs: Tensor,
        target_probs: Tensor,
        verify_lens: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
        uniforms: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return correct_len and bonus, each int64 of shape (bs,)."""
        bs, gamma = draft_tokens.shape
        device, size = target_probs.device, target_probs.shape[2]
        if uniforms is None:
            uniforms = torch.rand(
                (bs, self.width(gamma, size)),
                generator=generator,
                dtype=torch.float64,
                device=device,
            )
        full = torch.full((bs,), gamma + 1, device=device) if verify_lens is None else verify_lens
        drafts = full.to(torch.int64) - 1
        q = self.scored(draft_probs.to(torch.float32))
        q = torch.cat([q, q.new_zeros((bs, 1, size))], dim=1)
        position = torch.arange(gamma + 1, device=device)[:, None]
        batch = Batch(
            draft_tokens.to(torch.int64).clamp(0, size - 1),
            torch.where(position < drafts[:, None, None], q, 0.0),
            target_probs.to(torch.float32),
            self.spread(uniforms.to(torch.float64), gamma),
            drafts,
        )
        accepted = self.length(batch)
        bonus = self.pick(self.weights(batch, accepted), batch.uniforms[:, gamma:])
        return self.reported(accepted, drafts), bonus

    def width(self, gamma: int, size: int) -> int:
        """Return how many uniforms a request needs; `size` is V."""
        return gamma + 1

    def scored(self, q: Tensor) -> Tensor:
        """Return the draft probabilities that the rule uses, same shape."""
        return q

    def spread(self, uniforms: Tensor, gamma: int) -> Tensor:
        """Return the uniforms that the rule uses, same shape."""
        return uniforms

    def taken(self, batch: Batch) -> Tensor:
        """Decide on each draft token alone, shape (bs, gamma), bool."""
        level = batch.uniforms[:, : batch.gamma]
        return level < batch.ratio()

    def length(self, batch: Batch) -> Tensor:
        """Return the number of accepted tokens, shape (bs,)."""
        return (self.taken(batch) & batch.within).to(torch.int64).cumprod(dim=1).sum(dim=1)

    def weights(self, batch: Batch, accepted: Tensor) -> Tensor:
        """Return the weights of the bonus, shape (bs, V)."""
        p, q = row(batch.p, accepted), row(batch.q, accepted)
        residual = (p - q).clamp(min=0.0)
        return torch.where((residual > 0.0).any(dim=1, keepdim=True), residual, p)

    def pick(self, weights: Tensor, uniforms: Tensor) -> Tensor:
        """Return one token per row of weights, shape (bs,)."""
        return first_above(weights, uniforms[:, :1] * positive_sum(weights))

    def reported(self, accepted: Tensor, drafts: Tensor) -> Tensor:
        """Return the correct_len to report, shape (bs,)."""
        return accepted


def first_above(weights: Tensor, level: Tensor) -> Tensor:
    """Return the first index whose cumulative weight exceeds the level, else the last index."""
    above = weights.to(torch.float64).cumsum(dim=1) > level
    found = above.to(torch.uint8).argmax(dim=1)
    return torch.where(above.any(dim=1), found, weights.shape[1] - 1)


def positive_sum(weights: Tensor) -> Tensor:
    """Return each row's sum of its positive weights, shape (bs, 1), float64."""
    return weights.to(torch.float64).clamp(min=0.0).sum(dim=1, keepdim=True)


def row(table: Tensor, position: Tensor) -> Tensor:
    """Return table[b, position[b]], shape (bs, V)."""
    return table[torch.arange(table.shape[0], device=table.device), position]
