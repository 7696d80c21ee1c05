"""The registry of properties, and how a run picks from it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from specsim.properties.outcome import Outcome, Verdict

if TYPE_CHECKING:
    from specsim.properties.session import AcceptSession, Session
    from specsim.trace.session import TraceSession

SAMPLER_KINDS = ("sampler", "vector-sampler", "rates-sampler")
LENGTH_KINDS: dict[str, tuple[str, ...]] = {
    "S": SAMPLER_KINDS,
    "E": ("executor",),
    "D": ("dflash",),
    "A": ("eagle",),
}
"""The kinds of target that draw lengths, by the letter of their properties."""

_ORDER = "SEFTDAGRL"

_FOR_SAMPLERS = (
    "specsim.properties.single_lengths",
    "specsim.properties.laws",
    "specsim.properties.sampler",
)
_FOR_OTHERS = (
    "specsim.properties.commit_law",
    "specsim.properties.consumers",
    "specsim.properties.executor",
    "specsim.properties.finalize",
    "specsim.properties.lossless",
    "specsim.properties.off",
    "specsim.properties.ranks",
    "specsim.properties.tokens",
    "specsim.trace.register",
)

Judge: TypeAlias = "Callable[[Property, Any], Outcome]"
"""Takes a property and a session of the target's kind, and returns the outcome."""


class UnknownPropertyError(ValueError):
    """A property id or letter that the catalogue does not have."""


@dataclass(frozen=True)
class Property:
    """One testable statement.

    Attributes
    ----------
    id
        A letter for the subject and a name: ``"S.distribution"``.
    statement
        The property in one sentence.
    required
        Whether a run needs it to hold; advisory properties are reported only.
    source
        Where the statement comes from: a public fault report, an engine's contract, a formula.
    statistical
        Whether it is decided by streams of draws, with a promised error rate, rather than by
        single calls.
    judges
        How it is judged, by the kind of target.
    """

    id: str
    statement: str
    required: bool
    source: str
    statistical: bool
    judges: dict[str, Judge] = field(compare=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of target that it applies to."""
        return tuple(self.judges)

    @property
    def name(self) -> str:
        """The id without its letter: the same statement about another subject has the same."""
        return self.id.partition(".")[2]

    def check(self, session: Session | AcceptSession | TraceSession) -> Outcome:
        """Judge the session's target."""
        return self.judges[session.target.kind](self, session)

    def outcome(self, verdict: Verdict, detail: str, **more: Any) -> Outcome:
        """Return this property's outcome; `more` are further fields of `Outcome`."""
        return Outcome(self.id, self.statement, verdict, self.required, detail=detail, **more)


_REGISTRY: dict[str, Property] = {}


def register(
    id: str,
    statement: str,
    *,
    source: str,
    required: bool = True,
    statistical: bool = False,
    kinds: tuple[str, ...] = SAMPLER_KINDS,
) -> Callable[[Judge], Judge]:
    """Return a decorator that adds a property, with a judging function, to the catalogue.

    Raises
    ------
    ValueError
        If the id is taken.
    """

    def add(judge: Judge) -> Judge:
        if id in _REGISTRY:
            raise ValueError(f"property id {id!r} is registered twice")
        judges = dict.fromkeys(kinds, judge)
        _REGISTRY[id] = Property(id, statement, required, source, statistical, judges)
        return judge

    return add


def register_for(id: str, *kinds: str) -> Callable[[Judge], Judge]:
    """Return a decorator that adds a judging function of further kinds of target to a property.

    Raises
    ------
    ValueError
        If the property has a judging function for one of the kinds.
    """

    def add(judge: Judge) -> Judge:
        judges = _REGISTRY[id].judges
        taken = [kind for kind in kinds if kind in judges]
        if taken:
            raise ValueError(f"property {id!r} is registered twice for {', '.join(taken)}")
        judges.update(dict.fromkeys(kinds, judge))
        return judge

    return add


def catalogue(kind: str | None = None) -> tuple[Property, ...]:
    """Return the registered properties, for one kind of target or all, subject by subject."""
    _load(kind)
    registered = [p for p in _REGISTRY.values() if kind is None or kind in p.kinds]
    return tuple(sorted(registered, key=lambda p: _ORDER.index(p.id[0])))


def _load(kind: str | None) -> None:
    """Import the modules that register the properties of one kind, or of all, in a fixed order."""
    # They need NumPy and SciPy: nothing before this needs them. The others need torch as well,
    # and the check of a plain sampler need not wait 2 s for it.
    modules = _FOR_SAMPLERS if kind in SAMPLER_KINDS else _FOR_SAMPLERS + _FOR_OTHERS
    for module in modules:
        importlib.import_module(module)


def must_be_judged(expected_failures: Iterable[str], chosen: Iterable[Property]) -> None:
    """Raise if a failure is expected of a property that is not judged.

    Raises
    ------
    ValueError
        Names the ids, and those that are judged.
    """
    judged = [p.id for p in chosen]
    unused = sorted(set(expected_failures) - set(judged))
    if unused:
        raise ValueError(
            f"expected_failures names no judged property: {', '.join(unused)}; judged are "
            f"{', '.join(judged) or 'none'}"
        )


def select(kind: str, wanted: Iterable[str] | None = None) -> tuple[Property, ...]:
    """Return the properties of one kind of target that were asked for.

    Parameters
    ----------
    kind
        Kind of target.
    wanted
        Ids (``"S.range"``) or letters (``"S"``); all by default.

    Raises
    ------
    UnknownPropertyError
        If something wanted is neither a registered id nor a letter of one; names what there is.
    """
    applicable = catalogue(kind)
    if wanted is None:
        return applicable
    chosen: set[str] = set()
    for name in wanted:
        # A name of another kind's property is a name too, of nothing that applies.
        matches = _called(name, applicable) or _called(name, catalogue())
        if not matches:
            known = ", ".join(p.id for p in catalogue())
            raise UnknownPropertyError(
                f"properties: {name!r} is no property id and no letter of one; known ids: {known}"
            )
        chosen |= matches
    return tuple(p for p in applicable if p.id in chosen)


def _called(name: str, properties: Iterable[Property]) -> set[str]:
    return {p.id for p in properties if name in (p.id, p.id.split(".")[0])}
