"""Streams: when they pass, when they fail, what is tolerated, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from specsim.acceptance import AcceptanceDistribution
from specsim.properties.stream import Stream, StreamSettings

LAW = AcceptanceDistribution.match_expected(4.7, 8)
ALPHA = 1e-6


def settings(**changes: float) -> StreamSettings:
    """Return the settings of a quick stream, with some changed."""
    values = {"alpha_run": ALPHA, "alpha": ALPHA / 20, "delta": 0.05, "tolerance": 0.005}
    return StreamSettings(seed=0, budget=30_000, **(values | changes))


def run(
    law: AcceptanceDistribution, lengths: np.ndarray, chosen: StreamSettings | None = None
) -> Stream:
    """Feed lengths to a stream in growing blocks until it is settled or they end."""
    chosen = chosen or settings()
    names = tuple(str(k + 1) for k in range(law.max_len))
    stream = Stream("test", law, names, chosen)
    start, block = 0, 32
    while start < lengths.size and not stream.settled:
        stream.update(lengths[start : start + block])
        start, block = start + block, int(block * 1.5)
    return stream


def draw(law: AcceptanceDistribution, n: int) -> np.ndarray:
    """Draw from a law with fresh entropy."""
    return np.random.default_rng().choice(law.max_len, n, p=law.pmf) + 1


def verdicts(stream: Stream) -> dict[str, str]:
    """Return the verdict of each aspect."""
    return {name: aspect.verdict for name, aspect in stream.aspects().items()}


@pytest.mark.parametrize(
    "law",
    [
        LAW,
        AcceptanceDistribution.multinomial(1.2, 8),
        AcceptanceDistribution.multinomial(15.5, 16),
        AcceptanceDistribution.match_expected(3.0, 4),
        AcceptanceDistribution.from_rates([0.8, 0.64, 0.512, 0.41]),
        AcceptanceDistribution.match_expected(1.0, 1),
    ],
)
def test_a_correct_stream_passes_within_its_budget(law: AcceptanceDistribution) -> None:
    # Rejected with probability at most 5e-8 each. That 30,000 draws do not suffice has a
    # probability far below that: the region needs about 7,000.
    stream = run(law, draw(law, 30_000))
    assert set(verdicts(stream).values()) == {"pass"}
    assert stream.draws < 20_000


def test_the_draws_that_a_pass_takes_grow_as_the_deviation_shrinks() -> None:
    # About 5,000 and 31,000 draws for two lengths.
    quick = run(LAW, draw(LAW, 200_000))
    standard = run(LAW, draw(LAW, 200_000), settings(delta=0.02))
    assert 2_000 < quick.draws < 12_000
    assert 15_000 < standard.draws < 70_000


def test_frozen_fails_in_all_three_aspects() -> None:
    stream = run(LAW, np.full(30_000, 5))
    assert set(verdicts(stream).values()) == {"fail"}
    assert "5: 100.0%" in stream.aspects()["distribution"].text
    # The law and the mean are refuted early; that nothing is fresh takes more to be sure of.
    early = verdicts(run(LAW, np.full(170, 5)))
    assert early == {"distribution": "fail", "mean": "fail", "freshness": "inconclusive"}


def test_a_run_of_one_length_from_a_wrong_law_is_not_lack_of_freshness() -> None:
    # Swapped weights give 7 nine times in ten, so 40 of them in a row are no news; 30,000 are.
    # Wrong by at most 5e-8.
    law = AcceptanceDistribution.match_expected(7.9, 8)
    swapped = AcceptanceDistribution.match_expected(7.1, 8)
    stream = run(law, np.concatenate([np.full(40, 7), draw(swapped, 30_000)]))
    assert verdicts(stream)["distribution"] == "fail"
    assert verdicts(stream)["freshness"] == "pass"
    assert verdicts(run(law, np.full(30_000, 7)))["freshness"] == "fail"


def test_a_value_outside_the_support_fails_at_once_and_is_named() -> None:
    stream = run(LAW, np.array([4, 5, 6]))
    aspects = stream.aspects()
    assert aspects["distribution"].verdict == "fail"
    assert aspects["distribution"].log_e is None
    assert "length 6 has probability 0" in aspects["distribution"].text
    assert stream.settled


def test_right_law_but_not_fresh_fails_in_freshness_alone() -> None:
    # Each length twice: the marginal law is right, so freshness has to see it.
    lengths = np.repeat(draw(LAW, 15_000), 2)
    assert verdicts(run(LAW, lengths))["freshness"] == "fail"


@pytest.mark.parametrize("acc_len", [4.3, 4.9, 4.75])
def test_a_wrong_law_that_is_fresh_does_not_fail_freshness(acc_len: float) -> None:
    # Wrong by at most 5e-8: only dependence beyond what the law's own deviation explains counts.
    stream = run(LAW, draw(AcceptanceDistribution.match_expected(acc_len, 8), 30_000))
    assert verdicts(stream)["distribution"] == "fail"
    assert verdicts(stream)["mean"] == "fail"
    assert verdicts(stream)["freshness"] == "pass"


def test_a_wrong_law_that_is_not_fresh_fails_both() -> None:
    # Swapped weights, and each length held for 40 draws: one row of transitions suffices.
    swapped = AcceptanceDistribution.match_expected(4.3, 8)
    stream = run(LAW, np.repeat(draw(swapped, 1_000), 40))
    assert verdicts(stream)["distribution"] == "fail"
    assert verdicts(stream)["freshness"] == "fail"


@pytest.mark.parametrize(("shift", "verdict"), [(0.003, "pass"), (0.05, "fail")])
def test_a_law_within_tolerance_is_reported_and_beyond_it_fails(shift: float, verdict: str) -> None:
    # 0.003 from the claim, over six million draws: about 128 nats of evidence, where 18 reject;
    # less than 18 has a probability below 1e-9. No region with an error of 5e-8 then excludes the
    # whole tolerated ball, but one excludes 0.05 with a probability as close to one.
    other = AcceptanceDistribution.match_expected(4.7 + shift, 8)
    lengths = np.random.default_rng().binomial(1, other.pmf[4], 6_000_000) + 4
    names = tuple(str(k + 1) for k in range(8))
    stream = Stream("test", LAW, names, settings(delta=0.01))
    stream.update(lengths)
    aspect = stream.aspects()["distribution"]
    assert aspect.verdict == verdict
    if verdict == "pass":
        assert stream.test.rejected_by("marginal")
        assert "tolerated" in aspect.text


def test_a_mean_within_tolerance_is_not_failed() -> None:
    # Mass 0.0045 moved four lengths up: the mean is off by 0.018, surely seen in three million
    # draws, and a law within the tolerated 0.005 may move it by 0.035.
    law = AcceptanceDistribution.multinomial(4.7, 8)
    moved = law.pmf.copy()
    moved[[2, 6]] += [-0.0045, 0.0045]
    names = tuple(str(k + 1) for k in range(8))
    stream = Stream("test", law, names, settings(delta=0.01))
    stream.update(draw(AcceptanceDistribution(moved), 3_000_000))
    assert verdicts(stream) == {"distribution": "pass", "mean": "pass", "freshness": "pass"}
    beyond = Stream("test", law, names, settings(delta=0.01, tolerance=0.001))
    beyond.update(draw(AcceptanceDistribution(moved), 3_000_000))
    assert verdicts(beyond)["mean"] == "fail"


def test_a_budget_that_ends_early_is_inconclusive_and_never_a_pass() -> None:
    stream = run(LAW, draw(LAW, 300))
    assert set(verdicts(stream).values()) == {"inconclusive"}


def test_tolerated_dependence_is_not_failed() -> None:
    # The next length's law moves by 0.003 with the last one: real, and within the tolerance.
    rng = np.random.default_rng()
    lengths = [4]
    uniforms = rng.random(60_000)
    for u in uniforms:
        lengths.append(4 + int(u < 0.7 + (0.003 if lengths[-1] == 5 else -0.003)))
    assert verdicts(run(LAW, np.array(lengths)))["freshness"] == "pass"


def test_false_alarms_of_a_whole_stream_are_within_alpha() -> None:
    """At alpha = 0.2 no more than that of 150 correct streams fail in any aspect.

    The binomial test is at 1e-6: a bound that holds is rejected that often at most.
    """
    chosen = settings(alpha=0.2, alpha_run=0.2, tolerance=0.0)
    failed = sum(
        "fail" in verdicts(run(LAW, draw(LAW, 1_500), chosen)).values() for _ in range(150)
    )
    assert stats.binomtest(failed, 150, 0.2, alternative="greater").pvalue > 1e-6


def test_the_false_alarm_test_has_power() -> None:
    """The twin: with weights off by 0.08 the same count is far beyond its bound.

    Each such stream fails with probability above 0.9 here, so the count lies below the bound
    with probability below 1e-30.
    """
    chosen = settings(alpha=0.2, alpha_run=0.2, tolerance=0.0)
    wrong = AcceptanceDistribution.match_expected(4.62, 8)
    failed = sum(
        "fail" in verdicts(run(LAW, draw(wrong, 1_500), chosen)).values() for _ in range(150)
    )
    assert stats.binomtest(failed, 150, 0.2, alternative="greater").pvalue < 1e-6
