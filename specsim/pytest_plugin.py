"""``pytest --specsim-target TARGET``: one test for each property of the target.

pytest loads this module in every run where specsim is installed, so it imports nothing but
pytest until a target is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from specsim.parametrize import PropertyCheck


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("specsim", "simulated acceptance lengths")
    add = group.addoption
    add("--specsim-target", metavar="TARGET", help="package.module:attribute or file.py:attribute")
    add("--specsim-kind", metavar="KIND", help="what the target is: sampler, executor, …")
    add("--specsim-coupling", default="batch", metavar="NAME", help="of executors: batch or slot")
    add("--specsim-effort", default="quick", metavar="EFFORT", help="quick, standard, thorough")
    add("--specsim-seed", default=0, type=int, metavar="N", help="decides the configurations")
    add("--specsim-alpha", default=1e-6, type=float, metavar="P", help="false-alarm probability")
    add(
        "--specsim-methods",
        default="match-expected,multinomial",
        metavar="NAMES",
        help="methods that the target knows, separated by commas",
    )
    add(
        "--specsim-expect-failure",
        action="append",
        default=[],
        metavar="ID=REASON",
        help="a known failure; may be repeated",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add a test for each property, before ``-k`` and ``-m`` choose among the tests."""
    target = session.config.getoption("--specsim-target")
    if target is not None:
        items.extend(_items(session, target))


def _items(session: pytest.Session, target: str) -> Iterable[pytest.Item]:
    from specsim.parametrize import expected_failure_marks, property_checks
    from specsim.properties.outcome import read_reasons
    from specsim.properties.registry import must_be_judged
    from specsim.properties.session import Settings
    from specsim.targets import TargetError

    option = session.config.getoption
    # A usage error has no traceback, and an exit status of its own.
    try:
        reasons = read_reasons("--specsim-expect-failure", option("--specsim-expect-failure"))
        settings = Settings(
            effort=option("--specsim-effort"),
            alpha=option("--specsim-alpha"),
            seed=option("--specsim-seed"),
            coupling=option("--specsim-coupling"),
            methods=tuple(m.strip() for m in option("--specsim-methods").split(",")),
        )
        checks = property_checks(target, option("--specsim-kind"), settings, expected=reasons)
        must_be_judged(reasons, [check.prop for check in checks])
    except (TargetError, ValueError) as error:
        raise pytest.UsageError(f"specsim: {error}") from None
    for check in checks:
        name = f"{target}::{check.prop.id}"
        item: pytest.Item = PropertyItem.from_parent(session, name=name, check=check)
        for mark in expected_failure_marks(check.prop.id, reasons):
            item.add_marker(mark)
        yield item


class PropertyItem(pytest.Item):
    """The test of one property of the target given on the command line."""

    def __init__(self, *, check: PropertyCheck, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._check = check

    def runtest(self) -> None:
        """Judge the property."""
        self._check()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the report of a failed property, without a traceback of specsim's own."""
        from specsim.parametrize import PropertyFailure

        if isinstance(excinfo.value, PropertyFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        """Return where the test is, for reports: nowhere but in its name."""
        return ("specsim", None, self.name)
