"""The evidence on one case of an accept rule: sequential tests of tokens and of counts.

Up to `LARGEST_JOINT` sequences, the completed tokens are one value of one test. Beyond, each
position has a test of its own, of where the token falls in the target's law given the prefix:
with the tokens ordered in a way that depends on the prefix alone, and U uniform, R = P(tokens
before x) + U·P(x) is uniform on [0, 1) whatever the prefix, if x has the law p(· | prefix). So
the pair of the quarter that the position before fell into and the eighth of this one is uniform
over 32 cells. The order is by p/q: faults of accept rules move probability between tokens that q
favours and tokens that p favours, so that they add up over prefixes instead of cancelling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import rel_entr

from specsim.evidence.dependence import LAG_WINDOW, MAX_LAG
from specsim.evidence.law import FloatArray, IntArray
from specsim.evidence.lossless import cells, rows_after
from specsim.evidence.region import TVInterval, rows_exclude
from specsim.evidence.sequential import SHARES, SequentialTest
from specsim.properties.lossless_cases import LosslessCase
from specsim.properties.outcome import Verdict

_GROUPS, _BINS = 4, 8
PLACE_CELLS = _GROUPS * _BINS
"""Cells of a position's test."""

CLEAR = 14.0
"""Nats by which a remark has to stand out: about one in a million."""

# The number accepted may be rounded off its law: p and q computed apart make a rejection of a
# token with p = q possible at a rate of a float32's last digits.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class LosslessSettings:
    """What the cases of a run have in common.

    Attributes
    ----------
    seed
        The run's seed.
    alpha_run
        Error rate of a pass; not divided, since a run passes only if all streams do.
    alpha
        One stream's share of the run's false-alarm rate.
    delta
        Total variation that a pass rules out.
    tolerance
        Total variation within which another law inside the support is no failure.
    budget
        Requests of one case after which an undecided verdict stays inconclusive.
    """

    seed: int
    alpha_run: float
    alpha: float
    delta: float
    tolerance: float
    budget: int


class LawTest:
    """Judges values 1 … K against their law as they come.

    Parameters
    ----------
    label
        What the values are, for reports.
    pmf : ndarray, shape (K,)
        The law.
    settings
        Error rates, and what a pass has to rule out.
    independent
        Whether values that depend on earlier ones are a fault here.
    """

    def __init__(
        self, label: str, pmf: FloatArray, settings: LosslessSettings, *, independent: bool
    ) -> None:
        self.label = label
        self.test = SequentialTest(pmf, settings.alpha)
        self.interval = self.share_interval = TVInterval(0.0, 1.0)
        self.excluded = self._dependent = False
        self._settings, self._independent = settings, independent
        self._support = np.flatnonzero(pmf)

    def update(self, values: IntArray) -> None:
        """Judge a block of values."""
        self.test.update(values)
        if self.test.out_of_support is not None:
            return
        # What one look rules out stays ruled out.
        if self.interval.upper > self._settings.delta:
            self.interval = self.test.tv_interval(self._settings.alpha_run)
        if self.test.rejected_by("marginal"):
            self.share_interval = self.test.tv_interval(self._settings.alpha)
            self.excluded |= self.share_interval.lower > self._settings.tolerance
        # A wrong law alone looks like dependence, and is enough.
        if self._independent and not self.excluded and not self._dependent:
            self._dependent = self._look_at_dependence()

    def _look_at_dependence(self) -> bool:
        """Say whether there is dependence that no tolerated law explains."""
        test, settings = self.test, self._settings
        if test.rejected_by("lags"):
            weighted = test.lag_log_e(settings.tolerance) + np.log(SHARES["lags"])
            if weighted >= -np.log(settings.alpha):
                return True
        chosen = np.ix_(self._support, self._support)
        return test.rejected_by("transitions") and rows_exclude(
            test.pairs[chosen], test.pmf[self._support], settings.tolerance, settings.alpha
        )

    @property
    def verdict(self) -> Verdict:
        """What is settled so far."""
        if self.test.out_of_support is not None or self.excluded or self._dependent:
            return "fail"
        return "pass" if self.interval.upper <= self._settings.delta else "inconclusive"

    def dependence(self) -> str | None:
        """Say how requests depend on each other, if they clearly do; None if they need not.

        Independent values agree as often with the one before as with any other, whatever their
        law: so a wrong law alone is not taken for dependence. This words a verdict that stands.
        """
        test = self.test
        counts = test.counts
        total = int(counts.sum())
        compared = min(total, LAG_WINDOW)
        if compared < 2 or test.out_of_support is not None:
            return None
        lag, share, _ = test.strongest_lag()
        expected = float(counts @ (counts - 1)) / (total * (total - 1))
        evidence = (compared - lag) * float(
            rel_entr(share, expected) + rel_entr(1.0 - share, 1.0 - expected)
        )
        if share > expected and evidence > CLEAR + np.log(MAX_LAG):
            which = "before" if lag == 1 else f"{lag} before"
            return (
                f"requests depend on each other: {share:.1%} have the same {self.label} as the "
                f"one {which}, {expected:.1%} if they were independent"
            )
        if self._dependent and not self.excluded:
            return f"requests depend on each other: the {self.label} on those of the one before"
        return None

    @property
    def tolerated(self) -> bool:
        """Whether it passes although the test rejects the law itself."""
        return self.verdict == "pass" and self.test.rejected

    @property
    def log_e(self) -> float | None:
        """Log of the e-value against the law, nats; None outside the support."""
        return None if self.test.out_of_support is not None else self.test.log_e


class TokenEvidence:
    """Judges completed sequences of tokens against a case's target.

    Attributes
    ----------
    laws
        One test of the joint law, or one a position.
    counts : ndarray, shape (V,) * (gamma + 1), int64
        How often each sequence was seen.
    """

    def __init__(self, case: LosslessCase, settings: LosslessSettings) -> None:
        self._case = case
        joint = case.joint_law.ravel()
        if case.joint:
            self.laws = [LawTest("tokens", joint, settings, independent=True)]
        else:
            uniform = np.full(PLACE_CELLS, 1.0 / PLACE_CELLS)
            self.laws = [
                LawTest(f"places of token {j + 1}", uniform, settings, independent=True)
                for j in range(case.gamma + 1)
            ]
        self.counts: IntArray = np.zeros(case.joint_law.shape, dtype=np.int64)

    def update(self, tokens: IntArray, rng: np.random.Generator) -> None:
        """Judge a block of sequences, shape (n, gamma + 1); `rng` gives the places' U."""
        values = cells(tokens, self._case.size)
        self.counts += np.bincount(values - 1, minlength=self.counts.size).reshape(
            self.counts.shape
        )
        if self._case.joint:
            self.laws[0].update(values)
            return
        for law, column in zip(self.laws, places(self._case, tokens, rng).T, strict=True):
            law.update(column)

    @property
    def verdict(self) -> Verdict:
        """``"fail"`` if one test fails, ``"pass"`` if all pass."""
        return combined([law.verdict for law in self.laws])


def combined(verdicts: list[Verdict]) -> Verdict:
    """Return the verdict on all of several: one failure fails, one open one keeps all open."""
    for verdict in ("fail", "inconclusive"):
        if verdict in verdicts:
            return verdict
    return "pass"


def count_test(case: LosslessCase, settings: LosslessSettings) -> LawTest:
    """Return the test of the number accepted, plus 1, against the chain rule's law.

    That requests depend on each other is a matter of their tokens.
    """
    law = (1.0 - _ROUNDING) * case.accepted_law + _ROUNDING / (case.gamma + 1)
    return LawTest("number accepted", law, settings, independent=False)


def places(case: LosslessCase, tokens: IntArray, rng: np.random.Generator) -> IntArray:
    """Return where each token falls in the target's law given its prefix, in 1 … 32.

    Parameters
    ----------
    case
        Whose target, and whose draft model for the order.
    tokens : ndarray, shape (n, gamma + 1), int64
        Sequences of the target's support.
    rng
        Makes the place within a token's probability uniform.

    Returns
    -------
    ndarray, shape (n, gamma + 1), int64
        Each column uniform on 1 … 32, if the tokens have the target's law: the quarter of the
        position before and the eighth of this one; 32nds for the first position.
    """
    p = rows_after(case.target, tokens)
    q = rows_after(case.draft, tokens)
    # The last token has no draft; a rule that takes the row before for it moves mass towards it.
    score = p / (p + q[:, [*range(case.gamma), case.gamma - 1]] + np.finfo(np.float64).tiny)
    own = tokens[:, :, None]
    mine = np.take_along_axis(score, own, axis=2)
    earlier = (score == mine) & (np.arange(case.size) < own)
    below = np.where((score < mine) | earlier, p, 0.0).sum(axis=2)
    width = np.take_along_axis(p, own, axis=2)[:, :, 0]
    rank = below + rng.random(tokens.shape) * width
    # Rounding can reach 1 itself.
    rank = np.minimum(rank, np.nextafter(1.0, 0.0))
    first = (rank[:, :1] * PLACE_CELLS).astype(np.int64)
    later = (rank[:, :-1] * _GROUPS).astype(np.int64) * _BINS + (rank[:, 1:] * _BINS).astype(
        np.int64
    )
    return np.asarray(1 + np.concatenate([first, later], axis=1), dtype=np.int64)
