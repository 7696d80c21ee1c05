"""Lengths of two configurations drawn in turn, judged as one stream of pairs."""

from __future__ import annotations

import numpy as np

from specsim.acceptance import AcceptanceDistribution
from specsim.evidence.region import tv_interval
from specsim.properties.stream import DRAWS_AFTER_REJECTION, Aspect, Stream, StreamSettings


class PairStream(Stream):
    """Judges whether two configurations' lengths are independent of each other.

    A pair (a, b) is the single value (a − 1)·max_len of the second + b, whose claimed law is the
    product of both. Each configuration's own law is judged elsewhere, so a deviation of the
    pairs counts only beyond what the deviations of both together can explain.

    Parameters
    ----------
    label
        Names the configurations.
    first, second
        The claimed laws.
    settings
        Error rates, and what a pass has to rule out.
    """

    def __init__(
        self,
        label: str,
        first: AcceptanceDistribution,
        second: AcceptanceDistribution,
        settings: StreamSettings,
    ) -> None:
        names = tuple(
            f"({a + 1}, {b + 1})" for a in range(first.max_len) for b in range(second.max_len)
        )
        product = AcceptanceDistribution(np.outer(first.pmf, second.pmf).ravel())
        super().__init__(label, product, names, settings)
        self._laws = (first, second)
        self._dependent = False

    def update_pairs(self, first: list[int], second: list[int]) -> None:
        """Judge pairs of lengths; one outside its range has no code and is left out."""
        tops = [law.max_len for law in self._laws]
        self.update(
            [
                (a - 1) * tops[1] + b
                for a, b in zip(first, second, strict=True)
                if 1 <= a <= tops[0] and 1 <= b <= tops[1]
            ]
        )

    def _look(self) -> None:
        self._look_at_law()
        if self.test.rejected_by("marginal"):
            self._dependent |= self.share_interval.lower > self._explained()
        self._look_at_freshness()

    def _explained(self) -> float:
        """Return how far both laws together can move the pairs away from their product."""
        table = self.test.counts.reshape([law.max_len for law in self._laws])
        moved = 0.0
        for law, counts in zip(self._laws, (table.sum(axis=1), table.sum(axis=0)), strict=True):
            cells = np.array(law.support) - 1
            moved += tv_interval(counts[cells], law.pmf[cells], self.alpha).upper
        return moved

    def aspects(self) -> dict[str, Aspect]:
        """Return what is known of the freshness; pairs have no other aspect."""
        return {"freshness": self._freshness()}

    def _freshness(self) -> Aspect:
        law = self._distribution()
        if self.test.out_of_support is not None:
            return Aspect("inconclusive", "not judged: a length outside the support", None)
        if self._dependent:
            return Aspect("fail", f"lengths drawn in turn depend on each other: {law.text}", None)
        if self._stale is not None:
            return Aspect("fail", f"pairs drawn in turn: {self._stale}", law.log_e)
        if law.verdict == "pass":
            return Aspect("pass", "independent of another configuration's lengths", law.log_e)
        if law.verdict == "fail" and self.draws >= DRAWS_AFTER_REJECTION:
            return Aspect("pass", "no dependence beyond the wrong laws", law.log_e)
        return Aspect("inconclusive", law.text, law.log_e)
