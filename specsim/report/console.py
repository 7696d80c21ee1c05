"""A report for a terminal or a CI log: a table, then each failure with its program, then a verdict.

Colour appears on terminals only; that is rich's rule for a console. Nothing that a reader may want
to copy is wrapped, boxed, indented or cut.
"""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from specsim.properties.outcome import Outcome, Report
from specsim.report.wording import headline, label, notable, state, visible

_ASCII = str.maketrans({"—": "-", "–": "-", "−": "-", "≤": "<=", "≥": ">=", "≠": "!=", "×": "x"})
_STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow", "skip": "dim"}
_CLOSING_STYLES = {"PASS": "bold green", "FAIL": "bold red"}
_SHORTEST_STATEMENT = 30  # columns; a shorter piece of a sentence tells too little


def print_report(report: Report, console: Console) -> None:
    """Print a report.

    Verdicts in capitals are those that make the run fail. The last line is the whole run's
    verdict. Characters that the console's encoding lacks, and control characters, appear as
    Python escapes, which mean the same inside a program's string literals.

    Parameters
    ----------
    report
        Any report.
    console
        Where to print. Its width wraps prose and cuts the statements in the table, which stand
        in full beside each failure; it has no say in programs, calls and the last line.
    """
    page = _Page(console)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    page.line(f"{report.target} ({report.kind})", "bold")
    page.prose(
        f"effort {report.effort}, seed {report.seed}, coupling {report.coupling}, "
        f"{report.seconds:.1f} s" + (f"; {versions}" if versions else "")
    )
    page.line()
    page.table(report.outcomes)
    for outcome in report.outcomes:
        # A pass by draws is a claim with an error rate, so what it rules out is said.
        if outcome.verdict == "pass" and "streams" in outcome.evidence:
            page.line()
            page.prose(f"{outcome.property_id}: {outcome.detail}")
    for outcome in notable(report):
        page.line()
        page.finding(outcome)
    page.line()
    page.line(headline(report), _CLOSING_STYLES.get(state(report), "bold yellow"))


class _Page:
    """Writes what a report holds in the characters that a console has."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # By text, the property that a program was printed for: one stream's draws can show
        # several failures, and the reader wants its program once.
        self._programs: dict[str, str] = {}

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line, however long."""
        self._console.print(Text(self._shown(text), style=style), soft_wrap=True)

    def prose(self, text: str) -> None:
        """Print lines, wrapped between words; indented ones, such as a traceback's, stay."""
        for line in visible(text).strip("\n").split("\n"):
            wrapped = textwrap.wrap(
                line,
                width=max(self._console.width, 1),
                break_long_words=False,
                break_on_hyphens=False,
            )
            for piece in [line] if line[:1].isspace() else wrapped or [""]:
                self.line(piece)

    def program(self, text: str) -> None:
        """Print a program as it is."""
        for line in visible(text).strip("\n").split("\n"):
            # A Text would have its tabs expanded, which changes a program's literals.
            shown = Segments([Segment(self._escaped(line)), Segment.line()])
            self._console.print(shown, soft_wrap=True, end="")

    def table(self, outcomes: tuple[Outcome, ...]) -> None:
        """Print one line an outcome, the statements cut to what the width leaves."""
        rows = [("property", "verdict", "draws", "time", "statement")] + [
            (o.property_id, label(o), f"{o.draws:,}", f"{o.seconds:.1f} s", o.statement)
            for o in outcomes
        ]
        cells = [[self._shown(cell).replace("\n", " ") for cell in row] for row in rows]
        widths = [max(len(row[column]) for row in cells) for column in range(4)]
        room = self._console.width - sum(widths) - 2 * len(widths)
        styles = ["", *(_STYLES[o.verdict] for o in outcomes)]
        for (name, verdict, draws, time, statement), style in zip(cells, styles, strict=True):
            if room < _SHORTEST_STATEMENT:
                statement = ""
            elif len(statement) > room:
                statement = statement[: room - 3].rstrip() + "..."
            line = Text(f"{name:<{widths[0]}}  ")
            line.append(f"{verdict:<{widths[1]}}  ", style=style)
            line.append(f"{draws:>{widths[2]}}  {time:>{widths[3]}}  {statement}")
            line.rstrip()
            self._console.print(line, soft_wrap=True)

    def finding(self, outcome: Outcome) -> None:
        """Print a failure or an inconclusive outcome in full."""
        style = f"bold {_STYLES[outcome.verdict]}"
        self.line(f"{label(outcome)} {outcome.property_id}", style)
        self.prose(outcome.statement)
        if outcome.expected is not None:
            self.prose(f"expected to fail: {outcome.expected}")
        if outcome.configuration is not None:
            self.line(f"call: {outcome.configuration}")
        if outcome.detail:
            self.prose(outcome.detail)
        if outcome.snippet is None:
            return
        shown_for = self._programs.setdefault(outcome.snippet, outcome.property_id)
        if shown_for != outcome.property_id:
            self.line(f"the program printed for {shown_for} shows this too")
            return
        self.line(f"# ---- reproduces {outcome.property_id}: copy from here ----", "dim")
        self.program(outcome.snippet)
        self.line("# ---- to here ----", "dim")

    def _shown(self, text: str) -> str:
        """Return prose in characters of the console's encoding, the nearest ones if possible."""
        text = visible(text)
        escaped = self._escaped(text)
        return text if escaped == text else self._escaped(text.translate(_ASCII))

    def _escaped(self, text: str) -> str:
        encoding = self._console.encoding
        return text.encode(encoding, "backslashreplace").decode(encoding)
