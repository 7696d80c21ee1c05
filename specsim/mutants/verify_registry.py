"""What is known of each faulty and each correct executor, DFlash, EAGLE and ranked target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

METHODS = ("match-expected", "multinomial")

_LENGTH_NAMES = (
    "returns",
    "range",
    "support",
    "integers",
    "clamping",
    "distribution",
    "mean",
    "freshness",
)
_TOKEN_IDS = ("T.real-draft-token", "T.fixed", "T.bonus")

EXECUTOR_IDS = (
    *(f"E.{name}" for name in _LENGTH_NAMES),
    "E.reuse",
    "E.growth",
    "E.dtype",
    "E.device",
    "E.minimum-capacity",
    "E.view",
    "E.written",
    "E.coupling",
    "E.off",
    "E.sequence",
)
FINALIZER_IDS = (
    "F.distribution",
    "F.commit-lens",
    "F.seq-lens",
    "F.caps",
    "F.cap-trim",
    "E.off",
    *_TOKEN_IDS,
)
DFLASH_IDS = (*(f"D.{name}" for name in _LENGTH_NAMES), "D.same-length", *_TOKEN_IDS)
EAGLE_IDS = (
    *(f"A.{name}" for name in _LENGTH_NAMES),
    "A.same-length",
    "A.index",
    *_TOKEN_IDS,
)
RANK_IDS = ("R.equal-generators", "R.unequal-generators")

Factory = TypeVar("Factory", bound=Callable[..., Any])


@dataclass(frozen=True)
class Options:
    """What a check of a target has to be told.

    Attributes
    ----------
    coupling
        ``"batch"`` or ``"slot"``.
    methods
        The methods that the target knows.
    step_method, step_tensor
        Names of the step protocol, where they are not among the usual ones.
    """

    coupling: str = "batch"
    methods: tuple[str, ...] = METHODS
    step_method: str | None = None
    step_tensor: str | None = None


@dataclass(frozen=True)
class VerifyMutant:
    """A complete faulty target.

    Attributes
    ----------
    name
        Unique among the targets of its registry, in words joined by hyphens.
    factory
        For executors, finalizers and ranks the target itself, called as
        ``(gamma, simulate_acc_len, simulate_acc_method)``. For DFlash and EAGLE called without
        arguments: it returns a fresh instance of the function, which is the target.
    caught_by
        Id of the property that must reject it; others may too.
    statement
        What is wrong, in one sentence.
    source
        Where the fault was seen, or what it stands for.
    options
        What a check has to be told.
    """

    name: str
    factory: Callable[..., Any]
    caught_by: str
    statement: str
    source: str
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class VerifyCorrect:
    """A complete correct target: every required property must hold for it.

    Attributes
    ----------
    name
        Unique among the targets of its registry, in words joined by hyphens.
    factory
        As for `VerifyMutant`.
    statement
        How it differs from the others, in one sentence.
    fails
        Ids of the advisory properties that it does not have.
    options
        What a check has to be told.
    """

    name: str
    factory: Callable[..., Any]
    statement: str
    fails: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)


class VerifyRegistry:
    """The faulty and the correct targets of one kind, in order of registration.

    Parameters
    ----------
    ids
        The properties that a mutant may name.

    Attributes
    ----------
    mutants : dict of str to VerifyMutant
    corrects : dict of str to VerifyCorrect
    """

    mutants: dict[str, VerifyMutant]
    corrects: dict[str, VerifyCorrect]

    def __init__(self, ids: tuple[str, ...]) -> None:
        self.ids = ids
        self.mutants = {}
        self.corrects = {}

    def mutant(
        self,
        name: str,
        *,
        caught_by: str,
        statement: str,
        source: str,
        options: Options | None = None,
    ) -> Callable[[Factory], Factory]:
        """Register a class or function as the factory of a faulty target.

        Raises
        ------
        ValueError
            If the name is taken or the property unknown.
        """

        def register(factory: Factory) -> Factory:
            self._must_be_new(name)
            if caught_by not in self.ids:
                raise ValueError(f"caught_by must be one of {', '.join(self.ids)}, got {caught_by}")
            self.mutants[name] = VerifyMutant(
                name, factory, caught_by, statement, source, options or Options()
            )
            return factory

        return register

    def correct(
        self,
        name: str,
        *,
        statement: str,
        fails: tuple[str, ...] = (),
        options: Options | None = None,
    ) -> Callable[[Factory], Factory]:
        """Register a class or function as the factory of a correct target.

        Raises
        ------
        ValueError
            If the name is taken.
        """

        def register(factory: Factory) -> Factory:
            self._must_be_new(name)
            self.corrects[name] = VerifyCorrect(
                name, factory, statement, fails, options or Options()
            )
            return factory

        return register

    def _must_be_new(self, name: str) -> None:
        if name in self.mutants or name in self.corrects:
            raise ValueError(f"name must be new, got {name!r} a second time")


EXECUTORS = VerifyRegistry(EXECUTOR_IDS)
FINALIZERS = VerifyRegistry(FINALIZER_IDS)
DFLASH = VerifyRegistry(DFLASH_IDS)
EAGLE = VerifyRegistry(EAGLE_IDS)
RANKS = VerifyRegistry(RANK_IDS)
