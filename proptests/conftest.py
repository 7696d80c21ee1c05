"""Ranks for the tests that have a function `on_rank` to call in real processes."""

from __future__ import annotations

from typing import Any

import pytest

from proptests.rank_processes import run_on_ranks, world_sizes


@pytest.fixture(scope="module")
def ranks_of_sizes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, list[dict[str, Any]]]:
    """Return what the module's `on_rank` returned on every rank, by the number of ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    return run_on_ranks(request.module.on_rank, world_sizes(request.config), folder)


@pytest.fixture(params=[2, 4, pytest.param(8, marks=pytest.mark.slow)], ids="{} ranks".format)
def ranks(
    request: pytest.FixtureRequest, ranks_of_sizes: dict[int, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the results of one number of ranks."""
    return ranks_of_sizes[request.param]
