"""A correct sampler of match-expected lengths, to try the commands of these pages on."""

import random


def sample_acc_len(acc_len: float, method: str, max_len: int) -> int:
    """Return one of the two integers around acc_len, clamped to [1, max_len]."""
    if method != "match-expected":
        raise ValueError(f"method must be 'match-expected', got {method!r}")
    clamped = min(max(acc_len, 1.0), float(max_len))
    whole = int(clamped)
    return whole + (random.random() < clamped - whole)
