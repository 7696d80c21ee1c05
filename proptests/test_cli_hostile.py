"""Targets and surroundings that try to take the verdict away; the judge must keep it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proptests.test_cli import GOOD, assert_one_line, check, run
from specsim.report import json_report

SLOW = """
import threading
lock = threading.Event()
def slow(a, m, n):
    if m != "match-expected":
        raise ValueError(m)
    lock.wait(0.01)
    return good(a, m, n)
"""


@pytest.mark.parametrize("name", ["S.non-finite", "S.range"])
def test_a_crash_fails_whatever_was_asked_for(tmp_path: Path, name: str) -> None:
    body = "import os\ndef target(a, m, n):\n    os.abort()\n"
    result = check(tmp_path, body, "target", "--properties", name, "--json", "out.json")
    assert result.returncode == 1
    report = json_report.from_json((tmp_path / "out.json").read_text())
    assert report["S.returns"].verdict == "fail"
    assert "SIGABRT" in report["S.returns"].detail


def test_a_late_crash_keeps_what_was_judged(tmp_path: Path) -> None:
    body = (
        GOOD
        + """
import math, os
def target(a, m, n):
    if math.isnan(a):
        os.abort()
    return good(a, m, n)
"""
    )
    result = check(tmp_path, body, "target", "--json", "out.json")
    assert result.returncode == 1
    report = json_report.from_json((tmp_path / "out.json").read_text())
    assert report["S.distribution"].verdict == "pass"
    assert "S.non-finite" in report["S.returns"].detail


def test_a_slow_target_is_inconclusive_and_not_a_failure(tmp_path: Path) -> None:
    result = check(tmp_path, GOOD + SLOW, "slow", "--timeout", "5", "--json", "out.json")
    assert result.returncode == 1
    report = json_report.from_json((tmp_path / "out.json").read_text())
    assert {o.verdict for o in report.outcomes} == {"inconclusive"}
    assert "allow it longer" in report["S.returns"].detail


@pytest.mark.parametrize(
    "extra",
    [
        # A process that outlives the judge holds its pipes open.
        "import multiprocessing\nmanager = multiprocessing.Manager()\n",
        "import os, signal\nif os.fork() == 0:\n    signal.pause()\n",
        "import threading\nforever = threading.Event()\n"
        "threading.Thread(target=forever.wait).start()\n",
        "import sys\nsys.stdout.close()\n",
        "import sys\nclass Bad:\n    def write(self, text): return len(text)\n"
        "    def flush(self): raise OSError('no')\nsys.stdout = Bad()\n",
        "import os\nfor fd in range(3, 20):\n    try:\n        os.write(fd, b'noise\\n')\n"
        "    except OSError:\n        pass\n",
    ],
)
def test_what_a_target_leaves_behind_does_not_lose_its_verdict(tmp_path: Path, extra: str) -> None:
    result = check(tmp_path, GOOD + extra, "good", "--timeout", "60", "--properties", "S.range")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_a_sampler_that_works_in_its_own_thread_or_process_only_is_not_forked(
    tmp_path: Path,
) -> None:
    body = (
        GOOD
        + """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
def threaded(a, m, n):
    return pool.submit(good, a, m, n).result()
"""
    )
    law = ("--properties", "S.distribution", "--timeout", "100")
    result = check(tmp_path, body, "threaded", "--jobs", "2", *law)
    assert result.returncode == 0, result.stdout
    assert "drawing in one process: the target has started threads" in result.stderr
    once = "import os\nhome = os.getpid()\n"
    body = (
        GOOD
        + once
        + "def here(a, m, n):\n    assert os.getpid() == home\n    return good(a, m, n)\n"
    )
    assert check(tmp_path, body, "here", "--jobs", "1", *law).returncode == 0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the caller itself needs python -P")
def test_files_named_like_standard_modules_are_not_taken_for_them(tmp_path: Path) -> None:
    for name in ("json", "select", "random", "enum", "typing", "platform"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('not the library {name}')\n")
    arguments = ["specsim:sample_simulated_acc_len", "--properties", "S.range", "--effort", "quick"]
    result = subprocess.run(
        [sys.executable, "-P", "-m", "specsim", "check", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("options", [("--timeout", "inf"), ("--timeout", "1e308")])
def test_a_timeout_beyond_reason_is_a_usage_error(tmp_path: Path, options: tuple[str, ...]) -> None:
    result = run("check", "mine.py:good", *options, cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "options",
    [("--junit", "-"), ("--html", "-"), ("--json", "a", "--junit", "a")],
)
def test_outputs_that_cannot_be_are_usage_errors(tmp_path: Path, options: tuple[str, ...]) -> None:
    result = check(tmp_path, GOOD, "good", *options)
    assert result.returncode == 2
    assert "Usage" in result.stderr


def test_an_output_that_is_a_folder_is_refused_before_the_check(tmp_path: Path) -> None:
    assert "folder" in assert_one_line(check(tmp_path, GOOD, "good", "--json", "."), 2)


def test_a_reader_that_stops_reading_changes_neither_status_nor_files(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(GOOD)
    arguments = ["check", "mine.py:good", "--methods", "match-expected", "--json", "out.json"]
    arguments += ["--effort", "quick", "--properties", "S.range"]
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-m", "specsim", *arguments],
        cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    os.close(write)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert json_report.from_json((tmp_path / "out.json").read_text()).ok


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_device_is_one_line_and_status_2(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "specsim", "properties"],
            cwd=Path(__file__).parents[1], stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.startswith("specsim: cannot write the result: ")
    assert "Traceback" not in result.stderr


def test_a_request_to_terminate_ends_the_judge_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, threading\nopen('judge.pid', 'w').write(str(os.getpid()))\n"
        "def target(a, m, n):\n    print('drawing', flush=True)\n    threading.Event().wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "specsim", "check", "mine.py:target"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "drawing\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    judge = int((tmp_path / "judge.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(judge, 0)
