"""Programs that make an executor commit a batch again."""

from __future__ import annotations

import textwrap
from typing import Any

from specsim.adapters.finalizing import METHOD, Batch
from specsim.properties.finalize_model import Case
from specsim.properties.finalize_steps import Refutation
from specsim.properties.session import Session

_LINE = 88
# Where a draw decides whether the fault shows, executors are made so often.
_ATTEMPTS = 20


def call_of(session: Session, case: Case) -> str:
    """Return the call that makes a case's executor."""
    call = session.target.call_repr(case.configuration)
    if case.fixed_token_id is None:
        return call
    return f"{call[:-1]}, token_mode='fixed', fixed_token_id={case.fixed_token_id})"


def commits_program(session: Session, refutation: Refutation, step_method: str | None) -> str:
    """Return a program that makes the steps of a refutation, and prints what the last one gave.

    Parameters
    ----------
    session
        Whose target it is.
    refutation
        The steps.
    step_method
        What is called before each step, in the step protocol.
    """
    case = refutation.case
    made = f"executor = {call_of(session, case)}"
    if not case.batches:
        return "\n".join([session.import_line, "", made, ""])
    steps = [
        line
        for batch in case.batches
        for line in ("dict(", *(f"    {line}," for line in _arguments(batch)), "),")
    ]
    body = [made, "for step in steps:"]
    if step_method is not None:
        body.append(f"    executor.{step_method}()")
    body.append(f"    result = executor.{METHOD}(**step)")
    body += _shown(refutation)
    depends_on_a_draw = not case.is_off and len(case.lengths) > 1
    if depends_on_a_draw:
        body = [f"for attempt in range({_ATTEMPTS}):", *(f"    {line}" for line in body)]
    said = textwrap.wrap(f"The check saw: {refutation.finding.message}", _LINE - 2)
    return "\n".join(
        [
            "import torch",
            session.import_line,
            "",
            "steps = [",
            *(f"    {line}" for line in steps),
            "]",
            *body,
            *(f"# {line}" for line in said),
            "",
        ]
    )


def _shown(refutation: Refutation) -> list[str]:
    """Return the lines that print a result, for the request at fault."""
    if not refutation.fields:
        return ["print(result)"]
    slot = refutation.finding.slot
    lines = ["seen = {"]
    for name in refutation.fields:
        tensor = f"result[{name!r}]" if refutation.by_key else f"result.{name}"
        seen = f"({tensor}.dtype, {tensor}.shape)" if slot is None else f"{tensor}[{slot}].tolist()"
        lines.append(f"    {name!r}: {seen},")
    return [*lines, "}", "print(seen)"]


def _arguments(batch: Batch) -> list[str]:
    return [
        f"{name}={_tensor(values, dtype, shape)}"
        for name, (values, dtype, shape) in batch.columns().items()
    ]


def _tensor(values: list[Any], dtype: str, shape: tuple[int, ...]) -> str:
    """Return the expression of a tensor whose rows are `values` in turn."""
    rows = shape[0]
    if rows == 0 or 0 in shape:
        return f"torch.zeros({shape!r}, dtype=torch.{dtype})"
    listed = repr(values)
    if rows != len(values):
        listed = f"{values!r} * {-(-rows // len(values))}"
        if rows % len(values):
            listed = f"({listed})[:{rows}]"
    return f"torch.tensor({listed}, dtype=torch.{dtype})"
