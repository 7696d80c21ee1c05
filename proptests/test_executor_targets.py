"""Executor targets: how they are told, called, taken out of a file, and refused."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import specsim
from specsim.adapters.executor import ExecutorTarget
from specsim.adapters.kinds import detect_kind
from specsim.extract_executor import ExtractedExecutor, extract_any
from specsim.loading.assignments import as_python, read_assignments
from specsim.targets import Configuration, TargetError, TargetFailed
from specsim.verify import (
    TargetVerifyExecutor,
    apply_dflash_simulated_acceptance,
    chain_accept,
    generate_simulated_accept_index,
)

CONFIGURATION = Configuration(4.7, "match-expected", 8)

ENGINE = """
import torch

import engine_not_there

from engine_not_there import sample_simulated_acc_len

SIMULATE_ACC_METHOD = engine_not_there.method()


class Executor(engine_not_there.Base):
    def __init__(self, runner):
        self.gamma = runner.gamma

    def _simulated_correct_len(self, *, bs, dtype, device):
        buf = self._buf
        if buf is None or buf.numel() < bs or buf.dtype != dtype or buf.device != device:
            buf = torch.empty((max(bs, 512),), dtype=dtype, device=device)
            self._buf = buf
        length = sample_simulated_acc_len(self._acc_len, SIMULATE_ACC_METHOD, self.gamma + 1)
        return buf[:bs].fill_(length - 1)

    def begin_simulated_step(self):
        length = sample_simulated_acc_len(self._acc_len, SIMULATE_ACC_METHOD, self.gamma + 1)
        self._simulated_correct_len_tensor.fill_(length - 1)
"""
NAMES = (
    "SIMULATE_ACC_METHOD={simulate_acc_method}",
    "sample_simulated_acc_len=specsim:sample_simulated_acc_len",
)
ATTRIBUTES = ("gamma={gamma}", "_acc_len={simulate_acc_len}", "_buf=None")


class Neither:
    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        self.gamma = gamma


class Scalar:
    """The step protocol of engines: a tensor attribute with the name of others' methods."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        self.draw = (simulate_acc_len, simulate_acc_method, gamma + 1)
        self._simulated_correct_len = torch.zeros((), dtype=torch.int64)

    def begin_simulated_step(self) -> None:
        self._simulated_correct_len.fill_(specsim.sample_simulated_acc_len(*self.draw) - 1)


def factory(gamma: int, acc_len: float, method: str) -> object:
    return TargetVerifyExecutor(gamma, acc_len, method)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    path = tmp_path / "engine.py"
    path.write_text(textwrap.dedent(ENGINE))
    return path


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (TargetVerifyExecutor, "executor"),
        (Scalar, "executor"),
        (factory, "executor"),
        (apply_dflash_simulated_acceptance, "dflash"),
        (generate_simulated_accept_index, "eagle"),
        (chain_accept, "accept"),
        (specsim.sample_simulated_acc_len, "sampler"),
    ],
)
def test_kinds_are_told_from_signatures(target: type, kind: str) -> None:
    assert detect_kind(target) == kind


def test_a_class_that_is_no_executor_is_refused_in_one_line() -> None:
    with pytest.raises(TargetError, match="Neither is a class without a method") as caught:
        specsim.check(Neither)
    assert "\n" not in str(caught.value)


def test_an_executor_that_does_not_take_three_arguments_is_refused() -> None:
    class Two:
        def __init__(self, gamma: int, acc_len: float) -> None:
            pass

        def begin_step(self) -> None:
            pass

    with pytest.raises(TargetError, match="cannot be called as an executor, with"):
        specsim.check(Two)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TargetError, match=r"kind must be one of sampler, .*chain-accept"):
        specsim.check(TargetVerifyExecutor, kind="executer")


def test_neither_protocol_is_a_failure_that_names_what_was_looked_for() -> None:
    report = specsim.check(Neither, kind="executor", effort="quick", properties=["E.returns"])
    assert not report.ok
    detail = report["E.returns"].detail
    assert "neither a method _simulated_correct_len or simulated_correct_len" in detail


def test_lengths_are_draft_lengths_plus_one() -> None:
    target = ExecutorTarget("Executor", TargetVerifyExecutor)
    drawn = target.draw_many(CONFIGURATION, 200)
    assert set(drawn) == {4, 5}


def test_slots_are_lengths_of_their_own_under_slot_coupling() -> None:
    def per_slot(gamma: int, acc_len: float, method: str) -> object:
        return TargetVerifyExecutor(gamma, acc_len, method, coupling="slot")

    target = ExecutorTarget("per_slot", per_slot, coupling="slot")
    assert len(target.draw_many(CONFIGURATION, 13)) == 13
    assert target.noticed() == []
    apart = ExecutorTarget("per_slot", per_slot)
    apart.draw_many(Configuration(4.5, "match-expected", 8), 64)
    assert [violation.name for violation in apart.noticed()] == ["coupling"]
    assert apart.noticed() == []


def test_the_step_method_chooses_the_step_protocol() -> None:
    assert ExecutorTarget("E", TargetVerifyExecutor).open(CONFIGURATION).protocol.buffer
    chosen = ExecutorTarget("E", TargetVerifyExecutor, step_method="begin_step")
    protocol = chosen.open(CONFIGURATION).protocol
    assert (protocol.buffer, protocol.step, protocol.tensor) == (
        None,
        "begin_step",
        "step_correct_len",
    )
    assert set(chosen.draw_many(CONFIGURATION, 200)) == {4, 5}
    scalar = ExecutorTarget("Scalar", Scalar).open(CONFIGURATION).protocol
    assert (scalar.step, scalar.tensor) == ("begin_simulated_step", "_simulated_correct_len")


@pytest.mark.parametrize("returned", [None, 4, [4, 4, 4]])
def test_what_is_no_tensor_is_a_finding(returned: object) -> None:
    class Odd(Neither):
        def simulated_correct_len(self, *, bs: int, dtype: object, device: object) -> object:
            return returned

    with pytest.raises(TargetFailed, match=r"simulated_correct_len gave .*, expected a tensor"):
        ExecutorTarget("Odd", Odd).draw_many(CONFIGURATION, 1)


@pytest.mark.parametrize("step_method", [None, "begin_step"])
def test_snippets_of_lengths_run(step_method: str | None) -> None:
    target = ExecutorTarget("TargetVerifyExecutor", TargetVerifyExecutor, step_method=step_method)
    program = target.program(CONFIGURATION)
    lines = [
        "from specsim.verify import TargetVerifyExecutor",
        *program.setup,
        f"print(set({program.lengths(100)}) == {{4, 5}})",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_an_extracted_method_gets_a_bare_object_for_each_configuration(engine: Path) -> None:
    made = ExtractedExecutor(engine, "Executor._simulated_correct_len", ATTRIBUTES, NAMES)
    executors = [made(7, 4.7, "match-expected"), made(3, 2.0, "match-expected")]
    lengths = [e._simulated_correct_len(bs=2, dtype=torch.int64, device=torch.device("cpu"))  # type: ignore[attr-defined]
               for e in executors]  # fmt: skip
    assert lengths[0].tolist() in ([3, 3], [4, 4])
    assert lengths[1].tolist() == [1, 1]
    assert executors[0]._buf is not executors[1]._buf  # type: ignore[attr-defined]
    assert type(executors[0]) is type(executors[1])


def test_an_extracted_executor_is_judged_by_the_command_line(engine: Path) -> None:
    options = [f"--attribute={a}" for a in ATTRIBUTES] + [f"--namespace={n}" for n in NAMES]
    spec = f"{engine}:Executor._simulated_correct_len"
    command = ["check", "--extract", spec, "--effort=quick", "--properties=E.reuse,E.range"]
    result = subprocess.run(
        [sys.executable, "-m", "specsim", *command, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "(executor)" in result.stdout


def test_an_extracted_executor_must_be_told_its_length(engine: Path) -> None:
    with pytest.raises(TargetError, match=r"pass --attribute NAME=\{simulate_acc_len\}"):
        extract_any(f"{engine}:Executor._simulated_correct_len", None, attributes=ATTRIBUTES[:1])


def test_an_unknown_placeholder_is_refused_with_the_known_ones(engine: Path) -> None:
    made = ExtractedExecutor(engine, "Executor._simulated_correct_len", ["gamma={gama}"])
    with pytest.raises(TargetError, match=r"nor one of \{gamma\}, \{max_len\}"):
        made(7, 4.7, "match-expected")


def test_a_value_may_be_called_for_each_object(tmp_path: Path) -> None:
    path = tmp_path / "parts.py"
    path.write_text("made = []\ndef new():\n    made.append(1)\n    return len(made)\n")
    texts = [f"x={path}:new()"]
    assert read_assignments(texts) == {"x": 1}
    assert read_assignments(texts) == {"x": 2}
    assert as_python(texts) == f"{{'x': load_object('{path}:new')[0]()}}"
    with pytest.raises(TargetError, match=r"made is not callable"):
        read_assignments([f"x={path}:made()"])


def test_a_placeholder_needs_an_executor(engine: Path) -> None:
    with pytest.raises(TargetError, match="pass --kind executor"):
        extract_any(f"{engine}:Executor.other", None, attributes=["gamma={gamma}"])


def test_an_executor_that_is_taken_for_a_sampler_is_told_apart_in_the_message() -> None:
    def make(num_draft_tokens: int, acc: float, method: str) -> object:
        return Scalar(num_draft_tokens, acc, method)

    report = specsim.check(make, effort="quick", properties=["S.returns"])
    assert "it is an executor: --kind executor" in report["S.returns"].detail


def test_a_tensor_that_the_first_step_makes_is_found() -> None:
    class Late:
        def __init__(self, gamma: int, acc_len: float, method: str) -> None:
            self.draw = (acc_len, method, gamma + 1)

        def begin_step(self) -> None:
            length = specsim.sample_simulated_acc_len(*self.draw)
            self.step_correct_len = torch.full((1,), length - 1)

    assert set(ExecutorTarget("Late", Late).draw_many(CONFIGURATION, 200)) == {4, 5}
