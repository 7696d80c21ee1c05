"""EAGLE and MTP: functions that return the accept indices of a forced acceptance length.

Such a function is called with keywords, those of
`specsim.verify.generate_simulated_accept_index`. It may lack ``simulate_acc_token_mode`` and
``fixed_token_id``.
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
from specsim.loading.failures import TargetReturned, shown
from specsim.targets import Configuration

_NO_NODE = -1


class EagleBatch(ForcedBatch):
    """One verify step's tensors: a chain of nodes for each request."""

    def __init__(self, target: EagleTarget, config: Configuration, shape: BatchShape) -> None:
        super().__init__(target, config, shape)
        bs, nodes = self.candidates.shape
        self.firsts = [nodes * b for b in range(bs)]
        self.accept_index = torch.empty(bs, config.max_len, dtype=torch.int32)
        # What the real accept left: all drafts of every other request, none of the others.
        self._index = torch.full_like(self.accept_index, _NO_NODE)
        for b, first in enumerate(self.firsts):
            accepted = config.max_len if b % 2 == 0 else 1
            self._index[b, :accepted] = torch.arange(first, first + accepted)
        self.predict = torch.empty(bs * nodes, dtype=getattr(torch, shape.tokens))
        self.num_correct_drafts = torch.empty(bs, dtype=getattr(torch, shape.lens))
        self.arguments.update(
            accept_index=self.accept_index,
            predict=self.predict,
            num_correct_drafts=self.num_correct_drafts,
            bs=bs,
            spec_steps=config.max_len - 1,
        )

    def mark(self) -> None:
        """Fill the outputs with the marker, and put the real accept's indices back."""
        self.accept_index.copy_(self._index)
        self.predict.fill_(MARKER)
        self.num_correct_drafts.fill_(MARKER)

    def read(self, returned: object) -> None:
        """Read the indices returned and the outputs.

        Raises
        ------
        TargetReturned
            If no integer tensor of shape (bs, spec_steps + 1) is returned.
        """
        expected = f"expected an integer tensor of shape {tuple(self.accept_index.shape)}"
        if not isinstance(returned, torch.Tensor):
            raise TargetReturned(f"returned {shown(returned)}, {expected}")
        if returned.shape != self.accept_index.shape:
            raise TargetReturned(f"returned shape {tuple(returned.shape)}, {expected}")
        if returned.is_floating_point() or returned.is_complex() or returned.dtype is torch.bool:
            raise TargetReturned(f"returned dtype {returned.dtype}, {expected}")
        self.index: list[list[int]] = returned.tolist()
        self.drafts_of: list[int] = self.num_correct_drafts.tolist()
        self.tokens: list[int] = self.predict.tolist()
        self.length = _accepted(self.index[0]) if self.index else None

    def expected(self, length: int) -> tuple[list[Any], ...]:
        """Return what `seen` should be in mode real-draft-token."""
        requests = range(self.shape.bs)
        return (
            [self._row(b, length) for b in requests],
            [length - 1 for _ in requests],
            [self.committed(b, length) for b in requests],
        )

    def seen(self, length: int) -> tuple[list[Any], ...]:
        """Return the last call's outputs up to the committed nodes."""
        tokens = [self.tokens[first : first + length] for first in self.firsts]
        return self.index, self.drafts_of, tokens

    def look(self) -> dict[str, str]:
        """Return what is wrong with the last call's outputs."""
        found: dict[str, str] = {}
        lens = [_accepted(row) for row in self.index]
        if len(set(lens)) > 1 or self.drafts_of != [n - 1 for n in lens]:
            found["same-length"] = (
                f"returned {lens} accept indices for its requests and wrote num_correct_drafts "
                f"{marked(self.drafts_of)}, not one length and the draft tokens in it"
            )
        for b, (length, row) in enumerate(zip(lens, self.index, strict=True)):
            for name, message in self._look_at_request(b, length, row):
                found.setdefault(name, message)
        return found

    def _row(self, request: int, length: int) -> list[int]:
        first, width = self.firsts[request], self.config.max_len
        return [*range(first, first + length), *[_NO_NODE] * (width - length)]

    def _look_at_request(self, request: int, length: int, row: list[int]) -> list[tuple[str, str]]:
        found = []
        drafts = self.drafts_of[request]
        too_many = drafts >= 0 and length > drafts + 1
        if row != self._row(request, length) or length == 0 or too_many:
            message = (
                f"returned accept indices {row} and num_correct_drafts {marked([drafts])} for "
                f"request {request}, whose first node is {self.firsts[request]}; its first nodes "
                f"in turn, one more than draft tokens, and then {_NO_NODE} expected"
            )
            found.append(("index", message))
        if self.shape.mode != FIXED:
            first = self.firsts[request]
            nodes = self.tokens[first : first + self.config.max_len]
            told = self.length_of(request, nodes)
            if told not in (None, length):
                message = (
                    f"returned {length} accept indices for request {request} and wrote, in "
                    f"predict, the target's token of a length of {told}"
                )
                found.append(("same-length", message))
        reached = [node for node in row if node >= 0]
        if reached and max(reached) < len(self.tokens):
            wrong = self.wrong_tokens(request, [self.tokens[node] for node in reached])
            if wrong is not None:
                found.append(wrong)
        return found


class EagleTarget(BatchTarget):
    """Draws acceptance lengths from a function for EAGLE and MTP steps: see `BatchTarget`."""

    kind = "eagle"
    required = (
        "accept_index",
        "predict",
        "num_correct_drafts",
        "candidates",
        "target_predict",
        "bs",
        "spec_steps",
        "simulate_acc_len",
        "simulate_acc_method",
    )
    pool = (
        BatchShape(3, "int32", "int32"),
        BatchShape(1, "int64", "int64"),
        BatchShape(5, "int32", "int64", more_nodes=2),
        BatchShape(2, "int64", "int32"),
        BatchShape(64, "int64", "int32"),
    )
    spare_nodes = True
    first_length = "int((index[0] >= 0).sum())"

    def batch(self, config: Configuration, shape: BatchShape) -> EagleBatch:
        """Make a batch."""
        return EagleBatch(self, config, shape)

    def call_repr(self, config: Configuration, n: int = 1) -> str:
        """Return the function's call, short enough for a report."""
        return (
            f"{self.name}(…, spec_steps={config.max_len - 1}, "
            f'simulate_acc_len={config.acc_len!r}, simulate_acc_method="{config.method}")'
        )

    def tensors(self, config: Configuration, shape: BatchShape) -> list[str]:
        """Return lines that make a batch's tensors."""
        bs, width = shape.bs, config.max_len
        nodes = width + shape.more_nodes
        return [
            f"first = torch.arange({bs}, dtype=torch.int32)[:, None] * {nodes}",
            f"accept_index = first + torch.arange({width}, dtype=torch.int32)",
            f"predict = torch.full(({bs * nodes},), {MARKER}, dtype=torch.{shape.tokens})",
            f"num_correct_drafts = torch.full(({bs},), {MARKER}, dtype=torch.{shape.lens})",
            f"candidates = torch.arange({bs * nodes}).reshape({bs}, {nodes}) + 1000",
            f"target_predict = candidates + {bs * nodes}",
        ]

    def call_lines(self, config: Configuration, shape: BatchShape) -> list[str]:
        """Return the lines of one call on them."""
        lines = [
            f"index = {self.name}(",
            "    accept_index=accept_index,",
            "    predict=predict,",
            "    num_correct_drafts=num_correct_drafts,",
            "    candidates=candidates,",
            "    target_predict=target_predict,",
            f"    bs={shape.bs},",
            f"    spec_steps={config.max_len - 1},",
            f"    simulate_acc_len={config.acc_len!r},",
            f'    simulate_acc_method="{config.method}",',
        ]
        return [*lines, *self.mode_lines(shape), ")"]

    def printing(self, shape: BatchShape) -> list[str]:
        """Return lines that print each request's outputs, and what they should be."""
        return [
            f"for b in range({shape.bs}):",
            "    n = int((index[b] >= 0).sum())",
            "    reached = [k for k in index[b].tolist() if 0 <= k < len(predict)]",
            '    print(f"request {b}: index {index[b].tolist()}, num_correct_drafts",',
            '          f"{int(num_correct_drafts[b])}, tokens {predict[reached].tolist()}")',
            f"    committed = {self.committed(shape)}",
            '    print(f"  expected: {n} nodes from {int(first[b])} on and then -1,",',
            '          f"num_correct_drafts {n - 1}, tokens {committed}, as in every request")',
        ]


def _accepted(row: list[int]) -> int:
    """Return how many indices name a node."""
    return sum(node >= 0 for node in row)
