"""Statements that one length can refute: no statistics, so a violation is a proof.

Each draw of each configuration is held against all of them, whether Hypothesis chose the
configuration or a stream drew from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np

from specsim.adapters.kinds import BUFFER_METHODS, STEP_METHODS
from specsim.loading.failures import shown
from specsim.properties.configurations import law_of
from specsim.properties.lengths import as_length, numpy_types, wrong_types
from specsim.targets import Configuration, TargetFailed, Violation

# A multinomial length this far outside the range is the end itself but for a chance of 1e-15.
_FAR = 8.5


def failure(configuration: Configuration, failed: TargetFailed) -> Violation:
    """Return the violation of a target that did not return lengths."""
    return Violation("returns", configuration, failed.summary, (), failed.frames_text)


def reseeding(configuration: Configuration, generators: Sequence[str]) -> Violation:
    """Return the violation of calls that reseeded global generators."""
    message = f"reseeded the global generator of {' and '.join(generators)}"
    return Violation("generators", configuration, message, tuple(generators))


def no_length(value: object) -> str:
    """Return what is wrong with a value that stands for no length."""
    names = (*BUFFER_METHODS, *STEP_METHODS)
    executor = next((n for n in names if callable(inspect.getattr_static(value, n, None))), None)
    hint = f"; with its method {executor} it is an executor: --kind executor" if executor else ""
    return f"returned {shown(value)}, which is no length{hint}"


@np.errstate(all="ignore")  # the target may have set it to raise
def violations(
    configuration: Configuration, values: Sequence[object], gave: str = "returned"
) -> list[Violation]:
    """Hold returned values against every statement that a single one can refute.

    Parameters
    ----------
    configuration
        What the target was called with.
    values
        What it returned, types unchanged.
    gave
        What the target does with a length, for messages.

    Returns
    -------
    list of Violation
        At most one for each property.
    """
    found: list[Violation] = []
    top = configuration.max_len

    def add(name: str, message: str, offending: Sequence[object]) -> None:
        excerpt = tuple(shown(v) for v in [*offending[:1], *values[:8]])
        found.append(Violation(name, configuration, message, excerpt))

    strange = [v for v in values if as_length(v) is None]
    if strange:
        add("returns", no_length(strange[0]), strange)
    if wrong := wrong_types(values):
        culprits = [v for v in values if wrong_types([v])]
        add(
            "type",
            f"{gave} {shown(culprits[0])} of type {wrong[0]}; an int is expected",
            culprits,
        )
    if numpy := numpy_types(values):
        add("plain-int", f"returned a {numpy[0]}, not a plain int", values)

    lengths = {length: v for v in values if (length := as_length(v)) is not None}
    outside = [v for length, v in lengths.items() if not 1 <= length <= top]
    if outside:
        add("range", f"{gave} {shown(outside[0])}, outside [1, {top}]", outside)
    pmf = law_of(configuration).pmf
    impossible = [v for length, v in lengths.items() if 1 <= length <= top and not pmf[length - 1]]
    if impossible:
        support = [k + 1 for k in range(top) if pmf[k]]
        claimed = str(support) if len(support) <= 4 else f"{support[0]} … {support[-1]}"
        add("support", f"{gave} {shown(impossible[0])}; possible are {claimed}", impossible)

    acc_len, method = configuration.acc_len, configuration.method
    if acc_len is None:
        return found
    if method == "match-expected" and 1 <= acc_len <= top and acc_len == int(acc_len):
        stray = [v for length, v in lengths.items() if length != int(acc_len)]
        if stray:
            add("integers", f"{gave} {shown(stray[0])}; always {int(acc_len)} expected", stray)
    margin = _FAR if method == "multinomial" else 0.0
    if acc_len < 1 - margin or acc_len > top + margin:
        end = 1 if acc_len < 1 else top
        stray = [v for length, v in lengths.items() if length != end]
        if stray:
            add("clamping", f"{gave} {shown(stray[0])}; always {end} expected", stray)
    return found
