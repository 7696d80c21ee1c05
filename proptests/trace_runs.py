"""Records traces for the tests, right ones and ones with a planted fault, and judges them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch

from specsim.properties.outcome import Outcome
from specsim.properties.registry import Property
from specsim.properties.session import Settings
from specsim.trace.judges import JUDGES
from specsim.trace.recorder import Recorder, record
from specsim.trace.session import open_trace
from specsim.verify.executor import TargetVerifyExecutor

CPU = torch.device("cpu")
GAMMA = 7

Fields: TypeAlias = "dict[str, Any]"
Change: TypeAlias = "Callable[[int, Fields], None]"


def nothing_changed(step: int, fields: Fields) -> None:
    """Leave a step as it is."""


def recorded(path: Path, acc_len: float | None = 4.7, **more: Any) -> Recorder:
    """Return a recorder of the configuration that the tests use."""
    return record(path, gamma=GAMMA, simulate_acc_len=acc_len, **more)


def record_lengths(
    path: Path,
    steps: int,
    change: Change = nothing_changed,
    *,
    acc_len: float = 4.7,
    coupling: str = "batch",
    bs: int = 2,
    seed: int | None = None,
    **more: Any,
) -> None:
    """Record the lengths and the buffer of an executor's steps, as `change` leaves them."""
    executor = TargetVerifyExecutor(
        GAMMA,
        acc_len,
        "match-expected",
        seed=seed,
        coupling=coupling,  # type: ignore[arg-type]
    )
    with recorded(path, acc_len, coupling=coupling, **more) as recorder:
        for step in range(steps):
            view = executor._simulated_correct_len(bs=bs, dtype=torch.int64, device=CPU)
            fields: Fields = {"correct_len": view, "buffer": executor._buffer}
            change(step, fields)
            recorder.step(**fields)


def record_steps(
    path: Path,
    steps: int,
    change: Change = nothing_changed,
    *,
    acc_len: float = 4.7,
    bs: int = 4,
    seed: int = 5,
    caps: Callable[[int], torch.Tensor] | None = None,
    token_mode: str = "real-draft-token",
    **more: Any,
) -> None:
    """Record whole verify steps of an executor, every third one as a graph's."""
    fixed = 17 if token_mode == "fixed" else None
    executor = TargetVerifyExecutor(
        *(GAMMA, acc_len, "match-expected"),
        seed=seed,
        token_mode=token_mode,  # type: ignore[arg-type]
        fixed_token_id=fixed,
    )
    generator = torch.Generator().manual_seed(seed)
    prefix = torch.full((bs,), 100)
    with recorded(path, acc_len, token_mode=token_mode, fixed_token_id=fixed, **more) as recorder:
        for step in range(steps):
            draft = torch.randint(100, 1_000, (bs, GAMMA), generator=generator)
            target = torch.randint(100, 1_000, (bs, GAMMA + 1), generator=generator)
            cap = None if caps is None else caps(step)
            result = executor.accept_and_finalize(
                draft_tokens=draft, prefix_lens=prefix, target_tokens=target, caps=cap
            )
            fields: Fields = {
                "correct_len": result.correct_len,
                "commit_lens": result.commit_lens,
                "prefix_lens": prefix,
                "new_seq_lens": result.new_seq_lens,
                "out_tokens": result.out_tokens,
                "draft_tokens": draft,
                "target_tokens": target,
                "buffer": executor._buffer,
                "graph": step % 3 == 2,
            }
            if cap is not None:
                fields |= {"caps": cap, "cap_trim_lens": result.cap_trim_lens}
            change(step, fields)
            recorder.step(**fields)
            prefix = result.new_seq_lens


def judged(property_id: str, *paths: Path) -> Outcome:
    """Return what one property says of a trace."""
    session = open_trace(paths, Settings("quick"))
    prop = Property(
        id=property_id, statement="", required=True, source="", statistical=False, judges={}
    )
    return JUDGES[property_id](prop, session)


def verdicts(*paths: Path) -> dict[str, str]:
    """Return the verdicts of all properties that a trace can show."""
    session = open_trace(paths, Settings("quick"))
    found: dict[str, str] = {}
    for property_id, judge in JUDGES.items():
        prop = Property(
            id=property_id, statement="", required=True, source="", statistical=False, judges={}
        )
        found[property_id] = judge(prop, session).verdict
    return found
