"""Every command and program in the README and the docs runs, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "docs" / "examples")]),
}


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a language, each with a name for its test."""
    return [
        (f"{page.name}:{page.read_text()[: found.start()].count(chr(10)) + 2}", found[2])
        for page in PAGES
        for found in BLOCK.finditer(page.read_text())
        if found[1] == language
    ]


def commands() -> list[tuple[str, str, int]]:
    """Return the commands of console blocks, each with the status that the page tells."""
    listed = []
    for name, text in blocks("console"):
        for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
            status = 1 if re.search(r"^FAIL ", text, re.MULTILINE) else 0
            listed.append((name, line, status))
    return listed


# Each program runs in a fork of one process that has loaded torch: 2 s less for each.
RUN_ALL = """
import os, sys, traceback, warnings
import torch, specsim.checking
for name in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(name)
        with open("printed", "w") as printed:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
        warnings.simplefilter("error")
        exec(compile(open("program.py").read(), "program.py", "exec"), {"__name__": "__main__"})
        open("finished", "w").close()
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run all programs, and return their folders by name."""
    folders = {name: tmp_path_factory.mktemp("program") for name, _ in blocks("python")}
    for name, program in blocks("python"):
        (folders[name] / "program.py").write_text(program)
    subprocess.run(
        [sys.executable, "-c", RUN_ALL, *map(str, folders.values())], env=ENVIRONMENT, check=True
    )
    return folders


@pytest.mark.parametrize("name", [name for name, _ in blocks("python")])
def test_programs_run(name: str, ran: dict[str, Path]) -> None:
    assert (ran[name] / "finished").exists(), (ran[name] / "printed").read_text()


@pytest.mark.parametrize(
    ("name", "command", "status"), commands(), ids=[n for n, _, _ in commands()]
)
def test_commands_run_and_end_as_the_page_says(name: str, command: str, status: int) -> None:
    words = shlex.split(command)
    assert words[0] in ("specsim", "pytest"), f"{name}: use a text block for what is not run here"
    extra = ["-p", "no:cacheprovider"] if words[0] == "pytest" else []
    result = subprocess.run(
        [sys.executable, "-m", *words, *extra],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == status, result.stdout + result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_there_is_something_to_run() -> None:
    assert len(blocks("python")) > 5
    assert len(commands()) > 4
