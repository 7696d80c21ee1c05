"""`check`: judge a target in this process, and get a report."""

from __future__ import annotations

import importlib.metadata
import inspect
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from specsim._version import __version__
from specsim.properties.configurations import METHODS
from specsim.properties.generators import loaded_torch
from specsim.properties.outcome import Effort, Outcome, Report
from specsim.properties.registry import must_be_judged, select
from specsim.properties.session import (
    DEFAULT_TOLERANCE,
    CourseRunner,
    Progress,
    Session,
    Settings,
    as_names,
    as_reasons,
    run_in_turn,
)
from specsim.targets import LoadedTarget, TargetError, adapt, detect_kind, load_target, name_of


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
        ``(unconditional_rates, n) -> n lengths``; by default told from the signature.
    effort
        ``"quick"`` rules out deviations of 0.05 in total variation, ``"standard"`` 0.02,
        ``"thorough"`` 0.01.
    alpha
        Largest probability that a correct target is rejected, by all properties together; also
        the error rate of each pass.
    seed
        Decides configurations and the states of the global generators.
    coupling
        ``"batch"`` or ``"slot"``; samplers have no slots, so both are the same to them.
    properties
        Ids (``"S.range"``) or letters (``"S"``); all that apply by default.
    methods
        The methods that the target knows, of ``"match-expected"`` and ``"multinomial"``.
    tolerance
        Total variation from the claim that is reported instead of failed.
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
    settings = Settings(effort, alpha, seed, coupling, names, tolerance)
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
        Told of draws just made, of the property that is judged next, and of all that is judged
        so far: required properties come first.

    Returns
    -------
    Report
    """
    started = time.perf_counter()
    session = open_session(loaded, kind, settings)
    session.runner, session.progress = runner, on_draws
    reasons = dict(expected_failures or {})
    chosen = select(session.target.kind, properties)
    select(session.target.kind, reasons)
    must_be_judged(reasons, chosen)
    session.wants_streams = any(prop.statistical for prop in chosen)
    outcomes: dict[str, Outcome] = {}

    def so_far() -> Report:
        return Report(
            target=loaded.spec,
            kind=session.target.kind,
            effort=settings.effort,
            alpha=settings.alpha,
            seed=settings.seed,
            coupling=settings.coupling,
            outcomes=tuple(outcomes[prop.id] for prop in chosen if prop.id in outcomes),
            seconds=time.perf_counter() - started,
            versions=versions(),
        )

    # What an advisory property tries may end a process: by then the required ones are judged.
    for prop in sorted(chosen, key=lambda prop: not prop.required):
        on_property(prop.id)
        outcome = prop.check(session)
        if prop.id in reasons:
            outcome = replace(outcome, expected=reasons[prop.id])
        outcomes[prop.id] = outcome
        on_report(so_far())
    return so_far()


def open_session(loaded: LoadedTarget, kind: str | None, settings: Settings) -> Session:
    """Return a session on a target, after looking whether it can be called at all."""
    if inspect.isclass(loaded.function):
        raise TargetError(f"{loaded.spec} is a class; a sampler must be a callable object")
    target = adapt(loaded.function, kind or detect_kind(loaded.function), loaded.name)
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
