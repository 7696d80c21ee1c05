"""Registers what a trace can show: importing this does it."""

from __future__ import annotations

from specsim.properties import executor, finalize, laws, single_lengths, tokens  # noqa: F401
from specsim.properties.registry import register, register_for
from specsim.trace.judges import JUDGES, STATEMENTS

for _id, _judge in JUDGES.items():
    if _id in STATEMENTS:
        _statement = STATEMENTS[_id]
        register(
            _id,
            _statement.text,
            source=_statement.source,
            required=_statement.required,
            statistical=_statement.statistical,
            kinds=("trace",),
        )(_judge)
    else:
        register_for(_id, "trace")(_judge)
