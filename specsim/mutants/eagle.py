"""EAGLE functions that force a length: a correct one in steps, others like it, and faulty ones.

Each is called like `specsim.verify.eagle.generate_simulated_accept_index`, from which none of this
is taken.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specsim.mutants.registry import Mutant
from specsim.mutants.sampler_faults import DrawsFromFault, register_sampler_faults
from specsim.mutants.verify_registry import EAGLE
from specsim.sampler import sample_simulated_acc_len

_ENGINE_FIXED_TOKEN = 100


@EAGLE.correct(
    "in-steps",
    statement="Writes the committed nodes only, in both modes, as all others here change it.",
)
class Eagle:
    """Forces one length for a batch in a few steps, each of which another may replace.

    Attributes
    ----------
    configuration : tuple of float, str and int
        The present call's length, method and spec_steps + 1.
    generator
        The present call's generator.
    """

    configuration: tuple[float, str, int]
    generator: torch.Generator | None

    def __call__(
        self,
        accept_index: Tensor,
        predict: Tensor,
        num_correct_drafts: Tensor,
        candidates: Tensor,
        target_predict: Tensor,
        bs: int,
        spec_steps: int,
        simulate_acc_len: float,
        simulate_acc_method: str,
        simulate_acc_token_mode: str = "real-draft-token",
        *,
        fixed_token_id: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the accept indices, shape (bs, spec_steps + 1); write the rest in place."""
        if simulate_acc_len <= 0.0:
            raise ValueError(f"simulate_acc_len must be above 0, got {simulate_acc_len}")
        self.configuration = (simulate_acc_len, simulate_acc_method, spec_steps + 1)
        self.generator = generator
        length = self.draw()
        nodes = accept_index[:, :1].to(torch.int64) + torch.arange(
            length, device=accept_index.device
        )
        if simulate_acc_token_mode == "fixed":
            if fixed_token_id is None:
                raise ValueError("fixed_token_id must be given in mode 'fixed', got None")
            self.write_fixed(predict, nodes, fixed_token_id)
        elif simulate_acc_token_mode == "real-draft-token":
            self.write_drafts(predict, nodes[:, :-1], candidates[:, 1:length])
            last = target_predict[:, self.bonus_position(length)]
            predict[nodes[:, -1]] = last.to(predict.dtype)
        else:
            raise ValueError(f"no such simulate_acc_token_mode: {simulate_acc_token_mode!r}")
        self.write_count(num_correct_drafts, length)
        return self.index(nodes, spec_steps + 1)

    def draw(self) -> int:
        """Return one acceptance length of the call's configuration, 1 … spec_steps + 1."""
        return sample_simulated_acc_len(*self.configuration, generator=self.generator)

    def write_fixed(self, predict: Tensor, nodes: Tensor, fixed_token_id: int) -> None:
        """Write the tokens of fixed mode; `nodes` has shape (bs, length)."""
        predict[nodes] = fixed_token_id

    def write_drafts(self, predict: Tensor, nodes: Tensor, drafts: Tensor) -> None:
        """Write the committed draft tokens; both have shape (bs, length − 1)."""
        predict[nodes] = drafts.to(predict.dtype)

    def bonus_position(self, length: int) -> int:
        """Return the column of the target that the bonus is taken from."""
        return length - 1

    def write_count(self, num_correct_drafts: Tensor, length: int) -> None:
        """Write the number of committed draft tokens of all requests."""
        num_correct_drafts.fill_(length - 1)

    def index(self, nodes: Tensor, width: int) -> Tensor:
        """Return the accept indices of nodes of shape (bs, length)."""
        index = torch.full((nodes.shape[0], width), -1, dtype=torch.int32, device=nodes.device)
        index[:, : nodes.shape[1]] = nodes
        return index


@EAGLE.correct("fixed-everywhere", statement="Fixed mode writes every node, as SGLang does.")
class FixedEverywhere(Eagle):
    """Writes fixed tokens beyond the commit."""

    def write_fixed(self, predict: Tensor, nodes: Tensor, fixed_token_id: int) -> None:
        """Fill everything."""
        predict.fill_(fixed_token_id)


@EAGLE.correct("zero-tail", statement="Nodes outside the commit are 0 in real-draft-token mode.")
class ZeroTail(Eagle):
    """Leaves nothing stale."""

    def write_drafts(self, predict: Tensor, nodes: Tensor, drafts: Tensor) -> None:
        """Clear all nodes, then write; the bonus comes after this."""
        predict.zero_()
        super().write_drafts(predict, nodes, drafts)


@EAGLE.correct("int64-index", statement="The accept indices are int64.")
class Int64Index(Eagle):
    """Widens its result."""

    def index(self, nodes: Tensor, width: int) -> Tensor:
        """Return wide indices."""
        return super().index(nodes, width).to(torch.int64)


@EAGLE.correct(
    "engine-signature",
    statement="Has no generator and no fixed token but its own, 100, as SGLang has it.",
)
class EngineSignature:
    """Passes its arguments on."""

    def __init__(self) -> None:
        self.inner = FixedEverywhere()

    def __call__(
        self,
        accept_index: Tensor,
        predict: Tensor,
        num_correct_drafts: Tensor,
        candidates: Tensor,
        target_predict: Tensor,
        bs: int,
        spec_steps: int,
        simulate_acc_len: float,
        simulate_acc_method: str,
        simulate_acc_token_mode: str = "fixed",
    ) -> Tensor:
        """Return the accept indices; write the rest in place."""
        return self.inner(
            accept_index,
            predict,
            num_correct_drafts,
            candidates,
            target_predict,
            bs,
            spec_steps,
            simulate_acc_len,
            simulate_acc_method,
            simulate_acc_token_mode,
            fixed_token_id=_ENGINE_FIXED_TOKEN,
        )


class SampledEagle(DrawsFromFault, Eagle):
    """Draws from a sampler that it is given."""


def _eagle_of(fault: Mutant) -> Callable[[], SampledEagle]:
    return lambda: SampledEagle(fault)


register_sampler_faults(EAGLE, "A", _eagle_of)


@EAGLE.mutant(
    "two-draws",
    caught_by="A.same-length",
    statement="num_correct_drafts comes from a draw of its own.",
    source="stands for a sampler called where each output is written",
)
class TwoDraws(Eagle):
    """Draws twice a step."""

    def write_count(self, num_correct_drafts: Tensor, length: int) -> None:
        """Draw again."""
        num_correct_drafts.fill_(self.draw() - 1)


@EAGLE.mutant(
    "first-request-only",
    caught_by="A.same-length",
    statement="num_correct_drafts is written for the first request only.",
    source="stands for a scalar write where a broadcast is meant",
)
class FirstRequestOnly(Eagle):
    """Writes one count."""

    def write_count(self, num_correct_drafts: Tensor, length: int) -> None:
        """Leave the other requests' as they are."""
        num_correct_drafts[:1].fill_(length - 1)


@EAGLE.mutant(
    "count-includes-the-bonus",
    caught_by="A.same-length",
    statement="num_correct_drafts is the whole length.",
    source="TensorRT-LLM PR 9608: total tokens in one path, draft tokens in another",
)
class CountIncludesTheBonus(Eagle):
    """Counts tokens in place of draft tokens."""

    def write_count(self, num_correct_drafts: Tensor, length: int) -> None:
        """Write the length."""
        num_correct_drafts.fill_(length)


@EAGLE.mutant(
    "index-one-short",
    caught_by="A.same-length",
    statement="The bonus node is missing from the accept indices.",
    source="stands for a range that ends at the number of draft tokens",
)
class IndexOneShort(Eagle):
    """Indexes the draft tokens only."""

    def index(self, nodes: Tensor, width: int) -> Tensor:
        """Leave the last node out."""
        return super().index(nodes[:, :-1], width)


@EAGLE.mutant(
    "index-goes-on",
    caught_by="A.index",
    statement="The accept indices count on beyond the length, where −1 belongs.",
    source="stands for an index that is masked by a length that is not applied",
)
class IndexGoesOn(Eagle):
    """Names nodes that are not committed."""

    def index(self, nodes: Tensor, width: int) -> Tensor:
        """Return consecutive numbers over the whole width."""
        return (nodes[:, :1] + torch.arange(width, device=nodes.device)).to(torch.int32)


@EAGLE.mutant(
    "index-zero-beyond",
    caught_by="A.index",
    statement="The accept indices are 0 beyond the length, where −1 belongs.",
    source="stands for a tensor of zeros in place of one of −1",
)
class IndexZeroBeyond(Eagle):
    """Names the first node where it should name none."""

    def index(self, nodes: Tensor, width: int) -> Tensor:
        """Replace −1 by 0."""
        return super().index(nodes, width).clamp(min=0)


@EAGLE.mutant(
    "index-of-the-first-request",
    caught_by="A.index",
    statement="All requests' accept indices are those of the first one.",
    source="stands for an anchor that is read without the request's offset",
)
class IndexOfTheFirstRequest(Eagle):
    """Starts at another request's node."""

    def index(self, nodes: Tensor, width: int) -> Tensor:
        """Repeat the first row."""
        return super().index(nodes[:1].expand_as(nodes), width)


@EAGLE.mutant(
    "index-repeats-the-anchor",
    caught_by="A.index",
    statement="Each accept index is the request's first node.",
    source="stands for an offset that is not added",
)
class IndexRepeatsTheAnchor(Eagle):
    """Does not walk along the chain."""

    def index(self, nodes: Tensor, width: int) -> Tensor:
        """Repeat the first column."""
        return super().index(nodes[:, :1].expand_as(nodes), width)


@EAGLE.mutant(
    "bonus-of-the-position-before",
    caught_by="T.real-draft-token",
    statement="The bonus is the target's token one position before the forced one.",
    source="stands for an index by draft tokens where tokens are meant",
)
class BonusOfThePositionBefore(Eagle):
    """Looks one position too early."""

    def bonus_position(self, length: int) -> int:
        """Return the column before."""
        return max(length - 2, 0)


@EAGLE.mutant(
    "stale-token-inside",
    caught_by="T.real-draft-token",
    statement="The last committed draft token is left as it was in predict.",
    source="stands for a write that ends one node too early",
)
class StaleTokenInside(Eagle):
    """Writes one draft token too few."""

    def write_drafts(self, predict: Tensor, nodes: Tensor, drafts: Tensor) -> None:
        """Write all draft tokens but the last."""
        super().write_drafts(predict, nodes[:, :-1], drafts[:, :-1])


@EAGLE.mutant(
    "drafts-replaced-by-a-constant",
    caught_by="T.real-draft-token",
    statement="In real-draft-token mode every committed draft token is a constant.",
    source="SGLang PR 29645: the KV cache held the real ones",
)
class DraftsReplacedByAConstant(Eagle):
    """Writes a fixed token where the draft's belong."""

    def write_drafts(self, predict: Tensor, nodes: Tensor, drafts: Tensor) -> None:
        """Write the constant."""
        predict[nodes] = _ENGINE_FIXED_TOKEN


@EAGLE.mutant(
    "fixed-but-for-the-bonus",
    caught_by="T.fixed",
    statement="In fixed mode the last committed node is left as it was: the real accept's.",
    source="stands for a fixed token written for draft tokens only",
)
class FixedButForTheBonus(Eagle):
    """Leaves a real token."""

    def write_fixed(self, predict: Tensor, nodes: Tensor, fixed_token_id: int) -> None:
        """Write the draft tokens' nodes only."""
        super().write_fixed(predict, nodes[:, :-1], fixed_token_id)
