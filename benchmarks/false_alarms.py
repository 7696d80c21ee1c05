"""Measures how often correct streams are rejected when they are looked at again and again.

Run as ``python -m benchmarks.false_alarms --streams 2000 --draws 5000 --every 1``. Ends with
status 1 if a Clopper-Pearson interval at 95 % lies above its alpha.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import secrets
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy.stats import beta

from specsim.acceptance import AcceptanceDistribution
from specsim.evidence.law import FloatArray
from specsim.evidence.sequential import log_e_path

ALPHAS = (0.05, 0.01)
_CHUNK = 10

_rates = AcceptanceDistribution.from_rates
_match = AcceptanceDistribution.match_expected
_normal = AcceptanceDistribution.multinomial

FAMILIES: dict[str, list[AcceptanceDistribution]] = {
    "match-expected": [
        *(_match(t, 8) for t in (4.7, 1.02, 2.5, 6.95, 7.3)),
        *(_match(t, m) for t, m in ((1.5, 2), (12.66, 16), (15.999, 16))),
    ],
    "multinomial": [
        *(_normal(t, 8) for t in (-1.0, 0.3, 1.2, 4.7, 7.6, 9.5)),
        *(_normal(t, m) for t, m in ((1.5, 2), (2.0, 3), (4.7, 5), (8.2, 16), (15.5, 16))),
    ],
    "flat": [AcceptanceDistribution(np.full(n, 1 / n)) for n in (1, 2, 3, 5, 8, 12, 16)],
    "rates": [
        _rates([0.906, 0.497, 0.203]),
        _rates([0.02]),
        _rates([0.999, 0.01]),
        _rates([1.0, 1.0, 0.7, 0.0]),
        _rates([0.8**k for k in range(1, 8)]),
        _rates([0.9**k for k in range(1, 16)]),
    ],
}
LAWS = [(family, law) for family, laws in FAMILIES.items() for law in laws]


def peaks(numbers: range, draws: int, every: int, seed: int) -> list[float]:
    """Return the largest log e-value that each of some streams shows at any look.

    Parameters
    ----------
    numbers
        The streams; stream i has the law ``LAWS[i % len(LAWS)]`` and a generator of its own.
    draws, every
        Draws of a stream, looked at after every `every` of them.
    seed
        Of the whole run.
    """
    looks = np.arange(every, draws + 1, every)
    found = []
    for number in numbers:
        law = LAWS[number % len(LAWS)][1]
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
        lengths = rng.choice(law.max_len, size=draws, p=law.pmf) + 1
        found.append(float(log_e_path(law, lengths, looks).max()))
    return found


def clopper_pearson(hits: int, total: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson, 1934)."""
    low = float(beta.ppf(0.025, hits, total - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, total - hits)) if hits < total else 1.0
    return low, high


def table(log_peaks: FloatArray) -> tuple[str, bool]:
    """Return the results in markdown, and whether no interval lies above its alpha."""
    lines = ["| laws | streams | alpha | rejected | share | 95 % interval |", "| --- " * 6 + "|"]
    families = np.array([LAWS[i % len(LAWS)][0] for i in range(log_peaks.size)])
    held = True
    for family in (*FAMILIES, "all"):
        chosen = log_peaks[(families == family) | (family == "all")]
        for alpha in ALPHAS:
            hits = int(np.sum(chosen >= -math.log(alpha)))
            low, high = clopper_pearson(hits, chosen.size)
            held &= low <= alpha
            lines.append(
                f"| {family} | {chosen.size} | {alpha:g} | {hits} | {hits / chosen.size:.4f} "
                f"| [{low:.4f}, {high:.4f}] |"
            )
    return "\n".join(lines), held


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(description="Share of correct streams rejected.")
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--draws", type=int, default=5_000)
    parser.add_argument("--every", type=int, default=1, help="draws between looks")
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed by default")
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args(arguments)
    if min(chosen.streams, chosen.draws, chosen.every, chosen.workers) < 1:
        parser.error("--streams, --draws, --every and --workers must be at least 1")
    if chosen.every > chosen.draws:
        parser.error("--every must be at most --draws")
    seed = secrets.randbits(64) if chosen.seed is None else chosen.seed
    print(
        f"{chosen.streams} streams of {chosen.draws} draws over {len(LAWS)} laws, looked at "
        f"every {chosen.every}; seed {seed}",
        flush=True,
    )
    begun = time.perf_counter()
    # One process a core: threads inside the matrix products would only get in each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.workers, mp_context=context) as pool:
        tasks = [
            pool.submit(
                peaks,
                range(start, min(start + _CHUNK, chosen.streams)),
                chosen.draws,
                chosen.every,
                seed,
            )
            for start in range(0, chosen.streams, _CHUNK)
        ]
        log_peaks = np.array([peak for task in tasks for peak in task.result()])
    text, held = table(log_peaks)
    print(text)
    print(f"{time.perf_counter() - begun:.0f} s with {chosen.workers} processes")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
