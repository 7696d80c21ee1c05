"""Exact laws of speculative decoding over a small vocabulary: what is emitted, what is accepted.

A model over V tokens is a sequence of conditional tables: table j has shape (V,) * (j + 1), and
``table[x_1, …, x_j]`` is the law of the next token after x_1 … x_j. A target needs gamma + 1
tables, a draft model gamma. Everything here is summed over all token sequences in float64, so it
is meant for vocabularies and lengths with a few thousand sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specsim.evidence.law import FloatArray, IntArray

Tables: TypeAlias = "Sequence[FloatArray]"

_SUM_TOLERANCE = 1e-9


def position_tables(rows: Sequence[Sequence[float]] | FloatArray) -> tuple[FloatArray, ...]:
    """Return the conditional tables of tokens that are independent of each other.

    Parameters
    ----------
    rows : array-like, shape (n, V)
        Row j is the law of token j, whatever the tokens before it.

    Returns
    -------
    tuple of n read-only views, table j of shape (V,) * (j + 1)

    Raises
    ------
    ValueError
        If a row is no pmf.
    """
    laws = np.asarray(rows, dtype=np.float64)
    if laws.ndim != 2:
        raise ValueError(f"rows must have shape (n, V), got {laws.shape}")
    size = laws.shape[1]
    tables = tuple(np.broadcast_to(law, (size,) * (j + 1)) for j, law in enumerate(laws))
    _check_tables(tables, "rows")
    return tables


def joint_law(tables: Tables) -> FloatArray:
    """Return the joint law of the tokens that a model emits, one a table.

    Parameters
    ----------
    tables
        n conditional tables.

    Returns
    -------
    ndarray, shape (V,) * n, float64
        What a lossless accept rule's tokens have, once completed from the target to n tokens.

    Raises
    ------
    ValueError
        If a table has another shape, or a row that is no pmf.
    """
    _check_tables(tables, "tables")
    joint: FloatArray = np.ones(())
    for table in tables:
        joint = np.multiply(joint[..., None], table)
    return joint


def accepted_law(draft: Tables, target: Tables) -> FloatArray:
    """Return the law of the number of tokens that chain rejection sampling accepts.

    P(at least k) = Σ over x_1 … x_k of Π min(p(x_i | x_<i), q(x_i | x_<i)): token i is drawn with
    probability q and accepted with probability min(1, p/q), independently of the others' draws.

    Parameters
    ----------
    draft
        gamma conditional tables q.
    target
        gamma + 1 conditional tables p.

    Returns
    -------
    ndarray, shape (gamma + 1,), float64
        Entry k is the probability that exactly k draft tokens are accepted.

    Raises
    ------
    ValueError
        If a table has another shape or number, or a row that is no pmf.
    """
    # Sums of the emitted tokens' law, since differences of P(at least k) can round below 0.
    return np.array([float(part.sum()) for part in chain_emitted_law(draft, target)])


def chain_emitted_law(draft: Tables, target: Tables) -> tuple[FloatArray, ...]:
    """Return the law of the tokens that chain rejection sampling emits in one step.

    Parameters
    ----------
    draft, target
        As for `accepted_law`.

    Returns
    -------
    tuple of gamma + 1 ndarrays, float64
        Entry k has shape (V,) * (k + 1): ``[x_1, …, x_k, y]`` is the probability that exactly k
        draft tokens are accepted, that they are x_1 … x_k, and that the bonus is y.

    Raises
    ------
    ValueError
        As for `accepted_law`.
    """
    _check_pair(draft, target)
    reached = _reached(draft, target)
    # A rejection at k and the residual's normalisation cancel: q(x)(1 − min(1, p/q)) sums to the
    # sum of the residual.
    rejected = [
        mass[..., None] * np.maximum(p - q, 0.0)
        for mass, p, q in zip(reached[:-1], target[:-1], draft, strict=True)
    ]
    return (*rejected, reached[-1][..., None] * target[-1])


def completed_law(emitted: Sequence[FloatArray], target: Tables) -> FloatArray:
    """Return the joint law of emitted prefixes that are each completed from the target.

    Judging an emitted token only where it was emitted would condition on acceptance, and find
    fault with a correct rule. Completed to the same length, the tokens of a lossless rule have
    the law `joint_law(target)`.

    Parameters
    ----------
    emitted
        As returned by `chain_emitted_law`, of any rule.
    target
        n conditional tables; n is at least ``len(emitted)``.

    Returns
    -------
    ndarray, shape (V,) * n, float64

    Raises
    ------
    ValueError
        If `target` is shorter than `emitted`, or no sequence of conditional tables.
    """
    _check_tables(target, "target")
    if len(emitted) > len(target):
        raise ValueError(f"target must have at least {len(emitted)} tables, got {len(target)}")
    joint: FloatArray = np.zeros(())
    for k, table in enumerate(target):
        # Everything emitted so far ends before token k, which the target then supplies.
        joint = joint[..., None] * table
        if k < len(emitted):
            joint = joint + emitted[k]
    return joint


def rows_after(tables: Tables, tokens: NDArray[np.integer[Any]]) -> FloatArray:
    """Return the rows of the tables that follow the prefixes of token sequences.

    Parameters
    ----------
    tables
        m conditional tables.
    tokens : ndarray, shape (n, at least m - 1), integer

    Returns
    -------
    ndarray, shape (n, m, V), float64
        ``[i, j]`` is the law of token j after the first j tokens of sequence i.
    """
    rows = [
        np.broadcast_to(table[tuple(tokens[:, :j].T)], (len(tokens), table.shape[-1]))
        for j, table in enumerate(tables)
    ]
    return np.stack(rows, axis=1)


def complete(
    tokens: NDArray[np.integer[Any]],
    lengths: NDArray[np.integer[Any]],
    tables: Tables,
    rng: np.random.Generator,
) -> IntArray:
    """Complete token sequences with draws from a model, to one token a table.

    Parameters
    ----------
    tokens : ndarray, shape (n, m), integer
        Sequence i counts up to ``lengths[i]``; the rest may hold anything.
    lengths : ndarray, shape (n,), integer
        In [0, m]; 0 draws a whole sequence.
    tables
        Conditional tables, m of them or more.
    rng
        Source of the draws.

    Returns
    -------
    ndarray, shape (n, len(tables)), int64
    """
    full = np.zeros((len(tokens), len(tables)), dtype=np.int64)
    full[:, : tokens.shape[1]] = tokens
    for j, table in enumerate(tables):
        drawn = lengths <= j
        cumulative = np.cumsum(table[tuple(full[drawn, :j].T)], axis=-1)
        level = rng.random((int(drawn.sum()), 1)) * cumulative[..., -1:]
        full[drawn, j] = np.sum(cumulative <= level, axis=-1)
    return full


def cells(tokens: IntArray, size: int) -> IntArray:
    """Return each sequence's number in 1 … V^n, in the order of ``joint_law(…).ravel()``.

    Parameters
    ----------
    tokens : ndarray, shape (count, n), int64
        In [0, V).
    size
        V.

    Returns
    -------
    ndarray, shape (count,), int64
        The values that a sequential test of the joint law takes.
    """
    place = size ** np.arange(tokens.shape[1] - 1, -1, -1, dtype=np.int64)
    return np.asarray(1 + tokens @ place, dtype=np.int64)


def _reached(draft: Tables, target: Tables) -> list[FloatArray]:
    """Return, for k = 0 … gamma, the probability that x_1 … x_k are drafted and accepted."""
    reached: list[FloatArray] = [np.ones(())]
    for p, q in zip(target[:-1], draft, strict=True):
        reached.append(reached[-1][..., None] * np.minimum(p, q))
    return reached


def _check_pair(draft: Tables, target: Tables) -> None:
    _check_tables(target, "target")
    if len(draft) != len(target) - 1:
        raise ValueError(f"draft must have {len(target) - 1} tables, got {len(draft)}")
    if draft:
        _check_tables(draft, "draft", size=target[0].shape[0])


def _check_tables(tables: Tables, name: str, size: int | None = None) -> None:
    if not len(tables):
        raise ValueError(f"{name} must hold at least one table, got none")
    size = tables[0].shape[-1] if size is None else size
    for j, table in enumerate(tables):
        if table.shape != (size,) * (j + 1):
            wanted = (size,) * (j + 1)
            raise ValueError(f"{name}[{j}] must have shape {wanted}, got {table.shape}")
        off = np.abs(table.sum(axis=-1) - 1.0).max()
        if not (np.all(table >= 0.0) and off <= _SUM_TOLERANCE):
            raise ValueError(f"{name}[{j}] must hold rows >= 0 that sum to 1, got {table!r}")
