"""T properties: which tokens a forced length commits.

Only committed positions are judged, as engines leave the rest as it was.
"""

from __future__ import annotations

from specsim.properties.finalize import KINDS, by_commits
from specsim.properties.registry import register

for _name, _statement, _source, _required in (
    ("real-draft-token", "In real-draft-token mode the accepted draft tokens are the request's "
     "own, of this step.",
     "SGLang PR 29645: the KV cache holds the real draft tokens", True),
    ("fixed", "In fixed mode every committed token is the fixed one.",
     "SGLang: a fixed id is committed in place of every token", True),
    ("bonus", "In real-draft-token mode the last committed token is the target's at the forced "
     "position.",
     "design: what decoding would go on with; SGLang DSpark keeps the real accept's bonus", False),
):  # fmt: skip
    register(f"T.{_name}", _statement, source=_source, required=_required, kinds=KINDS)(by_commits)
