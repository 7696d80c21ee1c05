"""Judges real engines' own samplers. Run by ``nox -s peers``, which fetches the packages.

What is asserted here was seen, and is written down in docs/peers.md; a release that behaves in
another way makes the page wrong, and so this test fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specsim.report import json_report

FUNCTIONS = {
    "0.5.16": "_sample_simulated_acc_len",
    "0.5.17": "_sample_simulated_acc_len",
    "0.5.18": "sample_simulated_acc_len",
    "0.5.20": "sample_simulated_acc_len",
    "0.5.23": "sample_simulated_acc_len",
}
NON_FINITE = """\
nan match-expected: returned 8
inf match-expected: returned 8
-inf match-expected: returned 1
nan multinomial: raised ValueError: cannot convert float NaN to integer
inf multinomial: returned 8
-inf multinomial: returned 1"""


def source(package: str, version: str, path: str) -> Path:
    """Return a file of an installed peer, or skip with the reason."""
    folder = os.environ.get("SPECSIM_PEERS")
    if folder is None:
        pytest.skip("no peers here: run nox -s peers")
    file = Path(folder) / f"{package}=={version}" / path
    if not file.exists():
        pytest.skip(f"{package} {version} could not be had for this Python and platform")
    return file


@pytest.mark.parametrize("version", FUNCTIONS)
def test_sglang_sampler(version: str, tmp_path: Path) -> None:
    # A correct sampler is rejected with probability at most 1e-6.
    file = source("sglang", version, "sglang/srt/speculative/spec_utils.py")
    out = tmp_path / "report.json"
    target = f"{file}:{FUNCTIONS[version]}"
    command = ["check", "--extract", target, "--json", str(out), "--effort", "quick"]
    result = subprocess.run(
        [sys.executable, "-m", "specsim", *command], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = json_report.from_json(out.read_text())
    failed = [o.property_id for o in report.outcomes if o.verdict != "pass"]
    assert failed == ["S.non-finite"], json.dumps(failed)
    assert report["S.non-finite"].detail == NON_FINITE
