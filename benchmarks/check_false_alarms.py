"""How often the whole of `check` rejects a correct sampler.

``python -m benchmarks.check_false_alarms`` runs quick checks at a large alpha on correct samplers
that draw from the operating system's entropy, and holds the share of rejected runs against alpha.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from scipy.stats import binomtest

import specsim
from specsim.mutants import all_correct

SAMPLERS = ("python-generator", "numpy-generator")


def rejected(job: tuple[str, float, int]) -> tuple[bool, bool]:
    """Check one fresh sampler.

    Returns whether a required property failed, and whether one stayed inconclusive.
    """
    name, alpha, seed = job
    factory = next(c.factory for c in all_correct() if c.name == name)
    report = specsim.check(factory(None), effort="quick", alpha=alpha, seed=seed)
    verdicts = {outcome.verdict for outcome in report.outcomes if outcome.required}
    return "fail" in verdicts, "inconclusive" in verdicts


def main() -> int:
    """Print the shares; return 1 if a share lies above alpha beyond chance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--alpha", type=float, default=0.01)
    arguments = parser.parse_args()
    print("| sampler | runs | alpha | rejected | share | 95 % interval | inconclusive |")
    print("| --- | ---: | ---: | ---: | ---: | --- | ---: |")
    above = False
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name in SAMPLERS:
            jobs = [(name, arguments.alpha, seed) for seed in range(arguments.runs)]
            results = list(pool.map(rejected, jobs, chunksize=4))
            failed = sum(fail for fail, _ in results)
            test = binomtest(failed, arguments.runs, arguments.alpha, alternative="greater")
            interval = binomtest(failed, arguments.runs).proportion_ci(method="exact")
            print(
                f"| {name} | {arguments.runs} | {arguments.alpha:g} | {failed} | "
                f"{failed / arguments.runs:.4f} | [{interval.low:.4f}, {interval.high:.4f}] | "
                f"{sum(open_ for _, open_ in results)} |",
                flush=True,
            )
            above |= test.pvalue < 1e-3
    return int(above)


if __name__ == "__main__":
    sys.exit(main())
