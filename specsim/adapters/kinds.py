"""The kinds of target, and how a callable's own names tell which one it is.

Standard library only, so that a wrong call is answered before anything heavy is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from specsim.adapters.accept import ACCEPT_KINDS, looks_like_accept
from specsim.loading.failures import TargetError
from specsim.targets import KINDS as SAMPLER_KINDS
from specsim.targets import detect_kind as detect_sampler_kind
from specsim.targets import name_of

BUFFER_METHODS = ("_simulated_correct_len", "simulated_correct_len")
"""What the method of the cached buffer is called, in the order looked for."""

STEP_METHODS = ("begin_step", "begin_simulated_step")
"""What the method of the step protocol is called."""

STEP_TENSORS = ("step_correct_len", *BUFFER_METHODS)
"""What the tensor that it fills is called, where that name holds no method."""

EXECUTOR_ARGUMENTS = ("gamma", "simulate_acc_len", "simulate_acc_method")
"""What an executor's class or factory is called with, by position."""

# Parameters that no other kind has.
_TELLING: dict[str, frozenset[str]] = {
    "dflash": frozenset({"candidates", "accept_len", "commit_lens", "bonus", "out_tokens"}),
    "eagle": frozenset({"accept_index", "predict", "candidates", "target_predict"}),
}

KINDS = (*SAMPLER_KINDS, "executor", "dflash", "eagle", *ACCEPT_KINDS)
"""The kinds of target that can be named."""


def detect_kind(function: Callable[..., object]) -> str:
    """Tell a target's kind from what it is and from its parameters.

    A class with a method of `BUFFER_METHODS` or `STEP_METHODS`, and a function whose first
    parameter is ``gamma``, make executors. Functions with the parameters of
    `specsim.verify.apply_dflash_simulated_acceptance`,
    `specsim.verify.generate_simulated_accept_index` or `specsim.verify.chain_accept` are of
    the kinds ``dflash``, ``eagle`` and ``accept``. Anything else should be a sampler.

    Raises
    ------
    TargetError
        If nothing fits.
    """
    if inspect.isclass(function):
        if any(callable(getattr(function, name, None)) for name in BUFFER_METHODS + STEP_METHODS):
            return "executor"
        raise TargetError(
            f"{name_of(function)} is a class without a method "
            f"{', '.join(BUFFER_METHODS + STEP_METHODS[:1])} or {STEP_METHODS[1]}; a class must "
            "be an executor, and a sampler a function, a method or an instance"
        )
    names = _parameters(function)
    for kind, telling in _TELLING.items():
        if telling <= set(names):
            return kind
    if looks_like_accept(function):
        return "accept"
    if names[:1] == ["gamma"]:
        return "executor"
    return detect_sampler_kind(function)


def _parameters(function: Callable[..., object]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
