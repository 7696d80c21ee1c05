"""A correct accept_and_finalize in a few steps, each of which another may replace."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specsim.verify.executor import TargetVerifyExecutor
from specsim.verify.finalize import NO_TOKEN, AcceptResult, capped, least_limit, must_not_trim
from specsim.verify.rules import Verified


@dataclass(frozen=True, eq=False)
class Step:
    """What one step was called with, and what its draft tokens were found to be.

    Attributes
    ----------
    draft_tokens : Tensor, shape (bs, gamma), int64
    prefix_lens : Tensor, shape (bs,), integer
    verified : Verified
        Gives the target's tokens.
    limit : Tensor, shape (bs,), int64, or None
        Most tokens to commit.
    """

    draft_tokens: Tensor
    prefix_lens: Tensor
    verified: Verified
    limit: Tensor | None


class Finalizer(TargetVerifyExecutor):
    """The reference, with what it does to a forced length in steps that others replace.

    Called as `TargetVerifyExecutor` is. With simulation off it does what that does.
    """

    def accept_and_finalize(
        self,
        *,
        draft_tokens: Tensor,
        prefix_lens: Tensor,
        target_tokens: Tensor | None = None,
        draft_probs: Tensor | None = None,
        target_probs: Tensor | None = None,
        verify_lens: Tensor | None = None,
        caps: Tensor | None = None,
        generator: torch.Generator | None = None,
        uniforms: Tensor | None = None,
    ) -> AcceptResult:
        """Accept a step's draft tokens, force the length, cap it; see the reference."""
        if not self.simulating:
            real = super().accept_and_finalize(
                draft_tokens=draft_tokens,
                prefix_lens=prefix_lens,
                target_tokens=target_tokens,
                draft_probs=draft_probs,
                target_probs=target_probs,
                verify_lens=verify_lens,
                caps=caps,
                generator=generator,
                uniforms=uniforms,
            )
            return self.off(real)
        self._batch_size(draft_tokens, prefix_lens=prefix_lens, verify_lens=verify_lens, caps=caps)
        step = Step(
            draft_tokens.to(torch.int64),
            prefix_lens,
            self._verified(
                draft_tokens, target_tokens, draft_probs, target_probs, generator, uniforms
            ),
            least_limit(verify_lens, caps),
        )
        forced = self.drawn(step)
        correct_len = self.cut(step, forced)
        if self._strict_length:
            must_not_trim(forced, correct_len)
        commit_lens = self.commit_lens(step, correct_len).to(torch.int32)
        bonus = self.bonus(step, correct_len)
        return self.result(
            correct_len=correct_len,
            bonus=bonus,
            cap_trim_lens=self.trimmed(forced, correct_len).to(torch.int32),
            commit_lens=commit_lens,
            new_seq_lens=self.seq_lens(step, commit_lens, forced),
            out_tokens=self.out_tokens(step, correct_len, bonus),
        )

    def off(self, real: AcceptResult) -> AcceptResult:
        """Return the result of the real accept, with simulation off."""
        return real

    def drawn(self, step: Step) -> Tensor:
        """Return the step's forced draft lengths, shape (bs,), int64; a new tensor."""
        return self._forced(step.draft_tokens.shape[0], step.draft_tokens.device).clone()

    def cut(self, step: Step, forced: Tensor) -> Tensor:
        """Return the draft lengths to commit, shape (bs,), int64."""
        return capped(forced, step.limit)

    def commit_lens(self, step: Step, correct_len: Tensor) -> Tensor:
        """Return the lengths to commit, shape (bs,)."""
        return correct_len + 1

    def trimmed(self, forced: Tensor, correct_len: Tensor) -> Tensor:
        """Return what the caps took off, shape (bs,)."""
        return forced - correct_len

    def seq_lens(self, step: Step, commit_lens: Tensor, forced: Tensor) -> Tensor:
        """Return the sequences' new lengths, shape (bs,), dtype of the prefix lengths."""
        return step.prefix_lens + commit_lens.to(step.prefix_lens.dtype)

    def bonus(self, step: Step, correct_len: Tensor) -> Tensor:
        """Return the last token of each commit, shape (bs,), int64."""
        if self._fixed_token_id is not None:
            return torch.full_like(correct_len, self._fixed_token_id)
        return step.verified.token_at(correct_len)

    def committed(self, step: Step, correct_len: Tensor, bonus: Tensor) -> Tensor:
        """Return tokens whose first ones are the commit's, shape (bs, gamma + 1), int64."""
        tokens = torch.nn.functional.pad(step.draft_tokens, (0, 1))
        if self._fixed_token_id is not None:
            return torch.full_like(tokens, self._fixed_token_id)
        return tokens.scatter(1, correct_len[:, None], bonus[:, None])

    def out_tokens(self, step: Step, correct_len: Tensor, bonus: Tensor) -> Tensor:
        """Return the committed tokens and what comes beyond, shape (bs, gamma + 1), int64."""
        tokens = self.committed(step, correct_len, bonus)
        return torch.where(self.within(correct_len), tokens, NO_TOKEN)

    def within(self, correct_len: Tensor) -> Tensor:
        """Return which positions are committed, shape (bs, gamma + 1), bool."""
        position = torch.arange(self.gamma + 1, device=correct_len.device)
        return position <= correct_len[:, None]

    def result(self, **fields: Tensor) -> AcceptResult:
        """Return the step's result."""
        return AcceptResult(**fields)
