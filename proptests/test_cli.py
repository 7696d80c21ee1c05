"""The command line as a user meets it: statuses, streams, files, and targets that misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from specsim.report import json_report

GOOD = """
import random

def good(acc_len, method, max_len):
    acc_len = min(max(acc_len, 1.0), float(max_len))
    if method != "match-expected":
        raise ValueError(f"unknown method {method!r}; known: match-expected")
    whole = int(acc_len)
    return whole + (random.random() < acc_len - whole)

def frozen(acc_len, method, max_len):
    if method != "match-expected":
        raise ValueError(f"unknown method {method!r}; known: match-expected")
    return min(max(round(acc_len), 1), max_len)
"""


def run(
    *arguments: str, cwd: Path, timeout: float = 120.0, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "specsim", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        input=stdin,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        check=False,
    )


def check(
    tmp_path: Path, body: str, name: str = "target", *more: str
) -> subprocess.CompletedProcess[str]:
    """Check a target written for one test; match-expected alone, quick."""
    (tmp_path / "mine.py").write_text(textwrap.dedent(body))
    arguments = ["check", f"mine.py:{name}", "--effort", "quick", "--methods", "match-expected"]
    return run(*arguments, *more, cwd=tmp_path)


def assert_one_line(result: subprocess.CompletedProcess[str], status: int) -> str:
    """Assert that standard error holds one line for the user, and no traceback."""
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("specsim: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_good_target_passes_and_prints_a_result_on_stdout_only(tmp_path: Path) -> None:
    result = check(tmp_path, GOOD, "good")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.strip().splitlines()[-1].startswith("PASS mine.py:good")
    assert result.stderr == ""
    # Nothing is left behind in the user's folder.
    assert {path.name for path in tmp_path.iterdir()} <= {"mine.py", "__pycache__"}


def test_frozen_length_fails_with_a_snippet_that_shows_it_again(tmp_path: Path) -> None:
    result = check(tmp_path, GOOD, "frozen", "--json", "report.json", "--junit", "report.xml")
    assert result.returncode == 1
    assert "FAIL S.distribution" in result.stdout
    report = json_report.from_json((tmp_path / "report.json").read_text())
    outcome = report["S.distribution"]
    assert outcome.snippet is not None
    again = subprocess.run(
        [sys.executable, "-c", outcome.snippet],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert again.stdout.splitlines()[-1].startswith("rejected")
    suite = ET.parse(tmp_path / "report.xml").getroot()
    assert {case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None}


def test_json_on_stdout_is_the_whole_of_stdout(tmp_path: Path) -> None:
    result = check(tmp_path, GOOD, "good", "--json", "-", "--properties", "S.range,S.method")
    document = json.loads(result.stdout)
    jsonschema.validate(document, json_report.schema())
    assert [o["property_id"] for o in document["outcomes"]] == ["S.range", "S.method"]
    assert document["ok"] is True


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        # One of each kind: the messages themselves are tested where targets are loaded.
        ("no_such_module:f", "no_such_module"),
        ("broken.py:f", "broken.py:1"),
        ("json:dumps", "kind"),
        ("raises.py:f", "boom"),
        ("exits.py:f", "exit"),
    ],
)
def test_a_target_that_cannot_be_had_is_one_line_and_status_2(
    tmp_path: Path, spec: str, said: str
) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "raises.py").write_text("raise RuntimeError('boom')\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    result = run("check", spec, "--json", "out.json", "--junit", "out.xml", cwd=tmp_path)
    assert said in assert_one_line(result, 2)
    document = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(document, json_report.schema())
    assert said in document["error"]
    assert ET.parse(tmp_path / "out.xml").getroot() is not None


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "mine.py:good", "--kind", "vector-sampler"),
        ("check", "mine.py:good", "--properties", "S.no-such"),
        ("check", "mine.py:good", "--alpha", "2"),
        ("check", "mine.py:good", "--expect-failure", "S.nothing=why"),
        ("check", "mine.py:good", "--extract", "--namespace", "nonsense"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "mine.py").write_text(GOOD)
    assert_one_line(run(*arguments, cwd=tmp_path), 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "mine.py:good", "--effort", "huge"),
        ("check", "mine.py:good", "--expect-failure", "S.range"),
        ("check", "mine.py:good", "--attribute", "x=1"),
        ("check", "mine.py:good", "--timeout", "0"),
        ("chekc",),
    ],
)
def test_a_misspelt_option_is_a_usage_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "mine.py").write_text(GOOD)
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "Usage" in result.stderr


def test_nothing_that_applies_is_status_2(tmp_path: Path) -> None:
    body = "def rates(unconditional_rates, n):\n    return [1] * n\n"
    (tmp_path / "mine.py").write_text(body)
    result = run("check", "mine.py:rates", "--properties", "S.method", cwd=tmp_path)
    assert result.returncode == 2
    assert "applies" in assert_one_line(result, 2)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def target(a, m, n):\n    raise KeyError('lost')\n", "KeyError"),
        ("import sys\ndef target(a, m, n):\n    sys.exit(0)\n", "SystemExit"),
        # Other values that are no lengths are judged in-process: these two try JSON as well.
        ("def target(a, m, n):\n    return float('nan')\n", "nan"),
        ("def target(a, m, n):\n    return 10 ** 40\n", "outside [1,"),
        ("import os\ndef target(a, m, n):\n    os._exit(0)\n", "status 0"),
        ("import os, signal\ndef target(a, m, n):\n    os.kill(os.getpid(), signal.SIGSEGV)\n",
         "SIGSEGV"),
    ],
)  # fmt: skip
def test_a_target_that_misbehaves_fails_with_valid_json(
    tmp_path: Path, body: str, said: str
) -> None:
    result = check(tmp_path, body, "target", "--json", "out.json")
    assert result.returncode == 1, result.stderr
    assert "Traceback (most recent call last)" not in result.stdout + result.stderr
    assert said in result.stdout
    report = json_report.from_json((tmp_path / "out.json").read_text())
    assert not report.ok
    assert any(outcome.verdict == "fail" for outcome in report.outcomes)


def test_a_target_that_crashes_in_a_worker_is_blamed_by_configuration(tmp_path: Path) -> None:
    # Right for the first call and for few draws, so that only a stream meets the crash.
    body = (
        GOOD
        + """
import os
calls = 0
def target(acc_len, method, max_len):
    global calls
    calls += 1
    if acc_len == 40.3 and calls > 100:
        os._exit(7)
    return good(acc_len, method, max_len)
"""
    )
    result = check(tmp_path, body)
    assert result.returncode == 1
    assert "exited with status 7" in result.stdout
    assert "40.3" in result.stdout


def test_a_target_that_hangs_is_stopped_from_outside(tmp_path: Path) -> None:
    body = "import threading\ndef target(a, m, n):\n    threading.Event().wait()\n"
    result = check(tmp_path, body, "target", "--timeout", "3", "--json", "out.json")
    assert result.returncode == 1, result.stderr
    assert "--timeout" in result.stdout
    report = json_report.from_json((tmp_path / "out.json").read_text())
    assert report["S.returns"].verdict == "fail"
    assert report["S.distribution"].verdict == "inconclusive"


def test_what_a_target_prints_goes_to_stderr(tmp_path: Path) -> None:
    body = (
        GOOD
        + """
print("loading")
def target(acc_len, method, max_len):
    print("drawing")
    return good(acc_len, method, max_len)
"""
    )
    result = check(tmp_path, body, "target", "--properties", "S.range", "--json", "-")
    assert result.returncode == 0
    json.loads(result.stdout)
    assert "loading" in result.stderr
    assert "drawing" in result.stderr


def test_a_target_that_reads_stdin_finds_nothing(tmp_path: Path) -> None:
    body = "def target(a, m, n):\n    return int(input())\n"
    result = check(tmp_path, body)
    assert result.returncode == 1
    assert "EOFError" in result.stdout


def test_expected_failures_make_a_failing_run_pass_and_say_why(tmp_path: Path) -> None:
    body = GOOD + "def lenient(a, m, n):\n    return good(a, 'match-expected', n)\n"
    options = ["--properties", "S.method", "--expect-failure", "S.method=any method is taken"]
    result = check(tmp_path, body, "lenient", *options)
    assert result.returncode == 0, result.stdout
    assert "FAIL" in result.stdout.upper()
    assert "any method is taken" in result.stdout


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    result = check(tmp_path, GOOD, "good", "--properties", "S.range", "--json", "no/such/dir.json")
    assert "no/such/dir.json" in assert_one_line(result, 2)


def test_extract_judges_a_function_whose_imports_cannot_be_met(tmp_path: Path) -> None:
    body = "import an_engine_that_is_not_here\n" + GOOD
    refused = check(tmp_path, body, "good")
    assert "an_engine_that_is_not_here" in assert_one_line(refused, 2)
    assert "--extract" in refused.stderr
    result = check(tmp_path, body, "good", "--extract", "--properties", "S.range,S.type")
    assert result.returncode == 0, result.stdout + result.stderr


def test_jobs_do_not_change_the_verdicts_of_a_target_without_state(tmp_path: Path) -> None:
    verdicts = []
    for jobs in ("1", "3"):
        result = check(tmp_path, GOOD, "good", "--json", "-", "--jobs", jobs)
        document = json.loads(result.stdout)
        verdicts.append(
            [(o["property_id"], o["verdict"], o["draws"]) for o in document["outcomes"]]
        )
    assert verdicts[0] == verdicts[1]


def test_properties_lists_the_catalogue(tmp_path: Path) -> None:
    result = run("properties", cwd=tmp_path)
    assert result.returncode == 0
    for name in ("S.range", "S.distribution", "S.freshness"):
        assert name in result.stdout
    assert run("--version", cwd=tmp_path).stdout.startswith("specsim ")


@pytest.mark.parametrize(
    ("imports", "forbidden"),
    [
        ("import specsim.cli", {"torch", "scipy", "numpy", "hypothesis"}),
        ("import specsim.pytest_plugin", {"torch", "scipy", "numpy", "hypothesis"}),
        ("import specsim", {"torch", "scipy", "numpy", "hypothesis"}),
        ("import specsim.isolation", {"torch", "scipy", "numpy", "hypothesis"}),
        ("import specsim.checking", {"torch"}),
    ],
)
def test_heavy_modules_are_loaded_when_used_and_not_before(
    imports: str, forbidden: set[str]
) -> None:
    program = f"import sys\n{imports}\nprint(*sorted(set(sys.modules) & {forbidden!r}))"
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert result.stdout.split() == []


def test_help_loads_neither_torch_nor_scipy() -> None:
    program = (
        "import sys\nsys.argv = ['specsim', '--help']\nfrom specsim.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'scipy', 'numpy'} & set(sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert result.returncode == 0, result.stderr
    assert "check" in result.stdout
