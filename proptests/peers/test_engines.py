"""Judges real engines' own code. Run by ``nox -s peers``, which fetches the packages.

What is asserted here was seen, and is written down in docs/peers.md; a release that behaves in
another way makes the page wrong, and so this test fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import specsim
from specsim.report import json_report

FUNCTIONS = {
    "0.5.16": "_sample_simulated_acc_len",
    "0.5.17": "_sample_simulated_acc_len",
    "0.5.18": "sample_simulated_acc_len",
    "0.5.20": "sample_simulated_acc_len",
    "0.5.23": "sample_simulated_acc_len",
}
SPECULATIVE = "sglang/srt/speculative"
# The engine seeds torch alike on all ranks; without that they would draw apart.
DRAWS_FROM_TORCH = {"R.unequal-generators"}
BEFORE_THE_FIX = {
    "E.device",
    "E.distribution",
    "E.freshness",
    "E.mean",
    "E.sequence",
    "E.written",
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


def judged(tmp_path: Path, spec: str, *options: str) -> tuple[int, specsim.Report]:
    """Check an extracted target at quick; return the exit status and the report."""
    out = tmp_path / "report.json"
    command = ["check", "--extract", spec, "--json", str(out), "--effort", "quick", *options]
    result = subprocess.run(
        [sys.executable, "-m", "specsim", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert out.exists(), result.stdout + result.stderr
    return result.returncode, json_report.from_json(out.read_text())


def engines_sampler(version: str, tmp_path: Path) -> str:
    """Return the option that gives an extracted function the engine's own sampler."""
    file = source("sglang", version, f"{SPECULATIVE}/spec_utils.py")
    (tmp_path / "engine_sampler.py").write_text(
        "from specsim.extract import extract\n"
        f"sample = extract({str(file)!r}, {FUNCTIONS[version]!r})\n"
    )
    return f"--namespace={FUNCTIONS[version]}=engine_sampler.py:sample"


def failed(report: specsim.Report) -> set[str]:
    return {o.property_id for o in report.outcomes if o.verdict in ("fail", "inconclusive")}


@pytest.mark.parametrize("version", FUNCTIONS)
def test_sglang_sampler(version: str, tmp_path: Path) -> None:
    # A correct sampler is rejected with probability at most 1e-6.
    file = source("sglang", version, f"{SPECULATIVE}/spec_utils.py")
    status, report = judged(tmp_path, f"{file}:{FUNCTIONS[version]}")
    assert status == 0
    assert failed(report) == {"S.non-finite"}
    assert report["S.non-finite"].detail == NON_FINITE


def dspark(version: str, tmp_path: Path, method: str, *more: str) -> tuple[int, specsim.Report]:
    """Judge a method of SGLang's DSpark executor."""
    path = f"{SPECULATIVE}/dspark_components/dspark_verify.py"
    file = source("sglang", version, path)
    return judged(
        tmp_path,
        f"{file}:TargetVerifyExecutor.{method}",
        "--attribute=gamma={gamma}",
        "--attribute=_simulate_acc_len={simulate_acc_len}",
        "--namespace=SIMULATE_ACC_METHOD={simulate_acc_method}",
        engines_sampler(version, tmp_path),
        *more,
    )


@pytest.mark.parametrize("version", ["0.5.16", "0.5.17"])
def test_sglang_dspark_before_the_fix(version: str, tmp_path: Path) -> None:
    """SGLang PR 33463: rounded once when the buffer was made, its device not compared."""
    status, report = dspark(
        version,
        tmp_path,
        "_simulated_correct_len",
        "--attribute=_simulated_correct_drafts_buf=None",
    )
    assert status == 1
    assert failed(report) == BEFORE_THE_FIX
    assert "returned a tensor on cpu, expected meta" in report["E.device"].detail


@pytest.mark.parametrize("version", ["0.5.18", "0.5.20"])
def test_sglang_dspark_after_the_fix(version: str, tmp_path: Path) -> None:
    # A correct executor is rejected with probability at most 1e-6.
    status, report = dspark(
        version,
        tmp_path,
        "_simulated_correct_len",
        "--attribute=_simulated_correct_drafts_buf=None",
    )
    assert status == 0
    assert failed(report) == DRAWS_FROM_TORCH
    assert report["E.device"].verdict == "pass"


def test_sglang_dspark_with_the_step_protocol(tmp_path: Path) -> None:
    # A correct executor is rejected with probability at most 1e-6.
    (tmp_path / "step.py").write_text(
        "import torch\n\n\ndef tensor():\n    return torch.zeros(1, dtype=torch.int64)\n"
    )
    status, report = dspark(
        "0.5.23",
        tmp_path,
        "begin_simulated_step",
        "--attribute=_simulated_correct_len=step.py:tensor()",
    )
    assert status == 0
    assert failed(report) == DRAWS_FROM_TORCH
    assert report["E.reuse"].verdict == "pass"
    assert report["E.growth"].verdict == "skip"


@pytest.mark.parametrize("version", ["0.5.17", "0.5.18", "0.5.20", "0.5.23"])
def test_sglang_dflash(version: str, tmp_path: Path) -> None:
    # A correct function is rejected with probability at most 1e-6.
    file = source("sglang", version, f"{SPECULATIVE}/dflash_utils.py")
    spec = f"{file}:apply_dflash_simulated_acceptance"
    status, report = judged(tmp_path, spec, engines_sampler(version, tmp_path))
    assert report.kind == "dflash"
    assert status == 0, failed(report)
    assert failed(report) == DRAWS_FROM_TORCH


@pytest.mark.parametrize("version", FUNCTIONS)
def test_sglang_eagle(version: str, tmp_path: Path) -> None:
    # A correct function is rejected with probability at most 1e-6.
    file = source("sglang", version, f"{SPECULATIVE}/spec_utils.py")
    spec = f"{file}:generate_simulated_accept_index"
    status, report = judged(tmp_path, spec, "--namespace=_is_cuda=False")
    assert report.kind == "eagle"
    assert status == 0, failed(report)
    assert failed(report) == DRAWS_FROM_TORCH
