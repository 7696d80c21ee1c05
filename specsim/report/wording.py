"""The words in which every rendering speaks of a report, and text made safe to show.

Standard library only.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from specsim.properties.outcome import Outcome, Report

State: TypeAlias = Literal["PASS", "FAIL", "INCONCLUSIVE", "NOTHING JUDGED"]

# What XML 1.0 (section 2.2) cannot hold, and what a terminal would obey instead of showing:
# C0 and C1 controls other than tab and newline, surrogates, U+FFFE and U+FFFF.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def visible(text: str) -> str:
    r"""Return `text` with every character that cannot be shown as a Python escape.

    Parameters
    ----------
    text
        Any string, for example what a target printed.

    Returns
    -------
    str
        The same text, line ends as ``"\n"``; what remains is legal in XML 1.0, can be encoded
        as UTF-8, and holds no terminal control sequence. The escapes are those of Python's
        string literals, so that a program whose literals held such characters means the same.
    """

    def escape(match: re.Match[str]) -> str:
        code = ord(match.group())
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _UNSHOWABLE.sub(escape, text.replace("\r\n", "\n"))


def label(outcome: Outcome) -> str:
    """Return an outcome's verdict in a word or three.

    Capitals mark the verdicts that make the run fail; ``"(advisory)"`` and ``"(expected)"`` say
    why another failure does not, and ``"pass (unexpected)"`` that a failure was expected.
    """
    if outcome.holds_up_the_run:
        return outcome.verdict.upper()
    if outcome.verdict in ("fail", "inconclusive"):
        return f"{outcome.verdict} ({'advisory' if outcome.expected is None else 'expected'})"
    if outcome.verdict == "pass" and outcome.expected is not None:
        return "pass (unexpected)"
    return outcome.verdict


def notable(report: Report) -> list[Outcome]:
    """Return the failures and the inconclusive outcomes, those that make the run fail first."""
    rank = {"fail": 0, "inconclusive": 1}
    found = [o for o in report.outcomes if o.verdict in rank]
    return sorted(found, key=lambda o: (not o.holds_up_the_run, rank[o.verdict]))


def state(report: Report) -> State:
    """Return the whole run's verdict; ``"PASS"`` exactly when ``report.ok``."""
    if report.ok:
        return "PASS"
    if not report.judged:
        return "NOTHING JUDGED"
    failed = any(o.holds_up_the_run and o.verdict == "fail" for o in report.outcomes)
    return "FAIL" if failed else "INCONCLUSIVE"


def headline(report: Report) -> str:
    """Return the run's verdict and its reason in one line."""
    verdict = state(report)
    if verdict == "NOTHING JUDGED":
        reasons = [f"none of {_count(len(report.outcomes), 'property', 'properties')} applies"]
    elif verdict == "PASS":
        holding = sum(o.required and o.verdict == "pass" for o in report.outcomes)
        reasons = [_count(holding, "required property holds", "required properties hold")]
    else:
        reasons = _obstacles(report)
    aside = [o for o in report.outcomes if o.verdict == "fail" and not o.holds_up_the_run]
    expected = sum(o.expected is not None for o in aside)
    if expected:
        reasons.append(_count(expected, "expected failure", "expected failures"))
    if len(aside) > expected:
        reasons.append(_count(len(aside) - expected, "advisory failure", "advisory failures"))
    if verdict in ("PASS", "FAIL"):
        reasons.append(f"probability of a false alarm at most {report.alpha:g}")
    line = f"{verdict} {report.target} — {'; '.join(reasons)}"
    return visible(line).replace("\n", " ")


def _obstacles(report: Report) -> list[str]:
    clauses = []
    for verdict, one, many in (
        ("fail", "required property fails", "required properties fail"),
        (
            "inconclusive",
            "required property is inconclusive",
            "required properties are inconclusive",
        ),
    ):
        ids = [
            o.property_id for o in report.outcomes if o.holds_up_the_run and o.verdict == verdict
        ]
        if ids:
            clauses.append(f"{_count(len(ids), one, many)}: {', '.join(ids)}")
    return clauses


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
