"""A report as one self-contained HTML page, with a figure for each failure that counted lengths.

Needs the extra ``report`` (Jinja2 and Matplotlib), imported when a page is made.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from specsim._version import __version__
from specsim.properties.outcome import Report
from specsim.report.wording import headline, label, notable, state, visible

_EXTRA = {"jinja2": "Jinja2", "matplotlib": "Matplotlib"}


@dataclass(frozen=True)
class _Shares:
    """What was seen of each length against what was claimed; one entry a length, ascending."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    claimed: tuple[float, ...]

    @property
    def draws(self) -> int:
        return sum(self.counts)

    @property
    def observed(self) -> tuple[float, ...]:
        return tuple(count / self.draws for count in self.counts)

    @property
    def rows(self) -> list[tuple[int, int, float, float]]:
        """Length, count, observed and claimed share, as the page's table shows them."""
        return list(zip(self.lengths, self.counts, self.observed, self.claimed, strict=True))


def require_extra() -> None:
    """Check that a page can be made, before a run whose result would be lost.

    Raises
    ------
    ModuleNotFoundError
        If Jinja2 or Matplotlib is not installed; says how to install both.
    """
    for module, name in _EXTRA.items():
        if find_spec(module) is None:
            raise ModuleNotFoundError(
                f"the HTML report needs {name}, which is not installed: "
                'pip install "specsim[report]"',
                name=module,
            )


def to_html(report: Report) -> str:
    """Return a report as one HTML page that loads nothing from elsewhere.

    Parameters
    ----------
    report
        Any report. A failed or inconclusive outcome gets a figure if its evidence has ``counts``
        and ``expected``, both keyed by the length in decimal.

    Returns
    -------
    str
        The page; to be written as UTF-8.

    Raises
    ------
    ModuleNotFoundError
        If the extra ``report`` is not installed.
    """
    require_extra()
    import jinja2

    # Every value goes through `finalize` before it is escaped, so that no control character or
    # surrogate of a target's output reaches the page.
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = files("specsim.report").joinpath("templates").joinpath("report.html")
    found = []
    for outcome in notable(report):
        shares = _shares(outcome.evidence)
        figure = None if shares is None else _figure(shares)
        found.append({"outcome": outcome, "shares": shares, "figure": figure})
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        report=report,
        state=state(report),
        headline=headline(report),
        label=label,
        found=found,
        version=report.versions.get("specsim", __version__),
    )


def _shares(evidence: Mapping[str, Any]) -> _Shares | None:
    """Return what a figure can show, ``None`` if the evidence is not of that form."""
    counts, expected = evidence.get("counts"), evidence.get("expected")
    if not isinstance(counts, Mapping) or not isinstance(expected, Mapping):
        return None
    try:
        seen = {int(length): int(count) for length, count in counts.items()}
        claimed = {int(length): float(share) for length, share in expected.items()}
    except (TypeError, ValueError, OverflowError):
        return None
    if not any(seen.values()) or min(seen.values()) < 0:
        return None
    if not all(0.0 <= share <= 1.0 for share in claimed.values()):
        return None
    lengths = tuple(sorted(seen.keys() | claimed.keys()))
    return _Shares(
        lengths,
        tuple(seen.get(length, 0) for length in lengths),
        tuple(claimed.get(length, 0.0) for length in lengths),
    )


def _figure(shares: _Shares) -> str:
    """Return a PNG, base64 text: the shares, and under them observed minus claimed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)  # attaches itself, whatever backend the process has chosen
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    # Positions, not lengths: a value far outside the support must not flatten the others.
    places = range(len(shares.lengths))
    top.bar([p - 0.2 for p in places], shares.claimed, 0.4, color="#9aa5b1", label="claimed")
    top.bar([p + 0.2 for p in places], shares.observed, 0.4, color="#c0392b", label="observed")
    top.set_ylabel("share of draws")
    top.set_title(f"{shares.draws:,} draws", loc="left", fontsize="medium")
    figure.legend(loc="outside upper right", frameon=False, ncols=2)
    gaps = [o - c for o, c in zip(shares.observed, shares.claimed, strict=True)]
    # Two standard deviations of a share of n independent draws from the claimed law.
    spread = [2 * math.sqrt(max(c * (1 - c), 0.0) / shares.draws) for c in shares.claimed]
    bottom.bar(places, [2 * s for s in spread], 0.8, [-s for s in spread], color="#dfe4ea")
    bottom.plot(places, gaps, "o", color="#c0392b", markersize=4)
    bottom.axhline(0.0, color="black", linewidth=0.8)
    bottom.set_ylabel("difference")
    bottom.set_xlabel("acceptance length (grey: two standard deviations of independent draws)")
    step = max(1, math.ceil(len(shares.lengths) / 20))
    bottom.set_xticks(list(places)[::step], [str(n) for n in shares.lengths][::step])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})
    return base64.b64encode(buffer.getvalue()).decode("ascii")
