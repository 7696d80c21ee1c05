"""Accept rules: functions that decide which draft tokens stay, and what token comes after them.

An accept rule is called as ``(draft_tokens, draft_probs, target_probs)``, by position, like
`specsim.verify.chain_accept`: tensors of shape (bs, gamma), (bs, gamma, V) and
(bs, gamma + 1, V). A rule with a parameter ``generator`` is given a `torch.Generator` and has to
draw from it; any other draws from torch's global one. A rule with a parameter ``verify_lens`` is
also called with requests of fewer drafts: ``verify_lens[b] - 1`` of them, and whatever stands
behind them is not to be read.

It returns ``correct_len``, how many draft tokens it accepts, and ``bonus``, the token after
them, each an integer tensor of shape (bs,): as a pair, as attributes of an object, or under
these names in a mapping.

NumPy and torch are imported when a rule is called, so that a wrong target is answered before that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from specsim.adapters.guard import target_call
from specsim.loading.failures import TargetError, TargetReturned, shown

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from specsim.evidence.law import IntArray

ACCEPT_KINDS = ("accept", "chain-accept")
"""Any lossless rule; and one whose number of accepted tokens is that of chain rejection too."""

ACCEPT_NAMES = ("draft_tokens", "draft_probs", "target_probs")
"""What the reference calls an accept rule's first three arguments."""

Form: TypeAlias = Literal["pair", "attributes", "mapping"]


@dataclass(frozen=True)
class Accepted:
    """What an accept rule decided for a batch.

    Attributes
    ----------
    correct_len : ndarray, shape (bs,), int64
        Accepted draft tokens, 0 … the request's drafts.
    bonus : ndarray, shape (bs,), int64
        The token after them, 0 … V − 1.
    form
        How the rule returned the two.
    """

    correct_len: IntArray
    bonus: IntArray
    form: Form


@dataclass(frozen=True)
class AcceptTarget:
    """An accept rule under test.

    Attributes
    ----------
    name
        Expression for the rule in a snippet.
    kind
        One of `ACCEPT_KINDS`.
    function
        The rule.
    takes_generator
        Whether it is given a generator.
    takes_verify_lens
        Whether it can be given requests with fewer drafts than others.
    needs_verify_lens
        Whether it has to be told the number of drafts where all have the same, too.
    """

    name: str
    kind: str
    function: Callable[..., object]
    takes_generator: bool
    takes_verify_lens: bool
    needs_verify_lens: bool = False

    def accept(
        self,
        draft_tokens: Tensor,
        draft_probs: Tensor,
        target_probs: Tensor,
        verify_lens: Tensor | None,
        generator: Generator,
    ) -> Accepted:
        """Call the rule on one batch.

        Parameters
        ----------
        draft_tokens : Tensor, shape (bs, gamma), int64
        draft_probs : Tensor, shape (bs, gamma, V), float32
        target_probs : Tensor, shape (bs, gamma + 1, V), float32
        verify_lens : Tensor, shape (bs,), int64, or None
            Drafts + 1 of each request, if that differs among them.
        generator
            Given to a rule that takes one.

        Returns
        -------
        Accepted
            A copy: a rule may return the same buffers every time.

        Raises
        ------
        TargetRaised
            If the rule raises.
        TargetReturned
            If it does not return two integer tensors of shape (bs,), or if a number of accepted
            tokens or a bonus is out of range.
        """
        import numpy as np
        import torch

        bs, gamma = draft_tokens.shape
        limits = np.full(bs, gamma) if verify_lens is None else verify_lens.numpy() - 1
        named: dict[str, object] = {}
        if verify_lens is not None or self.needs_verify_lens:
            named["verify_lens"] = torch.from_numpy(limits + 1)
        if self.takes_generator:
            named["generator"] = generator
        with target_call():
            returned = self.function(draft_tokens, draft_probs, target_probs, **named)
            correct_len, bonus, form = _fields(returned)
            counts = _integers(correct_len, "correct_len", bs)
            tokens = _integers(bonus, "bonus", bs)
        for b in np.flatnonzero((counts < 0) | (counts > limits))[:1]:
            raise TargetReturned(
                f"returned correct_len {counts[b]} for request {b}, which has {limits[b]} drafts"
            )
        size = target_probs.shape[2]
        for b in np.flatnonzero((tokens < 0) | (tokens >= size))[:1]:
            raise TargetReturned(
                f"returned bonus {tokens[b]} for request {b}; tokens are 0 … {size - 1}"
            )
        return Accepted(counts, tokens, form)

    def call_repr(self, *, ragged: bool = False) -> str:
        """Return the Python call of the rule on the names of its arguments."""
        arguments = list(ACCEPT_NAMES)
        if ragged or self.needs_verify_lens:
            arguments.append("verify_lens=verify_lens")
        if self.takes_generator:
            arguments.append("generator=generator")
        return f"{self.name}({', '.join(arguments)})"


def looks_like_accept(function: Callable[..., object]) -> bool:
    """Tell by the names of a callable's first three parameters whether it is an accept rule."""
    parameters = _parameters(function)
    return parameters is not None and tuple(parameters)[:3] == ACCEPT_NAMES


def adapt_accept(function: Callable[..., object], kind: str, name: str) -> AcceptTarget:
    """Return the target that calls an accept rule.

    Parameters
    ----------
    function
        The rule.
    kind
        One of `ACCEPT_KINDS`.
    name
        Expression for it in snippets.

    Raises
    ------
    TargetError
        If the kind is unknown, or the rule cannot be called as described in this module.
    """
    if kind not in ACCEPT_KINDS:
        raise TargetError(f"kind must be one of {', '.join(ACCEPT_KINDS)}, got {kind!r}")
    if not callable(function):
        raise TargetError(f"{name} is not callable; a target must be, got {shown(function)}")
    if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))):
        raise TargetError(f"{name} is a coroutine function; an accept rule must return by itself")
    parameters = _parameters(function)
    if parameters is None:
        return AcceptTarget(name, kind, function, False, False)
    named = {
        key: p
        for key, p in parameters.items()
        if key in ("generator", "verify_lens") and p.kind is not p.POSITIONAL_ONLY
    }
    signature = inspect.signature(function)
    try:
        signature.bind(*ACCEPT_NAMES, **named)
    except TypeError:
        raise TargetError(
            f"{name}{signature} cannot be called as an accept rule, with "
            f"({', '.join(ACCEPT_NAMES)})"
        ) from None
    lens = named.get("verify_lens")
    return AcceptTarget(
        name,
        kind,
        function,
        takes_generator="generator" in named,
        takes_verify_lens=lens is not None,
        needs_verify_lens=lens is not None and lens.default is lens.empty,
    )


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _fields(returned: object) -> tuple[object, object, Form]:
    """Return correct_len, bonus, and how they came."""
    names = ("correct_len", "bonus")
    if isinstance(returned, Mapping):
        if all(name in returned for name in names):
            return returned["correct_len"], returned["bonus"], "mapping"
    elif all(hasattr(returned, name) for name in names):
        fields: Any = returned
        return fields.correct_len, fields.bonus, "attributes"
    elif isinstance(returned, tuple) and len(returned) == 2:
        return returned[0], returned[1], "pair"
    raise TargetReturned(f"returned {shown(returned)}, expected correct_len and bonus")


def _integers(value: object, name: str, bs: int) -> IntArray:
    """Return a tensor's numbers; a copy."""
    import numpy as np
    import torch

    expected = f"expected an integer tensor of shape ({bs},)"
    if not isinstance(value, torch.Tensor):
        raise TargetReturned(f"returned {name} {shown(value)}, {expected}")
    if value.is_floating_point() or value.is_complex() or value.dtype is torch.bool:
        raise TargetReturned(f"returned {name} of dtype {value.dtype}, {expected}")
    if tuple(value.shape) != (bs,):
        raise TargetReturned(f"returned {name} of shape {tuple(value.shape)}, {expected}")
    return np.array(value.detach().to("cpu", torch.int64).numpy(), dtype=np.int64, copy=True)
