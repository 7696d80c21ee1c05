"""A report as JUnit XML, so that a CI server shows one test per property.

The file is red exactly when the run is: a required property that fails or stays inconclusive is a
``failure``, and a run that judged nothing is an ``error``. Everything that leaves the run green but
a reader should see, that is skipped properties and failures that are advisory or were expected,
is ``skipped`` with its reason, as pytest writes an expected failure.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping

from specsim.properties.outcome import Outcome, Report
from specsim.report.wording import headline, label, state, visible


def to_junit(report: Report) -> str:
    """Return a report as JUnit XML.

    One ``testsuite`` holds one ``testcase`` per property, named after it, with the target as its
    ``classname``. Characters that XML 1.0 cannot hold appear as Python escapes.

    Parameters
    ----------
    report
        Any report.

    Returns
    -------
    str
        An XML document, ASCII only.
    """
    settings = {
        "kind": report.kind,
        "effort": report.effort,
        "alpha": f"{report.alpha:g}",
        "seed": str(report.seed),
        "coupling": report.coupling,
        **{f"version.{name}": version for name, version in report.versions.items()},
    }
    cases = [_case(o, report.target) for o in report.outcomes]
    if state(report) == "NOTHING JUDGED":
        cases.append(_error_case(report.target, "nothing-judged", headline(report)))
    return _document(report.target, cases, report.seconds, settings)


def error_junit(target: str, message: str) -> str:
    """Return the JUnit XML of a run that could not judge its target: one ``error``.

    Parameters
    ----------
    target
        The target as the user named it.
    message
        Why it could not be judged.

    Returns
    -------
    str
        An XML document, ASCII only.
    """
    return _document(target, [_error_case(target, "not-judged", message)], 0.0, {})


def _case(outcome: Outcome, target: str) -> ET.Element:
    case = _element(
        "testcase",
        classname=target,
        name=outcome.property_id,
        time=f"{outcome.seconds:.3f}",
    )
    first_line = outcome.detail.strip().split("\n")[0] or outcome.statement
    if outcome.holds_up_the_run:
        result = _element("failure", type=outcome.verdict, message=first_line)
    elif outcome.verdict == "pass":
        return case
    elif outcome.verdict == "skip":
        result = _element("skipped", type="skip", message=first_line)
    else:
        why = first_line if outcome.expected is None else outcome.expected
        result = _element("skipped", type=outcome.verdict, message=f"{label(outcome)}: {why}")
    parts = [outcome.statement, outcome.configuration, outcome.detail, outcome.snippet]
    result.text = visible("\n\n".join(part.strip("\n") for part in parts if part))
    case.append(result)
    return case


def _error_case(target: str, kind: str, message: str) -> ET.Element:
    case = _element("testcase", classname=target, name="specsim", time="0.000")
    case.append(_element("error", type=kind, message=message))
    return case


def _document(
    target: str, cases: list[ET.Element], seconds: float, settings: Mapping[str, str]
) -> str:
    totals = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
        "time": f"{seconds:.3f}",
    }
    # `skipped` stands on the suite only: the common schemas don't have it on the root.
    root = _element("testsuites", **{k: v for k, v in totals.items() if k != "skipped"})
    suite = _element("testsuite", name=f"specsim {target}", **totals)
    root.append(suite)
    if settings:
        properties = ET.SubElement(suite, "properties")
        properties.extend(_element("property", name=k, value=v) for k, v in settings.items())
    suite.extend(cases)
    ET.indent(root)
    # Character references keep the text right in whatever encoding it is written.
    data: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return data.decode("ascii")


def _element(tag: str, **attributes: str) -> ET.Element:
    return ET.Element(tag, {name: visible(value) for name, value in attributes.items()})
