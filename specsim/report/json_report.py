"""A report as strictly valid JSON and back; ``schema.json`` beside this file describes it.

Standard library only: the judge writes this form in a child process, and a parent that never
imports torch reads it.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, cast

from specsim._version import __version__
from specsim.properties.outcome import Outcome, Report
from specsim.report import _json_fields as fields
from specsim.report._json_fields import Document

SCHEMA_VERSION = 1


class UnjudgedError(ValueError):
    """A document says that its run could not judge the target; the message is its ``error``."""


def schema() -> Document:
    """Return the JSON Schema (draft 2020-12) of the document, a fresh copy."""
    text = files("specsim.report").joinpath("schema.json").read_text(encoding="utf-8")
    return cast(Document, json.loads(text))


def to_dict(report: Report) -> Document:
    """Return the document of a report, of plain JSON types.

    Two things of a report do not survive as they are: a non-finite number in an outcome's
    evidence becomes ``None``, since JSON has none, and a surrogate in a string becomes the six
    characters of its Python escape, since no UTF-8 text holds one.

    Parameters
    ----------
    report
        Any report.

    Returns
    -------
    dict
        ``from_dict(to_dict(report)) == report``, those two cases and tuples in the evidence
        (lists afterwards) aside.

    Raises
    ------
    ValueError
        If alpha or a time is not a finite number.
    TypeError
        If an outcome's evidence holds something that is not a JSON type.
    """
    return _document(
        target=report.target,
        kind=report.kind,
        effort=report.effort,
        alpha=report.alpha,
        seed=report.seed,
        coupling=report.coupling,
        ok=report.ok,
        outcomes=[_outcome_to_dict(o) for o in report.outcomes],
        seconds=report.seconds,
        versions=report.versions,
    )


def error_dict(
    target: str,
    message: str,
    *,
    effort: str,
    alpha: float,
    seed: int,
    coupling: str,
    kind: str | None = None,
    seconds: float = 0.0,
    versions: Mapping[str, str] | None = None,
) -> Document:
    """Return the document of a run that could not judge its target.

    Parameters
    ----------
    target
        The target as the user named it.
    message
        Why it could not be judged; several lines are joined into one.
    effort, alpha, seed, coupling
        The settings of the run.
    kind
        The target's kind, ``None`` if the run ended before it was known.
    seconds
        Wall-clock time until the run gave up.
    versions
        Versions of what took part.

    Returns
    -------
    dict
        A document with ``ok`` false, no outcomes, and the message as ``error``.

    Raises
    ------
    ValueError
        If `message` is blank, or alpha or `seconds` is not a finite number.
    """
    line = " ".join(part.strip() for part in message.splitlines() if part.strip())
    if not line:
        raise ValueError(f"message must say what went wrong, got {message!r}")
    document = _document(
        target=target,
        kind=kind,
        effort=effort,
        alpha=alpha,
        seed=seed,
        coupling=coupling,
        ok=False,
        outcomes=[],
        seconds=seconds,
        versions=versions or {},
    )
    return {**document, "error": fields.encodable(line)}


def from_dict(document: object) -> Report:
    """Return the report that a document holds.

    Fields that schema version 1 does not have are ignored.

    Parameters
    ----------
    document
        What :func:`to_dict` returned or a JSON parser read.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    UnjudgedError
        If the document is valid and has an ``error``.
    ValueError
        If the document is not one of schema version 1; one line, which names the field.
    """
    top = fields.mapping(document, "the report")
    version = fields.read(top, "schema_version", "", fields.integer)
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema_version must be {SCHEMA_VERSION}, got {reprlib.repr(version)}")
    fields.read(top, "specsim", "", fields.text)
    error = fields.read(top, "error", "", fields.line) if "error" in top else None
    kind = fields.read(top, "kind", "", fields.text if error is None else fields.text_or_null)
    outcomes = fields.read(top, "outcomes", "", fields.array)
    report = Report(
        target=fields.read(top, "target", "", fields.text),
        kind=kind or "",
        effort=fields.read(top, "effort", "", fields.text),
        alpha=fields.read(top, "alpha", "", fields.probability),
        seed=fields.read(top, "seed", "", fields.integer),
        coupling=fields.read(top, "coupling", "", fields.text),
        outcomes=tuple(_outcome_from_dict(o, f"outcomes[{i}]") for i, o in enumerate(outcomes)),
        seconds=fields.read(top, "seconds", "", fields.duration),
        versions=fields.read(top, "versions", "", fields.versions),
    )
    ok = fields.read(top, "ok", "", fields.boolean)
    if ok != (report.ok and error is None):
        raise ValueError(f"ok must agree with the outcomes, which say {not ok}, got {ok}")
    if error is not None:
        raise UnjudgedError(error)
    return report


def dumps(document: Mapping[str, Any]) -> str:
    """Return a document as JSON text: ASCII only, indented by two, no newline at its end."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=True)


def to_json(report: Report) -> str:
    """Return the report's document as JSON text; see :func:`to_dict` and :func:`dumps`."""
    return dumps(to_dict(report))


def from_json(text: str | bytes) -> Report:
    """Return the report that a JSON text holds.

    Parameters
    ----------
    text
        One JSON document; bytes are UTF-8.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    UnjudgedError
        If the document is valid and has an ``error``.
    ValueError
        If the text is not strictly valid JSON or not such a document; one line.
    """

    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        document = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the report must be JSON text: {error}") from error
    return from_dict(document)


def _document(
    *,
    target: str,
    kind: str | None,
    effort: str,
    alpha: float,
    seed: int,
    coupling: str,
    ok: bool,
    outcomes: list[Document],
    seconds: float,
    versions: Mapping[str, str],
) -> Document:
    return {
        "schema_version": SCHEMA_VERSION,
        "specsim": fields.encodable(versions.get("specsim", __version__)),
        "target": fields.encodable(target),
        "kind": None if kind is None else fields.encodable(kind),
        "effort": fields.encodable(effort),
        "alpha": fields.finite(alpha, "alpha"),
        "seed": seed,
        "coupling": fields.encodable(coupling),
        "ok": ok,
        "outcomes": outcomes,
        "seconds": fields.finite(seconds, "seconds"),
        "versions": {fields.encodable(k): fields.encodable(v) for k, v in versions.items()},
    }


def _outcome_to_dict(outcome: Outcome) -> Document:
    def optional(text: str | None) -> str | None:
        return None if text is None else fields.encodable(text)

    name = outcome.property_id
    return {
        "property_id": fields.encodable(name),
        "statement": fields.encodable(outcome.statement),
        "verdict": outcome.verdict,
        "required": outcome.required,
        "draws": outcome.draws,
        "seconds": fields.finite(outcome.seconds, f"seconds of {name}"),
        "detail": fields.encodable(outcome.detail),
        "snippet": optional(outcome.snippet),
        "configuration": optional(outcome.configuration),
        "evidence": fields.plain(dict(outcome.evidence), f"evidence of {name}"),
        "expected": optional(outcome.expected),
    }


def _outcome_from_dict(document: object, where: str) -> Outcome:
    inner = fields.mapping(document, where)
    return Outcome(
        property_id=fields.read(inner, "property_id", where, fields.text),
        statement=fields.read(inner, "statement", where, fields.text),
        verdict=fields.read(inner, "verdict", where, fields.verdict),
        required=fields.read(inner, "required", where, fields.boolean),
        draws=fields.read(inner, "draws", where, fields.count),
        seconds=fields.read(inner, "seconds", where, fields.duration),
        detail=fields.read(inner, "detail", where, fields.text),
        snippet=fields.read(inner, "snippet", where, fields.text_or_null),
        configuration=fields.read(inner, "configuration", where, fields.text_or_null),
        evidence=fields.read(inner, "evidence", where, fields.evidence),
        expected=fields.read(inner, "expected", where, fields.text_or_null),
    )
