"""Executors whose accept_and_finalize is faulty in one step, and correct ones that differ."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from specsim.mutants.finalizer_base import Finalizer, Step
from specsim.mutants.verify_registry import FINALIZERS
from specsim.verify.finalize import AcceptResult, capped

# Engines' own fixed token.
_CONSTANT_TOKEN = 100

FINALIZERS.correct("in-steps", statement="The reference in steps, as all others here change it.")(
    Finalizer
)


@FINALIZERS.correct(
    "stale-tail",
    statement="Beyond the commit, out_tokens holds what the step before left there.",
)
class StaleTail(Finalizer):
    """Writes commits into tokens that it keeps."""

    kept: Tensor | None = None

    def out_tokens(self, step: Step, correct_len: Tensor, bonus: Tensor) -> Tensor:
        """Write the commit over the tokens of the step before."""
        tokens = self.committed(step, correct_len, bonus)
        kept = self.kept
        if kept is None or kept.shape != tokens.shape or kept.device != tokens.device:
            kept = torch.zeros_like(tokens)
        self.kept = torch.where(self.within(correct_len), tokens, kept)
        return self.kept


@FINALIZERS.correct(
    "whole-draft-as-tail", statement="Beyond the commit, out_tokens holds the rest of the draft."
)
class WholeDraftAsTail(Finalizer):
    """Clears nothing."""

    def out_tokens(self, step: Step, correct_len: Tensor, bonus: Tensor) -> Tensor:
        """Return all tokens."""
        return self.committed(step, correct_len, bonus)


@FINALIZERS.correct(
    "real-bonus-kept",
    statement="The bonus is the real accept's, as DSpark's is, and not the target's token at the "
    "forced position.",
    fails=("T.bonus",),
)
class RealBonusKept(Finalizer):
    """Forces the length only."""

    def bonus(self, step: Step, correct_len: Tensor) -> Tensor:
        """Return the token after the drafts that the target would accept."""
        if self._fixed_token_id is not None:
            return super().bonus(step, correct_len)
        return step.verified.accept(step.limit)[1]


@FINALIZERS.correct(
    "own-result-type",
    statement="The result is an object of another type, with the same attributes.",
)
class OwnResultType(Finalizer):
    """Returns a namespace, also with simulation off."""

    def off(self, real: AcceptResult) -> Any:
        """Return the real accept's outputs."""
        return SimpleNamespace(**vars(real))

    def result(self, **fields: Tensor) -> Any:
        """Return the outputs."""
        return SimpleNamespace(**fields)


@FINALIZERS.mutant(
    "bonus-not-counted",
    caught_by="F.commit-lens",
    statement="commit_lens is correct_len: the bonus is not counted.",
    source="TensorRT-LLM PR 9608: total tokens in one path, draft tokens in another",
)
class BonusNotCounted(Finalizer):
    """Commits the draft tokens only."""

    def commit_lens(self, step: Step, correct_len: Tensor) -> Tensor:
        """Return the draft lengths."""
        return correct_len.clone()


@FINALIZERS.mutant(
    "two-draws",
    caught_by="F.commit-lens",
    statement="commit_lens comes from a draw of its own.",
    source="stands for a sampler called where each output is written",
)
class TwoDraws(Finalizer):
    """Draws twice a step."""

    def commit_lens(self, step: Step, correct_len: Tensor) -> Tensor:
        """Draw again, and cap that."""
        return self.cut(step, self.drawn(step)) + 1


@FINALIZERS.mutant(
    "sequences-uncapped",
    caught_by="F.seq-lens",
    statement="new_seq_lens is the prefix and the uncapped length.",
    source="SGLang DSpark cuts a forced length by a cap; stands for an output computed before",
)
class SequencesUncapped(Finalizer):
    """Adds up too early."""

    def seq_lens(self, step: Step, commit_lens: Tensor, forced: Tensor) -> Tensor:
        """Add the forced length."""
        return step.prefix_lens + (forced + 1).to(step.prefix_lens.dtype)


@FINALIZERS.mutant(
    "cap-ignored",
    caught_by="F.caps",
    statement="A forced length is committed whole, whatever the caps.",
    source="stands for an override that comes after the cap",
)
class CapIgnored(Finalizer):
    """Cuts nothing."""

    def cut(self, step: Step, forced: Tensor) -> Tensor:
        """Return the forced draft lengths."""
        return forced.clone()


@FINALIZERS.mutant(
    "cap-leaves-one-more",
    caught_by="F.caps",
    statement="A cap is taken as the most draft tokens: one token more is committed.",
    source="stands for a limit in one unit and a length in the other",
)
class CapLeavesOneMore(Finalizer):
    """Forgets that the bonus counts."""

    def cut(self, step: Step, forced: Tensor) -> Tensor:
        """Cut to the cap itself."""
        return forced.clone() if step.limit is None else capped(forced, step.limit + 1)


@FINALIZERS.mutant(
    "trim-not-reported",
    caught_by="F.cap-trim",
    statement="cap_trim_lens is 0, whatever a cap took off.",
    source="SGLang DSpark cuts a forced length with nothing said",
)
class TrimNotReported(Finalizer):
    """Cuts in silence."""

    def trimmed(self, forced: Tensor, correct_len: Tensor) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(correct_len)


@FINALIZERS.mutant(
    "bonus-of-the-position-before",
    caught_by="T.bonus",
    statement="The bonus is the target's token one position before the forced one.",
    source="stands for an index by draft tokens where tokens are meant",
)
class BonusOfThePositionBefore(Finalizer):
    """Looks one position too early."""

    def bonus(self, step: Step, correct_len: Tensor) -> Tensor:
        """Return the target's token for the last draft token's place."""
        return super().bonus(step, (correct_len - 1).clamp(min=0))


@FINALIZERS.mutant(
    "stale-token-inside",
    caught_by="T.real-draft-token",
    statement="The last committed draft token is what the step before had in its place, at first "
    "0.",
    source="stands for a copy that ends one token too early, into tokens that are kept",
)
class StaleTokenInside(Finalizer):
    """Writes all draft tokens but the last into tokens that it keeps."""

    kept: Tensor | None = None

    def committed(self, step: Step, correct_len: Tensor, bonus: Tensor) -> Tensor:
        """Leave one position as it is."""
        tokens = super().committed(step, correct_len, bonus)
        kept = self.kept
        if kept is None or kept.shape != tokens.shape or kept.device != tokens.device:
            kept = torch.zeros_like(tokens)
        position = torch.arange(tokens.shape[1], device=tokens.device)
        self.kept = torch.where(position == correct_len[:, None] - 1, kept, tokens)
        return self.kept


@FINALIZERS.mutant(
    "drafts-replaced-by-a-constant",
    caught_by="T.real-draft-token",
    statement="In real-draft-token mode every committed draft token is a constant.",
    source="SGLang PR 29645: the KV cache held the real ones",
)
class DraftsReplacedByAConstant(Finalizer):
    """Writes a fixed token where the draft's belong."""

    def committed(self, step: Step, correct_len: Tensor, bonus: Tensor) -> Tensor:
        """Replace the draft tokens."""
        if self._fixed_token_id is None:
            step = replace(step, draft_tokens=torch.full_like(step.draft_tokens, _CONSTANT_TOKEN))
        return super().committed(step, correct_len, bonus)


@FINALIZERS.mutant(
    "fixed-but-for-the-bonus",
    caught_by="T.fixed",
    statement="In fixed mode the last committed token, and the bonus, is the target's.",
    source="stands for a fixed token written for draft tokens only",
)
class FixedButForTheBonus(Finalizer):
    """Leaves a real token."""

    def bonus(self, step: Step, correct_len: Tensor) -> Tensor:
        """Return the target's token."""
        return step.verified.token_at(correct_len)

    def committed(self, step: Step, correct_len: Tensor, bonus: Tensor) -> Tensor:
        """Put it in its place."""
        tokens = super().committed(step, correct_len, bonus)
        return tokens.scatter(1, correct_len[:, None], bonus[:, None])


@FINALIZERS.mutant(
    "forced-when-off",
    caught_by="E.off",
    statement="A length of 0 or below is clamped to 1 and forced.",
    source="stands for a switch that is looked at in one of two places",
)
class ForcedWhenOff(Finalizer):
    """Always simulates."""

    def __init__(
        self, gamma: int, simulate_acc_len: float, simulate_acc_method: str, **options: Any
    ) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method, **options)
        self.simulating = True


@FINALIZERS.mutant(
    "forced-at-zero",
    caught_by="E.off",
    statement="A length of 0 is clamped to 1 and forced; below 0, simulation is off.",
    source="SGLang's default is -1, and its simulation is off at 0 too",
)
class ForcedAtZero(Finalizer):
    """Compares with the wrong sign."""

    def __init__(
        self, gamma: int, simulate_acc_len: float, simulate_acc_method: str, **options: Any
    ) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method, **options)
        self.simulating = self.simulate_acc_len >= 0.0


@FINALIZERS.mutant(
    "other-dtype-when-off",
    caught_by="E.off",
    statement="With simulation off, correct_len is int32 and not what the real accept returned.",
    source="stands for an output that passes through the buffer in any case",
)
class OtherDtypeWhenOff(Finalizer):
    """Converts."""

    def off(self, real: AcceptResult) -> AcceptResult:
        """Return the real accept's result with a narrower length."""
        return replace(real, correct_len=real.correct_len.to(torch.int32))


@FINALIZERS.mutant(
    "draft-as-bonus-when-off",
    caught_by="E.off",
    statement="With simulation off, the bonus is the token that is committed first.",
    source="stands for an override of one output that is not switched off with the others",
)
class DraftAsBonusWhenOff(Finalizer):
    """Changes the bonus."""

    def off(self, real: AcceptResult) -> AcceptResult:
        """Return the real accept's result with another bonus."""
        return replace(real, bonus=real.out_tokens[:, 0].clone())
