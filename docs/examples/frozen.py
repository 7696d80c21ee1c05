"""The fault that specsim started from, in its smallest form."""

import random

_kept: dict[tuple[float, int], int] = {}


def sample_acc_len(acc_len: float, method: str, max_len: int) -> int:
    """Draw a length when it is first asked for, and return the same one ever after."""
    if method != "match-expected":
        raise ValueError(f"method must be 'match-expected', got {method!r}")
    key = (acc_len, max_len)
    if key not in _kept:
        clamped = min(max(acc_len, 1.0), float(max_len))
        whole = int(clamped)
        _kept[key] = whole + (random.random() < clamped - whole)
    return _kept[key]
