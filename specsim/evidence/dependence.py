"""The parts of the sequential test that see dependence on earlier draws.

Both are averages of products of conditional likelihood ratios: each factor has expectation 1
given the past if the next draw has law p0, so the products are martingales under p0.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from specsim.evidence.law import FloatArray, IntArray
from specsim.evidence.marginal import (
    centred_prior,
    dirichlet_log_factors,
    dirichlet_log_marginal,
    log_sum_exp,
    log_tilts,
    tilt_directions,
)

LAG_WINDOW = 20_000
MAX_LAG = 1_024

# Draws compared with all lags at once: few enough for a count in 8 bits and for the cache.
_COMPARED = 128
# Draws over which bets are multiplied out between two exact evaluations: a factor is at most e^5,
# so that a product over this many stays within float64.
_MULTIPLIED = 64

_ROW_CONCENTRATIONS = (4.0, 64.0)
_REGRESSIONS = tuple(sign * 0.05 * 2.0**step for step in range(6) for sign in (1.0, -1.0))
_AGREEMENTS = (-2.0, -0.7, -0.25, 0.25, 0.7, 2.0, 5.0)


class TransitionMixture:
    """Average of likelihood ratios of first-order Markov chains against independent p0.

    Components: in each row a Dirichlet(½), or a Dirichlet centred on p0; and one-parameter
    chains q(y | x) ∝ p0(y)·exp(θ·z(x)·z(y)) with z the standardised value, which see pairs that
    attract or repel each other long before K·(K − 1) free parameters can be learnt.

    Parameters
    ----------
    pmf : ndarray, shape (K,)
        Strictly positive probabilities of p0's support.
    """

    def __init__(self, pmf: FloatArray) -> None:
        size = pmf.size
        self._log_pmf = np.log(pmf)
        self._priors = [np.full(size, 0.5)]
        self._priors += [centred_prior(pmf, c) for c in _ROW_CONCENTRATIONS]
        self._log_ratios = np.empty((0, size * size))
        if size > 1:
            score = tilt_directions(pmf)[0]
            exponents = np.array(_REGRESSIONS)[:, None, None] * np.outer(score, score)
            self._log_ratios = log_tilts(self._log_pmf, exponents).reshape(-1, size * size)
        rows, chains = len(self._priors), self._log_ratios.shape[0]
        groups = [np.full(count, 1.0 / count) for count in (rows, chains) if count]
        self._log_weights = np.log(np.concatenate(groups) / len(groups))

    def log_e(self, pairs: IntArray) -> FloatArray:
        """Return the mixture's log e-value for one or many tables of transitions.

        Parameters
        ----------
        pairs : ndarray, shape (..., K, K), int64
            Entry [x, y] counts how often the value y came right after the value x.

        Returns
        -------
        ndarray, shape (...), float64, nats
        """
        observed = pairs.astype(np.float64)
        totals = observed.sum(axis=-1)
        null = observed.sum(axis=-2) @ self._log_pmf
        rows = [
            dirichlet_log_marginal(observed, totals, prior).sum(axis=-1) - null
            for prior in self._priors
        ]
        flat = observed.reshape(*observed.shape[:-2], -1)
        parts = np.concatenate([np.stack(rows, axis=-1), flat @ self._log_ratios.T], axis=-1)
        return log_sum_exp(parts + self._log_weights)

    def path(self, cells: IntArray, looks: IntArray) -> FloatArray:
        """Return `log_e` after each of several draws, from each draw's own factor.

        Parameters
        ----------
        cells : ndarray, shape (n,), int64
            Draws as cell numbers 0 … K − 1.
        looks : ndarray, shape (m,), increasing, the last one n
            Numbers of draws after which to look.

        Returns
        -------
        ndarray, shape (m,), float64, nats
        """
        before, now = cells[:-1], cells[1:]
        rows = dirichlet_log_factors(now, before, self._priors) - self._log_pmf[now]
        chains = self._log_ratios[:, before * self._log_pmf.size + now]
        logs = np.zeros((self._log_weights.size, cells.size))
        np.cumsum(np.concatenate([rows, chains]), axis=-1, out=logs[:, 1:])
        return log_sum_exp(logs[:, looks - 1].T + self._log_weights)


class LagMixture:
    """Average, over lags and sizes, of bets on agreement with the draw ℓ places back.

    The factor of the draw x with the draw y that lies ℓ places back is
    exp(θ·1[x = y]) / (1 + p0(y)(e^θ − 1)): normalised given the past, so that the average is a
    martingale under p0 (a bet against Σ p0² would not be). It sees repeated blocks, antithetic
    blocks and short pools, over the first `window` draws of a stream.

    Parameters
    ----------
    pmf : ndarray, shape (K,)
        Strictly positive probabilities of p0's support.
    window
        Draws after which the part stops betting and keeps its value.
    max_lag
        The furthest draw looked back at.
    tolerance
        With a tolerance τ > 0 the factors are divided by their largest expectation over all laws
        within total variation τ of p0, so that the average is a supermartingale for all of
        them: p0(y) is replaced by p0(y) + τ for θ > 0 and by p0(y) − τ for θ < 0.
    """

    def __init__(
        self,
        pmf: FloatArray,
        *,
        window: int = LAG_WINDOW,
        max_lag: int = MAX_LAG,
        tolerance: float = 0.0,
    ) -> None:
        self.window = window
        self.max_lag = min(max_lag, window)
        self.sizes = np.array(_AGREEMENTS if pmf.size > 1 else ())
        shifted = pmf + tolerance * np.sign(self.sizes)[:, None]
        # log(1 + p0(y)(e^θ − 1)): what a bet of size θ on agreement with y costs. Shape (θ, y).
        self.costs: FloatArray = np.log1p(
            np.clip(shifted, 0.0, 1.0) * np.expm1(self.sizes)[:, None]
        )
        lags = np.arange(1, self.max_lag + 1)
        # Near lags are likelier faults, so half of the weight falls as 1/ℓ.
        lag_weights = 0.5 / self.max_lag + 0.5 / (lags * np.sum(1.0 / lags))
        self.log_weights = np.log(lag_weights) - np.log(max(self.sizes.size, 1))

    def log_e(self, agreements: IntArray, spent: FloatArray) -> float:
        """Return the average's log e-value.

        Parameters
        ----------
        agreements : ndarray, shape (max_lag,), int64
            Entry ℓ − 1 counts the draws equal to the one ℓ places back.
        spent : ndarray, shape (θ, max_lag), float64
            Entry [θ, ℓ − 1] is the sum of `costs` over the draws that were looked back at: all
            but the last ℓ.

        Returns
        -------
        float, nats
        """
        if self.sizes.size == 0:
            return 0.0
        return float(log_sum_exp(self.exponents(agreements, spent).ravel()))

    def exponents(self, agreements: IntArray, spent: FloatArray) -> FloatArray:
        """Return the log of each bet's weighted e-value, shape (θ, max_lag), nats.

        Parameters
        ----------
        agreements, spent
            As in `log_e`, which is the log of the sum of their exponentials.
        """
        return np.asarray(self.sizes[:, None] * agreements - spent + self.log_weights)

    def path(self, cells: IntArray, looks: IntArray) -> FloatArray:
        """Return `log_e` after each of several draws.

        Parameters
        ----------
        cells : ndarray, shape (n,), int64
            Draws as cell numbers 0 … K − 1.
        looks : ndarray, shape (m,), increasing, the last one n
            Numbers of draws after which to look.

        Returns
        -------
        ndarray, shape (m,), float64, nats
        """
        inside = cells[: self.window]
        at = np.unique(np.minimum(looks, self.window))
        if self.sizes.size == 0:
            return np.zeros(looks.size)
        totals = np.zeros((self.sizes.size, self.max_lag + inside.size + 1))
        np.cumsum(self.costs[:, inside], axis=1, out=totals[:, self.max_lag + 1 :])
        counts = LagCounts(self.window, self.max_lag)
        exponents = np.broadcast_to(self.log_weights, (self.sizes.size, self.max_lag))
        logs: list[float] = []
        while len(logs) < at.size:
            start = counts.draws
            near = np.searchsorted(at, start + _MULTIPLIED, side="right")
            group = at[len(logs) : max(near, len(logs) + 1)]
            if group.size > 1:
                logs += self._path_within(exponents, inside, start, group[:-1])
            counts.update(inside[start : group[-1]])
            # Column max_lag + t of `totals` is the cost of the first t draws, 0 for t < 0.
            spent = totals[:, group[-1] : group[-1] + self.max_lag][:, ::-1]
            exponents = self.exponents(counts.agreements, spent)
            logs.append(float(log_sum_exp(exponents.ravel())))
        return np.concatenate([logs, np.full(looks.size - at.size, logs[-1])])

    def _path_within(
        self, exponents: FloatArray, cells: IntArray, start: int, looks: IntArray
    ) -> list[float]:
        """Multiply the bets out draw by draw from `start`, where their logs are `exponents`."""
        size = self.costs.shape[1]
        # Entry [x, θ, y] is the factor of the draw x after y; the last y is "before the stream".
        factors = np.ones((size, self.sizes.size, size + 1))
        factors[:, :, :size] = np.exp(-self.costs)
        factors[np.arange(size), :, np.arange(size)] *= np.exp(self.sizes)
        before = np.full(max(self.max_lag - start, 0), -1)
        back = np.concatenate([before, cells[max(start - self.max_lag, 0) : looks[-1]]])
        of_draw = {x: factors[x][:, back] for x in set(cells[start : looks[-1]].tolist())}
        top = exponents.max()
        products = np.exp(exponents - top)[:, ::-1].copy()
        logs, wanted = [], set((looks - start - 1).tolist())
        for at, x in enumerate(cells[start : looks[-1]].tolist()):
            products *= of_draw[x][:, at : at + self.max_lag]
            if at in wanted:
                logs.append(float(top + np.log(products.sum())))
        return logs


class LagCounts:
    """Agreement counts at every lag over the start of a stream, kept as blocks arrive.

    Parameters
    ----------
    window, max_lag
        As in `LagMixture`.
    """

    def __init__(self, window: int = LAG_WINDOW, max_lag: int = MAX_LAG) -> None:
        self.max_lag = min(max_lag, window)
        self.window = window
        # Furthest lag first, which is the order in memory of what a draw looks back at.
        self._agreements: IntArray = np.zeros(self.max_lag, dtype=np.int64)
        # No cell is −1, so that nothing agrees with the time before the stream.
        self._seen = np.full(self.max_lag + window, -1, dtype=np.int16)
        self.draws = 0

    @property
    def agreements(self) -> IntArray:
        """How many draws equal the one ℓ places back, at index ℓ − 1; shape (max_lag,)."""
        return self._agreements[::-1]

    @property
    def room(self) -> int:
        """How many more draws the window takes."""
        return self.window - self.draws

    def spent(self, costs: FloatArray) -> FloatArray:
        """Sum a cost over the draws that were looked back at from each lag.

        Parameters
        ----------
        costs : ndarray, shape (θ, K)
            `LagMixture.costs`.

        Returns
        -------
        ndarray, shape (θ, max_lag), float64
            Column ℓ − 1 sums over all draws but the last ℓ.
        """
        seen = self._seen[self.max_lag : self.max_lag + self.draws]
        total = costs @ np.bincount(seen, minlength=costs.shape[1])
        depth = min(self.max_lag, seen.size)
        spent = np.zeros((costs.shape[0], self.max_lag))
        recent = np.cumsum(costs[:, seen[seen.size - depth :][::-1]], axis=1)
        np.subtract(total[:, None], recent, out=spent[:, :depth])
        return spent

    def update(self, cells: IntArray) -> None:
        """Count a block of draws, given as cell numbers 0 … K − 1; the surplus is dropped."""
        stop = self.draws + min(cells.size, self.room)
        self._seen[self.max_lag + self.draws : self.max_lag + stop] = cells[: stop - self.draws]
        earlier = sliding_window_view(self._seen, self.max_lag)
        for start in range(self.draws, stop, _COMPARED):
            rows = slice(start, min(start + _COMPARED, stop))
            same = earlier[rows] == self._seen[self.max_lag :][rows, None]
            self._agreements += same.view(np.uint8).sum(axis=0, dtype=np.uint8)
        self.draws = stop
