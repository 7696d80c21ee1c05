"""DFlash functions that force a length: a correct one in steps, others like it, and faulty ones.

Each is called like `specsim.verify.dflash.apply_dflash_simulated_acceptance`, from which none of
this is taken.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specsim.mutants.registry import Mutant
from specsim.mutants.sampler_faults import DrawsFromFault, register_sampler_faults
from specsim.mutants.verify_registry import DFLASH
from specsim.sampler import sample_simulated_acc_len

_ENGINE_FIXED_TOKEN = 100


@DFLASH.correct("in-steps", statement="Writes 0 beyond the commit, as all others here change it.")
class DFlash:
    """Forces one length for a batch in a few steps, each of which another may replace.

    Attributes
    ----------
    configuration : tuple of float, str and int
        The present call's length, method and block size.
    generator
        The present call's generator.
    """

    configuration: tuple[float, str, int]
    generator: torch.Generator | None

    def __call__(
        self,
        *,
        candidates: Tensor,
        target_predict: Tensor | None,
        accept_len: Tensor,
        commit_lens: Tensor,
        bonus: Tensor,
        out_tokens: Tensor,
        simulate_acc_len: float,
        simulate_acc_method: str,
        simulate_acc_token_mode: str = "real-draft-token",
        next_token_logits: Tensor | None = None,
        fixed_token_id: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Overwrite a step's outputs, in place."""
        if simulate_acc_len <= 0.0:
            raise ValueError(f"simulate_acc_len must be above 0, got {simulate_acc_len}")
        bs, block_size = candidates.shape
        self.configuration = (simulate_acc_len, simulate_acc_method, block_size)
        self.generator = generator
        length = self.draw()
        if simulate_acc_token_mode == "fixed":
            if fixed_token_id is None:
                raise ValueError("fixed_token_id must be given in mode 'fixed', got None")
            self.write_fixed(out_tokens, bonus, length, fixed_token_id)
        elif simulate_acc_token_mode == "real-draft-token":
            if target_predict is None:
                assert next_token_logits is not None
                target_predict = next_token_logits.argmax(dim=-1).reshape(bs, block_size)
            self.write_real(out_tokens, bonus, length, candidates, target_predict)
        else:
            raise ValueError(f"no such simulate_acc_token_mode: {simulate_acc_token_mode!r}")
        self.write_lengths(accept_len, commit_lens, length)

    def draw(self) -> int:
        """Return one acceptance length of the call's configuration, 1 … block_size."""
        return sample_simulated_acc_len(*self.configuration, generator=self.generator)

    def write_lengths(self, accept_len: Tensor, commit_lens: Tensor, length: int) -> None:
        """Write both lengths of all requests."""
        accept_len.fill_(length - 1)
        commit_lens.fill_(length)

    def write_fixed(
        self, out_tokens: Tensor, bonus: Tensor, length: int, fixed_token_id: int
    ) -> None:
        """Write the tokens of fixed mode."""
        out_tokens[:, :length].fill_(fixed_token_id)
        bonus.fill_(fixed_token_id)
        self.write_tail(out_tokens, length)

    def write_real(
        self, out_tokens: Tensor, bonus: Tensor, length: int, candidates: Tensor, target: Tensor
    ) -> None:
        """Write the tokens of real-draft-token mode."""
        self.write_drafts(out_tokens, candidates, length)
        last = target[:, self.bonus_position(length)]
        out_tokens[:, length - 1].copy_(last)
        bonus.copy_(last)
        self.write_tail(out_tokens, length)

    def write_drafts(self, out_tokens: Tensor, candidates: Tensor, length: int) -> None:
        """Write the committed draft tokens."""
        out_tokens[:, : length - 1].copy_(candidates[:, 1:length])

    def bonus_position(self, length: int) -> int:
        """Return the column of the target that the bonus is taken from."""
        return length - 1

    def write_tail(self, out_tokens: Tensor, length: int) -> None:
        """Write what comes beyond the commit."""
        out_tokens[:, length:].zero_()


@DFLASH.correct("stale-tail", statement="Beyond the commit, out_tokens is left as it was.")
class StaleTail(DFlash):
    """Writes the commit only, in both modes."""

    def write_tail(self, out_tokens: Tensor, length: int) -> None:
        """Write nothing."""


@DFLASH.correct("fixed-everywhere", statement="Fixed mode fills whole rows, as SGLang does.")
class FixedEverywhere(DFlash):
    """Writes fixed tokens beyond the commit."""

    def write_fixed(
        self, out_tokens: Tensor, bonus: Tensor, length: int, fixed_token_id: int
    ) -> None:
        """Fill everything."""
        out_tokens.fill_(fixed_token_id)
        bonus.fill_(fixed_token_id)


@DFLASH.correct(
    "int32-inside", statement="Tokens and lengths are int32 before they are copied to the outputs."
)
class Int32Inside(DFlash):
    """Computes in 32 bits."""

    def write_lengths(self, accept_len: Tensor, commit_lens: Tensor, length: int) -> None:
        """Copy from narrow scalars."""
        narrow = torch.tensor(length, dtype=torch.int32, device=accept_len.device)
        accept_len.copy_(narrow - 1)
        commit_lens.copy_(narrow)

    def write_real(
        self, out_tokens: Tensor, bonus: Tensor, length: int, candidates: Tensor, target: Tensor
    ) -> None:
        """Narrow the tokens first."""
        narrow = candidates.to(torch.int32), target.to(torch.int32)
        super().write_real(out_tokens, bonus, length, *narrow)


@DFLASH.correct(
    "engine-signature",
    statement="Has no generator, a default for the fixed token, and no default for the mode, as "
    "SGLang has it.",
)
class EngineSignature:
    """Passes its arguments on."""

    def __init__(self) -> None:
        self.inner = FixedEverywhere()

    def __call__(
        self,
        *,
        candidates: Tensor,
        target_predict: Tensor | None,
        accept_len: Tensor,
        commit_lens: Tensor,
        bonus: Tensor,
        out_tokens: Tensor,
        simulate_acc_len: float,
        simulate_acc_method: str,
        simulate_acc_token_mode: str,
        next_token_logits: Tensor | None = None,
        fixed_token_id: int = _ENGINE_FIXED_TOKEN,
    ) -> None:
        """Overwrite a step's outputs, in place."""
        self.inner(
            candidates=candidates,
            target_predict=target_predict,
            accept_len=accept_len,
            commit_lens=commit_lens,
            bonus=bonus,
            out_tokens=out_tokens,
            simulate_acc_len=simulate_acc_len,
            simulate_acc_method=simulate_acc_method,
            simulate_acc_token_mode=simulate_acc_token_mode,
            next_token_logits=next_token_logits,
            fixed_token_id=fixed_token_id,
        )


class SampledDFlash(DrawsFromFault, DFlash):
    """Draws from a sampler that it is given."""


def _dflash_of(fault: Mutant) -> Callable[[], SampledDFlash]:
    return lambda: SampledDFlash(fault)


register_sampler_faults(DFLASH, "D", _dflash_of)


@DFLASH.mutant(
    "counts-one-too-many",
    caught_by="D.range",
    statement="Both lengths are written one too large: commit_lens reaches block_size + 1.",
    source="TensorRT-LLM PR 9608",
)
class CountsOneTooMany(DFlash):
    """Counts the target's own token twice."""

    def write_lengths(self, accept_len: Tensor, commit_lens: Tensor, length: int) -> None:
        """Write the lengths of one token more."""
        super().write_lengths(accept_len, commit_lens, length + 1)


@DFLASH.mutant(
    "two-draws",
    caught_by="D.same-length",
    statement="commit_lens comes from a draw of its own.",
    source="stands for a sampler called where each output is written",
)
class TwoDraws(DFlash):
    """Draws twice a step."""

    def write_lengths(self, accept_len: Tensor, commit_lens: Tensor, length: int) -> None:
        """Draw again for one of the two."""
        accept_len.fill_(length - 1)
        commit_lens.fill_(self.draw())


@DFLASH.mutant(
    "first-request-only",
    caught_by="D.same-length",
    statement="commit_lens is written for the first request only.",
    source="stands for a scalar write where a broadcast is meant",
)
class FirstRequestOnly(DFlash):
    """Writes one commit length."""

    def write_lengths(self, accept_len: Tensor, commit_lens: Tensor, length: int) -> None:
        """Leave the other requests' as they are."""
        accept_len.fill_(length - 1)
        commit_lens[:1].fill_(length)


@DFLASH.mutant(
    "accept-len-counts-the-bonus",
    caught_by="D.same-length",
    statement="accept_len is the whole length, as commit_lens is.",
    source="TensorRT-LLM PR 9608: total tokens in one path, draft tokens in another",
)
class AcceptLenCountsTheBonus(DFlash):
    """Writes the same number twice."""

    def write_lengths(self, accept_len: Tensor, commit_lens: Tensor, length: int) -> None:
        """Write the length into both."""
        accept_len.fill_(length)
        commit_lens.fill_(length)


@DFLASH.mutant(
    "bonus-of-the-position-before",
    caught_by="T.real-draft-token",
    statement="The bonus is the target's token one position before the forced one.",
    source="stands for an index by draft tokens where tokens are meant",
)
class BonusOfThePositionBefore(DFlash):
    """Looks one position too early."""

    def bonus_position(self, length: int) -> int:
        """Return the column before."""
        return max(length - 2, 0)


@DFLASH.mutant(
    "stale-token-inside",
    caught_by="T.real-draft-token",
    statement="The last committed draft token is left as it was in out_tokens.",
    source="stands for a copy that ends one token too early",
)
class StaleTokenInside(DFlash):
    """Writes one draft token too few."""

    def write_drafts(self, out_tokens: Tensor, candidates: Tensor, length: int) -> None:
        """Write all draft tokens but the last."""
        end = max(length - 2, 0)
        out_tokens[:, :end].copy_(candidates[:, 1 : 1 + end])


@DFLASH.mutant(
    "anchor-committed",
    caught_by="T.real-draft-token",
    statement="The committed draft tokens start with the anchor, one position too early.",
    source="stands for candidates whose first column is taken for a draft token",
)
class AnchorCommitted(DFlash):
    """Starts at column 0."""

    def write_drafts(self, out_tokens: Tensor, candidates: Tensor, length: int) -> None:
        """Write the candidates before."""
        out_tokens[:, : length - 1].copy_(candidates[:, : length - 1])


@DFLASH.mutant(
    "drafts-replaced-by-a-constant",
    caught_by="T.real-draft-token",
    statement="In real-draft-token mode every committed draft token is a constant.",
    source="SGLang PR 29645: the KV cache held the real ones",
)
class DraftsReplacedByAConstant(DFlash):
    """Writes a fixed token where the draft's belong."""

    def write_drafts(self, out_tokens: Tensor, candidates: Tensor, length: int) -> None:
        """Write the constant."""
        out_tokens[:, : length - 1].fill_(_ENGINE_FIXED_TOKEN)


@DFLASH.mutant(
    "fixed-but-for-the-bonus",
    caught_by="T.fixed",
    statement="In fixed mode the last committed token and the bonus are left as they were: the "
    "real accept's.",
    source="stands for a fixed token written for draft tokens only",
)
class FixedButForTheBonus(DFlash):
    """Leaves a real token."""

    def write_fixed(
        self, out_tokens: Tensor, bonus: Tensor, length: int, fixed_token_id: int
    ) -> None:
        """Write the draft tokens' places only."""
        out_tokens[:, : length - 1].fill_(fixed_token_id)
        self.write_tail(out_tokens, length)
