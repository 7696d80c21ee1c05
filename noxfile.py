"""Sessions for the desk and for CI; each reads its dependencies from pyproject.toml."""

from __future__ import annotations

import pathlib
import shutil

import nox

PYPROJECT = nox.project.load_toml("pyproject.toml")
CONSTRAINTS = "constraints.txt"
# Releases whose sampler is a function of its own; the first two have it under a private name.
PEERS = [f"sglang=={version}" for version in ("0.5.16", "0.5.17", "0.5.18", "0.5.20", "0.5.23")]

IN_PARALLEL = ("--numprocesses=auto", "--dist=loadfile")
# With a process a core, threads inside them only get in each other's way; and tests start a hundred
# interpreters, which would all compile the package anew where the environment forbids to keep it.
TEST_ENV = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}

nox.options.sessions = ["lint", "typecheck", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True


def install(session: nox.Session, *groups: str, package: str | None = ".") -> None:
    """Install dependency groups, and the package with its extra, at the pinned versions."""
    wanted = [r for group in groups for r in nox.project.dependency_groups(PYPROJECT, group)]
    if package is not None:
        wanted.append(f"{package}[report]")
    session.install("--constraint", CONSTRAINTS, *wanted)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the test suite on the CPU, in a process a core."""
    install(session, "test")
    session.run("pytest", *IN_PARALLEL, *session.posargs, env=TEST_ENV)


@nox.session
def slow(session: nox.Session) -> None:
    """Run everything, the tests that take minutes too, with many examples."""
    install(session, "test")
    thorough = ("--slow", "--hypothesis-profile=thorough")
    session.run("pytest", *IN_PARALLEL, *thorough, *session.posargs, env=TEST_ENV)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    install(session, "lint", package=None)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def typecheck(session: nox.Session) -> None:
    """Check types, strictly."""
    install(session, "typecheck")
    session.run("mypy")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speeds, as ratios side by side in one run."""
    install(session, "bench")
    session.run("pytest", "benchmarks", "--benchmark-only", "-s", *session.posargs)


@nox.session
def peers(session: nox.Session) -> None:
    """Judge real engines' own code; a package that cannot be had is skipped, with the reason."""
    install(session, "bench")
    folder = pathlib.Path(session.create_tmp())
    for requirement in PEERS:
        place = folder / requirement
        if not place.exists():
            # A peer is here to be read, not run: its own dependencies would be gigabytes.
            session.run(
                *("python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"),
                *("--target", str(place), requirement),
                success_codes=range(256),
            )
    env = {"SPECSIM_PEERS": str(folder)}
    session.run("pytest", "-rs", "proptests/peers", *session.posargs, env=env)
    session.run("pytest", "-s", "benchmarks", "-k", "engine", env=env)


@nox.session
def gpu(session: nox.Session) -> None:
    """Run gpu_tests; without a GPU this fails, so that green means that they ran."""
    if shutil.which("nvidia-smi") is None:
        session.error("no GPU here: nvidia-smi is not on the PATH, and gpu_tests would all skip")
    install(session, "test")
    probe = "import torch; print(torch.cuda.is_available())"
    if "True" not in str(session.run("python", "-c", probe, silent=True)):
        session.error("no GPU here: torch sees no CUDA device, and gpu_tests would all skip")
    session.run("pytest", "gpu_tests", *session.posargs)
