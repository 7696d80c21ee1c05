"""DFlash and EAGLE functions as targets: their draws, and the D, A and T properties."""

from __future__ import annotations

import contextlib
import inspect
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import specsim
from proptests.exact_counts import agrees
from specsim.acceptance import AcceptanceDistribution
from specsim.adapters.batches import FIXED, MARKER, REAL, BatchShape
from specsim.adapters.consumers import BatchTarget
from specsim.adapters.dflash import DFlashTarget
from specsim.adapters.eagle import EagleTarget
from specsim.loading.failures import TargetError, TargetFailed, TargetRaised
from specsim.mutants.dflash import DFlash
from specsim.mutants.eagle import Eagle
from specsim.mutants.verify_all import (
    all_correct_dflash,
    all_correct_eagle,
    all_dflash_mutants,
    all_eagle_mutants,
)
from specsim.mutants.verify_registry import VerifyCorrect, VerifyMutant
from specsim.properties.configurations import METHODS
from specsim.properties.consumer_calls import make_calls
from specsim.properties.outcome import Outcome
from specsim.targets import Configuration
from specsim.verify import apply_dflash_simulated_acceptance, generate_simulated_accept_index

Kind = type[DFlashTarget] | type[EagleTarget]

REFERENCES: dict[str, tuple[Kind, Callable[..., object]]] = {
    "dflash": (DFlashTarget, apply_dflash_simulated_acceptance),
    "eagle": (EagleTarget, generate_simulated_accept_index),
}
KINDS = tuple(REFERENCES)
CALLS = ("same-length", "index", "real-draft-token", "fixed")
# What single calls decide, nothing of it by chance.
OF_CALLS = {
    "dflash": ("D.returns", "D.same-length", "T.real-draft-token", "T.fixed"),
    "eagle": ("A.returns", "A.same-length", "A.index", "T.real-draft-token", "T.fixed"),
}
TARGETS: dict[str, Kind] = {"dflash": DFlashTarget, "eagle": EagleTarget}
WHOLE = Configuration(3.0, "match-expected", 4)
FRACTION = Configuration(2.5, "match-expected", 8)

MUTANTS: list[tuple[str, VerifyMutant]] = [
    *(("dflash", mutant) for mutant in all_dflash_mutants()),
    *(("eagle", mutant) for mutant in all_eagle_mutants()),
]
SHOWN_BY_CALLS = [each for each in MUTANTS if each[1].caught_by.split(".")[1] in CALLS]
# Two draws may agree in one call; all else that is shown is shown in the first call that can.
ALWAYS_SHOWN = [each for each in SHOWN_BY_CALLS if each[1].name != "two-draws"]
CORRECT: list[tuple[str, VerifyCorrect]] = [
    *(("dflash", correct) for correct in all_correct_dflash()),
    *(("eagle", correct) for correct in all_correct_eagle()),
]


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (VerifyMutant, VerifyCorrect)) else None


def reference(kind: str) -> BatchTarget:
    make, function = REFERENCES[kind]
    return make("function", function)


def adapted(kind: str, function: Callable[..., object]) -> BatchTarget:
    return TARGETS[kind]("function", function)


def wrapping(kind: str, change: Callable[[dict[str, Any]], None]) -> Callable[..., object]:
    """Return the reference, whose arguments are changed or looked at before each call."""
    function = REFERENCES[kind][1]

    def wrapped(**arguments: Any) -> object:
        change(arguments)
        return function(**arguments)

    wrapped.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return wrapped


def outcomes(kind: str, function: Callable[..., object], *wanted: str) -> dict[str, Outcome]:
    properties = wanted or OF_CALLS[kind]
    report = specsim.check(function, kind=kind, effort="quick", properties=properties)
    return {outcome.property_id: outcome for outcome in report.outcomes}


def printed(program: str, **names: object) -> str:
    """Run a snippet and return what it prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        exec(compile(program, "snippet", "exec"), dict(names))
    return text.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("acc_len", "method"), [(2.5, "match-expected"), (4.7, "multinomial"), (7.9, "multinomial")]
)
def test_draws_have_the_law(kind: str, acc_len: float, method: str) -> None:
    """False alarms: at most 1e-9 a case; the twin is a law half a token away."""
    config = Configuration(acc_len, method, 8)
    target = reference(kind)
    drawn = np.array(target.draw_many(config, 2_000))
    assert agrees(drawn, AcceptanceDistribution.from_method(acc_len, method, 8))
    assert not agrees(drawn, AcceptanceDistribution.from_method(acc_len - 0.5, method, 8))
    assert target.noticed() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_is_one_call(kind: str) -> None:
    seen: list[dict[str, Any]] = []
    target = adapted(kind, wrapping(kind, lambda arguments: seen.append(dict(arguments))))
    assert target.draw_many(WHOLE, 3) == [3, 3, 3]
    assert target.draw_many(WHOLE, 7) == [3] * 7
    assert len(seen) == 10
    tokens = [arguments["candidates"].tolist() for arguments in seen]
    assert tokens[:5] == tokens[5:]
    assert sorted(len(each) for each in tokens[:5]) == [1, 2, 3, 5, 64]
    for arguments in seen:
        assert "generator" not in arguments
        assert (arguments["simulate_acc_len"], arguments["simulate_acc_method"]) == (
            3.0,
            "match-expected",
        )
        ids = torch.cat([arguments["candidates"], arguments["target_predict"]]).flatten()
        assert len(set(ids.tolist())) == ids.numel()
    name = "out_tokens" if kind == "dflash" else "predict"
    assert {arguments[name].dtype for arguments in seen} == {torch.int32, torch.int64}


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_marked_before_each_call(kind: str) -> None:
    left: list[int] = []
    outputs = {
        "dflash": ("accept_len", "commit_lens", "bonus", "out_tokens"),
        "eagle": ("predict", "num_correct_drafts"),
    }[kind]

    def look(arguments: dict[str, Any]) -> None:
        left.extend(x for name in outputs for x in arguments[name].flatten().tolist())

    adapted(kind, wrapping(kind, look)).draw_many(WHOLE, 10)
    assert set(left) == {MARKER}


@pytest.mark.parametrize(("kind", "entry"), CORRECT, ids=name_of)
def test_correct_functions_hold(kind: str, entry: VerifyCorrect) -> None:
    target = adapted(kind, entry.factory())
    calls = make_calls(target, METHODS, 0, 40)
    assert calls.found == {}
    assert min(calls.made.values()) > 20
    assert calls.largest == 600
    target.draw_many(FRACTION, 60)
    assert target.noticed() == []


@pytest.mark.parametrize(("kind", "entry"), ALWAYS_SHOWN, ids=name_of)
def test_faults_are_shown_by_single_calls(kind: str, entry: VerifyMutant) -> None:
    target = adapted(kind, entry.factory())
    found = make_calls(target, METHODS, 0, 10).found
    name = entry.caught_by.split(".")[1]
    assert name in found
    program = target.call_program(found[name], "")
    assert "expected" in printed(program, function=target.function)


@pytest.mark.parametrize(("kind", "entry"), SHOWN_BY_CALLS, ids=name_of)
def test_faults_are_noticed_while_drawing(kind: str, entry: VerifyMutant) -> None:
    """Two draws agree 60 times with a probability of 2⁻⁶⁰; the rest is certain."""
    name = entry.caught_by.split(".")[1]
    target = adapted(kind, entry.factory())
    target.draw_many(FRACTION, 60)
    noticed = {violation.name: violation for violation in target.noticed()}
    assert (name in noticed) == (name != "fixed")
    assert target.noticed() == []
    assert pickle.loads(pickle.dumps(noticed)) == noticed


@pytest.mark.parametrize(
    ("kind", "entry"),
    [each for each in MUTANTS if each[1].name == "stale-token-inside"],
    ids=name_of,
)
def test_a_failure_says_what_was_seen_and_shows_it_again(kind: str, entry: VerifyMutant) -> None:
    name = "T.real-draft-token"
    failed = outcomes(kind, entry.factory(), name)[name]
    assert failed.verdict == "fail"
    assert f"[{MARKER}, " in failed.detail
    assert "with bs 1 committed" in failed.detail
    assert "simulate_acc_len=2.0" in failed.detail
    assert failed.snippet is not None
    text = printed(failed.snippet, **{type(entry.factory()).__name__: entry.factory()})
    lines = text.splitlines()
    assert len(lines) == 2
    assert str(MARKER) in lines[0]
    assert "expected" in lines[1]
    assert str(MARKER) not in lines[1]


@pytest.mark.parametrize("kind", KINDS)
def test_programs_draw_lengths(kind: str) -> None:
    target = reference(kind)
    first, second = target.program(FRACTION), target.program(WHOLE, 2)
    lines = [*first.setup, *second.setup, f"print({first.lengths(20)}, {second.length})"]
    text = printed("\n".join(lines), function=target.function)
    drawn, _, last = text.rpartition("]")
    assert set(map(int, drawn.strip("[").split(","))) <= {2, 3}
    assert int(last) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_snippets_import_the_reference(kind: str) -> None:
    """A failure of a function that can be imported comes with its import."""
    name = REFERENCES[kind][1].__name__
    target = TARGETS[kind](name, REFERENCES[kind][1])
    shape = BatchShape(2, mode=FIXED)
    broken = adapted(kind, wrapping(kind, lambda a: a.update(fixed_token_id=5)))
    found = broken.call(WHOLE, shape)
    assert [v.name for v in found] == ["fixed"]
    module = REFERENCES[kind][1].__module__
    text = printed(target.call_program(found[0], f"from {module} import {name}"))
    assert "777, 777, 777" in text.splitlines()[0]
    assert "777, 777, 777" in text.splitlines()[1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_raises_on_an_unusual_batch_only(kind: str) -> None:
    def refuse_empty(arguments: dict[str, Any]) -> None:
        if arguments["candidates"].shape[0] == 0:
            raise RuntimeError("no requests")

    found = outcomes(kind, wrapping(kind, refuse_empty))
    letter = OF_CALLS[kind][0][0]
    assert found[f"{letter}.returns"].verdict == "pass"
    failed = found[f"{letter}.same-length"]
    assert failed.verdict == "fail"
    assert "with bs 0 raised RuntimeError: no requests" in failed.detail

    def refuse_fixed(arguments: dict[str, Any]) -> None:
        if arguments["simulate_acc_token_mode"] == FIXED:
            raise NotImplementedError("fixed")

    calls = make_calls(adapted(kind, wrapping(kind, refuse_fixed)), METHODS, 0, 10)
    assert list(calls.found) == ["fixed"]
    assert "raised NotImplementedError" in calls.found["fixed"].message


def test_logits_that_are_not_read() -> None:
    def forget(arguments: dict[str, Any]) -> None:
        if arguments["target_predict"] is None:
            arguments["next_token_logits"] = torch.zeros_like(arguments["next_token_logits"])

    found = make_calls(adapted("dflash", wrapping("dflash", forget)), METHODS, 0, 10).found
    assert list(found) == ["real-draft-token"]
    assert "logits for target_predict" in found["real-draft-token"].message


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_that_are_overwritten(kind: str) -> None:
    """The tokens of an earlier call are gone when the batch comes up again."""
    function = REFERENCES[kind][1]

    def spoil(**arguments: Any) -> object:
        returned = function(**arguments)
        arguments["candidates"].zero_()
        return returned

    spoil.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    target = adapted(kind, spoil)
    target.draw_many(WHOLE, 12)
    (noticed,) = target.noticed()
    assert noticed.name == "real-draft-token"
    assert "overwrote its candidates or target_predict" in noticed.message


def test_a_fixed_token_of_the_functions_own() -> None:
    """Any constant will do where none can be asked for, but it has to be one."""
    constant = next(c for c in all_correct_eagle() if c.name == "engine-signature").factory()
    passed = outcomes("eagle", constant, "T.fixed")["T.fixed"]
    assert passed.verdict == "pass"
    assert "id 100, the function's own choice" in passed.detail
    assert "only a tokenizer can tell" in passed.detail

    calls = iter(range(10_000))

    def varying(
        accept_index: torch.Tensor,
        predict: torch.Tensor,
        num_correct_drafts: torch.Tensor,
        candidates: torch.Tensor,
        target_predict: torch.Tensor,
        bs: int,
        spec_steps: int,
        simulate_acc_len: float,
        simulate_acc_method: str,
        simulate_acc_token_mode: str,
    ) -> torch.Tensor:
        arguments = {**locals(), "fixed_token_id": next(calls) % 7}
        arguments.pop("calls", None)
        return Eagle()(**arguments)

    found = make_calls(adapted("eagle", varying), METHODS, 0, 10).found
    assert list(found) == ["fixed"]
    assert "only" in found["fixed"].message


def test_a_real_token_is_no_fixed_one() -> None:
    """A function that ignores the mode commits the draft's tokens, never a constant."""

    def ignore(arguments: dict[str, Any]) -> None:
        arguments["simulate_acc_token_mode"] = REAL

    for kind in KINDS:
        assert list(make_calls(adapted(kind, wrapping(kind, ignore)), METHODS, 0, 10).found) == [
            "fixed"
        ]


def without(kind: str, *names: str) -> Callable[..., object]:
    """Return the reference with fewer keywords."""
    function = REFERENCES[kind][1]
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.name not in names]

    def fewer(**arguments: Any) -> object:
        assert not set(arguments) & set(names)
        return function(**arguments)

    fewer.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return fewer


@pytest.mark.parametrize("kind", KINDS)
def test_older_signatures(kind: str) -> None:
    optional = ("simulate_acc_token_mode", "fixed_token_id", "next_token_logits", "generator")
    found = outcomes(kind, without(kind, *optional))
    assert found["T.fixed"].verdict == "skip"
    assert all(o.verdict == "pass" for name, o in found.items() if name != "T.fixed")


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_that_cannot_be_called(kind: str) -> None:
    with pytest.raises(TargetError, match="simulate_acc_method"):
        adapted(kind, without(kind, "simulate_acc_method"))

    def more(*, another: int, **arguments: Any) -> None:
        """Need what nobody gives."""

    with pytest.raises(TargetError, match="another"):
        adapted(kind, more)

    async def later(**arguments: Any) -> None:
        """Return nothing yet."""

    with pytest.raises(TargetError, match="coroutine"):
        adapted(kind, later)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_is_told_from_the_signature(kind: str) -> None:
    report = specsim.check(REFERENCES[kind][1], effort="quick", properties=["T.fixed"])
    assert (report.kind, report.ok) == (kind, True)


@pytest.mark.parametrize("kind", KINDS)
def test_any_keywords_are_those_of_the_reference(kind: str) -> None:
    def anything(**arguments: Any) -> object:
        return REFERENCES[kind][1](**arguments)

    target = adapted(kind, anything)
    assert target.draw_many(WHOLE, 4) == [3] * 4
    assert target.modes == (REAL, FIXED)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda index: None, "returned None"),
        (lambda index: index[:, :-1], "returned shape"),
        (lambda index: index.float(), "returned dtype torch.float32"),
    ],
)
def test_what_is_no_accept_index(returned: Callable[[torch.Tensor], object], message: str) -> None:
    def wrong(**arguments: Any) -> object:
        return returned(Eagle()(**arguments))

    with pytest.raises(TargetFailed, match=message):
        adapted("eagle", wrong).draw_many(WHOLE, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_raises(kind: str) -> None:
    def broken(**arguments: Any) -> object:
        raise SystemExit(3)

    with pytest.raises(TargetRaised, match="SystemExit"):
        adapted(kind, broken).draw_many(WHOLE, 1)
    found = outcomes(kind, broken)
    assert [o.verdict for o in found.values()].count("pass") == 0
    assert [name for name, o in found.items() if o.verdict == "inconclusive"]


def test_only_what_can_be_reached_is_judged() -> None:
    """Another token in place of a stale one beyond the commit is nobody's business."""

    class Noisy(DFlash):
        def write_tail(self, out_tokens: torch.Tensor, length: int) -> None:
            out_tokens[:, length:].random_(1_000, 1_020)

    assert adapted("dflash", Noisy()).call(WHOLE, BatchShape(4)) == []

    class Inside(DFlash):
        def write_tail(self, out_tokens: torch.Tensor, length: int) -> None:
            out_tokens[:, length - 1 :].random_(5, 10)

    found = adapted("dflash", Inside()).call(WHOLE, BatchShape(4))
    assert [violation.name for violation in found] == ["real-draft-token"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_has_every_required_property(kind: str) -> None:
    """False alarms: at most 1e-6 a case.

    Without a generator of its own the reference draws from torch's, so that ranks seeded apart
    draw apart: the one property it lacks, an advisory one.
    """
    report = specsim.check(REFERENCES[kind][1], effort="quick")
    assert report.ok
    assert report.kind == kind
    assert {o.property_id for o in report.outcomes} >= set(OF_CALLS[kind])
    lacking = {o.property_id for o in report.outcomes if o.verdict != "pass"}
    assert lacking == {"R.unequal-generators"}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "entry"), MUTANTS, ids=name_of)
def test_every_mutant_is_caught(kind: str, entry: VerifyMutant) -> None:
    """Missed is at most one in a thousand: each fault is far beyond what a pass rules out."""
    report = specsim.check(
        entry.factory(),
        kind=kind,
        effort="quick",
        properties=[entry.caught_by],
        methods=entry.options.methods,
    )
    (outcome,) = report.outcomes
    assert outcome.verdict == "fail"
