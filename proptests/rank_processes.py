"""Real gloo processes for the tests of rank agreement.

A process of its own imports torch and the test's module once, and forks the ranks: nothing that
belongs to the ranks stays behind in the process of the tests, not even a server of forks.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[1]
_TIMEOUT_S = 120


def run_on_ranks(
    function: Callable[[int, int], Any], world_sizes: Iterable[int], folder: Path
) -> dict[int, list[dict[str, Any]]]:
    """Call ``function(rank, world_size)`` in one process a rank, for each world size in turn.

    Parameters
    ----------
    function
        A function of a module's own.
    world_sizes
        Numbers of ranks.
    folder
        For what passes between the processes.

    Returns
    -------
    dict of int to list
        For each world size what the ranks returned, in order.
    """
    sizes = list(world_sizes)
    named = [function.__module__, function.__name__, str(folder)]
    subprocess.run(
        [sys.executable, "-m", __name__, *named, *map(str, sizes)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    return {
        size: [pickle.loads(_result(folder, size, rank).read_bytes()) for rank in range(size)]
        for size in sizes
    }


def world_sizes(config: pytest.Config) -> list[int]:
    """Return the numbers of ranks that a session tries."""
    return [2, 4, 8] if config.getoption("--slow") else [2, 4]


def main(module: str, name: str, folder: Path, world_size: int) -> None:
    """Fork the ranks and wait for them."""
    function = getattr(importlib.import_module(module), name)
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_rank, args=(function, rank, world_size, folder), daemon=True)
        for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(_TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()
    codes = [process.exitcode for process in processes]
    if any(codes):
        raise SystemExit(f"exit codes of the {world_size} ranks must be 0, got {codes}")


def _result(folder: Path, world_size: int, rank: int) -> Path:
    return folder / f"rank{rank}of{world_size}"


def _rank(function: Callable[[int, int], Any], rank: int, world_size: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=(folder / f"store{world_size}").as_uri(),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=_TIMEOUT_S // 2),
    )
    try:
        result = function(rank, world_size)
    finally:
        dist.destroy_process_group()
    _result(folder, world_size, rank).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    module, name, folder, *sizes = sys.argv[1:]
    for size in sizes:
        main(module, name, Path(folder), int(size))
