"""`check`: judge a target in this process, and get a report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from specsim._version import __version__
from specsim.adapters.accept import AcceptTarget
from specsim.adapters.choose import adapt_target
from specsim.properties.configurations import METHODS
from specsim.properties.generators import loaded_torch
from specsim.properties.outcome import Effort, Outcome, Report
from specsim.properties.registry import must_be_judged, select
from specsim.properties.session import (
    DEFAULT_TOLERANCE,
    AcceptSession,
    CourseRunner,
    Progress,
    Session,
    Settings,
    as_names,
    as_reasons,
    run_in_turn,
)
from specsim.targets import LoadedTarget, load_target, name_of
from specsim.trace.session import TraceSession, open_trace


def check(
    target: str | Callable[..., object],
    *,
    kind: str | None = None,
    effort: Effort = "standard",
    alpha: float = 1e-6,
    seed: int = 0,
    coupling: str = "batch",
    properties: Iterable[str] | None = None,
    methods: Iterable[str] = METHODS,
    tolerance: float = DEFAULT_TOLERANCE,
    step_method: str | None = None,
    step_tensor: str | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Report:
    """Judge a target against the catalogue.

    Parameters
    ----------
    target
        A callable, or text that names one: ``"package.module:attribute"`` or
        ``"path/to/file.py:attribute"``.
    kind
        ``"sampler"`` for ``(acc_len, method, max_len) -> int``, ``"vector-sampler"`` for
        ``(acc_len, method, max_len, n) -> n lengths``, ``"rates-sampler"`` for
        ``(unconditional_rates, n) -> n lengths``; ``"executor"``, ``"dflash"``, ``"eagle"``,
        ``"accept"`` and ``"chain-accept"`` as `specsim.adapters` describes them; by default told
        from the signature.
    effort
        ``"quick"`` rules out deviations of 0.05 in total variation, ``"standard"`` 0.02,
        ``"thorough"`` 0.01.
    alpha
        Largest probability that a correct target is rejected, by all properties together; also
        the error rate of each pass.
    seed
        Decides configurations and the states of the global generators.
    coupling
        ``"batch"``: an executor draws once a step for all slots; ``"slot"``: once for each slot.
        Samplers have no slots, so both are the same to them.
    properties
        Ids (``"S.range"``) or letters (``"S"``); all that apply by default.
    methods
        The methods that the target knows, of ``"match-expected"`` and ``"multinomial"``.
    tolerance
        Total variation from the claim that is reported instead of failed.
    step_method, step_tensor
        Of an executor with the step protocol: the method that draws a step's lengths, and the
        attribute that it fills. By default looked for, after a cached buffer, under the names in
        `specsim.adapters.kinds`.
    expected_failures
        Ids of properties known to fail, with the reason; they do not make the run fail.

    Returns
    -------
    Report

    Raises
    ------
    TargetError
        If the target cannot be loaded, or not called as its kind is.
    ValueError
        If a setting is outside what is allowed, a property id unknown, or the failure of a
        property expected that is not judged.
    TypeError
        If `methods` or `properties` are no lists of names, or `expected_failures` no mapping of
        ids to reasons.
    """
    names = as_names("methods", methods)
    settings = Settings(effort, alpha, seed, coupling, names, tolerance, step_method, step_tensor)
    wanted = None if properties is None else as_names("properties", properties)
    reasons = as_reasons(expected_failures)
    loaded = load_target(target) if isinstance(target, str) else describe_callable(target)
    return judge(loaded, kind, settings, properties=wanted, expected_failures=reasons)


def describe_callable(function: Callable[..., object]) -> LoadedTarget:
    """Return a callable as a target, with the best import line that can be told from it."""
    name = name_of(function)
    module = getattr(function, "__module__", None)
    if not isinstance(module, str):
        module = None
    found = getattr(sys.modules.get(module or ""), name, None)
    if module and module != "__main__" and found is function:
        return LoadedTarget(f"{module}:{name}", name, function, f"from {module} import {name}")
    where = f" of {module}" if module else ""
    line = f"# {name} is the target given to specsim.check{where}"
    return LoadedTarget(name, name, function, line)


def check_trace(
    paths: Iterable[str | os.PathLike[str]],
    *,
    effort: Effort = "standard",
    alpha: float = 1e-6,
    properties: Iterable[str] | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    expected_failures: Mapping[str, str] | None = None,
) -> Report:
    """Judge what live engines have recorded with `specsim.record`.

    Parameters
    ----------
    paths
        Folders, one a run; the files in one are those of its ranks.
    effort, alpha, properties, tolerance, expected_failures
        As in `check`.

    Returns
    -------
    Report

    Raises
    ------
    TargetError
        If a folder holds no trace, or a file no valid header.
    ValueError, TypeError
        As `check`.
    """
    settings = Settings(effort, alpha, tolerance=tolerance)
    wanted = None if properties is None else as_names("properties", properties)
    session = open_trace(paths, settings)
    return judge_session(
        session,
        session.target.name,
        properties=wanted,
        expected_failures=as_reasons(expected_failures),
    )


def judge(
    loaded: LoadedTarget,
    kind: str | None,
    settings: Settings,
    *,
    properties: Iterable[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    runner: CourseRunner = run_in_turn,
    on_draws: Progress = lambda draws: None,
    on_property: Callable[[str], None] = lambda property_id: None,
    on_report: Callable[[Report], None] = lambda so_far: None,
) -> Report:
    """Judge a loaded target: what `check`, the command line and the plugin all call.

    Parameters
    ----------
    loaded
        The target.
    kind, settings, properties, expected_failures
        As in `check`.
    runner
        How courses are run; the command line brings one that uses several processes.
    on_draws, on_property, on_report
        Told of draws just made, and as `judge_session` says.

    Returns
    -------
    Report
    """
    session = open_session(loaded, kind, settings)
    session.progress = on_draws
    if isinstance(session, Session):
        session.runner = runner
        chosen = select(session.target.kind, properties)
        session.wants_streams = any(prop.statistical for prop in chosen)
    return judge_session(
        session,
        loaded.spec,
        properties=properties,
        expected_failures=expected_failures,
        on_property=on_property,
        on_report=on_report,
    )


def judge_session(
    session: Session | AcceptSession | TraceSession,
    spec: str,
    *,
    properties: Iterable[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    on_property: Callable[[str], None] = lambda property_id: None,
    on_report: Callable[[Report], None] = lambda so_far: None,
) -> Report:
    """Judge what a session holds.

    Parameters
    ----------
    session
        The target and what was asked for.
    spec
        The target as the user named it.
    properties, expected_failures
        As in `check`.
    on_property, on_report
        Told of the property that is judged next, and of all that is judged so far: required
        properties come first.

    Returns
    -------
    Report
    """
    started = time.perf_counter()
    kind, settings = session.target.kind, session.settings
    reasons = dict(expected_failures or {})
    chosen = select(kind, properties)
    select(kind, reasons)
    must_be_judged(reasons, chosen)
    outcomes: dict[str, Outcome] = {}

    def so_far() -> Report:
        return Report(
            target=spec,
            kind=kind,
            effort=settings.effort,
            alpha=settings.alpha,
            seed=settings.seed,
            coupling=settings.coupling,
            outcomes=tuple(outcomes[prop.id] for prop in chosen if prop.id in outcomes),
            seconds=time.perf_counter() - started,
            versions=versions(),
        )

    # Ranks are forks, and nothing can be forked once another property has used CUDA. What an
    # advisory property tries may end a process: by then the required ones are judged.
    for prop in sorted(chosen, key=lambda prop: (prop.id[0] != "R", not prop.required)):
        on_property(prop.id)
        outcome = prop.check(session)
        if prop.id in reasons:
            outcome = replace(outcome, expected=reasons[prop.id])
        outcomes[prop.id] = outcome
        on_report(so_far())
    return so_far()


def open_session(
    loaded: LoadedTarget, kind: str | None, settings: Settings
) -> Session | AcceptSession:
    """Return a session on a target, after looking whether it can be called at all."""
    target = adapt_target(loaded, kind, settings)
    if isinstance(target, AcceptTarget):
        return AcceptSession(target, loaded.import_line, settings)
    return Session(target, loaded.import_line, settings)


def versions() -> dict[str, str]:
    """Return the versions of what takes part in a run."""
    found = {
        "specsim": __version__,
        "python": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
        "scipy": importlib.metadata.version("scipy"),
        "hypothesis": importlib.metadata.version("hypothesis"),
    }
    torch = loaded_torch()
    if torch is not None:
        found["torch"] = str(torch.__version__)
    return found
