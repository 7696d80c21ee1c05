"""Batches for functions that force one acceptance length on a verify step's outputs.

A draw is one call on a batch whose draft and target tokens are all different, so that each token
tells where it comes from. Outputs hold a marker before each call, so that what is not written
shows. What a call shows besides its length is held against what that length commits.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from specsim.adapters.guard import target_call
from specsim.targets import Configuration, Violation
from specsim.verify.tokens import TOKEN_MODES

if TYPE_CHECKING:
    from specsim.adapters.consumers import BatchTarget

REAL, FIXED = TOKEN_MODES
MARKER = -77
"""What outputs hold before a call."""

FIXED_ID = 777
"""The fixed token that is asked for, where it can be asked for."""

FIRST_ID = 1_000
"""The lowest token of a batch: neither the marker nor what engines take as a fixed token."""

# What each unusual thing about a batch weighs, in requests and tokens, when it is to be simple.
_UNUSUAL = 3


@dataclass(frozen=True)
class BatchShape:
    """All of a batch that a configuration leaves open.

    Attributes
    ----------
    bs
        Requests.
    tokens, lens
        Names of the dtypes of outputs that hold tokens, and of those that hold lengths.
    more_nodes
        Columns of the inputs beyond the longest length.
    mode
        Token mode.
    logits
        Whether the target's tokens are given as logits.
    """

    bs: int = 3
    tokens: str = "int64"
    lens: str = "int32"
    more_nodes: int = 0
    mode: str = REAL
    logits: bool = False

    def __str__(self) -> str:
        parts = [f"bs {self.bs}"]
        if self.more_nodes:
            parts.append(f"{self.more_nodes} more nodes a request")
        if self.mode == FIXED:
            parts.append("mode fixed")
        if self.logits:
            parts.append("logits for target_predict")
        return ", ".join(parts)


@dataclass(frozen=True)
class CallViolation(Violation):
    """A violation that one call on a batch shows.

    Attributes
    ----------
    shape
        The batch.
    calls
        How many calls show it again, nearly always.
    """

    shape: BatchShape = field(default_factory=BatchShape)
    calls: int = 1

    @property
    def size(self) -> tuple[int, int, float]:
        """Order of simplicity, the batch included."""
        top, digits, length = super().size
        shape = self.shape
        unusual = (shape.mode != REAL) + shape.logits + shape.more_nodes
        return (top + shape.bs + _UNUSUAL * unusual, digits, length)


class ForcedBatch(ABC):
    """The tensors of one batch, called any number of times.

    Parameters
    ----------
    target
        Whose function is called.
    config, shape
        The arguments of the call.

    Attributes
    ----------
    length : object
        The last call's acceptance length, of the first request; None without requests.
    """

    length: object

    def __init__(self, target: BatchTarget, config: Configuration, shape: BatchShape) -> None:
        self.target, self.config, self.shape = target, config, shape
        nodes = config.max_len + shape.more_nodes
        seed = zlib.crc32(repr((config, shape)).encode())
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randperm(2 * shape.bs * nodes, generator=generator) + FIRST_ID
        self.candidates, self.target_predict = ids.reshape(2, shape.bs, nodes).unbind()
        self.drafts: list[list[int]] = self.candidates.tolist()
        self.targets: list[list[int]] = self.target_predict.tolist()
        self._given = ids.reshape(2, shape.bs, nodes).clone()
        self._expected: dict[int, tuple[list[Any], ...]] = {}
        self.arguments: dict[str, object] = {
            "candidates": self.candidates,
            "target_predict": self.target_predict,
            "simulate_acc_len": config.acc_len,
            "simulate_acc_method": config.method,
        }
        if target.takes("simulate_acc_token_mode"):
            self.arguments["simulate_acc_token_mode"] = shape.mode
        if target.takes("fixed_token_id"):
            self.arguments["fixed_token_id"] = FIXED_ID

    def call(self) -> bool:
        """Call the function once, and say whether all is plainly as its length has it.

        If not, `explain` tells whether anything is wrong.

        Raises
        ------
        TargetRaised, TargetReturned
            If it raises, or returns something else than it should.
        """
        self.mark()
        with target_call():
            self.read(self.target.function(**self.arguments))
        if self.shape.mode == FIXED or type(self.length) is not int:
            return False
        expected = self._expected.get(self.length)
        if expected is None:
            if not 1 <= self.length <= self.config.max_len:
                return False
            expected = self._expected[self.length] = self.expected(self.length)
        return self.seen(self.length) == expected

    @abstractmethod
    def mark(self) -> None:
        """Fill the outputs with the marker."""

    @abstractmethod
    def read(self, returned: object) -> None:
        """Read the outputs of a call, `length` among them."""

    @abstractmethod
    def expected(self, length: int) -> tuple[list[Any], ...]:
        """Return what `seen` should be in mode real-draft-token."""

    @abstractmethod
    def seen(self, length: int) -> tuple[list[Any], ...]:
        """Return the last call's outputs, as far as they can be reached."""

    @abstractmethod
    def look(self) -> dict[str, str]:
        """Return what is wrong with the last call's outputs."""

    def explain(self) -> dict[str, str]:
        """Return what was wrong with the last call, by the name of a property."""
        given = torch.stack([self.candidates, self.target_predict])
        if not torch.equal(given, self._given):
            self.candidates.copy_(self._given[0])
            self.target_predict.copy_(self._given[1])
            return {"real-draft-token": "overwrote its candidates or target_predict"}
        return self.look()

    def committed(self, request: int, length: int) -> list[int]:
        """Return the tokens that a length commits in mode real-draft-token."""
        return [*self.drafts[request][1:length], self.targets[request][length - 1]]

    def length_of(self, request: int, tokens: list[int]) -> int | None:
        """Return the length that a request's tokens were written with, if they tell.

        The first position that holds the target's own token there is the last of that length:
        the positions before it hold draft tokens.
        """
        pairs = zip(tokens, self.targets[request], strict=False)
        return next((j + 1 for j, (token, target) in enumerate(pairs) if token == target), None)

    def wrong_tokens(self, request: int, tokens: list[int]) -> tuple[str, str] | None:
        """Return which property a request's committed tokens refute, and how."""
        if self.shape.mode == FIXED:
            wanted = self.target.fixed_id
            if wanted is None and tokens[0] != MARKER and tokens[0] < FIRST_ID:
                wanted = self.target.fixed_id = tokens[0]
            if all(token == wanted for token in tokens):
                return None
            expected = "one fixed id" if wanted is None else f"{wanted} only"
            return "fixed", f"committed {marked(tokens)} for request {request}, not {expected}"
        expected_tokens = self.committed(request, len(tokens))
        if tokens == expected_tokens:
            return None
        return (
            "real-draft-token",
            f"committed {marked(tokens)} for request {request}, where its draft tokens and then "
            f"the target's are {expected_tokens}",
        )

    def violations(self, calls: int) -> list[CallViolation]:
        """Return what was wrong with the last call, and that so many calls show it."""
        return [
            CallViolation(
                name, self.config, f"with {self.shape} {message}", shape=self.shape, calls=calls
            )
            for name, message in self.explain().items()
        ]


def marked(values: list[Any]) -> str:
    """Return values as text that says which of them were not written."""
    return f"{values} ({MARKER}: not written)" if MARKER in values else str(values)
