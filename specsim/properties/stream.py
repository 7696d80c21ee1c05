"""One stream of lengths and everything that is judged on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance import AcceptanceDistribution
from specsim.evidence.dependence_power import DependenceClaims, detectable_dependence
from specsim.evidence.mean import BoundedMeanTest
from specsim.evidence.region import TVInterval, rows_exclude
from specsim.evidence.sequential import SHARES, SequentialTest
from specsim.properties.outcome import Verdict

# Shares of a stream's alpha: the mean is a feature of the marginal law, so its own test is a
# second look at the same fault and gets little.
_SHARE_TEST, _SHARE_MEAN = 0.9, 0.1
# A refuted stream is still drawn this far, so that a wrong law and a lack of freshness are told
# apart rather than stopped at whichever shows first.
DRAWS_AFTER_REJECTION = 4_000
# A law closer than this to a fixed length is one, as far as freshness goes.
_POINT_MASS = 0.005
# With only freshness refuted, so many times 1/delta² draws: a few times what a pass takes.
_LONGEST_AFTER_REJECTION = 25.0
# So many first draws are kept as the failure's record: a target that draws from the operating
# system cannot be asked for them again.
_KEPT_DRAWS = 200


@dataclass(frozen=True)
class StreamSettings:
    """What the streams of a run have in common.

    Attributes
    ----------
    seed
        The run's seed.
    alpha_run
        Error rate of a pass; not divided among streams, since a run passes only if all do.
    alpha
        One stream's share of the run's false-alarm rate.
    delta
        Total variation that a pass rules out; for the mean, 2·delta lengths, or 2·delta standard
        deviations where those are more, beyond what tolerated laws may do to it.
    tolerance
        Total variation within which another law inside the support is reported, not failed.
    budget
        Draws after which an undecided verdict stays inconclusive.
    """

    seed: int
    alpha_run: float
    alpha: float
    delta: float
    tolerance: float
    budget: int


@dataclass(frozen=True)
class Aspect:
    """One thing judged on a stream: its marginal law, its mean, or its freshness.

    Attributes
    ----------
    verdict
        ``"inconclusive"`` as long as nothing is settled.
    text
        What was seen, and how sure that is, in one line.
    log_e
        Log of the e-value against the claim, nats; None outside the support.
    tolerated
        Whether it passes although the test rejects the claim itself.
    """

    verdict: Verdict
    text: str
    log_e: float | None
    tolerated: bool = False


@dataclass(frozen=True)
class StreamResult:
    """What one stream showed.

    Attributes
    ----------
    label
        Names the configurations.
    draws, seconds
        Lengths drawn, wall-clock time.
    counts, expected
        How often each length was seen, and the probability claimed for it.
    log_threshold
        log(1/alpha) at the stream's share, nats.
    tv_lower, tv_upper
        Confidence interval of the total variation from the claim.
    aspects
        By name: ``"distribution"``, ``"mean"``, ``"freshness"``.
    claims
        Dependences that the draws would have shown; None for a fixed length.
    first_draws
        The first draws as they came.
    broken
        Why the stream ended early (the target raised, say), or None.
    """

    label: str
    draws: int
    seconds: float
    counts: dict[str, int]
    expected: dict[str, float]
    log_threshold: float
    tv_lower: float
    tv_upper: float
    aspects: dict[str, Aspect] = field(default_factory=dict)
    claims: DependenceClaims | None = None
    first_draws: tuple[int, ...] = ()
    broken: str | None = None


class Stream:
    """Judges lengths against one claimed law as they come.

    Parameters
    ----------
    label
        Names the configuration.
    law
        The claimed law of one value.
    names
        What the values 1 … K stand for, for reports.
    settings
        Error rates, and what a pass has to rule out.
    """

    def __init__(
        self,
        label: str,
        law: AcceptanceDistribution,
        names: tuple[str, ...],
        settings: StreamSettings,
    ) -> None:
        self.label = label
        self.names = names
        self.law = law
        self.alpha_run, self.alpha = settings.alpha_run, settings.alpha
        self.delta, self.tolerance = settings.delta, settings.tolerance
        self.test = SequentialTest(law, _SHARE_TEST * settings.alpha)
        self._support = np.array(law.support)
        self._span = int(self._support[-1] - self._support[0])
        self.interval = self.share_interval = TVInterval(0.0, 1.0)
        self._mean_peak = 0.0
        self._mean_excluded = False
        self._mean_within = False
        self._excluded = False
        self._stale: str | None = None
        self._first: list[int] = []

    @property
    def draws(self) -> int:
        """Lengths judged so far."""
        return self.test.draws

    # The target may have set NumPy to raise, in this process too.
    @np.errstate(all="ignore")
    def update(self, lengths: list[int] | NDArray[np.int64]) -> None:
        """Judge a block of lengths."""
        if len(self._first) < _KEPT_DRAWS:
            self._first += [int(v) for v in lengths[: _KEPT_DRAWS - len(self._first)]]
        self.test.update(lengths)
        if self.test.out_of_support is None:
            self._look()

    @property
    def _mean_margin(self) -> float:
        """What a pass rules out, in lengths, beyond what tolerated laws may do to the mean."""
        return 2 * self.delta * max(1.0, self.law.std) + self.tolerance * self._span

    @property
    def settled(self) -> bool:
        """Whether more draws would not change what is reported."""
        with np.errstate(all="ignore"):
            return self._is_settled()

    def _is_settled(self) -> bool:
        if self.test.out_of_support is not None:
            return True
        verdicts = {a.verdict for a in self.aspects().values()}
        if "inconclusive" not in verdicts or verdicts == {"fail"}:
            return True
        if self._excluded:
            return self.draws >= self._draws_after_rejection
        # Draws that depend on each other settle their law late, or never.
        return "fail" in verdicts and self.draws >= _LONGEST_AFTER_REJECTION / self.delta**2

    def _look(self) -> None:
        """Keep what a look proves: each exclusion is good for all looks at once, so it stays."""
        self._look_at_law()
        if self._span:
            self._look_at_mean()
        self._look_at_freshness()

    def _look_at_law(self) -> None:
        self.interval = self.test.tv_interval(self.alpha_run)
        if self.test.rejected_by("marginal"):
            self.share_interval = self.test.tv_interval(self.alpha)
            self._excluded |= self.share_interval.lower > self.tolerance

    def _look_at_freshness(self) -> None:
        if self._excluded:
            # The wrong law alone would look like dependence. Only what no law that is left could
            # do counts: anything further from the claim than the draws themselves can be.
            self._stale = self._look_at_dependence(self.share_interval.upper)
        elif self._stale is None:
            self._stale = self._look_at_dependence(self.tolerance)

    def _look_at_mean(self) -> None:
        counts = self.test.counts[self._support - 1]
        seen = counts > 0
        low, high = float(self._support[0]), float(self._support[-1])
        mean = BoundedMeanTest(low, high, _SHARE_MEAN * self.alpha)
        mean.update(self._support[seen].astype(np.float64), counts[seen])
        claim = self.law.mean
        self._mean_peak = max(self._mean_peak, mean.log_e(claim))

        average = float(self._support @ counts) / self.draws

        def excluded(value: float) -> bool:
            return not low <= value <= high or mean.rejects(value)

        # What is not excluded is an interval around the average, so its ends need no search: it
        # lies beyond a value if that value is excluded and the average is beyond it.
        slack, margin = self.tolerance * self._span, self._mean_margin
        if average < claim - slack:
            self._mean_excluded |= excluded(claim - slack)
        elif average > claim + slack:
            self._mean_excluded |= excluded(claim + slack)
        if abs(average - claim) < margin:
            self._mean_within |= excluded(claim - margin) and excluded(claim + margin)

    def _look_at_dependence(self, slack: float) -> str | None:
        """Say what shows dependence, if laws within `slack` of the claim do not explain it."""
        test = self.test
        cells = np.ix_(self._support - 1, self._support - 1)
        if self._excluded and self._is_constant():
            return f"all {self.draws:,} lengths are {self.names[int(test.counts.argmax())]}"
        if test.rejected_by("transitions") and rows_exclude(
            test.pairs[cells], self.law.pmf[self._support - 1], slack, self.alpha
        ):
            return self._strongest_transition(test.pairs[cells])
        if test.rejected_by("lags"):
            weighted = test.lag_log_e(slack) + math.log(SHARES["lags"])
            if weighted >= -math.log(test.alpha):
                lag, share, expected = test.strongest_lag()
                which = "the last one" if lag == 1 else f"the one {lag} draws back"
                return f"{share:.1%} of lengths equal {which}; {expected:.1%} if independent"
        return None

    @property
    def _draws_after_rejection(self) -> float:
        """How far a stream is drawn whose law is refuted: enough to tell a frozen one as well."""
        return max(DRAWS_AFTER_REJECTION, math.log(self.alpha) / math.log1p(-_POINT_MASS))

    def _is_constant(self) -> bool:
        """Say whether one length alone was drawn, so often that it is not chance.

        Of draws from any law at least `_POINT_MASS` from a fixed length, so many are all the
        same with a probability of at most the stream's alpha. A skewed law gives dozens.
        """
        constant = np.count_nonzero(self.test.counts) == 1
        return bool(constant and self.draws >= self._draws_after_rejection)

    def _strongest_transition(self, pairs: NDArray[np.int64]) -> str:
        """Say which length follows which one most unlike an independent draw."""
        claimed = self.law.pmf[self._support - 1]
        totals = pairs.sum(axis=1, keepdims=True)
        spread = np.sqrt(np.maximum(totals, 1) * claimed * (1 - claimed))
        x, y = np.unravel_index(
            np.argmax(np.abs(pairs - totals * claimed) / np.maximum(spread, 1e-9)), pairs.shape
        )
        earlier, later = (self.names[self._support[k] - 1] for k in (x, y))
        share = pairs[x, y] / max(int(totals[x, 0]), 1)
        return f"after {earlier} comes {later} {share:.1%} of the time; {claimed[y]:.1%} claimed"

    def aspects(self) -> dict[str, Aspect]:
        """Return what is known of the law, the mean and the freshness."""
        return {
            "distribution": self._distribution(),
            "mean": self._mean(),
            "freshness": self._freshness(),
        }

    def _distribution(self) -> Aspect:
        test, stray = self.test, self.test.out_of_support
        if stray is not None:
            name = self.names[stray - 1] if 1 <= stray <= len(self.names) else str(stray)
            return Aspect("fail", f"length {name} has probability 0 but was drawn", None)
        log_e = test.part("marginal") + math.log(SHARES["marginal"])
        if test.rejected_by("marginal") and self._excluded:
            return Aspect(
                "fail",
                f"seen {self._shares()}; claimed {self._claim()}: at least "
                f"{self.share_interval.lower:.3g} apart in total variation",
                log_e,
            )
        if self.interval.upper <= self.delta:
            text = (
                f"no deviation of {self.delta:g} or more in total variation, error "
                f"{self.alpha_run:g}"
            )
            differs = test.rejected_by("marginal")
            if differs:
                text += f"; differs from the claim, within the {self.tolerance:g} tolerated"
            return Aspect("pass", text, log_e, tolerated=differs)
        return Aspect(
            "inconclusive",
            f"the law is within {self.interval.upper:.3g} of the claim in total variation; "
            f"{self.delta:g} was asked for",
            log_e,
        )

    def _mean(self) -> Aspect:
        claim = self.law.mean
        if self.test.out_of_support is not None:
            return Aspect("inconclusive", "not judged: a length outside the support", None)
        if not self._span:
            return Aspect("pass", f"every length is {claim:g}", 0.0)
        threshold = -math.log(_SHARE_MEAN * self.alpha)
        seen = float(self.test.counts @ np.arange(1, self.law.max_len + 1)) / max(self.draws, 1)
        text = f"mean {seen:.4f} over {self.draws:,} draws, expected {claim:.4f}"
        if self._mean_peak >= threshold and self._mean_excluded:
            return Aspect("fail", text, self._mean_peak)
        margin = self._mean_margin
        if self._mean_within:
            text = f"mean within {margin:.3g} of {claim:.4f}, error {self.alpha_run:g}"
            return Aspect("pass", text, self._mean_peak)
        return Aspect("inconclusive", f"{text} ± {margin:.3g}", self._mean_peak)

    def _freshness(self) -> Aspect:
        test = self.test
        if test.out_of_support is not None:
            return Aspect("inconclusive", "not judged: a length outside the support", None)
        log_e = max(test.part(p) + math.log(SHARES[p]) for p in ("transitions", "lags"))
        if self._stale is not None:
            return Aspect("fail", self._stale, log_e)
        if not self._span:
            return Aspect("pass", "a fixed length has nothing to be fresh about", 0.0)
        too_few = self._excluded and self.draws < self._draws_after_rejection
        if too_few or self._distribution().verdict == "inconclusive":
            return Aspect("inconclusive", "too few draws yet", log_e)
        text = "no dependence on earlier draws seen"
        return Aspect("pass", text + " beyond the wrong law" * self._excluded, log_e)

    def claims(self) -> DependenceClaims | None:
        """Return the dependences that the draws taken would have shown, if the law is right."""
        if not self._span or self.test.out_of_support is not None or self._excluded:
            return None
        return detectable_dependence(
            self.law, self.draws, self.test.alpha, tolerance=self.tolerance
        )

    def _shares(self) -> str:
        counts = self.test.counts
        return _listing(self.names, counts / max(counts.sum(), 1))

    def _claim(self) -> str:
        return _listing(self.names, self.law.pmf)

    @np.errstate(all="ignore")
    def result(self, seconds: float, broken: str | None) -> StreamResult:
        """Return everything known, in plain types."""
        counts = self.test.counts
        shown = [k for k in range(len(self.names)) if counts[k] or self.law.pmf[k] >= 1e-4]
        return StreamResult(
            label=self.label,
            draws=self.draws,
            seconds=seconds,
            counts={self.names[k]: int(counts[k]) for k in shown},
            expected={self.names[k]: float(self.law.pmf[k]) for k in shown},
            log_threshold=-math.log(self.test.alpha),
            tv_lower=self.share_interval.lower,
            tv_upper=self.interval.upper,
            aspects=self.aspects(),
            claims=self.claims(),
            first_draws=tuple(self._first),
            broken=broken,
        )


def _listing(names: tuple[str, ...], shares: NDArray[np.float64]) -> str:
    order = [k for k in np.argsort(-shares, kind="stable")[:4] if shares[k] >= 5e-4]
    return ", ".join(f"{names[k]}: {shares[k]:.1%}" for k in sorted(order))
