"""Real gloo processes for the tests of rank agreement, started from a server that has torch."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

_TIMEOUT_S = 120


def run_on_ranks(
    function: Callable[[int, int], Any], world_size: int, folder: Path
) -> list[dict[str, Any]]:
    """Call ``function(rank, world_size)`` in one process a rank; return the results in order."""
    context = multiprocessing.get_context("forkserver")
    # The server imports torch once; its forks need not.
    context.set_forkserver_preload([__name__, function.__module__])
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
    codes = [process.exitcode for process in processes]
    if any(codes):
        raise RuntimeError(f"exit codes of the ranks must be 0, got {codes}")
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in range(world_size)]


def _rank(function: Callable[[int, int], Any], rank: int, world_size: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=(folder / "store").as_uri(),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=_TIMEOUT_S // 2),
    )
    try:
        result = function(rank, world_size)
    finally:
        dist.destroy_process_group()
    (folder / f"rank{rank}").write_bytes(pickle.dumps(result))
