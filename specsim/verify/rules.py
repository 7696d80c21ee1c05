"""The accept rules behind one interface: accept a prefix, and the target's token at a position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from specsim.verify.accept import chain_accept, greedy_accept


class Verified(Protocol):
    """One step's draft and what the target says about it."""

    def accept(self, verify_lens: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (correct_len, bonus), each of shape (bs,), int64; the same at every call."""

    def token_at(self, correct_len: torch.Tensor) -> torch.Tensor:
        """Return the target's token after each request's first `correct_len` draft tokens.

        Parameters
        ----------
        correct_len : Tensor, shape (bs,), int64
            In [0, gamma].

        Returns
        -------
        Tensor, shape (bs,), int64
        """


@dataclass(frozen=True, eq=False)
class GreedyVerified:
    """A step whose target decodes greedily.

    Attributes
    ----------
    draft_tokens : Tensor, shape (bs, gamma), integer
    target_tokens : Tensor, shape (bs, gamma + 1), integer
    """

    draft_tokens: torch.Tensor
    target_tokens: torch.Tensor

    def accept(self, verify_lens: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Accept the prefix that the target would have chosen itself."""
        return greedy_accept(self.draft_tokens, self.target_tokens, verify_lens)

    def token_at(self, correct_len: torch.Tensor) -> torch.Tensor:
        """Return the target's argmax after each request's first `correct_len` draft tokens."""
        return self.target_tokens.to(torch.int64).gather(1, correct_len[:, None]).squeeze(1)


@dataclass(frozen=True, eq=False)
class ChainVerified:
    """A step that samples, with the uniform numbers it uses.

    Attributes
    ----------
    draft_tokens : Tensor, shape (bs, gamma), integer
    draft_probs : Tensor, shape (bs, gamma, V), floating
    target_probs : Tensor, shape (bs, gamma + 1, V), floating
    uniforms : Tensor, shape (bs, gamma + 1), floating
    """

    draft_tokens: torch.Tensor
    draft_probs: torch.Tensor
    target_probs: torch.Tensor
    uniforms: torch.Tensor

    def accept(self, verify_lens: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Accept a prefix by chain rejection sampling."""
        return chain_accept(
            self.draft_tokens,
            self.draft_probs,
            self.target_probs,
            verify_lens,
            uniforms=self.uniforms,
        )

    def token_at(self, correct_len: torch.Tensor) -> torch.Tensor:
        """Return a sample of the target's law after `correct_len` draft tokens."""
        size = self.target_probs.shape[2]
        index = correct_len[:, None, None].expand(-1, 1, size)
        # With no draft, the rule accepts all of it and samples the target's only row.
        return chain_accept(
            self.draft_tokens[:, :0],
            self.draft_probs[:, :0],
            self.target_probs.gather(1, index),
            uniforms=self.uniforms[:, -1:],
        )[1]
