"""E.off: with simulation off, nothing is forced."""

from __future__ import annotations

import time

import torch

from specsim.adapters.executor import Protocol
from specsim.adapters.guard import target_call
from specsim.extract_executor import ExtractedExecutor
from specsim.loading.failures import TargetFailed, shown
from specsim.properties.finalize import KINDS, by_commits, configuration_in, offer_in, target_of
from specsim.properties.finalize_cases import OFF_LENGTHS
from specsim.properties.generators import own_generators
from specsim.properties.outcome import Outcome
from specsim.properties.registry import Property, register
from specsim.properties.session import Session
from specsim.targets import Configuration

# No draft length, and in every integer dtype.
_MARK = 77
_STEPS = 3


@register(
    "E.off",
    "A length of 0 or below turns simulation off: all that comes out is the real accept's.",
    source="SGLang's simulated length is -1 by default, and off at 0 too",
    kinds=KINDS,
)
def off(prop: Property, session: Session) -> Outcome:
    """Judge E.off by what is committed, else by the tensor of the step protocol."""
    offer = offer_in(session)
    if isinstance(offer, str) or offer.missing is None or offer.step_method is None:
        return by_commits(prop, session)
    if isinstance(target_of(session).factory, ExtractedExecutor):
        return prop.outcome(
            "skip", "a bare object has the tensor that it was given; engines give none when off"
        )
    started = time.perf_counter()
    protocol = target_of(session).open(configuration_in(session)).protocol
    for acc_len in OFF_LENGTHS:
        tried = configuration_in(session)
        configuration = Configuration(acc_len, tried.method, tried.max_len)
        with own_generators(session.settings.seed, "off", acc_len):
            found = _filled(session, configuration, protocol)
        if found is not None:
            call = session.target.call_repr(configuration)
            return prop.outcome(
                "fail",
                f"{call}: {found}",
                configuration=call,
                snippet=_program(session, configuration, protocol),
                seconds=time.perf_counter() - started,
            )
    lengths = " and ".join(map(str, OFF_LENGTHS))
    return prop.outcome(
        "pass",
        f"at {lengths}, {protocol.step}() leaves {protocol.tensor} as it was",
        draws=_STEPS * len(OFF_LENGTHS),
        seconds=time.perf_counter() - started,
    )


def _filled(session: Session, configuration: Configuration, protocol: Protocol) -> str | None:
    """Return what a step wrote, or how it failed; None if it wrote nothing."""
    assert protocol.step is not None
    assert protocol.tensor is not None
    try:
        with target_call():
            executor = target_of(session).factory(
                configuration.max_len - 1, configuration.acc_len, configuration.method
            )
            before = getattr(executor, protocol.tensor, None)
            if isinstance(before, torch.Tensor):
                # What was made in inference mode can be written there alone.
                with torch.inference_mode():
                    before.fill_(_MARK)
            for _ in range(_STEPS):
                getattr(executor, protocol.step)()
            after = getattr(executor, protocol.tensor, None)
            values = after.tolist() if isinstance(after, torch.Tensor) else []
    except TargetFailed as failed:
        frames = f"\n{failed.frames_text.rstrip()}" if failed.frames_text else ""
        return f"it {failed.summary}{frames}"
    if after is None or (after is before and set(_flat(values)) <= {_MARK}):
        return None
    was = f"that held {_MARK}" if isinstance(before, torch.Tensor) else f"that was {shown(before)}"
    return f"{protocol.step}() filled {protocol.tensor}, {was}, with {shown(after)}"


def _flat(values: object) -> list[object]:
    """Return the numbers of a tensor's nested lists."""
    if not isinstance(values, list):
        return [values]
    return [number for value in values for number in _flat(value)]


def _program(session: Session, configuration: Configuration, protocol: Protocol) -> str:
    return "\n".join(
        [
            "import torch",
            session.import_line,
            "",
            f"executor = {session.target.call_repr(configuration)}",
            f"if getattr(executor, {protocol.tensor!r}, None) is not None:",
            "    with torch.inference_mode():",
            f"        executor.{protocol.tensor}.fill_({_MARK})",
            f"executor.{protocol.step}()",
            f"print(executor.{protocol.tensor})  # expected None, or {_MARK}: nothing is forced",
            "",
        ]
    )
