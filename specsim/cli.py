"""The command line. Imports neither torch, NumPy nor SciPy: `--help` has to answer at once."""

from __future__ import annotations

import enum
import os
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specsim._version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specsim.judge import Request
    from specsim.properties.outcome import Report

PASSED, FAILED, REFUSED = 0, 1, 2
_STDOUT = Path("-")
_LONGEST_TIMEOUT = 30 * 86_400.0

app = typer.Typer(
    name="specsim",
    help="Judge simulated acceptance lengths in speculative decoding.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


class Kind(str, enum.Enum):
    """Kinds of target."""

    SAMPLER = "sampler"
    VECTOR_SAMPLER = "vector-sampler"
    RATES_SAMPLER = "rates-sampler"
    EXECUTOR = "executor"
    DFLASH = "dflash"
    EAGLE = "eagle"
    ACCEPT = "accept"
    CHAIN_ACCEPT = "chain-accept"


class EffortName(str, enum.Enum):
    """Efforts."""

    QUICK = "quick"
    STANDARD = "standard"
    THOROUGH = "thorough"


class Coupling(str, enum.Enum):
    """Couplings."""

    BATCH = "batch"
    SLOT = "slot"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specsim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    del version


@app.command()
def check(
    target: Annotated[
        str | None, typer.Argument(help="package.module:attribute or path/to/file.py:attribute")
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A folder that specsim.record wrote; may be repeated."),
    ] = None,
    kind: Annotated[
        Kind | None, typer.Option(help="What the target is; by default told from its signature.")
    ] = None,
    effort: Annotated[
        EffortName, typer.Option(help="Rule out deviations of 0.05, 0.02 or 0.01.")
    ] = EffortName.STANDARD,
    seed: Annotated[int, typer.Option(min=0, help="Decides the configurations.")] = 0,
    alpha: Annotated[
        float, typer.Option(help="Largest probability that a correct target is rejected.")
    ] = 1e-6,
    coupling: Annotated[
        Coupling, typer.Option(help="Draws of an executor: one a step, or one a slot.")
    ] = Coupling.BATCH,
    step_method: Annotated[
        str | None, typer.Option(help="Method of an executor that draws a step's lengths.")
    ] = None,
    step_tensor: Annotated[
        str | None, typer.Option(help="Attribute of an executor that it draws them into.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Methods that the target knows, separated by commas.")
    ] = "match-expected,multinomial",
    properties: Annotated[
        str | None, typer.Option(help="Property ids or letters, separated by commas.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Total variation that is reported instead of failed.")
    ] = 0.005,
    expect_failure: Annotated[
        list[str] | None,
        typer.Option(metavar="ID=REASON", help="A known failure; may be repeated."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, max=_LONGEST_TIMEOUT, help="Seconds for the whole check.")
    ] = 600.0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes to draw in; by default one a core.")
    ] = None,
    extract: Annotated[
        bool, typer.Option("--extract", help="Take just the target out of its file.")
    ] = False,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="With --extract: set on the method's object."),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="With --extract: a module-level name's value."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the report as JSON; - for standard output.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the report as JUnit XML.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as HTML (extra: report).")
    ] = None,
) -> None:
    """Judge TARGET, or the trace of a live engine, against the catalogue of properties.

    Exit status: 0 if all required properties hold, 1 if one fails or stays inconclusive, 2 if the
    call is wrong or the target cannot be loaded or called.
    """
    from specsim.judge import Request

    if (target is None) == (not trace):
        raise typer.BadParameter("name either a TARGET or a --trace, and not both")
    if trace and (kind or extract or step_method or step_tensor):
        raise typer.BadParameter(
            "a trace says itself what it is of: --kind, --extract, --step-method and "
            "--step-tensor are for a TARGET"
        )
    request = Request(
        target=target or " ".join(map(str, trace or [])),
        traces=[str(folder) for folder in trace or []],
        kind=None if kind is None else kind.value,
        effort=effort.value,
        alpha=alpha,
        seed=seed,
        coupling=coupling.value,
        methods=_listed(methods),
        tolerance=tolerance,
        step_method=step_method,
        step_tensor=step_tensor,
        properties=None if properties is None else _listed(properties),
        expected_failures=_reasons(expect_failure or []),
        jobs=jobs or _cores(),
        extract=extract,
        attributes=attribute or [],
        namespace=namespace or [],
    )
    if not extract and (attribute or namespace):
        raise typer.BadParameter("--attribute and --namespace need --extract")
    _must_be_writable(json, junit, html)
    if html is not None:
        _need_report_extra()
    started = time.monotonic()
    from specsim.isolation import RefusedError, run

    try:
        with _progress(request) as on_event:
            report = run(request, timeout, on_event)
    except RefusedError as error:
        _write_refusal(request, str(error), time.monotonic() - started, json, junit)
        raise _refusal(str(error)) from None
    _write(report, json, junit, html)
    raise typer.Exit(_status(report))


@app.command(name="properties")
def list_properties(
    kind: Annotated[Kind | None, typer.Option(help="Only those of one kind of target.")] = None,
) -> None:
    """List the catalogue: ids, statements, and where each comes from."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from specsim.properties.registry import catalogue

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("id", "", "statement", "source"):
        table.add_column(heading, no_wrap=heading == "id")
    for prop in catalogue(None if kind is None else kind.value):
        needed = "required" if prop.required else "advisory"
        table.add_row(prop.id, needed, prop.statement, prop.source)
    Console(soft_wrap=False).print(table)
    sys.stdout.flush()


def main() -> None:
    """Run the command line; the only way out is an exit status."""
    _open_standard_streams()
    try:
        app(prog_name="specsim")
    except OSError as error:
        _give_up_stdout()
        if not isinstance(error, BrokenPipeError):
            typer.echo(f"specsim: cannot write the result: {error.strerror}", err=True)
        sys.exit(REFUSED)


def _open_standard_streams() -> None:
    """Put the null device where a standard stream is closed: a pipe must not take its place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w"))


def _give_up_stdout() -> None:
    """Send what is still buffered nowhere, since it would raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _reasons(pairs: list[str]) -> dict[str, str]:
    from specsim.properties.outcome import read_reasons

    try:
        return read_reasons("--expect-failure", pairs)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _refusal(message: str) -> typer.Exit:
    typer.echo(f"specsim: {message}", err=True)
    return typer.Exit(REFUSED)


def _need_report_extra() -> None:
    from specsim.report.html import require_extra

    try:
        require_extra()
    except ModuleNotFoundError as error:
        raise _refusal(str(error)) from None


@contextmanager
def _progress(request: Request) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show a bar on a terminal, and nothing but notes in a pipe; both on standard error."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # A terminal by its nature: FORCE_COLOR asks for colour in a log, not for a moving bar.
    disable = not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task(f"loading {request.target}", total=None)
        drawn = 0

        def on_event(event: dict[str, Any]) -> None:
            nonlocal drawn
            if event["event"] == "note":
                console.print(f"specsim: {event['text']}", soft_wrap=True, markup=False)
            elif event["event"] == "drawn":
                drawn += event["draws"]
                bar.update(task, description=f"{request.target}: {drawn:,} lengths drawn")
            elif event["event"] == "judging":
                bar.update(task, description=f"{request.target}: judging {event['judging']}")

        yield on_event


def _status(report: Report) -> int:
    if not report.judged:
        return REFUSED
    return PASSED if report.ok else FAILED


def _write(report: Report, json: Path | None, junit: Path | None, html: Path | None) -> None:
    from rich.console import Console

    from specsim.report import console, json_report
    from specsim.report.junit import to_junit

    # Files first: whoever reads standard output may stop reading.
    if json is not None and json != _STDOUT:
        _write_file(json, json_report.to_json(report))
    if junit is not None:
        _write_file(junit, to_junit(report))
    if html is not None:
        from specsim.report.html import to_html

        _write_file(html, to_html(report))
    try:
        if json == _STDOUT:
            typer.echo(json_report.to_json(report))
        else:
            console.print_report(report, Console())
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # rich turns a broken pipe into an exit of its own.
        _give_up_stdout()
    if not report.judged:
        typer.echo("specsim: no property that was asked for applies to this target", err=True)


def _write_refusal(
    request: Request, message: str, seconds: float, json: Path | None, junit: Path | None
) -> None:
    """Leave valid files behind for whoever reads them next, also when nothing was judged."""
    from specsim.report import json_report
    from specsim.report.junit import error_junit

    if json is not None:
        document = json_report.error_dict(
            request.target,
            message,
            effort=request.effort,
            alpha=request.alpha,
            seed=request.seed,
            coupling=request.coupling,
            kind=request.kind,
            seconds=seconds,
            versions={"specsim": __version__},
        )
        if json == _STDOUT:
            typer.echo(json_report.dumps(document))
        else:
            _write_file(json, json_report.dumps(document))
    if junit is not None:
        _write_file(junit, error_junit(request.target, message))


def _must_be_writable(json: Path | None, junit: Path | None, html: Path | None) -> None:
    """Refuse before the check what could not be written after it."""
    paths = [path for path in (json, junit, html) if path is not None]
    for path in paths:
        if path == _STDOUT:
            if path is not json:
                raise typer.BadParameter("only --json takes - for standard output")
        elif path.is_dir():
            raise _refusal(f"cannot write {path}: it is a folder")
        elif not path.parent.is_dir():
            raise _refusal(f"cannot write {path}: there is no folder {path.parent}")
    if len(set(paths)) < len(paths):
        raise typer.BadParameter("--json, --junit and --html need a file each")


def _write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _refusal(f"cannot write {path}: {error.strerror}") from None


if __name__ == "__main__":
    main()
