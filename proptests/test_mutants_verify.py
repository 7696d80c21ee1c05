"""The faulty executors are faulty in the stated way and no other, and the correct ones are correct.

That the catalogue rejects each mutant is tested beside the catalogue. Here an executor's buffer is
probed with a few fixed sequences of calls, and what they show is compared with what is stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from proptests.dispatched import storage_of
from proptests.exact_counts import agrees, pairs
from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.executor_base import BufferExecutor, StepExecutor
from specsim.mutants.executors_law import SampledExecutor
from specsim.mutants.sampler_faults import SAMPLER_FAULTS
from specsim.mutants.verify_all import all_correct_executors, all_executor_mutants
from specsim.mutants.verify_registry import VerifyCorrect, VerifyMutant

GAMMA = 7
CPU, META = torch.device("cpu"), torch.device("meta")
UNWRITTEN = -77
CONFIGURATIONS = ((4.7, "match-expected"), (2.2, "multinomial"), (7.6, "match-expected"))

ALWAYS = {"moves", "moves when smaller", "moves at capacity", "moves back"}
SHOWN: dict[str, set[str]] = {
    "device-ignored": {"device"},
    "dtype-ignored": {"dtype"},
    "dtype-or-else-device": {"dtype and device"},
    "allocated-at-every-step": ALWAYS,
    "rebuilt-when-smaller": {"moves when smaller", "moves back"},
    "rebuilt-at-capacity": {"moves at capacity"},
    "two-buffers-in-turn": ALWAYS,
    "slots-copied": ALWAYS | {"capacity"},
    "buffer-copied": ALWAYS,
    "capacity-is-the-batch": {"capacity"},
    "capacity-511": {"capacity"},
    "view-before-rebuild": {"shape", "moves back"},
    "views-survive-a-rebuild": {"moves back"},
    "first-slot-only": {"unwritten", "apart"},
    "last-slot-missed": {"unwritten", "apart"},
    "write-skipped-when-equal": {"unwritten"},
    "slots-drawn-apart": {"apart"},
    "one-draw-for-all-slots": {"shared"},
    "rounded-at-allocation": {"unwritten"},
    "drawn-at-rebuild": {"unwritten"},
    "refreshed-every-other-step": {"unwritten"},
    "length-written": {"outside"},
    "drawn-once-for-all-executors": set(),
    "gamma-as-max-len": set(),
    **{fault.name: set() for fault in SAMPLER_FAULTS},
}
SHOWN_BY_STEPS: dict[str, set[str]] = {
    "step-tensor-rebuilt": {"moves"},
    "step-drawn-once": {"unwritten"},
    "step-length-written": {"outside"},
    "step-first-slot-only": {"unwritten"},
    "step-drawn-on-read": {"unwritten", "two reads differ"},
}
EXECUTORS = {entry.name: entry for entry in all_executor_mutants()}


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (VerifyMutant, VerifyCorrect)) else None


def uses_steps(entry: VerifyMutant | VerifyCorrect) -> bool:
    return entry.name.startswith("step-")


def buffer_method(executor: Any) -> Callable[..., torch.Tensor]:
    name = "_simulated_correct_len"
    method: Callable[..., torch.Tensor] = getattr(executor, name, None) or getattr(
        executor, name[1:]
    )
    return method


def overwrite(view: torch.Tensor) -> None:
    """Put a mark into every slot of the memory that a view is of."""
    slots = view.untyped_storage().nbytes() // view.element_size()
    # What was made in inference mode can be written there alone.
    with torch.inference_mode():
        view.as_strided((slots,), (1,), 0).fill_(UNWRITTEN)


class Calls:
    """Calls a fresh executor; keeps what it returns, so that no storage is used again."""

    def __init__(self, entry: VerifyMutant | VerifyCorrect, acc_len: float = 4.7) -> None:
        self.method = buffer_method(entry.factory(GAMMA, acc_len, "match-expected"))
        self.kept: list[torch.Tensor] = []

    def __call__(
        self, bs: int, dtype: torch.dtype = torch.int64, device: torch.device = CPU
    ) -> torch.Tensor:
        self.kept.append(self.method(bs=bs, dtype=dtype, device=device))
        return self.kept[-1]

    def moves(self, *sizes: int) -> bool:
        """Say whether the last of these batches is not where the one before was."""
        *_, before, last = [storage_of(self(bs)) for bs in sizes]
        return before != last


def capacity(entry: VerifyMutant | VerifyCorrect) -> int:
    view = Calls(entry)(4)
    return view.untyped_storage().nbytes() // view.element_size()


def shown_by_calls(entry: VerifyMutant | VerifyCorrect) -> Iterator[str]:
    """Yield what is wrong with an executor's buffer, in words of this module."""
    slots = capacity(entry)
    if slots < 512:
        yield "capacity"
    if Calls(entry).moves(4, 4, 4):
        yield "moves"
    if Calls(entry).moves(8, 8, 4):
        yield "moves when smaller"
    if Calls(entry).moves(4, slots, slots):
        yield "moves at capacity"
    if Calls(entry).moves(4, slots + 1, 4):
        yield "moves back"
    calls = Calls(entry)
    calls(4)
    if calls(slots + 1).shape != (slots + 1,):
        yield "shape"
    yield from shown_by_changes(entry)
    yield from shown_by_values(entry)


def shown_by_changes(entry: VerifyMutant | VerifyCorrect) -> Iterator[str]:
    for name, dtype, device in (
        ("dtype", torch.int32, CPU),
        ("device", torch.int64, META),
        ("dtype and device", torch.int32, META),
    ):
        calls = Calls(entry)
        calls(4)
        view = calls(4, dtype, device)
        if view.dtype != dtype or view.device != device:
            yield name


def shown_by_values(entry: VerifyMutant | VerifyCorrect) -> Iterator[str]:
    calls = Calls(entry)
    steps = [calls(8).tolist() for _ in range(40)]
    apart = [len(set(step)) > 1 for step in steps]
    if entry.options.coupling == "slot":
        # Eight slots share a length by chance with probability 0.06, at all steps never.
        if not any(apart):
            yield "shared"
    elif any(apart):
        yield "apart"
    marked = []
    for _ in range(40):
        overwrite(calls.kept[-1])
        marked.append(calls(8).tolist())
    if any(UNWRITTEN in step for step in marked):
        yield "unwritten"
    top = Calls(entry, float(GAMMA + 1))
    written = [value for _ in range(40) for value in top(8).tolist()]
    if not all(0 <= value <= GAMMA for value in written):
        yield "outside"


def step_names(entry: VerifyMutant | VerifyCorrect, executor: Any) -> tuple[str, str]:
    if entry.options.step_method is not None:
        assert entry.options.step_tensor is not None
        return entry.options.step_method, entry.options.step_tensor
    if hasattr(executor, "begin_step"):
        return "begin_step", "step_correct_len"
    return "begin_simulated_step", "_simulated_correct_len"


def shown_by_steps(entry: VerifyMutant | VerifyCorrect) -> Iterator[str]:
    """Yield what is wrong with an executor of the step protocol."""
    executor = entry.factory(GAMMA, 4.7, "match-expected")
    method, tensor = step_names(entry, executor)
    begin = getattr(executor, method)
    begin()
    held = [getattr(executor, tensor)]
    unwritten = differ = False
    for _ in range(40):
        held[-1].fill_(UNWRITTEN)
        begin()
        # A graph reads the memory, not the attribute.
        unwritten |= UNWRITTEN in held[-1].flatten().tolist()
        reads = [getattr(executor, tensor) for _ in range(2)]
        # By chance two draws are equal with probability 0.58, at all steps never.
        differ |= reads[0].tolist() != getattr(executor, tensor).tolist()
        held.append(reads[-1])
    if len({storage_of(view) for view in held}) > 1:
        yield "moves"
    elif unwritten:
        yield "unwritten"
    if differ:
        yield "two reads differ"
    top = entry.factory(GAMMA, float(GAMMA + 1), "match-expected")
    getattr(top, method)()
    if not all(0 <= value <= GAMMA for value in getattr(top, tensor).flatten().tolist()):
        yield "outside"


def lengths(
    entry: VerifyMutant | VerifyCorrect, acc_len: float, method: str, n: int
) -> NDArray[np.int64]:
    """Return n acceptance lengths, in order of steps and slots."""
    executor = entry.factory(GAMMA, acc_len, method)
    per_slot = entry.options.coupling == "slot"
    drawn: list[int] = []
    if uses_steps(entry):
        begin, tensor = step_names(entry, executor)
        while len(drawn) < n:
            getattr(executor, begin)()
            drawn.extend(getattr(executor, tensor).flatten().tolist())
    else:
        call = buffer_method(executor)
        while len(drawn) < n:
            values = call(bs=8, dtype=torch.int64, device=CPU).tolist()
            drawn.extend(values if per_slot else values[:1])
    return np.asarray(drawn[:n]) + 1


def has_law(entry: VerifyMutant | VerifyCorrect, acc_len: float, method: str) -> bool:
    """Say whether lengths, and pairs of neighbours, fit the law; wrongly not 2e-9 of the time."""
    law = AcceptanceDistribution.from_method(acc_len, method, GAMMA + 1)
    drawn = lengths(entry, acc_len, method, 2_000)
    both = np.outer(law.pmf, law.pmf).ravel()
    return agrees(drawn, law) and agrees(pairs(drawn, GAMMA + 1), both)


def is_partial(entry: VerifyMutant) -> bool:
    """Say whether a fault shows at some batches, dtypes or steps only: see its own test."""
    return entry.factory.__module__.endswith("executors_partial")


def lengths_of(name: str, bs: int, dtype: torch.dtype, n: int) -> set[int]:
    executor = EXECUTORS[name].factory(GAMMA, 4.5, "match-expected")
    return {
        int(executor._simulated_correct_len(bs=bs, dtype=dtype, device=torch.device("cpu"))[0])
        for _ in range(n)
    }


def test_partial_faults_show_where_stated_and_nowhere_else() -> None:
    # 64 draws of two equally likely lengths are all the same with probability 1e-19.
    both, int64 = {3, 4}, torch.int64
    assert lengths_of("frozen-in-large-batches", 8, int64, 64) == both
    assert len(lengths_of("frozen-in-large-batches", 9, int64, 64)) == 1
    assert lengths_of("rounded-for-int32", 3, int64, 64) == both
    assert lengths_of("rounded-for-int32", 3, torch.int32, 64) == {round(4.5) - 1}
    assert lengths_of("frozen-after-growth", 3, int64, 64) == both
    grown = EXECUTORS["frozen-after-growth"].factory(GAMMA, 4.5, "match-expected")
    cpu = torch.device("cpu")
    grown._simulated_correct_len(bs=3, dtype=int64, device=cpu)
    after = {
        int(grown._simulated_correct_len(bs=600, dtype=int64, device=cpu)[0]) for _ in range(64)
    }
    assert len(after) == 1


@pytest.mark.parametrize(
    "entry",
    [e for e in all_executor_mutants() if not (uses_steps(e) or is_partial(e))],
    ids=name_of,
)
def test_a_faulty_buffer_shows_what_is_stated(entry: VerifyMutant) -> None:
    assert set(shown_by_calls(entry)) == SHOWN[entry.name]


@pytest.mark.parametrize(
    "entry", [e for e in all_executor_mutants() if uses_steps(e) and not is_partial(e)], ids=name_of
)
def test_a_faulty_step_shows_what_is_stated(entry: VerifyMutant) -> None:
    assert set(shown_by_steps(entry)) == SHOWN_BY_STEPS[entry.name]


@pytest.mark.parametrize(
    "entry", [e for e in all_correct_executors() if e.name != "packed-with-a-counter"], ids=name_of
)
def test_correct_executors_show_nothing_and_have_the_law(entry: VerifyCorrect) -> None:
    """False alarms: at most 6e-9 an executor with a perfect generator."""
    shown = shown_by_steps(entry) if uses_steps(entry) else shown_by_calls(entry)
    assert set(shown) == set()
    for acc_len, method in CONFIGURATIONS:
        if method in entry.options.methods:
            assert has_law(entry, acc_len, method)


@pytest.mark.parametrize(
    "name", ["rounded-length", "drawn-at-rebuild", "refreshed-every-other-step", "step-drawn-once"]
)
def test_a_law_that_an_executor_does_not_have_is_noticed(name: str) -> None:
    """The twin of the law's test above."""
    assert not has_law(EXECUTORS[name], 4.7, "match-expected")


@pytest.mark.parametrize(
    "name",
    ["slots-drawn-apart", "two-buffers-in-turn", "allocated-at-every-step", "dtype-ignored"],
)
def test_faults_of_the_buffer_leave_the_law_alone(name: str) -> None:
    # False alarms: at most 2e-9 an executor.
    assert has_law(EXECUTORS[name], 4.7, "match-expected")


def test_a_copy_is_returned_of_a_buffer_that_stays() -> None:
    for name, stays in (
        ("slots-copied", True),
        ("buffer-copied", True),
        ("allocated-at-every-step", False),
    ):
        executor = EXECUTORS[name].factory(GAMMA, 4.7, "match-expected")
        held = []
        for _ in range(3):
            view = executor._simulated_correct_len(bs=4, dtype=torch.int64, device=CPU)
            assert isinstance(executor, BufferExecutor)
            assert executor.buffer is not None
            assert (storage_of(view) == storage_of(executor.buffer)) == (not stays)
            held.append(executor.buffer)
        assert (held[0] is held[1] is held[2]) == stays


def test_two_buffers_come_back() -> None:
    calls = Calls(EXECUTORS["two-buffers-in-turn"])
    storages = [storage_of(calls(4)) for _ in range(6)]
    assert storages == storages[:2] * 3


@pytest.mark.parametrize(
    ("name", "written"), [("first-slot-only", [0]), ("last-slot-missed", [0, 1, 2])]
)
def test_slots_that_are_not_written(name: str, written: list[int]) -> None:
    calls = Calls(EXECUTORS[name])
    overwrite(calls(4))
    values = calls(4).tolist()
    assert [slot for slot, value in enumerate(values) if value != UNWRITTEN] == written


def test_rounded_at_allocation_is_a_buffer_of_4s() -> None:
    calls = Calls(EXECUTORS["rounded-at-allocation"])
    assert {tuple(calls(3).tolist()) for _ in range(20)} == {(4, 4, 4)}


def test_a_length_drawn_at_rebuild_stays_until_the_next_one() -> None:
    """The first draws of 60 executors are all equal by chance in 1e-9 of all runs."""
    first = set()
    for _ in range(60):
        calls = Calls(EXECUTORS["drawn-at-rebuild"])
        seen = {calls(3)[0].item() for _ in range(5)}
        assert len(seen) == 1
        first |= seen
    assert first == {3, 4}


def test_every_other_step_repeats_the_one_before() -> None:
    calls = Calls(EXECUTORS["refreshed-every-other-step"])
    drawn = [calls(3)[2].item() for _ in range(2_000)]
    assert drawn[::2] == drawn[1::2]
    # False alarms: 2e-9.
    assert agrees(np.asarray(drawn[::2]) + 1, AcceptanceDistribution.match_expected(4.7, GAMMA + 1))


def test_all_executors_of_a_configuration_share_a_draw() -> None:
    made = [Calls(EXECUTORS["drawn-once-for-all-executors"], 4.6) for _ in range(40)]
    assert len({calls(2)[0].item() for calls in made * 2}) == 1


def test_gamma_as_max_len_shows_near_the_top_only() -> None:
    entry = EXECUTORS["gamma-as-max-len"]
    assert set(lengths(entry, 8.0, "match-expected", 20)) == {7}
    # False alarms: 2e-9.
    assert has_law(entry, 4.7, "match-expected")
    assert lengths(VerifyCorrect("", BufferExecutor, ""), 8.0, "match-expected", 1) == [8]


def test_a_written_length_is_one_more_than_the_drafts() -> None:
    for name in ("length-written", "step-length-written"):
        assert set(lengths(EXECUTORS[name], 3.0, "match-expected", 20)) == {4}


def test_a_step_drawn_once_is_drawn() -> None:
    """The first draws of 60 executors are all equal by chance in 1e-9 of all runs."""
    first = {lengths(EXECUTORS["step-drawn-once"], 4.7, "match-expected", 1)[0] for _ in range(60)}
    assert first == {4, 5}


@pytest.mark.parametrize("fault", SAMPLER_FAULTS, ids=lambda fault: fault.name)
def test_a_faulty_sampler_is_the_one_that_is_named(fault: Any) -> None:
    executor = EXECUTORS[fault.name].factory(GAMMA, 4.7, "match-expected")
    assert isinstance(executor, SampledExecutor)
    assert type(executor.sampler) is type(fault.factory(None))


def test_nothing_is_drawn_in_a_step_while_simulation_is_off() -> None:
    executor = StepExecutor(GAMMA, 0.0, "match-expected")
    before = torch.get_rng_state()
    executor.begin_simulated_step()
    assert executor._simulated_correct_len.tolist() == [0]
    assert torch.equal(torch.get_rng_state(), before)


def test_an_executor_that_refuses_while_off_raises() -> None:
    entry = next(e for e in all_correct_executors() if e.name == "raises-when-off")
    with pytest.raises(RuntimeError, match="simulation is off"):
        entry.factory(GAMMA, 0.0, "match-expected")._simulated_correct_len(
            bs=1, dtype=torch.int64, device=CPU
        )
