"""Runs Hypothesis as a search: quiet, from a seed, without a database, inside anybody's test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

_Example = TypeVar("_Example")


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


def search_and_shrink(
    strategy: st.SearchStrategy[_Example],
    look: Callable[[_Example], Collection[str]],
    found: Callable[[], Iterable[str]],
    *,
    seed: int,
    examples: int,
) -> None:
    """Look at examples, and then for simpler ones of everything that was refuted.

    Parameters
    ----------
    strategy
        Of the examples.
    look
        Tries an example, keeps the simplest that it sees for each property, and returns the
        names of those that this one refutes.
    found
        Tells which properties to look for again.
    seed
        Decides the examples.
    examples
        How many to try; shrinking tries more.
    """

    def search(wanted: str | None) -> None:
        phases = [Phase.generate] if wanted is None else [Phase.generate, Phase.shrink]

        @hypothesis.seed(seed)
        @search_settings(examples, phases)
        @hypothesis.given(strategy)
        def body(example: _Example) -> None:
            if wanted in look(example):
                raise _Refuted

        # A target with memory may not repeat itself; the proof was noted when it happened.
        with suppress(_Refuted, hypothesis.errors.Flaky):
            body()

    def search_all() -> None:
        search(None)
        for name in sorted(found()):
            search(name)

    outside_tests(search_all)


class _Refuted(Exception):  # noqa: N818 - a finding, not an error
    pass


def outside_tests(search: Callable[[], None]) -> None:
    """Run a search, whether or not the caller is a Hypothesis test itself."""
    if not hypothesis.currently_in_test_context():
        search()
        return
    # Hypothesis refuses a test inside another one; its context ends at the thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(search).result()
