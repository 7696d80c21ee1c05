"""DFlash: functions that force an acceptance length on a block's outputs, in place.

Such a function is called with keywords, those of
`specsim.verify.apply_dflash_simulated_acceptance`. It may lack ``simulate_acc_token_mode``,
``next_token_logits`` and ``fixed_token_id``.
"""

from __future__ import annotations

from typing import Any

import torch

from specsim.adapters.batches import (
    FIXED,
    MARKER,
    BatchShape,
    ForcedBatch,
    marked,
)
from specsim.adapters.consumers import BatchTarget
from specsim.targets import Configuration


class DFlashBatch(ForcedBatch):
    """One block's tensors, outputs included."""

    def __init__(self, target: DFlashTarget, config: Configuration, shape: BatchShape) -> None:
        super().__init__(target, config, shape)
        tokens, lens = getattr(torch, shape.tokens), getattr(torch, shape.lens)
        bs, size = self.candidates.shape
        self.outputs = {
            "accept_len": torch.empty(bs, dtype=lens),
            "commit_lens": torch.empty(bs, dtype=lens),
            "bonus": torch.empty(bs, dtype=tokens),
            "out_tokens": torch.empty(bs, size, dtype=tokens),
        }
        self.arguments.update(self.outputs)
        if target.takes("next_token_logits"):
            self.arguments["next_token_logits"] = None
        if shape.logits:
            rows = self.target_predict.reshape(-1, 1)
            logits = torch.zeros(rows.shape[0], int(rows.max()) + 1 if bs else 1)
            self.arguments["next_token_logits"] = logits.scatter_(1, rows, 1.0)
            self.arguments["target_predict"] = None

    def mark(self) -> None:
        """Fill the outputs with the marker."""
        for output in self.outputs.values():
            output.fill_(MARKER)

    def read(self, returned: object) -> None:
        """Read the outputs; whatever is returned is not looked at."""
        self.lens: list[int] = self.outputs["commit_lens"].tolist()
        self.drafts_of: list[int] = self.outputs["accept_len"].tolist()
        self.bonus: list[int] = self.outputs["bonus"].tolist()
        self.rows: list[list[int]] = self.outputs["out_tokens"].tolist()
        self.length = self.lens[0] if self.lens else None

    def expected(self, length: int) -> tuple[list[Any], ...]:
        """Return what `seen` should be in mode real-draft-token."""
        bs = self.shape.bs
        rows = [self.committed(b, length) for b in range(bs)]
        return [length] * bs, [length - 1] * bs, [row[-1] for row in rows], rows

    def seen(self, length: int) -> tuple[list[Any], ...]:
        """Return the last call's outputs up to the committed prefix."""
        return self.lens, self.drafts_of, self.bonus, [row[:length] for row in self.rows]

    def look(self) -> dict[str, str]:
        """Return what is wrong with the last call's outputs."""
        found: dict[str, str] = {}
        if len(set(self.lens)) > 1 or self.drafts_of != [n - 1 for n in self.lens]:
            found["same-length"] = (
                f"wrote commit_lens {marked(self.lens)} and accept_len {marked(self.drafts_of)}, "
                "not one length and the draft tokens in it"
            )
        for b, (length, bonus, row) in enumerate(
            zip(self.lens, self.bonus, self.rows, strict=True)
        ):
            for name, message in self._look_at_tokens(b, length, bonus, row):
                found.setdefault(name, message)
        return found

    def _look_at_tokens(
        self, request: int, length: int, bonus: int, row: list[int]
    ) -> list[tuple[str, str]]:
        found = []
        if self.shape.mode != FIXED:
            own = self.targets[request]
            for name, told in (
                ("out_tokens", self.length_of(request, row)),
                ("bonus", own.index(bonus) + 1 if bonus in own else None),
            ):
                if told not in (None, length):
                    message = (
                        f"wrote commit_lens {length} and, in {name}, the target's token of a "
                        f"length of {told}, for request {request}"
                    )
                    found.append(("same-length", message))
        if not 1 <= length <= len(row):
            return found
        if (wrong := self.wrong_tokens(request, row[:length])) is not None:
            found.append(wrong)
        if self.shape.mode == FIXED:
            if (wrong := self.wrong_tokens(request, [bonus])) is not None:
                found.append((wrong[0], f"wrote bonus: {wrong[1]}"))
        elif bonus != (last := self.committed(request, length)[-1]):
            message = (
                f"wrote bonus {marked([bonus])} for request {request}, whose last committed token "
                f"should be {last}"
            )
            found.append(("real-draft-token", message))
        return found


class DFlashTarget(BatchTarget):
    """Draws acceptance lengths from a function for DFlash blocks: see `BatchTarget`."""

    kind = "dflash"
    required = (
        "candidates",
        "target_predict",
        "accept_len",
        "commit_lens",
        "bonus",
        "out_tokens",
        "simulate_acc_len",
        "simulate_acc_method",
    )
    pool = (
        BatchShape(3, "int64", "int32"),
        BatchShape(1, "int32", "int64"),
        BatchShape(5, "int32", "int32"),
        BatchShape(2, "int64", "int64"),
        BatchShape(64, "int64", "int32"),
    )
    spare_nodes = False
    first_length = "int(commit_lens[0])"

    def batch(self, config: Configuration, shape: BatchShape) -> DFlashBatch:
        """Make a batch."""
        return DFlashBatch(self, config, shape)

    def call_repr(self, config: Configuration, n: int = 1) -> str:
        """Return the function's call, short enough for a report."""
        return (
            f"{self.name}(candidates[:, :{config.max_len}], …, "
            f'simulate_acc_len={config.acc_len!r}, simulate_acc_method="{config.method}")'
        )

    def tensors(self, config: Configuration, shape: BatchShape) -> list[str]:
        """Return lines that make a batch's tensors."""
        bs, size = shape.bs, config.max_len
        lines = [
            f"candidates = torch.arange({bs * size}).reshape({bs}, {size}) + 1000",
            f"target_predict = candidates + {bs * size}",
            f"accept_len = torch.full(({bs},), {MARKER}, dtype=torch.{shape.lens})",
            f"commit_lens = torch.full(({bs},), {MARKER}, dtype=torch.{shape.lens})",
            f"bonus = torch.full(({bs},), {MARKER}, dtype=torch.{shape.tokens})",
            f"out_tokens = torch.full(({bs}, {size}), {MARKER}, dtype=torch.{shape.tokens})",
        ]
        if shape.logits:
            one_hot = f"torch.eye({1000 + 2 * bs * size})[target_predict.flatten()]"
            lines.append(f"next_token_logits = {one_hot}")
        return lines

    def call_lines(self, config: Configuration, shape: BatchShape) -> list[str]:
        """Return the lines of one call on them."""
        lines = [
            f"{self.name}(",
            "    candidates=candidates,",
            f"    target_predict={'None' if shape.logits else 'target_predict'},",
            "    accept_len=accept_len,",
            "    commit_lens=commit_lens,",
            "    bonus=bonus,",
            "    out_tokens=out_tokens,",
            f"    simulate_acc_len={config.acc_len!r},",
            f'    simulate_acc_method="{config.method}",',
        ]
        if self.takes("next_token_logits"):
            lines.append(f"    next_token_logits={'next_token_logits' if shape.logits else None},")
        return [*lines, *self.mode_lines(shape), ")"]

    def printing(self, shape: BatchShape) -> list[str]:
        """Return lines that print each request's outputs, and what they should be."""
        return [
            f"for b in range({shape.bs}):",
            "    n = int(commit_lens[b])",
            '    print(f"request {b}: commit_lens {n}, accept_len {int(accept_len[b])},",',
            '          f"bonus {int(bonus[b])}, out_tokens {out_tokens[b].tolist()}")',
            f"    committed = {self.committed(shape)}",
            '    print(f"  expected: accept_len {n - 1}, out_tokens {committed} and whatever "',
            '          f"beyond, bonus {committed[-1:]}, as in every request")',
        ]
