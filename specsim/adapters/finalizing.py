"""What an executor commits: its `accept_and_finalize`, called for one batch.

An executor target whose object has a method ``accept_and_finalize`` is judged by what it commits
too. The method is called once a step, with these keywords:

- ``draft_tokens``: shape (bs, gamma), integer;
- ``prefix_lens``: shape (bs,), integer, the tokens of each sequence before the step;
- ``target_tokens``: shape (bs, gamma + 1), integer. The token at position k is what the target
  decodes greedily after the anchor token and the first k draft tokens;
- ``verify_lens``, only if the signature names it: shape (bs,), integer, the tokens verified in
  each request, the anchor token included, 1 … gamma + 1. No more are committed;
- ``caps``, only if the signature names it: shape (bs,), integer, at least 1, the most tokens to
  commit for another reason.

With simulation off, the real accept is the greedy one: the draft tokens before the first that
differs from the target's. An executor of the step protocol has its ``begin_step`` called before.

The result has, as attributes or as keys of a mapping, tensors called

- ``correct_len``: shape (bs,), committed draft tokens, after any cap;
- ``commit_lens``: shape (bs,), committed tokens, the target's own one included;
- ``new_seq_lens``: shape (bs,), dtype of the prefix lengths, tokens of each sequence afterwards;
- ``out_tokens``: shape (bs, gamma + 1), or narrower if no commit is longer. A request's first
  ``commit_lens`` tokens are its committed ones; what comes beyond is not looked at;
- ``bonus``: shape (bs,), the target's token of each commit;
- ``cap_trim_lens``: shape (bs,), int32, tokens that a cap took off.

The first two are needed; what depends on another is not judged where that is missing. Executors
whose factory names the parameters ``token_mode`` and ``fixed_token_id`` are also made with
``token_mode="fixed"``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch

from specsim.adapters.executor import ExecutorTarget
from specsim.adapters.guard import target_call
from specsim.loading.failures import TargetReturned, shown
from specsim.targets import Configuration

METHOD = "accept_and_finalize"
FIELDS = ("correct_len", "commit_lens", "new_seq_lens", "cap_trim_lens", "bonus", "out_tokens")
"""What a result holds, the needed ones first."""

_NEEDED = FIELDS[:2]
_ALWAYS = ("draft_tokens", "prefix_lens", "target_tokens")
_LIMITS = ("verify_lens", "caps")
_FIXED = ("token_mode", "fixed_token_id")


@dataclass(frozen=True)
class Request:
    """What one request brings to a step.

    Attributes
    ----------
    draft_tokens, target_tokens
        gamma and gamma + 1 token ids.
    prefix_len
        Tokens before the step.
    verify_len, cap
        Its limits, each None where that keyword is not given.
    """

    draft_tokens: tuple[int, ...]
    target_tokens: tuple[int, ...]
    prefix_len: int
    verify_len: int | None = None
    cap: int | None = None

    @property
    def limit(self) -> int:
        """Most tokens to commit, 1 … gamma + 1."""
        limits = [limit for limit in (self.verify_len, self.cap) if limit is not None]
        return min([*limits, len(self.target_tokens)])

    def __str__(self) -> str:
        parts = [f"draft tokens {list(self.draft_tokens)}"]
        parts.append(f"target tokens {list(self.target_tokens)}")
        if self.verify_len is not None:
            parts.append(f"verify_lens {self.verify_len}")
        if self.cap is not None:
            parts.append(f"cap {self.cap}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Batch:
    """The arguments of one step.

    Attributes
    ----------
    gamma
        Draft tokens of each request.
    bs
        Requests in the batch.
    pattern
        The requests that it holds, in turn; all with the same limits given.
    token_dtype, prefix_dtype
        Names of integer dtypes in torch; the limits have the prefixes' one.
    """

    gamma: int
    bs: int
    pattern: tuple[Request, ...]
    token_dtype: str = "int64"
    prefix_dtype: str = "int64"

    @property
    def requests(self) -> list[Request]:
        """One request a slot."""
        return list(islice(cycle(self.pattern), self.bs))

    @property
    def limits(self) -> tuple[str, ...]:
        """Which of the limits' keywords are given."""
        if not self.pattern:
            return ()
        first = self.pattern[0]
        given = (first.verify_len is not None, first.cap is not None)
        return tuple(name for name, is_given in zip(_LIMITS, given, strict=True) if is_given)

    def columns(self) -> dict[str, tuple[list[Any], str, tuple[int, ...]]]:
        """Return, by keyword, the pattern's values, their dtype and the shape of the whole."""
        tokens, prefixes = self.token_dtype, self.prefix_dtype
        columns: dict[str, tuple[list[Any], str, tuple[int, ...]]] = {
            "draft_tokens": (
                [list(r.draft_tokens) for r in self.pattern],
                tokens,
                (self.bs, self.gamma),
            ),
            "prefix_lens": ([r.prefix_len for r in self.pattern], prefixes, (self.bs,)),
            "target_tokens": (
                [list(r.target_tokens) for r in self.pattern],
                tokens,
                (self.bs, self.gamma + 1),
            ),
        }
        if "verify_lens" in self.limits:
            columns["verify_lens"] = ([r.verify_len for r in self.pattern], prefixes, (self.bs,))
        if "caps" in self.limits:
            columns["caps"] = ([r.cap for r in self.pattern], prefixes, (self.bs,))
        return columns

    def arguments(self) -> dict[str, torch.Tensor]:
        """Return the keywords of the call, new CPU tensors."""
        return {
            name: torch.tensor(
                list(islice(cycle(values), self.bs)), dtype=getattr(torch, dtype), device="cpu"
            ).reshape(shape)
            for name, (values, dtype, shape) in self.columns().items()
        }


@dataclass(frozen=True)
class Column:
    """One tensor of a result, read.

    Attributes
    ----------
    dtype
        Its name in torch.
    shape
        Its shape.
    values
        What it holds, as lists.
    """

    dtype: str
    shape: tuple[int, ...]
    values: list[Any]


@dataclass(frozen=True)
class Commit:
    """The result of one step.

    Attributes
    ----------
    columns
        What of `FIELDS` it has.
    by_key
        Whether they are keys of a mapping.
    """

    columns: Mapping[str, Column]
    by_key: bool


@dataclass(frozen=True)
class Offer:
    """What an executor's object and factory can be asked for.

    Attributes
    ----------
    step_method
        What is called before each step, in the step protocol.
    missing
        Why nothing that it commits can be judged; None if it can.
    limits
        Which of ``"verify_lens"`` and ``"caps"`` the method takes.
    fixed
        Whether the factory takes a fixed token.
    most
        Most requests in a batch, where a step draws a length for each of so many slots; None
        without a limit.
    """

    step_method: str | None
    missing: str | None = None
    limits: tuple[str, ...] = ()
    fixed: bool = False
    most: int | None = None


class Finalizer:
    """An executor's object that commits.

    Parameters
    ----------
    target
        Makes the object.
    offer
        What it can be asked for.
    configuration
        What it is made with; a length of 0 or below turns simulation off.
    fixed_token_id
        Makes it with a fixed token.

    Raises
    ------
    TargetRaised
        If the factory raises.
    """

    def __init__(
        self,
        target: ExecutorTarget,
        offer: Offer,
        configuration: Configuration,
        fixed_token_id: int | None = None,
    ) -> None:
        more: dict[str, object] = {}
        if fixed_token_id is not None:
            more = {"token_mode": "fixed", "fixed_token_id": fixed_token_id}
        self._step_method = offer.step_method
        with target_call():
            self._executor: Any = target.factory(
                configuration.max_len - 1, configuration.acc_len, configuration.method, **more
            )

    def commit(self, batch: Batch) -> Commit:
        """Make one step.

        Raises
        ------
        TargetRaised, TargetReturned
            If it raises, or its result lacks what is needed.
        """
        with target_call():
            if self._step_method is not None:
                getattr(self._executor, self._step_method)()
            return _read(getattr(self._executor, METHOD)(**batch.arguments()))


def offer_of(target: ExecutorTarget, configuration: Configuration) -> Offer:
    """Look at what an executor offers.

    Raises
    ------
    TargetRaised, TargetReturned
        If the factory raises, or the object has no protocol of an executor.
    """
    running = target.open(configuration)
    step = running.protocol.step
    with target_call():
        method = getattr(running.executor, METHOD, None)
    if not callable(method):
        return Offer(step, f"no {METHOD}: only the lengths that it forces can be judged")
    signature = _signature(method)
    named = [] if signature is None else list(signature.parameters)
    limits = tuple(name for name in _LIMITS if name in named)
    if signature is not None:
        try:
            signature.bind(**dict.fromkeys(_ALWAYS))
        except TypeError:
            return Offer(step, f"{METHOD}{signature} cannot be called with {', '.join(_ALWAYS)}")
    made = _signature(target.factory)
    fixed = made is not None and all(name in made.parameters for name in _FIXED)
    most = None
    if step is not None and target.per_slot:
        running.begin()
        most = running.held().numel()
    return Offer(step, None, limits, fixed, most)


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _read(result: object) -> Commit:
    by_key = isinstance(result, Mapping)
    columns: dict[str, Column] = {}
    for name in FIELDS:
        value = result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            raise TargetReturned(f"{METHOD} gave {name} {shown(value)}, expected a tensor")
        dtype = str(value.dtype).removeprefix("torch.")
        columns[name] = Column(dtype, tuple(value.shape), value.tolist())
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise TargetReturned(f"{METHOD} returned {shown(result)} without {' and '.join(missing)}")
    return Commit(columns, by_key)
