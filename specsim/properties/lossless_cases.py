"""The draft models and targets that an accept rule is tried on: a fixed list for each effort."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from specsim.evidence.law import FloatArray
from specsim.evidence.lossless import accepted_law, joint_law
from specsim.properties.outcome import EFFORTS, Effort

Model: TypeAlias = "tuple[FloatArray, ...]"
"""Conditional tables, as in `specsim.evidence.lossless`."""

LARGEST_JOINT = 256
"""Sequences of tokens that are judged as one table; beyond, position by position."""

# Batches as large as engines' ordinary ones, so that slots that share a draw are many; larger
# ones where many requests are needed, since a call costs more than its requests.
_BATCH, _LARGE_BATCH, _MANY_SEQUENCES = (64,), (256,), 128


@dataclass(frozen=True, eq=False)
class LosslessCase:
    """A draft model, a target, and how requests are put into batches.

    Attributes
    ----------
    name
        For reports; unique within a plan.
    draft, target
        gamma and gamma + 1 conditional tables. Every probability is a float32 number but for
        the division by its row's sum, so that what a rule is given has the law it is held to.
    batches
        Requests in a batch, one batch after the other, and then again from the first.
    ragged
        Whether a request's number of drafts is drawn uniformly from 0 … gamma.
    control
        Whether a planted fault is judged beside the rule.
    """

    name: str
    draft: Model
    target: Model
    batches: tuple[int, ...] = _BATCH
    ragged: bool = False
    control: bool = False

    @property
    def gamma(self) -> int:
        """Draft tokens of a request, at most."""
        return len(self.draft)

    @property
    def size(self) -> int:
        """Tokens of the vocabulary, V."""
        return int(self.target[0].shape[0])

    @property
    def sequences(self) -> int:
        """Sequences of gamma + 1 tokens."""
        return int(self.size ** (self.gamma + 1))

    @property
    def joint(self) -> bool:
        """Whether the emitted tokens are judged as one table."""
        return self.sequences <= LARGEST_JOINT

    @property
    def token_streams(self) -> int:
        """How many streams the emitted tokens are judged by."""
        return 1 if self.joint else self.gamma + 1

    @cached_property
    def joint_law(self) -> FloatArray:
        """The target's law of gamma + 1 tokens, shape (V,) * (gamma + 1)."""
        return joint_law(self.target)

    @cached_property
    def accepted_law(self) -> FloatArray:
        """The chain rule's law of the number accepted, shape (gamma + 1,)."""
        drafts = range(self.gamma + 1) if self.ragged else (self.gamma,)
        laws = [accepted_law(self.draft[:d], self.target[: d + 1]) for d in drafts]
        padded = [np.pad(law, (0, self.gamma + 1 - law.size)) for law in laws]
        return np.asarray(np.mean(padded, axis=0), dtype=np.float64)


def simple_cases() -> tuple[LosslessCase, ...]:
    """Return small cases with round numbers, simplest first: to show a failure again."""
    one = ([0.75, 0.25], [0.25, 0.75], [[0.5, 0.5], [0.875, 0.125]])
    three = ([0.5, 0.25, 0.25], [0.125, 0.25, 0.625], [[0.25, 0.5, 0.25]] * 3)
    cases = []
    for q, *p in (one, three):
        draft, target = (np.array(q),), tuple(np.array(table) for table in p)
        size = draft[0].size
        cases.append(LosslessCase(f"{size} tokens, 1 draft", draft, target))
    first, second = np.array([0.75, 0.25]), np.array([[0.5, 0.5], [0.25, 0.75]])
    laws = np.array([0.25, 0.75]), np.array([[0.75, 0.25], [0.5, 0.5]])
    last = np.array([[[0.25, 0.75], [0.5, 0.5]], [[0.875, 0.125], [0.25, 0.75]]])
    two = LosslessCase("2 tokens, 2 drafts", (first, second), (*laws, last))
    ragged = LosslessCase(
        "2 tokens, 2 drafts, some requests with fewer", two.draft, two.target, ragged=True
    )
    return (*cases, two, ragged)


def lossless_cases(effort: Effort, seed: int) -> tuple[LosslessCase, ...]:
    """Return the cases of one effort, and two whose shape the seed chooses.

    Parameters
    ----------
    effort
        A higher effort adds cases to those of the lower ones.
    seed
        Decides all random tables but those of the cases with a planted fault.

    Returns
    -------
    tuple of LosslessCase
        A function of the arguments alone, so that alpha's shares are known beforehand.
    """
    efforts = EFFORTS[: EFFORTS.index(effort) + 1]
    shapes = [shape for level in efforts for shape in _SHAPES[level]]
    for number in (1, 2):
        chosen = random.Random(f"{seed} lossless {number}")
        size, gamma = chosen.choice(_SIZES)
        kind = chosen.choice(("unlike", "near", "sparse"))
        shapes.append(_Shape(kind, size, gamma, label=f"of this seed {number}: "))
    return tuple(_case(shape, seed) for shape in shapes)


@dataclass(frozen=True)
class _Shape:
    """A row of the list of cases."""

    kind: str
    size: int
    gamma: int
    batches: tuple[int, ...] = ()
    ragged: bool = False
    control: bool = False
    label: str = ""


_SIZES = ((2, 3), (3, 3), (5, 2), (4, 2), (2, 6), (6, 2), (10, 1), (3, 5), (5, 4))

_SHAPES: dict[Effort, tuple[_Shape, ...]] = {
    "quick": (
        _Shape("unlike", 2, 1, batches=(1, 64, 3, 17)),
        _Shape("unlike", 3, 2, control=True),
        _Shape("unlike", 4, 3),
        _Shape("near", 12, 1),
        _Shape("near", 3, 4),
        _Shape("unlike", 2, 5),
        _Shape("near", 2, 6),
        _Shape("near", 2, 7),
        _Shape("unlike", 3, 8, control=True),
        _Shape("near", 2, 8),
        _Shape("unlike", 3, 3, ragged=True),
        _Shape("near", 8, 3, ragged=True),
        _Shape("equal", 3, 3),
        _Shape("disjoint", 4, 2),
        _Shape("one-hot q", 4, 2),
        _Shape("one-hot p", 4, 2),
        _Shape("sparse", 5, 2),
        _Shape("tiny", 4, 2),
        _Shape("bfloat16 0.6", 5, 2),
        _Shape("bfloat16 1.5", 4, 3),
    ),
    "standard": (
        _Shape("near", 2, 2, batches=(1, 2, 1, 512)),
        _Shape("unlike", 6, 2),
        _Shape("near", 4, 3, ragged=True),
        _Shape("sparse", 3, 4, ragged=True),
        _Shape("near", 5, 5),
        _Shape("tiny", 3, 3, ragged=True),
        _Shape("bfloat16 1.0", 3, 8),
        _Shape("unlike", 16, 2),
    ),
    "thorough": (
        _Shape("near", 15, 1, batches=(5, 300)),
        _Shape("unlike", 2, 7),
        _Shape("near", 3, 8, ragged=True),
        _Shape("sparse", 2, 8),
        _Shape("unlike", 32, 2),
        _Shape("equal", 5, 4),
        _Shape("bfloat16 0.8", 4, 5, ragged=True),
        _Shape("disjoint", 6, 3),
    ),
}


def _case(shape: _Shape, seed: int) -> LosslessCase:
    kind, _, temperature = shape.kind.partition("bfloat16 ")
    if temperature:
        words = f"softmax of bfloat16 logits at temperature {temperature}"
    else:
        words = _KINDS[kind][1]
    drafts = "1 draft" if shape.gamma == 1 else f"{shape.gamma} drafts"
    name = f"{shape.label}{shape.size} tokens, {drafts}, {words}"
    if shape.ragged:
        name += ", some requests with fewer drafts"
    batches = shape.batches
    if batches:
        name += f", batches of {', '.join(map(str, batches))}"
    elif shape.size ** (shape.gamma + 1) > _MANY_SEQUENCES:
        batches = _LARGE_BATCH
    # By name, so that a case is the same in every effort. A planted fault has to show, which is
    # known of these tables and not of any.
    rng = np.random.default_rng([0 if shape.control else seed, *name.encode()])
    if temperature:
        draft, target = _bfloat16(rng, shape.size, shape.gamma, float(temperature))
    else:
        draft, target = _KINDS[kind][0](rng, shape.size, shape.gamma)
    return LosslessCase(
        name, _single(draft), _single(target), batches or _BATCH, shape.ragged, shape.control
    )


def _single(model: Model) -> Model:
    """Round to float32, which is what a rule is given, and divide by the sums in float64."""
    rounded = [table.astype(np.float32).astype(np.float64) for table in model]
    return tuple(table / table.sum(axis=-1, keepdims=True) for table in rounded)


def _normalised(model: Model) -> Model:
    return tuple(table / table.sum(axis=-1, keepdims=True) for table in model)


def _random(rng: np.random.Generator, size: int, length: int, concentration: float = 0.7) -> Model:
    """Return tables in which every prefix has a law of its own."""
    parameters = np.full(size, concentration)
    return tuple(rng.dirichlet(parameters, size=(size,) * j) for j in range(length))


def _noise(rng: np.random.Generator, model: Model, scale: float) -> Model:
    """Return normal numbers of the same shapes."""
    return tuple(scale * rng.standard_normal(table.shape) for table in model)


def _unlike(rng: np.random.Generator, size: int, gamma: int) -> tuple[Model, Model]:
    return _random(rng, size, gamma), _random(rng, size, gamma + 1)


def _near(rng: np.random.Generator, size: int, gamma: int) -> tuple[Model, Model]:
    target = _random(rng, size, gamma + 1, 1.5)
    noise = _noise(rng, target[:gamma], 0.5)
    draft = _normalised(tuple(p * np.exp(z) for p, z in zip(target[:gamma], noise, strict=True)))
    return draft, target


def _equal(rng: np.random.Generator, size: int, gamma: int) -> tuple[Model, Model]:
    target = _random(rng, size, gamma + 1)
    return target[:gamma], target


def _disjoint(rng: np.random.Generator, size: int, gamma: int) -> tuple[Model, Model]:
    first = np.arange(size) < size // 2
    draft, target = _random(rng, size, gamma, 2.0), _random(rng, size, gamma + 1, 2.0)
    return (
        _normalised(tuple(np.where(first, table, 0.0) for table in draft)),
        _normalised(tuple(np.where(first, 0.0, table) for table in target)),
    )


def _one_hot(rng: np.random.Generator, size: int, length: int) -> Model:
    tokens = [rng.integers(0, size, size=(size,) * j) for j in range(length)]
    return tuple(np.eye(size)[token] for token in tokens)


def _one_hot_draft(rng: np.random.Generator, size: int, gamma: int) -> tuple[Model, Model]:
    return _one_hot(rng, size, gamma), _random(rng, size, gamma + 1, 1.5)


def _one_hot_target(rng: np.random.Generator, size: int, gamma: int) -> tuple[Model, Model]:
    return _random(rng, size, gamma, 1.5), _one_hot(rng, size, gamma + 1)


def _sparse(rng: np.random.Generator, size: int, gamma: int) -> tuple[Model, Model]:
    """Put zeros where top-k and top-p leave them; one token at least is kept."""

    def thinned(model: Model) -> Model:
        kept = [table * (rng.random(table.shape) < 0.6) for table in model]
        spare = _one_hot(rng, size, len(model))
        return tuple(
            np.where(table.any(axis=-1, keepdims=True), table, one)
            for table, one in zip(kept, spare, strict=True)
        )

    draft, target = _unlike(rng, size, gamma)
    return _normalised(thinned(draft)), _normalised(thinned(target))


def _tiny(rng: np.random.Generator, size: int, gamma: int) -> tuple[Model, Model]:
    """Make a third of the probabilities 1e-6 to 1e-30 times what they were."""

    def shrunk(model: Model) -> Model:
        factors = [
            np.where(rng.random(t.shape) < 0.35, 10.0 ** -rng.uniform(6.0, 30.0, t.shape), 1.0)
            for t in model
        ]
        return _normalised(tuple(t * f for t, f in zip(model, factors, strict=True)))

    # No concentration below 1: a product with a small probability must stay a float32 number.
    return shrunk(_random(rng, size, gamma, 1.5)), shrunk(_random(rng, size, gamma + 1, 1.5))


def _bfloat16(
    rng: np.random.Generator, size: int, gamma: int, temperature: float
) -> tuple[Model, Model]:
    """Round logits to bfloat16 and divide by the temperature; the softmax is exact."""
    target = _noise(rng, _random(rng, size, gamma + 1), 2.0)
    noise = _noise(rng, target[:gamma], 1.0)
    draft = tuple(a + b for a, b in zip(target[:gamma], noise, strict=True))

    def softmax(logits: FloatArray) -> FloatArray:
        exact = to_bfloat16(12.0 + logits) / temperature
        return np.asarray(np.exp(exact - exact.max(axis=-1, keepdims=True)), dtype=np.float64)

    return (
        _normalised(tuple(map(softmax, draft))),
        _normalised(tuple(map(softmax, target))),
    )


def to_bfloat16(values: FloatArray) -> FloatArray:
    """Round finite numbers to the nearest bfloat16, ties to even.

    Parameters
    ----------
    values : ndarray, float64
        Rounded to float32 first.

    Returns
    -------
    ndarray, float64, of the same shape
        A bfloat16 is a float32 without the lower 16 bits.
    """
    bits = values.astype(np.float32).view(np.uint32)
    bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (bits & np.uint32(0xFFFF_0000)).view(np.float32)
    return np.asarray(rounded, dtype=np.float64)


_KINDS: dict[str, tuple[Callable[[np.random.Generator, int, int], tuple[Model, Model]], str]] = {
    "unlike": (_unlike, "p and q unlike each other"),
    "near": (_near, "q close to p"),
    "equal": (_equal, "p = q"),
    "disjoint": (_disjoint, "p and q on disjoint tokens"),
    "one-hot q": (_one_hot_draft, "one-hot q"),
    "one-hot p": (_one_hot_target, "one-hot p"),
    "sparse": (_sparse, "zeros in p and q"),
    "tiny": (_tiny, "tiny probabilities in p and q"),
}
