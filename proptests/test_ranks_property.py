"""R properties over forked gloo ranks: sound targets, faulty ones, and ranks that end badly.

Two ranks that draw on their own agree at all 2,000 steps with probability 0.58^2000 < 1e-400.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from specsim.acceptance import AcceptanceDistribution
from specsim.adapters.executor import ExecutorTarget
from specsim.adapters.guard import target_call
from specsim.loading.failures import TargetError
from specsim.properties import registry
from specsim.properties.outcome import Outcome
from specsim.properties.rank_processes import GroupRun, Limits, RankRun, draw_on_ranks
from specsim.properties.session import Session, Settings
from specsim.sampler import AcceptanceSampler, sample_simulated_acc_len
from specsim.targets import Configuration, Program, Violation
from specsim.verify.executor import TargetVerifyExecutor

ROOT = Path(__file__).parents[1]
Draw = Callable[[], object]
Make = Callable[[Configuration], Draw]
QUICK: dict[str, Any] = {"effort": "quick", "methods": ("match-expected",)}
CONFIGURATION = Configuration(4.7, "match-expected", 8)


@dataclass
class StandIn:
    """An adapter of what makes drawing functions."""

    make: Make
    name: str = "make"
    kind: str = "executor"
    gave: str = "returned"
    made: dict[Configuration, Draw] = field(default_factory=dict)

    def draw_many(self, config: Configuration, n: int) -> list[object]:
        with target_call():
            draw = self.made.get(config)
            if draw is None:
                draw = self.made[config] = self.make(config)
            return [draw() for _ in range(n)]

    def call_repr(self, config: Configuration, n: int = 1) -> str:
        return f"{self.name}({config.max_len - 1}, {config.acc_len}, {config.method!r})"

    def program(self, config: Configuration, number: int = 1) -> Program:
        return Program("draw()", (f"draw = {self.call_repr(config)}",))

    def renew(self) -> None:
        self.made = {}

    def noticed(self) -> list[Violation]:
        return []


def law_of(config: Configuration) -> AcceptanceDistribution:
    assert config.acc_len is not None
    assert config.method is not None
    return AcceptanceDistribution.from_method(config.acc_len, config.method, config.max_len)


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def torchs_generator(config: Configuration) -> Draw:
    assert config.acc_len is not None
    assert config.method is not None
    length, method = config.acc_len, config.method
    return lambda: sample_simulated_acc_len(length, method, config.max_len)


def pythons_generator(config: Configuration) -> Draw:
    law = law_of(config)
    return lambda: int(law.ppf(random.random()))


def numpys_generator(config: Configuration) -> Draw:
    law = law_of(config)
    return lambda: int(law.ppf(np.random.random_sample()))


def counter(config: Configuration) -> Draw:
    sampler, steps = AcceptanceSampler(law_of(config), seed=5), iter(range(10**9))
    return lambda: sampler.at(next(steps), 0)


def own_draws(config: Configuration) -> Draw:
    return AcceptanceSampler(law_of(config)).draw


def broadcast_after(config: Configuration) -> Draw:
    own = AcceptanceSampler(law_of(config))

    def draw() -> int:
        length = torch.tensor([own.draw()])
        dist.broadcast(length, src=0)
        return int(length)

    return draw


def broadcast_before(config: Configuration) -> Draw:
    own, length = AcceptanceSampler(law_of(config)), torch.tensor([1])

    def draw() -> int:
        dist.broadcast(length, src=0)
        length.fill_(own.draw())
        return int(length)

    return draw


def by_environment(config: Configuration) -> Draw:
    return AcceptanceSampler(law_of(config), seed=int(os.environ["RANK"])).draw


def at_step(number: int, act: Callable[[int], object], together: bool = False) -> Make:
    """Return what draws alike on all ranks, until one of them acts at a step."""

    def make(config: Configuration) -> Draw:
        alike, steps = counter(config), iter(range(10**9))

        def draw() -> object:
            length = alike()
            if next(steps) == number and (together or rank() == 1):
                return act(int(str(length)))
            return length

        return draw

    return make


def in_step(make: Make) -> Make:
    """Return what waits for all ranks in a collective at every step."""

    def made(config: Configuration) -> Draw:
        inner = make(config)

        def draw() -> object:
            length = inner()
            dist.all_reduce(torch.zeros(1))
            return length

        return draw

    return made


def only_in(method: str, faulty: Make) -> Make:
    """Return what is faulty with one method."""
    return lambda config: faulty(config) if config.method == method else counter(config)


def raises(length: int) -> object:
    raise KeyError("slot")


def ends(length: int) -> object:
    os._exit(3)


def judge(make: Make | Any, *, name: str = "R.equal-generators", **settings: Any) -> Outcome:
    target = StandIn(make) if callable(make) else make
    session = Session(target, "import make", Settings(**{**QUICK, **settings}))
    return named(name).check(session)


def named(name: str) -> registry.Property:
    registry.catalogue()
    importlib.import_module("specsim.properties.ranks")
    [prop] = [prop for prop in registry.catalogue() if prop.id == name]
    return prop


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = torch.random.get_rng_state()
    yield
    assert not list(tmp_path.iterdir())
    assert not multiprocessing.active_children()
    assert torch.equal(before, torch.random.get_rng_state())
    assert not dist.is_initialized()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(collective=3.0, stall=2.0, grace=0.5)
    monkeypatch.setattr("specsim.properties.ranks._LIMITS", limits)


@pytest.mark.parametrize("make", [torchs_generator, pythons_generator, numpys_generator])
def test_a_global_generator_agrees_when_it_is_seeded_alike(make: Make) -> None:
    outcome = judge(make, methods=("match-expected", "multinomial"))
    assert outcome.verdict == "pass", outcome.detail
    assert outcome.required
    assert outcome.detail == (
        "2 ranks drew the same length at each of 4,000 steps of 2 configurations, with the global "
        "generators in one state on all ranks"
    )
    assert (outcome.draws, outcome.evidence) == (8_000, {"ranks": 2, "steps": 4_000})
    other = judge(make, name="R.unequal-generators")
    assert other.verdict == "fail"
    assert not other.required
    assert "these ranks agree only as long as they are seeded alike" in other.detail


def reference(**options: Any) -> ExecutorTarget:
    def factory(gamma: int, acc_len: float, method: str) -> TargetVerifyExecutor:
        return TargetVerifyExecutor(gamma, acc_len, method, **options)

    return ExecutorTarget("TargetVerifyExecutor", factory)


@pytest.mark.parametrize(
    "target",
    [
        counter,
        broadcast_after,
        reference(seed=3),
        reference(seed=3, sync="counter", coupling="slot"),
    ],
    ids=["counter", "broadcast", "seed", "sync counter"],
)
@pytest.mark.parametrize("name", ["R.equal-generators", "R.unequal-generators"])
def test_what_needs_no_equal_seeding_passes_both(target: Any, name: str) -> None:
    outcome = judge(target, name=name)
    assert outcome.verdict == "pass", outcome.detail


@pytest.mark.parametrize("refresh", ["host", "device"])
def test_the_reference_executor_needs_no_seed(refresh: str) -> None:
    assert judge(reference(refresh=refresh)).verdict == "pass"
    assert judge(reference(refresh=refresh), name="R.unequal-generators").verdict == "fail"


def test_thorough_forks_four_ranks() -> None:
    outcome = judge(counter, effort="thorough")
    assert outcome.verdict == "pass"
    assert outcome.evidence == {"ranks": 4, "steps": 12_000}
    assert judge(own_draws, effort="thorough").verdict == "fail"


@pytest.mark.parametrize("make", [own_draws, by_environment, broadcast_before])
def test_a_rank_that_draws_its_own_fails(make: Make) -> None:
    outcome = judge(make)
    assert outcome.verdict == "fail"
    assert outcome.configuration == "make(7, 4.7, 'match-expected')"
    assert outcome.evidence["differing_steps"] > 500
    assert "or send rank 0's length to the others after the override" in outcome.detail


def test_one_step_of_thousands_is_found_and_named() -> None:
    outcome = judge(at_step(1_234, lambda length: length % 8 + 1))
    length = AcceptanceSampler(law_of(CONFIGURATION), seed=5).at(1_234, 0)
    assert outcome.verdict == "fail"
    first, *rest = outcome.detail.splitlines()
    assert first == (
        f"make(7, 4.7, 'match-expected'): at step 1234 rank 1 drew {length % 8 + 1} and rank 0 "
        f"drew {length}; ranks differ at 1 of 2,000 steps"
    )
    assert rest[1].startswith(f"rank 1 from there on: {length % 8 + 1}, ")
    assert outcome.evidence["step"] == 1_234
    assert outcome.snippet is not None
    assert "steps=1235)" in outcome.snippet


def test_the_configuration_that_fails_is_named() -> None:
    both = ("match-expected", "multinomial")
    for act in (lambda length: 9 - length, raises, ends):
        outcome = judge(only_in("multinomial", at_step(40, act)), methods=both)
        assert outcome.verdict == "fail"
        assert outcome.configuration == "make(7, 4.7, 'multinomial')"


@pytest.mark.parametrize("wait", [False, True], ids=["alone", "others wait"])
def test_a_rank_that_raises_fails(wait: bool) -> None:
    make = at_step(5, raises)
    outcome = judge(in_step(make) if wait else make)
    assert outcome.verdict == "fail"
    assert outcome.detail.startswith(
        "make(7, 4.7, 'match-expected'): rank 1 raised KeyError: 'slot' at step 5; rank 0 "
    )
    assert "in raises" in outcome.detail


def test_what_raises_on_every_rank_is_not_judged() -> None:
    outcome = judge(at_step(5, raises, together=True))
    assert outcome.verdict == "inconclusive"
    assert outcome.detail == (
        "not judged: make(7, 4.7, 'match-expected') raised KeyError: 'slot' at step 5 on every rank"
    )


def test_a_value_that_is_no_length_fails() -> None:
    outcome = judge(at_step(3, lambda length: "four"))
    assert outcome.verdict == "fail"
    assert "rank 1 returned 'four', which is no length at step 3" in outcome.detail


def is_killed(length: int) -> object:
    os.kill(os.getpid(), signal.SIGKILL)
    return length


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (ends, "the process exited with status 3"),
        (is_killed, "the process was ended by SIGKILL"),
    ],
)
@pytest.mark.parametrize("wait", [False, True], ids=["alone", "others wait"])
def test_a_rank_that_dies_fails(act: Callable[[int], object], text: str, wait: bool) -> None:
    make = at_step(50, act)
    outcome = judge(in_step(make) if wait else make)
    assert outcome.verdict == "fail"
    assert outcome.detail.startswith(f"rank 1: {text} while drawing make(7, 4.7, 'match-expected')")


def hangs(length: int) -> object:
    return threading.Event().wait()


@pytest.mark.usefixtures("short")
def test_a_rank_that_hangs_fails() -> None:
    outcome = judge(at_step(5, hangs))
    assert outcome.verdict == "fail"
    assert outcome.detail.startswith("no rank drew a length for 2 s; rank 0 ")
    assert "rank 1 was drawing make(7, 4.7, 'match-expected')" in outcome.detail


@pytest.mark.usefixtures("short")
def test_a_collective_of_one_rank_fails() -> None:
    def alone(length: int) -> object:
        dist.all_reduce(torch.zeros(1))
        return length

    outcome = judge(at_step(5, alone))
    assert outcome.verdict == "fail"
    # Rank 0 is still there when it is done: rank 1 waits, and is not told of a lost connection.
    assert outcome.detail.startswith(
        "no rank drew a length for 2 s; rank 0 drew all it had to; rank 1 was drawing make(7, "
    )


def test_too_slow_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsim.properties.ranks._LIMITS", Limits(total=0.0))
    outcome = judge(counter)
    assert outcome.verdict == "inconclusive"
    assert "and were to draw 2,000: more than 0 s passed" in outcome.detail


def test_slots_are_counted_as_draws() -> None:
    outcome = judge(own_draws, coupling="slot")
    assert "at draw " in outcome.detail
    assert "of 2,000 draws" in outcome.detail


def test_what_cannot_be_called_is_refused() -> None:
    def make(config: Configuration) -> Draw:
        raise TargetError("the target needs an attribute")

    with pytest.raises(TargetError, match="the target needs an attribute"):
        judge(make)


def test_an_error_of_the_adapter_is_not_taken_for_the_targets() -> None:
    class Broken(StandIn):
        def draw_many(self, config: Configuration, n: int) -> list[object]:
            raise LookupError("no such thing")

    with pytest.raises(RuntimeError, match="LookupError: no such thing"):
        judge(Broken(counter))


def test_a_thread_or_a_group_is_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    outcome = judge(counter)
    stop.set()
    thread.join()
    assert outcome.verdict == "skip"
    assert "this process cannot be forked: the target has started threads" in outcome.detail
    with monkeypatch.context() as patch:
        patch.setattr(dist, "is_initialized", lambda: True)
        outcome = judge(counter)
    assert outcome.verdict == "skip"
    assert "this process belongs to a process group; check_ranks of" in outcome.detail


def test_without_a_connection_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*arguments: Any, **options: Any) -> None:
        raise ValueError("no network")

    monkeypatch.setattr(dist, "init_process_group", refuses)
    outcome = judge(counter)
    assert outcome.verdict == "skip"
    assert "gloo does not connect 2 processes: ValueError: no network" in outcome.detail


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("act", "text"),
    [
        (
            lambda *_, **__: os._exit(4),
            "the process exited with status 4 while gloo connected 2 processes",
        ),
        (lambda *_, **__: threading.Event().wait(), "gloo did not connect 2 processes in 2 s"),
    ],
    ids=["dies", "hangs"],
)
def test_a_machine_that_gloo_fails_on_is_not_the_targets_fault(
    act: Callable[..., Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "init_process_group", act)
    outcome = judge(counter)
    assert outcome.verdict == "skip"
    assert text in outcome.detail


def test_what_a_target_prints_is_no_output(capfd: pytest.CaptureFixture[str]) -> None:
    def prints(length: int) -> object:
        print("a word")
        return length

    assert judge(at_step(0, prints)).verdict == "pass"
    out, err = capfd.readouterr()
    assert out == ""
    assert "a word" in err


def test_objects_made_before_are_not_the_ranks() -> None:
    """A stream that was made before the fork would be the same on both ranks."""
    target = StandIn(own_draws)
    target.draw_many(CONFIGURATION, 1)
    assert judge(target).verdict == "fail"
    unrenewed = StandIn(own_draws)
    unrenewed.draw_many(CONFIGURATION, 1)
    unrenewed.renew = lambda: None  # type: ignore[method-assign]
    assert judge(unrenewed).verdict == "pass"


def draw(
    make: Make, limits: Limits, progress: Callable[[int], None] = lambda draws: None
) -> GroupRun:
    return draw_on_ranks(
        StandIn(make),
        [CONFIGURATION],
        300,
        2,
        seed=0,
        alike=True,
        limits=limits,
        progress=progress,
    )


def test_progress_counts_every_length() -> None:
    told: list[int] = []
    run = draw(counter, Limits(), told.append)
    assert sum(told) == 600
    assert [run.end, *(len(ranks.lengths[0]) for ranks in run.ranks)] == ["finished", 300, 300]


def test_a_rank_that_waits_for_one_that_ended_is_not_waited_for() -> None:
    def make(config: Configuration) -> Draw:
        act = raises if rank() else hangs
        return at_step(5, act, together=True)(config)

    run = draw(make, Limits(stall=30.0, grace=0.2))
    assert run.end == "ended early"
    assert [ranks.state for ranks in run.ranks] == ["drawing", "raised"]
    assert run.cause is run.ranks[1]


def test_the_cause_is_a_death_and_then_what_raised_first() -> None:
    raised = [RankRun(number, [[]], "raised", when=9.0 - number) for number in range(3)]
    died = RankRun(3, [[]], "died", when=10.0)
    finished = RankRun(4, [[]], "finished")
    assert GroupRun((*raised, died, finished), "ended early").cause is died
    assert GroupRun((*raised, finished), "ended early").cause is raised[2]
    assert GroupRun((finished,), "finished").cause is None


class DrawsItsOwn(TargetVerifyExecutor):
    """Takes a seed of the operating system, so another one on each rank."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        seed = random.SystemRandom().getrandbits(64)
        super().__init__(gamma, simulate_acc_len, simulate_acc_method, seed=seed)


def run_program(program: str, number: int, port: int, output: Path) -> None:
    """Run a program as torchrun would, as one of two ranks."""
    os.environ.update(RANK=str(number), WORLD_SIZE="2", MASTER_ADDR="localhost")
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    with output.open("a") as file, redirect_stdout(file):
        exec(program, {})


def test_the_program_of_a_failure_shows_it_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    line = f"from {__name__} import DrawsItsOwn"
    session = Session(ExecutorTarget("DrawsItsOwn", DrawsItsOwn), line, Settings(**QUICK))
    outcome = named("R.equal-generators").check(session)
    assert outcome.verdict == "fail"
    assert outcome.snippet is not None
    output = tmp_path_factory.mktemp("snippet") / "output"
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port = listening.getsockname()[1]
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=run_program, args=(outcome.snippet, number, port, output))
        for number in range(2)
    ]
    with warnings.catch_warnings():
        # A fork of a process with threads: torch may have some, which rest.
        warnings.simplefilter("ignore", DeprecationWarning)
        for process in ranks:
            process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == [0, 0]
    assert "equal generators: rank 1 first differs from rank 0 at step " in output.read_text()


def test_the_example_of_the_docs_runs_under_torchrun() -> None:
    options = ["--standalone", "--nproc-per-node", "2"]
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, "docs/examples/ranks.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "equal generators: 2 ranks agree at all 2000 steps" in result.stdout
