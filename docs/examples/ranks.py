"""Compares what all ranks commit, step by step.

Start it with: torchrun --standalone --nproc-per-node 2 docs/examples/ranks.py
"""

import sys

import torch
import torch.distributed as dist

from specsim.distributed import check_ranks
from specsim.verify import TargetVerifyExecutor

BS, GAMMA = 4, 7

dist.init_process_group("gloo")

# Your own executor, as your worker makes it on each rank.
executor = TargetVerifyExecutor(GAMMA, 4.7, "match-expected", seed=0, sync="counter")

draft_tokens = torch.zeros((BS, GAMMA), dtype=torch.int64)
target_tokens = torch.zeros((BS, GAMMA + 1), dtype=torch.int64)
prefix_lens = torch.full((BS,), 100)


def step(number: int) -> torch.Tensor:
    """Verify once, and return what this rank commits."""
    result = executor.accept_and_finalize(
        draft_tokens=draft_tokens, target_tokens=target_tokens, prefix_lens=prefix_lens
    )
    return result.commit_lens


report = check_ranks(step, steps=2_000)
if dist.get_rank() == 0:
    print(report)
dist.destroy_process_group()
sys.exit(not report.passed)
