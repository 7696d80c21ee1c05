"""The first and the last frame of a trace file: who wrote it, configured how, and how much."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from specsim.arguments import finite, integer

COUPLINGS = ("batch", "slot")
METHODS = ("match-expected", "multinomial")
TOKEN_MODES = ("real-draft-token", "fixed")


@dataclass(frozen=True)
class TraceConfiguration:
    """What the recorded worker was configured to do.

    Attributes
    ----------
    gamma
        Draft tokens per step, at least 0.
    simulate_acc_len
        Acceptance length to force, in tokens, the target's own one included. None, or 0 or
        below: the law of the lengths is not known, and not judged.
    simulate_acc_method
        ``"match-expected"`` or ``"multinomial"``.
    rates
        Unconditional per-position rates, in place of a length and a method.
    coupling
        ``"batch"``: one draw per step for all slots. ``"slot"``: one per slot.
    token_mode
        ``"real-draft-token"`` or ``"fixed"``; None: the tokens' mode is not judged.
    fixed_token_id
        The committed token of fixed mode.

    Raises
    ------
    TypeError
        If a number is not of its kind.
    ValueError
        If a number is out of range, a choice unknown, or one that is needed missing.
    """

    gamma: int
    simulate_acc_len: float | None = None
    simulate_acc_method: str = "match-expected"
    rates: tuple[float, ...] | None = None
    coupling: str = "batch"
    token_mode: str | None = None
    fixed_token_id: int | None = None

    def __post_init__(self) -> None:
        integer(self.gamma, "gamma", 0)
        _one_of(self.simulate_acc_method, "simulate_acc_method", METHODS)
        _one_of(self.coupling, "coupling", COUPLINGS)
        if self.simulate_acc_len is not None:
            finite(self.simulate_acc_len, "simulate_acc_len")
        if self.rates is not None:
            self._check_rates(self.rates)
        if self.token_mode is not None:
            _one_of(self.token_mode, "token_mode", TOKEN_MODES)
        if self.token_mode == "fixed":
            if self.fixed_token_id is None:
                raise ValueError("fixed_token_id must be given when token_mode is 'fixed'")
            integer(self.fixed_token_id, "fixed_token_id", 0)

    def _check_rates(self, rates: tuple[float, ...]) -> None:
        if self.simulate_acc_len is not None:
            raise ValueError("rates must be None when simulate_acc_len is given")
        for rate in rates:
            finite(rate, "rates")
        if len(rates) != self.gamma:
            raise ValueError(f"rates must hold gamma = {self.gamma} numbers, got {len(rates)}")
        if any(not 0.0 <= rate <= 1.0 for rate in rates) or list(rates) != sorted(
            rates, reverse=True
        ):
            raise ValueError(f"rates must be non-increasing numbers in [0, 1], got {rates!r}")

    @property
    def simulating(self) -> bool:
        """Whether the law of the lengths is known."""
        return self.rates is not None or (self.simulate_acc_len or 0.0) > 0.0

    @property
    def label(self) -> str:
        """A short name for reports."""
        if self.rates is not None:
            claim = f"{len(self.rates)} rates"
        elif self.simulating:
            claim = f"acc_len {self.simulate_acc_len!r}, {self.simulate_acc_method}"
        else:
            claim = "no simulated length"
        return f"{claim}, gamma {self.gamma}"


@dataclass(frozen=True)
class TraceHeader:
    """A file's first frame.

    Attributes
    ----------
    rank
        Rank of the process among those that verify the same batch.
    pid
        Its number.
    started
        When its first step was recorded, seconds since 1970.
    configuration
        What it was configured to do.
    versions
        Versions of what took part.
    """

    rank: int
    pid: int
    started: float
    configuration: TraceConfiguration
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the header as JSON in UTF-8."""
        return json.dumps(asdict(self), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> TraceHeader:
        """Read what `to_bytes` wrote; names that are not known are ignored.

        Raises
        ------
        TypeError, ValueError
            If it is no header; names what is missing or wrong.
        """
        document = _document(payload)
        configuration = document.get("configuration")
        if not isinstance(configuration, dict):
            raise ValueError("configuration is missing")
        known = {f.name for f in fields(TraceConfiguration)}
        chosen = {name: value for name, value in configuration.items() if name in known}
        if "gamma" not in chosen:
            raise ValueError("gamma is missing")
        rates = chosen.get("rates")
        if rates is not None:
            if not isinstance(rates, list):
                raise ValueError(f"rates must be a list, got {rates!r}")
            chosen["rates"] = tuple(rates)
        versions = document.get("versions", {})
        if not isinstance(versions, dict):
            raise ValueError("versions are no table")
        return cls(
            rank=integer(document.get("rank"), "rank", 0),  # type: ignore[arg-type]
            pid=integer(document.get("pid"), "pid", 0),  # type: ignore[arg-type]
            started=finite(document.get("started"), "started"),  # type: ignore[arg-type]
            configuration=TraceConfiguration(**chosen),
            versions={str(name): str(version) for name, version in versions.items()},
        )


def end_payload(steps: int, dropped: int) -> bytes:
    """Return the content of an end frame: calls of the hook, and how many were dropped."""
    return json.dumps({"steps": steps, "dropped": dropped}).encode()


def read_end(payload: bytes) -> tuple[int, int]:
    """Return what `end_payload` was given.

    Raises
    ------
    KeyError, TypeError, ValueError
        If it is no end frame.
    """
    document = _document(payload)
    return integer(document["steps"], "steps", 0), integer(document["dropped"], "dropped", 0)


def _document(payload: bytes) -> dict[str, Any]:
    document = json.loads(payload)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _one_of(value: str, name: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
