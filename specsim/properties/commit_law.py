"""F.distribution: the law of what an executor commits, which may not be that of its buffer."""

from __future__ import annotations

import time
from itertools import cycle

from specsim.adapters.finalizing import Batch, Finalizer, Offer
from specsim.loading.failures import TargetFailed, TargetReturned
from specsim.properties.configurations import law_of
from specsim.properties.finalize import KINDS, not_offered, offer_in, target_of
from specsim.properties.finalize_cases import at_most, distinct_requests
from specsim.properties.generators import own_generators
from specsim.properties.outcome import Outcome
from specsim.properties.registry import Property, register
from specsim.properties.session import Session, commit_configurations
from specsim.properties.stream import Stream, StreamResult
from specsim.targets import Configuration

# Batch sizes in turn, so that a length which is right for some of them only shows.
_SIZES = (3, 1, 40)
_BLOCK = 256


@register(
    "F.distribution",
    "Committed lengths have the configured distribution, and are drawn anew at each step.",
    source="one law for every consumer: a commit may not follow the buffer that was refreshed",
    statistical=True,
    kinds=KINDS,
)
def committed_distribution(prop: Property, session: Session) -> Outcome:
    """Judge F.distribution by one stream of commits a method."""
    if (outcome := not_offered(prop, session)) is not None:
        return outcome
    offer = offer_in(session)
    assert isinstance(offer, Offer)
    started = time.perf_counter()
    results = []
    for configuration in commit_configurations(session.settings.methods):
        with own_generators(session.settings.seed, "commit law", configuration):
            results.append((configuration, _stream(session, offer, configuration)))
    draws = sum(result.draws for _, result in results)
    seconds = time.perf_counter() - started
    for configuration, result in results:
        for aspect in result.aspects.values():
            if aspect.verdict == "fail":
                call = session.target.call_repr(configuration)
                return prop.outcome(
                    "fail",
                    f"{call}: committed lengths: {aspect.text}",
                    configuration=call,
                    snippet=_program(session, offer, configuration, min(result.draws, 2_000)),
                    evidence={"counts": result.counts, "expected": result.expected},
                    draws=draws,
                    seconds=seconds,
                )
    open_ = [
        f"{result.label}: {result.broken or aspect.text}"
        for _, result in results
        for aspect in result.aspects.values()
        if aspect.verdict != "pass"
    ]
    if open_:
        return prop.outcome("inconclusive", "\n".join(open_[:3]), draws=draws, seconds=seconds)
    return prop.outcome("pass", f"{draws:,} commits", draws=draws, seconds=seconds)


def _stream(session: Session, offer: Offer, configuration: Configuration) -> StreamResult:
    """Draw commits until all that is judged on them is settled, or the budget spent."""
    started = time.perf_counter()
    law, settings = law_of(configuration), session.stream_settings
    names = tuple(str(k + 1) for k in range(law.max_len))
    stream = Stream(configuration.label, law, names, settings)
    batches = cycle(_batches(configuration, offer))
    broken: str | None = None
    try:
        finalizer = Finalizer(target_of(session), offer, configuration)
        while not stream.settled and stream.draws < settings.budget:
            lengths: list[int] = []
            while len(lengths) < _BLOCK:
                committed = finalizer.commit(next(batches)).columns["commit_lens"].values
                if not all(type(length) is int for length in committed):
                    raise TargetReturned(f"committed {committed[:8]}, expected integers")
                lengths += committed if target_of(session).per_slot else committed[:1]
            stream.update(lengths)
            session.progress(len(lengths))
    except TargetFailed as failed:
        broken = failed.summary
    return stream.result(time.perf_counter() - started, broken)


def _batches(configuration: Configuration, offer: Offer) -> list[Batch]:
    gamma = configuration.max_len - 1
    pattern = distinct_requests(gamma, gamma + 1, 10_000)
    return [Batch(gamma, at_most(bs, offer), pattern) for bs in _SIZES]


def _program(session: Session, offer: Offer, configuration: Configuration, steps: int) -> str:
    gamma = configuration.max_len - 1
    step = [] if offer.step_method is None else [f"    executor.{offer.step_method}()"]
    return "\n".join(
        [
            "from collections import Counter",
            "",
            "import torch",
            session.import_line,
            "",
            f"executor = {session.target.call_repr(configuration)}",
            "seen = Counter()",
            f"for _ in range({steps}):",
            *step,
            "    result = executor.accept_and_finalize(",
            f"        draft_tokens=torch.arange(3 * {gamma}).reshape(3, {gamma}),",
            "        prefix_lens=torch.full((3,), 100),",
            f"        target_tokens=torch.arange(3 * {gamma + 1}).reshape(3, {gamma + 1}) + 1000,",
            "    )",
            "    lens = result['commit_lens'] if isinstance(result, dict) else result.commit_lens",
            "    seen[int(lens[0])] += 1",
            'print("committed", dict(sorted(seen.items())))',
            "",
        ]
    )
