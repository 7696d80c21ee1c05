"""E properties: every faulty executor is rejected by the property it names, correct ones pass."""

from __future__ import annotations

from collections.abc import Container, Iterable

import pytest
import torch
from _pytest.mark import ParameterSet

import specsim
from specsim.adapters.executor import ExecutorTarget
from specsim.mutants.sampler_faults import SAMPLER_FAULTS
from specsim.mutants.verify_all import all_correct_executors, all_executor_mutants
from specsim.mutants.verify_registry import VerifyCorrect, VerifyMutant
from specsim.properties.buffer_model import BufferModel, Call
from specsim.properties.executor_sequences import run_sequences
from specsim.targets import Configuration
from specsim.verify import TargetVerifyExecutor

BUFFER = ["E.reuse", "E.growth", "E.dtype", "E.device", "E.view", "E.written", "E.sequence"]
# The others show with either method.
SHOWS_WITH = {"method-ignored": "multinomial", "gamma-as-max-len": "multinomial"}
# The same samplers are held against the laws of S, and these are told apart from the buffer.
LAWS_OF_SAMPLERS = {f.name for f in SAMPLER_FAULTS} - {"rounded-length", "method-ignored"}
# Their buffers are the ones of torch-global, and only their draws differ.
LAWS_OF_CORRECT = {"inverse-cdf", "os-entropy", "pool-of-65536", "python-global"}


def judged(
    target: VerifyMutant | VerifyCorrect,
    properties: list[str],
    methods: tuple[str, ...] | None = None,
) -> specsim.Report:
    options = target.options
    return specsim.check(
        target.factory,
        kind="executor",
        effort="quick",
        coupling=options.coupling,
        methods=methods or options.methods,
        step_method=options.step_method,
        step_tensor=options.step_tensor,
        properties=properties,
    )


def targets(
    known: Iterable[VerifyMutant | VerifyCorrect], slow: Container[str]
) -> list[ParameterSet]:
    """Return a parameter for each target, some of them for the slow session only."""
    return [
        pytest.param(target, id=target.name, marks=[pytest.mark.slow] * (target.name in slow))
        for target in known
    ]


@pytest.mark.parametrize("mutant", targets(all_executor_mutants(), LAWS_OF_SAMPLERS))
def test_each_faulty_executor_is_rejected_by_its_property(mutant: VerifyMutant) -> None:
    # Missed with a negligible probability: faults of the buffer show at once, those of the law
    # are far beyond the 0.05 that quick rules out with an error of 1e-6.
    method = SHOWS_WITH.get(mutant.name, mutant.options.methods[0])
    report = judged(mutant, [mutant.caught_by], (method,))
    outcome = report[mutant.caught_by]
    assert outcome.verdict == "fail", outcome.detail
    assert not report.ok
    assert outcome.configuration
    assert outcome.snippet
    compile(outcome.snippet, mutant.name, "exec")


@pytest.mark.parametrize("variant", targets(all_correct_executors(), LAWS_OF_CORRECT))
def test_each_correct_executor_keeps_its_buffer(variant: VerifyCorrect) -> None:
    # Nothing here is decided by chance.
    report = judged(variant, BUFFER)
    held_up = [(o.property_id, o.detail) for o in report.outcomes if o.holds_up_the_run]
    assert not held_up
    assert report.ok


@pytest.mark.slow
@pytest.mark.parametrize("variant", all_correct_executors(), ids=lambda variant: variant.name)
def test_each_correct_executor_passes(variant: VerifyCorrect) -> None:
    # Rejected with probability at most 1e-6 each.
    report = judged(variant, ["E"])
    assert report.ok, [(o.property_id, o.detail) for o in report.outcomes if o.holds_up_the_run]
    failed = {o.property_id for o in report.outcomes if o.verdict == "fail"}
    assert failed <= set(variant.fails)


@pytest.mark.parametrize("step_method", [None, "begin_step"])
def test_the_reference_passes_with_no_more_than_its_class(step_method: str | None) -> None:
    # Rejected with probability at most 1e-6 each.
    report = specsim.check(
        TargetVerifyExecutor,
        effort="quick",
        properties=["E"],
        methods=["match-expected" if step_method else "multinomial"],
        step_method=step_method,
    )
    assert report.kind == "executor"
    assert report.ok, [(o.property_id, o.detail) for o in report.outcomes if o.holds_up_the_run]
    skipped = {o.property_id for o in report.outcomes if o.verdict == "skip"}
    assert ("E.growth" in skipped) == (step_method is not None)
    assert "E.freshness" not in skipped


def test_slots_that_share_a_draw_under_slot_coupling_fail_freshness() -> None:
    # Rejected for certain but for 1e-6: each length comes eight times in a row.
    report = specsim.check(
        TargetVerifyExecutor,
        effort="quick",
        coupling="slot",
        properties=["E.freshness"],
        methods=["match-expected"],
    )
    assert report["E.freshness"].verdict == "fail"


def test_the_fault_that_started_the_project_is_seen_from_every_side() -> None:
    started = next(m for m in all_executor_mutants() if m.name == "rounded-at-allocation")
    properties = ["E.distribution", "E.mean", "E.freshness", "E.written"]
    report = judged(started, properties, ("match-expected",))
    assert {o.verdict for o in report.outcomes} == {"fail"}
    assert "100.0%" in report["E.distribution"].detail


class OnlyHere(TargetVerifyExecutor):
    """Cannot do without values: the device ``meta`` has none."""

    def _simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: torch.device | str
    ) -> torch.Tensor:
        view = super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)
        view.tolist()
        return view


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a second device here")
def test_without_a_second_device_the_rebuild_for_one_is_open_and_says_why() -> None:
    report = specsim.check(OnlyHere, effort="quick", properties=["E.device", "E.dtype"])
    assert report["E.device"].verdict == "inconclusive"
    assert "no second device could be tried" in report["E.device"].detail
    assert "meta: raised" in report["E.device"].detail
    assert report["E.dtype"].verdict == "pass"


class ForgetsAfterThree(TargetVerifyExecutor):
    """Rebuilds its buffer for the third batch size in a row that is smaller than the one before."""

    falling = 0
    before = 0

    def _simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: torch.device | str
    ) -> torch.Tensor:
        self.falling = self.falling + 1 if bs < self.before else 0
        self.before = bs
        if self.falling == 3:
            self._buffer = None
            self._dtype = None
        return super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)


def test_the_state_machine_finds_and_shortens_a_sequence_that_nobody_wrote_down() -> None:
    # Not left to chance: four batch sizes in falling order come up often in 25 long sequences.
    report = specsim.check(ForgetsAfterThree, effort="quick", properties=["E.sequence", "E.reuse"])
    outcome = report["E.sequence"]
    assert outcome.verdict == "fail", outcome.detail
    assert len(outcome.evidence["calls"]) == 4
    assert "expected the one before" in outcome.detail
    assert report["E.reuse"].verdict == "fail"


def model(target: type) -> BufferModel:
    configuration = Configuration(4.7, "match-expected", 8)
    return BufferModel(ExecutorTarget("target", target).open(configuration), 8)


def test_an_address_that_is_used_again_is_not_the_same_memory() -> None:
    class Anew(TargetVerifyExecutor):
        def _simulated_correct_len(
            self, *, bs: int, dtype: torch.dtype, device: torch.device | str
        ) -> torch.Tensor:
            # The allocator hands the block of the last step out again at once.
            return torch.full((512,), 3, dtype=dtype, device=device)[:bs]

    anew = model(Anew)
    found = [anew.call(Call(3, "int64", device)) for device in ("cpu", "cpu", "meta", "meta")]
    assert [set(refuted) for refuted in found] == [set(), {"reuse"}, set(), {"reuse"}]


@pytest.mark.parametrize("bs", [0, 1])
def test_views_made_in_inference_mode_and_empty_ones_are_known_for_the_same(bs: int) -> None:
    class Inference(TargetVerifyExecutor):
        @torch.inference_mode()
        def _simulated_correct_len(
            self, *, bs: int, dtype: torch.dtype, device: torch.device | str
        ) -> torch.Tensor:
            self._buffer = torch.zeros(512, dtype=dtype) if self._buffer is None else self._buffer
            return self._buffer[:bs].fill_(3)

    inference = model(Inference)
    assert [inference.call(Call(bs, "int64", "cpu")) for _ in range(3)] == [{}, {}, {}]


def test_the_search_is_the_same_for_the_same_seed() -> None:
    target = ExecutorTarget("ForgetsAfterThree", ForgetsAfterThree)
    first, second = (
        run_sequences(target, ["match-expected"], 5, 50, steps_only=False) for _ in range(2)
    )
    assert first.found == second.found
    assert first.calls == second.calls
