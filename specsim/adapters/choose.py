"""Chooses the adapter of a loaded target."""

from __future__ import annotations

import inspect

from specsim.adapters.accept import ACCEPT_KINDS, AcceptTarget, adapt_accept
from specsim.adapters.kinds import EXECUTOR_ARGUMENTS, KINDS, detect_kind
from specsim.loading.failures import TargetError
from specsim.properties.session import Settings
from specsim.targets import KINDS as SAMPLER_KINDS
from specsim.targets import LengthTarget, LoadedTarget, adapt


def adapt_target(
    loaded: LoadedTarget, kind: str | None, settings: Settings
) -> LengthTarget | AcceptTarget:
    """Return the adapter of a target, after looking whether it can be called at all.

    Raises
    ------
    TargetError
        If the kind is unknown, not clear, or the target not called as its kind is.
    """
    if kind is not None and kind not in KINDS:
        raise TargetError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    kind = kind or detect_kind(loaded.function)
    if kind in SAMPLER_KINDS:
        if inspect.isclass(loaded.function):
            raise TargetError(f"{loaded.spec} is a class; a sampler must be a callable object")
        return adapt(loaded.function, kind, loaded.name)
    if kind == "executor":
        from specsim.adapters.executor import ExecutorTarget

        _must_take(loaded, EXECUTOR_ARGUMENTS)
        return ExecutorTarget(
            loaded.name,
            loaded.function,
            coupling=settings.coupling,
            step_method=settings.step_method,
            step_tensor=settings.step_tensor,
        )
    if kind == "dflash":
        from specsim.adapters.dflash import DFlashTarget

        return DFlashTarget(loaded.name, loaded.function)
    if kind == "eagle":
        from specsim.adapters.eagle import EagleTarget

        return EagleTarget(loaded.name, loaded.function)
    assert kind in ACCEPT_KINDS, kind
    return adapt_accept(loaded.function, kind, loaded.name)


def _must_take(loaded: LoadedTarget, arguments: tuple[str, ...]) -> None:
    """Raise if a call by position does not bind."""
    try:
        signature = inspect.signature(loaded.function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise TargetError(
            f"{loaded.name}{signature} cannot be called as an executor, with "
            f"({', '.join(arguments)}); --kind takes {', '.join(KINDS)}"
        ) from None
