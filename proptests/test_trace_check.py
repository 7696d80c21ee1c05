"""Traces through the front ends: the command line, and `check_trace`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import specsim
from specsim.properties.registry import catalogue
from specsim.targets import TargetError

STEPS = 12_000


def recorded(folder: Path, lengths: list[int], gamma: int = 7) -> Path:
    with specsim.record(folder, gamma=gamma, simulate_acc_len=4.7, rank=0) as recorder:
        for length in lengths:
            recorder.step(correct_len=[length - 1] * 3, commit_lens=[length] * 3)
    return folder


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    law = specsim.AcceptanceDistribution.match_expected(4.7, 8)
    lengths = specsim.AcceptanceSampler(law).draws(STEPS).tolist()
    return recorded(tmp_path_factory.mktemp("fresh") / "trace", lengths)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("frozen") / "trace", [5] * STEPS)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "check", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_correct_trace_passes_on_the_command_line(fresh: Path, tmp_path: Path) -> None:
    # Rejected with probability at most 1e-6.
    out = tmp_path / "report.json"
    result = run("--trace", fresh, "--effort", "quick", "--json", out)
    assert result.returncode == 0, result.stdout + result.stderr
    document = json.loads(out.read_text())
    assert document["kind"] == "trace"
    assert document["target"] == str(fresh)


def test_a_frozen_trace_fails_from_python(fresh: Path, frozen: Path) -> None:
    report = specsim.check_trace([frozen], effort="quick")
    failed = {o.property_id for o in report.outcomes if o.verdict == "fail"}
    assert failed == {"E.distribution", "E.mean", "E.freshness"}
    both = specsim.check_trace([fresh, frozen], effort="quick", properties=["E.mean"])
    assert not both.ok
    excused = specsim.check_trace(
        [frozen],
        effort="quick",
        properties=["E.mean"],
        expected_failures={"E.mean": "frozen on purpose"},
    )
    assert excused.ok


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "name either a TARGET or a --trace"),
        (["specsim:sample_simulated_acc_len", "--trace", "x"], "and not both"),
        (["--trace", "no-such-folder"], "no-such-folder is no folder"),
        (["--trace", "x", "--kind", "executor"], "a trace says itself what it is of"),
    ],
)
def test_wrong_calls_are_refused(arguments: list[str], wanted: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert wanted in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_damaged_trace_is_refused_in_one_line(fresh: Path, tmp_path: Path) -> None:
    whole = next(fresh.iterdir())
    content = bytearray(whole.read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / whole.name).write_bytes(content)
    result = run("--trace", tmp_path, "--effort", "quick")
    assert result.returncode == 2, result.stdout
    assert len(result.stderr.strip().splitlines()) == 1
    with pytest.raises(TargetError):
        specsim.check_trace([tmp_path], effort="quick")


def test_the_catalogue_has_what_a_trace_shows() -> None:
    letters = {prop.id[0] for prop in catalogue("trace")}
    assert letters == {"E", "F", "T", "G", "R"}
