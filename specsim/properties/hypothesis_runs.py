"""Runs Hypothesis as a search: quiet, from a seed, without a database, inside anybody's test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import hypothesis
from hypothesis import HealthCheck, Phase


def search_settings(
    examples: int,
    phases: Iterable[Phase] = (Phase.generate, Phase.shrink),
    *,
    stateful_step_count: int = 50,
) -> hypothesis.settings:
    """Return the settings of a search."""
    return hypothesis.settings(
        database=None,
        deadline=None,
        derandomize=False,
        max_examples=examples,
        phases=tuple(phases),
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
        stateful_step_count=stateful_step_count,
    )


def outside_tests(search: Callable[[], None]) -> None:
    """Run a search, whether or not the caller is a Hypothesis test itself."""
    if not hypothesis.currently_in_test_context():
        search()
        return
    # Hypothesis refuses a test inside another one; its context ends at the thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(search).result()
