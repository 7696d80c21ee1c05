"""What people and CI servers read of a report: the console, JUnit XML and the HTML page."""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from specsim.properties.outcome import Outcome, Report
from specsim.report.console import print_report
from specsim.report.html import require_extra, to_html
from specsim.report.junit import error_junit, to_junit
from specsim.report.wording import headline, state, visible

PROGRAM = """\
from m import f

for _ in range(50):
    print(f(4.7, "match-expected", 16))  # a comment that goes on well past column eighty, uncut

\tassert "[red]" and ":smile:" and '\\x1b'"""
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
COUNTED = {"counts": {"5": 50}, "expected": {"4": 0.3, "5": 0.7}}

outcomes = st.builds(
    Outcome,
    property_id=st.sampled_from(["S.type", "S.range", "S.distribution"]),
    statement=ANY_TEXT,
    verdict=st.sampled_from(["pass", "fail", "inconclusive", "skip"]),
    required=st.booleans(),
    detail=ANY_TEXT,
    snippet=st.none() | ANY_TEXT,
    configuration=st.none() | ANY_TEXT,
    expected=st.none() | ANY_TEXT,
)
reports = st.builds(
    Report,
    target=ANY_TEXT,
    kind=st.just("sampler"),
    effort=st.just("quick"),
    alpha=st.just(1e-6),
    seed=st.just(0),
    coupling=st.just("batch"),
    outcomes=st.lists(outcomes, max_size=4).map(tuple),
    seconds=st.just(1.5),
    versions=st.just({"specsim": "0.1.0"}),
)


def outcome(property_id: str, verdict: Any, required: bool = True, **fields: Any) -> Outcome:
    return Outcome(property_id, f"What {property_id} states.", verdict, required, **fields)


def report(*found: Outcome, target: str = "m:f") -> Report:
    return Report(target, "sampler", "quick", 1e-6, 0, "batch", found, 1.5, {"specsim": "0.1.0"})


def printed(of: Report, *, encoding: str = "utf-8", width: int = 80, terminal: bool = False) -> str:
    raw = io.BytesIO()
    # Strict, and with every newline as it is: what cannot be encoded raises.
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    console = Console(
        file=file,
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else "auto",
        no_color=False,
    )
    print_report(of, console)
    file.flush()
    return raw.getvalue().decode(encoding)


FAILED = report(
    outcome("S.type", "pass"),
    outcome(
        "S.distribution",
        "fail",
        detail="5 was seen in each of 50 draws, which a sampler of 4.7 does not do: words to wrap.",
        snippet=PROGRAM,
        configuration='f(4.7, "match-expected", 16)',
        evidence=COUNTED,
        draws=1_234_567,
    ),
    outcome("S.unknown_method", "fail", expected="reported upstream"),
    outcome("S.nonfinite", "fail", required=False),
    outcome("S.range", "pass", expected="was out of range"),
    outcome("S.freshness", "inconclusive"),
    outcome("S.slots", "skip"),
)


# Headline


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (
            [outcome("S.a", "pass"), outcome("S.b", "pass"), outcome("S.c", "skip")],
            "PASS m:f — 2 required properties hold; probability of a false alarm at most 1e-06",
        ),
        (
            [outcome("S.a", "pass"), outcome("S.b", "fail", False), outcome("S.c", "pass", False)],
            "PASS m:f — 1 required property holds; 1 advisory failure; "
            "probability of a false alarm at most 1e-06",
        ),
        (
            [outcome("S.a", "pass"), outcome("S.b", "fail", expected="known")],
            "PASS m:f — 1 required property holds; 1 expected failure; "
            "probability of a false alarm at most 1e-06",
        ),
        (
            [outcome("S.a", "fail"), outcome("S.b", "fail"), outcome("S.c", "inconclusive")],
            "FAIL m:f — 2 required properties fail: S.a, S.b; 1 required property is "
            "inconclusive: S.c; probability of a false alarm at most 1e-06",
        ),
        (
            [outcome("S.a", "pass"), outcome("S.b", "inconclusive")],
            "INCONCLUSIVE m:f — 1 required property is inconclusive: S.b",
        ),
        ([outcome("S.a", "skip")], "NOTHING JUDGED m:f — none of 1 property applies"),
        ([], "NOTHING JUDGED m:f — none of 0 properties applies"),
    ],
)
def test_the_headline(found: list[Outcome], line: str) -> None:
    assert headline(report(*found)) == line


@given(reports)
def test_the_state_is_pass_exactly_when_the_report_is_ok(of: Report) -> None:
    assert (state(of) == "PASS") == of.ok
    assert "\n" not in headline(of)


# Console


def test_a_pipe_gets_the_program_as_it_is_between_two_marks() -> None:
    text = printed(FAILED, width=30)
    assert "\x1b" not in text
    start = "# ---- reproduces S.distribution: copy from here ----\n"
    assert text.count(start) == 1
    assert text.split(start)[1].split("\n# ---- to here ----\n")[0] == PROGRAM


def test_a_pipe_at_80_columns() -> None:
    text = printed(FAILED)
    lines = text.splitlines()
    assert [line.split("  ")[0] for line in lines[3:11]] == [
        "property",
        *(o.property_id for o in FAILED.outcomes),
    ]
    rows = {line.split()[0]: line for line in lines[4:11]}
    assert "1,234,567" in rows["S.distribution"]
    assert {name: re.split(r"\s{2,}", row)[1] for name, row in rows.items()} == {
        "S.type": "pass",
        "S.distribution": "FAIL",
        "S.unknown_method": "fail (expected)",
        "S.nonfinite": "fail (advisory)",
        "S.range": "pass (unexpected)",
        "S.freshness": "INCONCLUSIVE",
        "S.slots": "skip",
    }
    sections = [line for line in lines if re.fullmatch(r"\w+( \(\w+\))? S\.\w+", line)]
    assert sections == [
        "FAIL S.distribution",
        "INCONCLUSIVE S.freshness",
        "fail (expected) S.unknown_method",
        "fail (advisory) S.nonfinite",
    ]
    assert 'call: f(4.7, "match-expected", 16)' in lines
    assert "expected to fail: reported upstream" in lines
    copied = [*PROGRAM.splitlines(), headline(FAILED)]
    assert [line for line in lines if len(line) > 80 and line not in copied] == []
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[-1] == headline(FAILED)


def test_statements_stand_in_the_table_where_there_is_room() -> None:
    long = Outcome("S.type", "word " * 30, "pass", True)
    assert "word" not in printed(report(long), width=40)
    (row,) = [line for line in printed(report(long)).splitlines() if line.startswith("S.type")]
    assert row.endswith("...")
    assert 70 <= len(row) <= 80
    assert ("word " * 30).strip() in printed(report(long), width=200)


def test_a_program_that_shows_two_failures_is_printed_once() -> None:
    shared = [outcome(id, "fail", snippet=PROGRAM) for id in ("S.distribution", "S.mean")]
    text = printed(report(*shared, outcome("S.type", "fail", snippet="print(1)")))
    assert text.count("for _ in range(50):") == 1
    assert "the program printed for S.distribution shows this too" in text
    assert "print(1)" in text


def test_a_pass_by_draws_says_what_it_rules_out() -> None:
    claim = "20 streams: no deviation of 0.05 or more"
    text = printed(
        report(outcome("S.distribution", "pass", detail=claim, evidence={"streams": []}))
    )
    assert f"S.distribution: {claim}" in text
    assert claim not in printed(report(outcome("S.range", "pass", detail=claim)))


def test_a_traceback_keeps_its_lines() -> None:
    frame = '  File "/a/path/that/is/long/enough/to/be/wrapped/sampler.py", line 3, in my_sampler'
    text = printed(report(outcome("S.type", "fail", detail=f"raised KeyError\n{frame}\n    x")))
    assert f"\nraised KeyError\n{frame}\n    x\n" in text


def test_prose_breaks_between_words_only() -> None:
    path = "/a/path/that-must-be/" + "x" * 90
    detail = f"{'see ' * 25}{path}"
    text = printed(report(outcome("S.type", "fail", detail=detail)))
    lines = text.split("What S.type states.\n")[-1].split("\n\n")[0].splitlines()
    assert lines == [("see " * 20)[:-1], ("see " * 5)[:-1], path]


def test_a_terminal_gets_colour() -> None:
    text = printed(FAILED, terminal=True)
    assert "\x1b[32mpass" in text
    assert "\x1b[31mFAIL" in text
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == printed(FAILED)


@given(reports, st.sampled_from(["ascii", "latin-1", "utf-8"]), st.integers(1, 120))
def test_any_report_prints_in_any_encoding(of: Report, encoding: str, width: int) -> None:
    text = printed(of, encoding=encoding, width=width)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
    assert text.splitlines()[-1].startswith(state(of))


@given(ANY_TEXT.map(lambda value: f"text = {value!r}"))
@example("text = 'é ≥ — \t\x1b[2J'")
def test_a_program_means_the_same_on_an_ascii_pipe(program: str) -> None:
    failed = report(outcome("S.type", "fail", snippet=program))
    shown = printed(failed, encoding="ascii").split("here ----\n")[1].split("\n# ---- to")[0]
    assert ast.literal_eval(shown.removeprefix("text = ")) == ast.literal_eval(
        program.removeprefix("text = ")
    )


# JUnit


@given(reports)
def test_junit_is_well_formed_and_red_exactly_when_the_run_is(of: Report) -> None:
    text = to_junit(of)
    assert text.isascii()
    root = ET.fromstring(text)
    (suite,) = root.iter("testsuite")
    cases = list(suite.iter("testcase"))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == sum(c.find(tag) is not None for c in cases)
    assert int(suite.attrib["tests"]) == len(cases)
    red = any(c.find(tag) is not None for c in cases for tag in ("failure", "error"))
    assert red == (not of.ok)
    assert [c.get("name") for c in cases][: len(of.outcomes)] == [
        o.property_id for o in of.outcomes
    ]


def test_junit_fields() -> None:
    root = ET.fromstring(to_junit(FAILED))
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.get("name") == "specsim m:f"
    assert [child.tag for child in suite] == ["properties"] + ["testcase"] * 7
    assert {p.get("name"): p.get("value") for p in suite.iter("property")}["seed"] == "0"
    results = {}
    for case in suite.iter("testcase"):
        assert case.get("classname") == "m:f"
        assert re.fullmatch(r"\d+\.\d{3}", case.attrib["time"])
        results[case.get("name")] = [(r.tag, r.get("type"), r.get("message")) for r in case]
    assert results == {
        "S.type": [],
        "S.distribution": [("failure", "fail", FAILED["S.distribution"].detail)],
        "S.unknown_method": [("skipped", "fail", "fail (expected): reported upstream")],
        "S.nonfinite": [("skipped", "fail", "fail (advisory): What S.nonfinite states.")],
        "S.range": [],
        "S.freshness": [("failure", "inconclusive", "What S.freshness states.")],
        "S.slots": [("skipped", "skip", "What S.slots states.")],
    }
    failure = next(suite.iter("failure"))
    assert failure.text is not None
    assert failure.text.endswith("\n\n" + PROGRAM)


@given(ANY_TEXT)
@example("\x00\x1b\r\n\r\ud800\uffff]]>&<\"'")
def test_junit_keeps_what_xml_can_hold_and_escapes_the_rest(text: str) -> None:
    root = ET.fromstring(to_junit(report(outcome("S.type", "fail", detail=text), target=text)))
    (case,) = root.iter("testcase")
    assert case.get("classname") == visible(text)
    (failure,) = case
    assert visible(text).strip("\n") in (failure.text or "")


@given(ANY_TEXT)
def test_a_run_that_could_not_judge_is_an_error(message: str) -> None:
    root = ET.fromstring(error_junit("m:f", message))
    (suite,) = root
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("1", "1", "0")
    (error,) = root.iter("error")
    assert error.get("message") == visible(message)


def test_visible_text_shows_what_it_cannot_hold() -> None:
    assert visible("a\r\nb\rc\x1b[0m\x85\ud800\tü") == "a\nb\\x0dc\\x1b[0m\\x85\\ud800\tü"


# HTML


class Page(HTMLParser):
    """Collects what a browser would load, run and show."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()
        self.text = "".join(self.pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [v or "" for name, v in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


@given(ANY_TEXT)
@example("<script>alert(1)</script>")
@example('"><img src=x onerror=alert(1)>')
def test_html_shows_text_and_never_obeys_it(text: str) -> None:
    html = to_html(
        report(
            outcome(text, "fail", detail=text, snippet=text, configuration=text, expected=text),
            target=text,
        )
    )
    assert html.encode("utf-8")
    page = Page(html)
    plain = Page(
        to_html(
            report(outcome("x", "fail", detail="x", snippet="x", configuration="x", expected="x"))
        )
    )
    assert page.tags == plain.tags
    assert page.loads == []
    assert page.text.count(visible(text)) >= 5


def test_the_page_stands_alone_and_draws_what_was_counted() -> None:
    page = Page(to_html(FAILED))
    assert [load[:22] for load in page.loads] == ["data:image/png;base64,"]
    for piece in (headline(FAILED), PROGRAM, "1,234,567", "reported upstream", "0.700000"):
        assert piece in page.text
    assert to_html(FAILED) == to_html(FAILED)


@pytest.mark.parametrize(
    "evidence",
    [
        {},
        {"counts": {"5": 50}},
        {"expected": {"5": 1.0}},
        {"counts": [50], "expected": {"5": 1.0}},
        {"counts": {"five": 50}, "expected": {"5": 1.0}},
        {"counts": {"5": None}, "expected": {"5": 1.0}},
        {"counts": {"5": float("inf")}, "expected": {"5": 1.0}},
        {"counts": {"5": -1}, "expected": {"5": 1.0}},
        {"counts": {}, "expected": {"5": 1.0}},
        {"counts": {"5": 0}, "expected": {"5": 1.0}},
        {"counts": {"5": 1}, "expected": {"5": float("nan")}},
    ],
)
def test_other_evidence_gets_no_figure(evidence: dict[str, Any]) -> None:
    assert "img" not in Page(to_html(report(outcome("S.a", "fail", evidence=evidence)))).tags


def test_a_passed_property_gets_no_figure() -> None:
    assert "img" not in Page(to_html(report(outcome("S.a", "pass", evidence=COUNTED)))).tags


@pytest.mark.parametrize(("module", "name"), [("jinja2", "Jinja2"), ("matplotlib", "Matplotlib")])
def test_a_missing_extra_is_named_with_its_remedy(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "specsim.report.html.find_spec", lambda wanted: None if wanted == module else find(wanted)
    )
    line = f'the HTML report needs {name}, which is not installed: pip install "specsim[report]"'
    for call in (require_extra, lambda: to_html(FAILED)):
        with pytest.raises(ModuleNotFoundError) as caught:
            call()
        assert str(caught.value) == line
        assert caught.value.name == module
