"""The JSON form of a report: what comes back, what is refused, and what its schema says."""

from __future__ import annotations

import copy
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specsim.properties.outcome import Outcome, Report
from specsim.report.json_report import (
    SCHEMA_VERSION,
    UnjudgedError,
    dumps,
    error_dict,
    from_dict,
    from_json,
    schema,
    to_dict,
    to_json,
)

DOCS = Path(__file__).parent.parent / "docs" / "json.md"
VALIDATOR = jsonschema.Draft202012Validator(schema())

finite = st.floats(allow_nan=False, allow_infinity=False)
seconds = st.floats(0.0, 1e9)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
outcomes = st.builds(
    Outcome,
    property_id=st.text(),
    statement=st.text(),
    verdict=st.sampled_from(["pass", "fail", "inconclusive", "skip"]),
    required=st.booleans(),
    draws=st.integers(0, 10**12),
    seconds=seconds,
    detail=st.text(),
    snippet=st.none() | st.text(),
    configuration=st.none() | st.text(),
    evidence=st.dictionaries(st.text(), json_values, max_size=3),
    expected=st.none() | st.text(),
)
reports = st.builds(
    Report,
    target=st.text(),
    kind=st.text(),
    effort=st.sampled_from(["quick", "standard", "thorough"]),
    alpha=st.floats(1e-12, 0.5),
    seed=st.integers(-(2**64), 2**64),
    coupling=st.sampled_from(["batch", "slot"]),
    outcomes=st.lists(outcomes, max_size=3).map(tuple),
    seconds=seconds,
    versions=st.dictionaries(st.text(), st.text(), max_size=3),
)


def one_outcome(**fields: Any) -> Report:
    fields = {"detail": "5 in 50 of 50 draws", **fields}
    outcome = Outcome("S.distribution", "The lengths have the law.", "fail", True, **fields)
    return Report("m:f", "sampler", "quick", 1e-6, 0, "batch", (outcome,), 1.5, {"numpy": "2.0"})


def refusal(document: object) -> str:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        from_dict(document)
    return str(caught.value)


@given(reports)
def test_a_report_comes_back_as_it_was(report: Report) -> None:
    text = to_json(report)
    assert text.isascii()
    assert from_json(text) == report
    assert from_json(text.encode()) == report


@given(reports)
def test_every_document_meets_the_schema(report: Report) -> None:
    document = json.loads(to_json(report))
    VALIDATOR.validate(document)
    assert document["ok"] is report.ok


def test_the_schema_is_valid_and_names_every_field() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    document = to_dict(one_outcome())
    fields = schema()["properties"]
    assert set(fields) == {*document, "error"}
    assert fields["schema_version"]["const"] == SCHEMA_VERSION
    assert set(schema()["required"]) == set(document)
    outcome = schema()["$defs"]["outcome"]
    assert set(outcome["properties"]) == set(outcome["required"]) == set(document["outcomes"][0])


def test_the_schema_is_a_fresh_copy() -> None:
    schema()["properties"].clear()
    assert schema()["properties"]


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to every value inside a document."""
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [p for key, child in children for p in [(*path, key), *places(child, (*path, key))]]


@given(st.data())
def test_a_damaged_document_is_accepted_only_if_the_schema_accepts_it(data: st.DataObject) -> None:
    report = one_outcome(evidence={"log_e": 17.8, "counts": {"5": 50}}, snippet="print(1)")
    good = to_dict(report)
    damaged = copy.deepcopy(good)
    *parents, last = data.draw(st.sampled_from(places(good)))
    holder: Any = damaged
    for key in parents:
        holder = holder[key]
    if data.draw(st.booleans()):
        del holder[last]
    else:
        holder[last] = data.draw(json_values)
    if not VALIDATOR.is_valid(damaged):
        assert refusal(damaged)
    elif damaged["ok"] == (len(damaged["outcomes"]) > 0 and from_verdict(damaged)):
        assert dumps(to_dict(from_dict(damaged)))
    else:
        assert "ok must agree" in refusal(damaged)


def from_verdict(document: dict[str, Any]) -> bool:
    """Return what `ok` should be for a document with one outcome."""
    (outcome,) = document["outcomes"]
    counts = outcome["required"] and outcome["expected"] is None
    return outcome["verdict"] != "skip" and (outcome["verdict"] == "pass" or not counts)


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("schema_version",), 2, "schema_version must be 1, got 2"),
        (("schema_version",), True, "schema_version must be an integer, got True"),
        (("alpha",), 1.0, "alpha must be a number between 0 and 1, both excluded, got 1.0"),
        (("alpha",), 0, "alpha must be a number between 0 and 1, both excluded, got 0"),
        (("alpha",), "x", "alpha must be a number between 0 and 1, both excluded, got 'x'"),
        (("ok",), True, "ok must agree with the outcomes, which say False, got True"),
        (("outcomes", 0, "draws"), "x", "outcomes[0].draws must be an integer, got 'x'"),
        (("seed",), 1.5, "seed must be an integer, got 1.5"),
        (("kind",), None, "kind must be a string, got None"),
        (("outcomes",), {}, "outcomes must be an array, got {}"),
        (("outcomes", 0), 7, "outcomes[0] must be an object, got 7"),
        (("outcomes", 0, "draws"), -1, "outcomes[0].draws must be an integer, 0 or more, got -1"),
        (("outcomes", 0, "evidence"), [], "outcomes[0].evidence must be an object, got []"),
        (("outcomes", 0, "required"), 1, "outcomes[0].required must be true or false, got 1"),
        (
            ("outcomes", 0, "verdict"),
            "maybe",
            "outcomes[0].verdict must be one of 'pass', 'fail', 'inconclusive', 'skip', "
            "got 'maybe'",
        ),
        (("versions",), {"numpy": 2}, "versions['numpy'] must be a string, got 2"),
    ],
)
def test_a_refusal_names_the_field(path: tuple[Any, ...], value: object, line: str) -> None:
    document = to_dict(one_outcome())
    holder: Any = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    assert refusal(document) == line
    # Whether `ok` follows from the outcomes is beyond a schema.
    assert VALIDATOR.is_valid(document) == (path == ("ok",))


def test_a_missing_field_is_named() -> None:
    document = to_dict(one_outcome())
    del document["outcomes"][0]["detail"]
    assert refusal(document) == "outcomes[0].detail is missing"


def test_fields_of_a_later_specsim_are_ignored() -> None:
    document = to_dict(one_outcome())
    document["later"] = document["outcomes"][0]["later"] = 1
    VALIDATOR.validate(document)
    assert from_dict(document) == one_outcome()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "NaN", '{"a": Infinity}', "[" * 100_000, "1" * 5_000, b"\xff", "\x00"],
)
def test_what_is_not_a_report_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^the report must be [^\n]+$"):
        from_json(text)


def test_a_truncated_report_is_refused() -> None:
    text = to_json(one_outcome())
    for end in range(0, len(text) - 1, 7):
        with pytest.raises(ValueError, match=r"^the report must be JSON text"):
            from_json(text[:end])


def test_whole_numbers_may_be_written_as_floats() -> None:
    document = to_dict(one_outcome(draws=50))
    document["schema_version"], document["outcomes"][0]["draws"] = 1.0, 50.0
    VALIDATOR.validate(document)
    assert from_dict(document) == one_outcome(draws=50)


@pytest.mark.parametrize("seconds", [10**400, math.inf, -1, True, "1"])
def test_a_time_that_is_none_is_refused(seconds: object) -> None:
    document = {**to_dict(one_outcome()), "seconds": seconds}
    assert refusal(document).startswith("seconds must be a number of seconds, 0 or more, got ")


def test_evidence_nested_too_deeply_is_refused() -> None:
    document = to_dict(one_outcome())
    nest: list[Any] = []
    for _ in range(10_000):
        nest = [nest]
    document["outcomes"][0]["evidence"] = {"nest": nest}
    assert refusal(document) == "outcomes[0].evidence is nested too deeply"


def test_non_finite_evidence_becomes_null() -> None:
    evidence = {"log_e": math.inf, "parts": [math.nan, (-math.inf, 1.0)]}
    document = json.loads(to_json(one_outcome(evidence=evidence)))
    assert document["outcomes"][0]["evidence"] == {"log_e": None, "parts": [None, [None, 1.0]]}


def test_a_non_finite_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^seconds of S.distribution must be a finite number"):
        to_dict(one_outcome(seconds=math.inf))


@pytest.mark.parametrize(
    ("evidence", "line"),
    [
        ({"a": {1}}, "evidence of S.distribution['a'] must be None, a bool, .*, got set"),
        ({"a": [b"x"]}, "evidence of S.distribution['a'][0] must be .*, got bytes"),
        ({"a": {4: 1}}, "evidence of S.distribution['a'] must have strings as keys, got 4"),
    ],
)
def test_evidence_of_other_types_is_refused(evidence: dict[str, Any], line: str) -> None:
    pattern = re.escape(line).replace(re.escape(".*"), ".*")
    with pytest.raises(TypeError, match=f"^{pattern}$"):
        to_dict(one_outcome(evidence=evidence))


@given(st.text(st.characters(codec=None, exclude_categories=())))
@example("\ud800\udc00")
def test_surrogates_become_escapes_and_nothing_else_changes(text: str) -> None:
    document = to_dict(one_outcome(detail=text, evidence={text: text}))
    assert dumps(document).encode("utf-8")
    again = from_dict(document)
    expected = "".join(f"\\u{ord(c):x}" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert again.outcomes[0].detail == expected
    assert to_dict(again) == document


def test_an_error_document_says_why_and_is_never_a_report() -> None:
    document = error_dict(
        "m:f", "no module\n  named 'm'\n", effort="quick", alpha=1e-6, seed=3, coupling="batch"
    )
    VALIDATOR.validate(document)
    assert document["error"] == "no module named 'm'"
    assert (document["ok"], document["outcomes"], document["kind"]) == (False, [], None)
    with pytest.raises(UnjudgedError, match=r"^no module named 'm'$"):
        from_json(dumps(document))
    for broken in ({"ok": True}, {"error": ""}, {"error": "a\n"}, {"error": None}):
        assert not VALIDATOR.is_valid({**document, **broken})
        with pytest.raises(ValueError, match=r"^(ok|error) must ") as caught:
            from_dict({**document, **broken})
        assert not isinstance(caught.value, UnjudgedError)


def test_an_error_needs_a_message() -> None:
    with pytest.raises(ValueError, match=r"^message must say what went wrong"):
        error_dict("m:f", " \n", effort="quick", alpha=1e-6, seed=3, coupling="batch")


def test_the_documented_example_is_one_and_every_field_is_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    examples = re.findall(r"```json\n(.*?)\n```", page, flags=re.DOTALL)
    assert len(examples) == 1
    VALIDATOR.validate(json.loads(examples[0]))
    assert to_json(from_json(examples[0])) == examples[0]
    names = {*schema()["properties"], *schema()["$defs"]["outcome"]["properties"]}
    assert {name for name in names if f"| `{name}` |" not in page} == set()


def test_the_renderers_import_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "import specsim.report.html, specsim.report.json_report, specsim.report.junit\n"
        "heavy = {'torch', 'scipy', 'numpy', 'matplotlib', 'jinja2', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
