"""What one step of an executor must commit, in plain Python: what results are held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specsim.adapters.finalizing import Batch, Column, Commit, Request
from specsim.properties.configurations import law_of
from specsim.targets import Configuration

# Names of the properties, ids without their letter.
NAMES = (
    "commit-lens",
    "seq-lens",
    "caps",
    "cap-trim",
    "real-draft-token",
    "fixed",
    "bonus",
    "off",
)
_JUDGED_BY = {
    "correct_len": "commit-lens",
    "commit_lens": "commit-lens",
    "new_seq_lens": "seq-lens",
    "cap_trim_lens": "cap-trim",
    "bonus": "bonus",
    "out_tokens": "commit-lens",
}
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
_TRIM_DTYPE = "int32"


@dataclass(frozen=True)
class Finding:
    """What refutes a property.

    Attributes
    ----------
    message
        What came out, and what was expected.
    slot
        The request at fault; None if it is the batch.
    """

    message: str
    slot: int | None = None


Verdicts: TypeAlias = "dict[str, Finding | None]"
"""By the name of each property that a step says something about: what refutes it, or None."""


@dataclass(frozen=True)
class Case:
    """One executor, and the steps that it makes.

    Attributes
    ----------
    configuration
        What it is made with.
    batches
        Its steps.
    fixed_token_id
        Its fixed token, if it is made with one.
    """

    configuration: Configuration
    batches: tuple[Batch, ...]
    fixed_token_id: int | None = None

    @property
    def is_off(self) -> bool:
        """Whether simulation is off."""
        assert self.configuration.acc_len is not None
        return self.configuration.acc_len <= 0.0

    @property
    def lengths(self) -> tuple[int, ...]:
        """Acceptance lengths that may be forced."""
        return law_of(self.configuration).support


def real_accept(request: Request, limit: int) -> int:
    """Return how many draft tokens a greedy target accepts if `limit` tokens are verified."""
    accepted = 0
    pairs = zip(request.draft_tokens, request.target_tokens, strict=False)
    for draft, target in list(pairs)[: limit - 1]:
        if draft != target:
            break
        accepted += 1
    return accepted


def judge(
    case: Case,
    batch: Batch,
    commit: Commit,
    *,
    per_slot: bool,
    dtypes: Mapping[str, str] | None = None,
) -> Verdicts:
    """Hold one result against what its step must commit.

    Parameters
    ----------
    case
        The executor.
    batch
        The step.
    commit
        What it gave.
    per_slot
        Whether each slot has a draw of its own.
    dtypes
        With simulation off, what the fields' dtypes are with simulation on, where known.
    """
    malformed = _malformed(batch, commit)
    columns = {name: column for name, column in commit.columns.items() if name not in malformed}
    if case.is_off:
        found = _off(batch, columns, dtypes or {}, malformed)
        trim = malformed.get("cap_trim_lens") or _off_trim(batch, columns)
        return {"off": found, **_if_there("cap-trim", commit, "cap_trim_lens", trim)}
    verdicts: Verdicts = {}
    for name, finding in malformed.items():
        verdicts.setdefault(_JUDGED_BY[name], finding)
    if "correct_len" in malformed or "commit_lens" in malformed:
        return verdicts
    step = _Step(case, batch, columns, per_slot)
    verdicts.setdefault("commit-lens", step.commit_lens())
    if batch.limits:
        verdicts.setdefault("caps", step.caps())
    if "new_seq_lens" in columns:
        verdicts["seq-lens"] = step.seq_lens()
    if "cap_trim_lens" in columns:
        verdicts["cap-trim"] = step.cap_trim()
    if "out_tokens" not in columns:
        return verdicts
    if case.fixed_token_id is not None:
        verdicts["fixed"] = step.fixed(case.fixed_token_id)
    else:
        verdicts["real-draft-token"] = step.real_draft_tokens()
        verdicts.setdefault("bonus", step.bonus())
    return verdicts


def _if_there(name: str, commit: Commit, field: str, finding: Finding | None) -> Verdicts:
    return {name: finding} if field in commit.columns else {}


def _malformed(batch: Batch, commit: Commit) -> dict[str, Finding]:
    """Return what is wrong with the shape and the sort of dtype of each field."""
    found = {}
    for name, column in commit.columns.items():
        if name == "out_tokens":
            fits = len(column.shape) == 2 and column.shape[0] == batch.bs
            expected = f"({batch.bs}, gamma + 1) = ({batch.bs}, {batch.gamma + 1})"
        else:
            fits, expected = column.shape == (batch.bs,), f"({batch.bs},)"
        if not fits:
            found[name] = Finding(f"{name} has shape {column.shape}, expected {expected}")
        elif column.dtype not in _INTEGERS:
            found[name] = Finding(f"{name} is {column.dtype}, expected an integer dtype")
    return found


class _Step:
    """One step with simulation on."""

    def __init__(
        self, case: Case, batch: Batch, columns: Mapping[str, Column], per_slot: bool
    ) -> None:
        self.requests = batch.requests
        self.columns = columns
        self.batch = batch
        self.lengths = case.lengths
        self.correct: list[int] = columns["correct_len"].values
        self.commits: list[int] = columns["commit_lens"].values
        self.limits = [request.limit for request in self.requests]
        self.free = [limit > batch.gamma for limit in self.limits]
        slots = range(batch.bs)
        self.draws: list[Sequence[int]] = [[slot] for slot in slots] if per_slot else [slots]

    def _first(self, refuted: Callable[[int], str | None]) -> Finding | None:
        for slot in range(self.batch.bs):
            message = refuted(slot)
            if message is not None:
                return Finding(message, slot)
        return None

    def _is_right(self, slot: int, forced: int) -> bool:
        if self.free[slot]:
            return self.correct[slot] + 1 == forced
        return self.commits[slot] == min(forced, self.limits[slot])

    def _forced(self, slots: Sequence[int]) -> int:
        """Return the forced length that agrees with most requests, those without a limit first."""

        def agreeing(forced: int) -> tuple[int, int]:
            right = [slot for slot in slots if self._is_right(slot, forced)]
            return sum(self.free[slot] for slot in right), len(right)

        return max(self.lengths, key=agreeing)

    def _of_forced(self, *, free: bool) -> Finding | None:
        """Look for a request whose length is not the forced one, or not as its limit cuts it."""
        for slots in self.draws:
            if not slots:
                continue
            forced = self._forced(slots)
            for slot in slots:
                if self.free[slot] is not free or self._is_right(slot, forced):
                    continue
                if free:
                    seen = f"correct_len {self.correct[slot]} is an acceptance length of "
                    seen += f"{self.correct[slot] + 1}"
                    return Finding(f"{seen}, expected {self._expected(forced, len(slots))}", slot)
                limit, committed = self.limits[slot], self.commits[slot]
                return Finding(
                    f"commit_lens {committed}, expected {min(forced, limit)}: the lesser of "
                    f"{self._expected(forced, len(slots))} and the limit of {limit}",
                    slot,
                )
        return None

    def _expected(self, forced: int, requests: int) -> str:
        if len(self.lengths) == 1:
            return f"the forced {forced}"
        if requests > 1:
            return f"the step's forced length, {forced} as in its other requests"
        return f"a forced length of {', '.join(map(str, self.lengths))}"

    def commit_lens(self) -> Finding | None:
        """Return what is wrong with the lengths before any cap, and how they fit together."""
        top = self.batch.gamma + 1
        tokens = self.columns.get("out_tokens")

        def refuted(slot: int) -> str | None:
            correct, committed = self.correct[slot], self.commits[slot]
            if committed != correct + 1:
                return f"commit_lens {committed} with correct_len {correct}, expected {correct + 1}"
            if not 1 <= committed <= top:
                return f"commit_lens {committed}, expected 1 … gamma + 1 = {top}"
            if tokens is None:
                return None
            held = tokens.values[slot][:committed]
            if len(held) < committed or min(held) < 0:
                return (
                    f"out_tokens {tokens.values[slot]} with commit_lens {committed}, expected "
                    "that many token ids"
                )
            return None

        return self._first(refuted) or self._of_forced(free=True)

    def caps(self) -> Finding | None:
        """Return where a limit was not what cut the forced length."""

        def refuted(slot: int) -> str | None:
            if self.commits[slot] <= self.limits[slot]:
                return None
            return f"commit_lens {self.commits[slot]}, expected at most {self.limits[slot]}"

        return self._first(refuted) or self._of_forced(free=False)

    def seq_lens(self) -> Finding | None:
        """Return where a sequence did not grow by its commit."""
        column = self.columns["new_seq_lens"]
        if column.dtype != self.batch.prefix_dtype:
            return Finding(
                f"new_seq_lens is {column.dtype}, expected the prefix_lens' "
                f"{self.batch.prefix_dtype}"
            )

        def refuted(slot: int) -> str | None:
            prefix, committed = self.requests[slot].prefix_len, self.commits[slot]
            if column.values[slot] == prefix + committed:
                return None
            return (
                f"new_seq_lens {column.values[slot]}, expected {prefix + committed}: prefix_lens "
                f"{prefix} and commit_lens {committed}"
            )

        return self._first(refuted)

    def cap_trim(self) -> Finding | None:
        """Return where the trimmed tokens and the commit are not the forced length together."""
        column = self.columns["cap_trim_lens"]
        if column.dtype != _TRIM_DTYPE:
            return Finding(f"cap_trim_lens is {column.dtype}, expected {_TRIM_DTYPE}")
        trims = column.values
        for slots in self.draws:
            possible = [
                forced
                for forced in self.lengths
                if all(self.commits[slot] == min(forced, self.limits[slot]) for slot in slots)
            ]
            # Lengths that no draw explains are the business of commit-lens and caps.
            if not slots or not possible:
                continue
            forced = max(
                possible,
                key=lambda length: sum(self.commits[s] + trims[s] == length for s in slots),
            )
            for slot in slots:
                if self.commits[slot] + trims[slot] != forced:
                    return Finding(
                        f"cap_trim_lens {trims[slot]} with commit_lens {self.commits[slot]}, "
                        f"expected {forced - self.commits[slot]}: the uncapped length is {forced}",
                        slot,
                    )
        return None

    def _committed(self, slot: int) -> list[int]:
        """Return the tokens that both lengths call committed, as far as there are so many."""
        tokens: list[int] = self.columns["out_tokens"].values[slot]
        return tokens[: max(min(self.commits[slot], self.correct[slot] + 1), 0)]

    def fixed(self, token: int) -> Finding | None:
        """Return where a committed token is not the fixed one."""

        def refuted(slot: int) -> str | None:
            committed = self._committed(slot)
            if all(given == token for given in committed):
                return None
            return f"committed {committed}, expected {token} everywhere"

        return self._first(refuted)

    def real_draft_tokens(self) -> Finding | None:
        """Return where an accepted draft token is not the request's own."""

        def refuted(slot: int) -> str | None:
            committed = self._committed(slot)
            drafts = max(self.correct[slot], 0)
            expected = list(self.requests[slot].draft_tokens[:drafts])
            if committed[:drafts] == expected[: len(committed)]:
                return None
            return f"committed {committed}, expected the draft tokens {expected} first"

        return self._first(refuted)

    def bonus(self) -> Finding | None:
        """Return where the last committed token is not the target's at that position."""
        column = self.columns.get("bonus")

        def refuted(slot: int) -> str | None:
            position, committed = self.correct[slot], self._committed(slot)
            request = self.requests[slot]
            if not 0 <= position < min(len(committed), len(request.target_tokens)):
                return None
            expected = request.target_tokens[position]
            where = f"the target's token at position {position}"
            if committed[position] != expected:
                real = request.target_tokens[real_accept(request, request.limit)]
                hint = "" if committed[position] != real else ", ending in the real accept's bonus"
                return f"committed {committed}{hint}, expected {expected} last, {where}"
            if column is not None and column.values[slot] != expected:
                return f"bonus {column.values[slot]}, expected {expected}, {where}"
            return None

        return self._first(refuted)


def _off(
    batch: Batch,
    columns: Mapping[str, Column],
    dtypes: Mapping[str, str],
    malformed: Mapping[str, Finding],
) -> Finding | None:
    """Return where a result with simulation off is not the real accept's."""
    for name, finding in malformed.items():
        if name != "cap_trim_lens":
            return finding
    for name, column in columns.items():
        if name != "cap_trim_lens" and dtypes.get(name, column.dtype) != column.dtype:
            return Finding(f"{name} is {column.dtype}, and {dtypes[name]} with simulation on")
    sequences = columns.get("new_seq_lens")
    if sequences is not None and sequences.dtype != batch.prefix_dtype:
        return Finding(
            f"new_seq_lens is {sequences.dtype}, expected the prefix_lens' {batch.prefix_dtype}"
        )
    for slot, request in enumerate(batch.requests):
        accepted = real_accept(request, request.limit)
        bonus = request.target_tokens[accepted]
        expected = {
            "correct_len": accepted,
            "commit_lens": accepted + 1,
            "new_seq_lens": request.prefix_len + accepted + 1,
            "bonus": bonus,
            "out_tokens": [*request.draft_tokens[:accepted], bonus],
        }
        for name, wanted in expected.items():
            if name not in columns:
                continue
            given = columns[name].values[slot]
            if name == "out_tokens":
                given = given[: accepted + 1]
            if given != wanted:
                return Finding(f"{name} {given}, expected {wanted}: the real accept's", slot)
    return None


def _off_trim(batch: Batch, columns: Mapping[str, Column]) -> Finding | None:
    """Return where, with simulation off, the trimmed tokens are not what a cap took off."""
    column = columns.get("cap_trim_lens")
    if column is None:
        return None
    for slot, request in enumerate(batch.requests):
        verified = len(request.target_tokens) if request.verify_len is None else request.verify_len
        uncapped, kept = real_accept(request, verified), real_accept(request, request.limit)
        if column.values[slot] != uncapped - kept:
            return Finding(
                f"cap_trim_lens {column.values[slot]}, expected {uncapped - kept}: the real accept "
                f"is of {uncapped + 1} tokens, and {kept + 1} are committed",
                slot,
            )
    return None
