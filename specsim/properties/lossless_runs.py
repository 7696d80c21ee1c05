"""Runs an accept rule on one case: drafts, calls, and the evidence on what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from specsim.adapters.accept import AcceptTarget, Form
from specsim.evidence.law import FloatArray, IntArray
from specsim.evidence.lossless import complete, rows_after
from specsim.loading.failures import TargetFailed
from specsim.properties.generators import own_generators
from specsim.properties.lossless_cases import LosslessCase
from specsim.properties.lossless_evidence import (
    LawTest,
    LosslessSettings,
    TokenEvidence,
    count_test,
)

# Each block is half as long again as all before it: gross faults show after hundreds of
# requests, and a look costs milliseconds.
_FIRST_BLOCK, _GROWTH, _LARGEST_BLOCK = 256, 0.5, 16_384
# A refuted rule is still called on so many requests, so that a wrong law and requests that depend
# on each other are told apart.
_REQUESTS_AFTER_REJECTION = 4_000
_KEPT = 50


@dataclass(frozen=True)
class Stray:
    """An emitted token that the target gives probability 0.

    Attributes
    ----------
    prefix
        The tokens before it.
    token
        The token.
    accepted
        Whether it was an accepted draft token; the bonus otherwise.
    """

    prefix: tuple[int, ...]
    token: int
    accepted: bool


@dataclass(frozen=True)
class CaseResult:
    """What one case showed.

    Attributes
    ----------
    case
        What the rule was tried on.
    requests, calls, seconds
        Requests judged, calls made, wall-clock time.
    tokens
        The evidence on the emitted tokens.
    accepted
        The test of the number accepted; None for a rule of any lossless kind.
    bonuses : ndarray, shape (gamma + 1, V), int64
        How often each bonus came after each number of accepted tokens.
    control
        Requests after which the planted fault was rejected; None if it was not, or none is
        planted here.
    stray
        A token outside the target's support.
    failed
        How a call failed, if one did.
    form
        How the rule returned its tensors in the last call that succeeded.
    first
        The first emitted sequences, not completed.
    """

    case: LosslessCase
    requests: int
    calls: int
    seconds: float
    tokens: TokenEvidence
    accepted: LawTest | None
    bonuses: IntArray
    control: int | None
    stray: Stray | None
    failed: TargetFailed | None
    form: Form
    first: tuple[tuple[int, ...], ...]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: thousands of tiny calls would wait for the others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_case(
    target: AcceptTarget,
    case: LosslessCase,
    settings: LosslessSettings,
    progress: Callable[[int], None] = lambda requests: None,
) -> CaseResult:
    """Call a rule on drafts of a case until everything is settled or the budget spent.

    Parameters
    ----------
    target
        The rule.
    case
        What it is tried on.
    settings
        Seed, error rates and budget.
    progress
        Told of the number of requests just judged.
    """
    # The target may have set NumPy to raise.
    with (
        one_thread(),
        own_generators(settings.seed, "lossless", case.name),
        np.errstate(all="ignore"),
    ):
        return _Run(target, case, settings).to_the_end(progress)


@dataclass(frozen=True)
class _Block:
    """Requests and what came of them, in order."""

    tokens: IntArray
    correct_len: IntArray
    bonus: IntArray


class _Run:
    """One case in progress."""

    def __init__(
        self, target: AcceptTarget, case: LosslessCase, settings: LosslessSettings
    ) -> None:
        self.target, self.case, self.settings = target, case, settings
        # Under the states that `own_generators` has set, so a function of the seed and the case.
        words = torch.randint(0, 2**62, (2,)).tolist()
        self.rng = np.random.default_rng(words[0])
        self.generator = torch.Generator().manual_seed(words[1])
        self.tokens = TokenEvidence(case, settings)
        self.accepted = count_test(case, settings) if target.kind == "chain-accept" else None
        self.planted = TokenEvidence(case, settings) if case.control else None
        self.control: int | None = None
        self.bonuses: IntArray = np.zeros((case.gamma + 1, case.size), dtype=np.int64)
        self.requests = self.calls = 0
        self.stray: Stray | None = None
        self.form: Form = "pair"
        self.first: list[tuple[int, ...]] = []

    def to_the_end(self, progress: Callable[[int], None]) -> CaseResult:
        started = time.perf_counter()
        failed = None
        while self.requests < self.settings.budget and not self._settled():
            wanted = max(_FIRST_BLOCK, min(int(self.requests * _GROWTH), _LARGEST_BLOCK))
            wanted = min(wanted, self.settings.budget - self.requests)
            before = self.requests
            try:
                self._judge(self._draw(self._whole_batches(wanted)))
            except TargetFailed as failure:
                failed = failure
                break
            progress(self.requests - before)
        return CaseResult(
            case=self.case,
            requests=self.requests,
            calls=self.calls,
            seconds=time.perf_counter() - started,
            tokens=self.tokens,
            accepted=self.accepted,
            bonuses=self.bonuses,
            control=self.control,
            stray=self.stray,
            failed=failed,
            form=self.form,
            first=tuple(self.first),
        )

    def _settled(self) -> bool:
        if self.stray is not None:
            return True
        verdict = self.tokens.verdict
        if verdict == "inconclusive":
            return False
        if self.accepted is not None and self.accepted.verdict == "inconclusive":
            return False
        if verdict == "fail":
            return self.requests >= _REQUESTS_AFTER_REJECTION
        return self.planted is None or self.control is not None

    def _whole_batches(self, wanted: int) -> list[int]:
        """Return the sizes of the next batches, that many requests or a few more."""
        sizes: list[int] = []
        while sum(sizes) < wanted:
            sizes += self.case.batches
        return sizes

    def _draw(self, sizes: list[int]) -> _Block:
        """Draft tokens for requests and call the rule on them, batch by batch."""
        case, rng, n = self.case, self.rng, sum(sizes)
        nothing, none = np.zeros((n, 0), dtype=np.int64), np.zeros(n, dtype=np.int64)
        tokens = complete(nothing, none, case.draft, rng)
        q, p = (rows_after(model, tokens) for model in (case.draft, case.target))
        given = tokens.copy()
        lens = rng.integers(1, case.gamma + 2, n) if case.ragged else None
        if lens is not None:
            self._spoil(given, q, p, lens)
        drafts = torch.from_numpy(given)
        draft_probs, target_probs = (torch.from_numpy(t.astype(np.float32)) for t in (q, p))
        correct_len, bonus = [], []
        for size, end in zip(sizes, accumulate(sizes), strict=True):
            batch = slice(end - size, end)
            own = None if lens is None else torch.from_numpy(lens[batch].copy())
            self.calls += 1
            answer = self.target.accept(
                drafts[batch], draft_probs[batch], target_probs[batch], own, self.generator
            )
            correct_len.append(answer.correct_len)
            bonus.append(answer.bonus)
            self.form = answer.form
        return _Block(tokens, np.concatenate(correct_len), np.concatenate(bonus))

    def _spoil(self, tokens: IntArray, q: FloatArray, p: FloatArray, lens: IntArray) -> None:
        """Put other tokens and laws, valid ones, where a request has no drafts."""
        drafts, position = lens[:, None] - 1, np.arange(self.case.gamma + 1)
        beyond = position[:-1] >= drafts
        uniform = np.ones(self.case.size)
        tokens[beyond] = self.rng.integers(0, self.case.size, int(beyond.sum()))
        q[beyond] = self.rng.dirichlet(uniform, int(beyond.sum()))
        # The target's row behind the last draft is still the bonus's after a full acceptance.
        p[position > drafts] = self.rng.dirichlet(uniform, int((position > drafts).sum()))

    def _judge(self, block: _Block) -> None:
        """Complete what was emitted, and judge it."""
        case, rng = self.case, self.rng
        n = len(block.tokens)
        emitted = np.concatenate([block.tokens, np.zeros((n, 1), dtype=np.int64)], axis=1)
        emitted[np.arange(n), block.correct_len] = block.bonus
        self.requests += n
        for tokens, k in zip(emitted[:_KEPT], block.correct_len, strict=False):
            if len(self.first) < _KEPT:
                self.first.append(tuple(tokens[: k + 1].tolist()))
        np.add.at(self.bonuses, (block.correct_len, block.bonus), 1)
        if self.accepted is not None:
            self.accepted.update(block.correct_len + 1)
        self.stray = _stray(case, emitted, block.correct_len)
        if self.stray is not None:
            return
        self.tokens.update(complete(emitted, block.correct_len + 1, case.target, rng), rng)
        if self.planted is not None and self.control is None:
            self._plant(block)

    def _plant(self, block: _Block) -> None:
        """Judge the chain rule with the bonus drawn from p after a rejection, on the same drafts.

        That bonus has the law of a completion, so that it needs no drawing of its own.
        """
        assert self.planted is not None
        case, rng = self.case, self.rng
        own = block.tokens[:, :, None]
        q, p = (
            np.take_along_axis(rows_after(model[: case.gamma], block.tokens), own, axis=2)[:, :, 0]
            for model in (case.draft, case.target)
        )
        accepted = rng.random(q.shape) * q < p
        correct_len = accepted.cumprod(axis=1).sum(axis=1)
        self.planted.update(complete(block.tokens, correct_len, case.target, rng), rng)
        if self.planted.verdict == "fail":
            self.control = self.requests


def _stray(case: LosslessCase, emitted: IntArray, correct_len: IntArray) -> Stray | None:
    """Return the first emitted token that the target gives probability 0 after its prefix."""
    rows = rows_after(case.target, emitted)
    own = np.take_along_axis(rows, emitted[:, :, None], axis=2)[:, :, 0]
    counted = np.arange(case.gamma + 1) <= correct_len[:, None]
    found = np.argwhere(counted & (own == 0.0))
    if not found.size:
        return None
    request, position = (int(number) for number in found[0])
    prefix = tuple(int(token) for token in emitted[request, :position])
    return Stray(prefix, int(emitted[request, position]), bool(position < correct_len[request]))
