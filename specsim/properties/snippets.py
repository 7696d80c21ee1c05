"""Programs that show a failure again, complete and short enough to read."""

from __future__ import annotations

from specsim.properties.session import Session
from specsim.targets import Configuration


def one_call(session: Session, configuration: Configuration, draws: int) -> str:
    """Return a program that prints lengths of one configuration."""
    target = session.target
    if target.kind == "sampler":
        call = target.call_repr(configuration)
        body = f"for _ in range({draws}):\n    print(repr({call}))"
    else:
        body = f"print({target.call_repr(configuration, draws)})"
    return f"{session.import_line}\n\n{body}\n"


def stream(
    session: Session, configurations: tuple[Configuration, ...], draws: int, alpha: float
) -> str:
    """Return a program that tests the lengths of a configuration against its claimed law.

    Parameters
    ----------
    session
        Whose target is drawn from.
    configurations
        The first is tested; the others are drawn in turn with it.
    draws
        Lengths to draw of each.
    alpha
        False-alarm rate of the test.
    """
    target, tested = session.target, configurations[0]
    if len(configurations) > 1:
        calls = [target.call_repr(c) + ("" if target.kind == "sampler" else "[0]")
                 for c in configurations]  # fmt: skip
        drawn = f"[({', '.join(calls)})[0] for _ in range({draws})]"
    elif target.kind == "sampler":
        drawn = f"[{target.call_repr(tested)} for _ in range({draws})]"
    else:
        drawn = target.call_repr(tested, draws)
    return "\n".join(
        [
            "from collections import Counter",
            "",
            "from specsim import AcceptanceDistribution, SequentialTest",
            session.import_line,
            "",
            f"lengths = [int(length) for length in {drawn}]",
            f"law = {_law(tested)}",
            f"test = SequentialTest(law, alpha={alpha:.1g})",
            "test.update(lengths)",
            'print("seen", dict(sorted(Counter(lengths).items())))',
            'print("claimed", {k: round(law.pmf[k - 1], 4) for k in law.support})',
            'print("rejected" if test.rejected else "not rejected", "log e =", test.log_e)',
            "",
        ]
    )


def pairs(session: Session, configurations: tuple[Configuration, ...], draws: int) -> str:
    """Return a program that counts the pairs of lengths of two configurations in turn."""
    target = session.target
    suffix = "" if target.kind == "sampler" else "[0]"
    first, second = (target.call_repr(c) + suffix for c in configurations)
    return "\n".join(
        [
            "from collections import Counter",
            "",
            session.import_line,
            "",
            f"print(Counter(({first}, {second}) for _ in range({draws})))",
            "",
        ]
    )


def _law(configuration: Configuration) -> str:
    if configuration.rates is not None:
        return f"AcceptanceDistribution.from_rates({list(configuration.rates)!r})"
    arguments = f"{configuration.acc_len!r}, {configuration.method!r}, {configuration.max_len}"
    return f"AcceptanceDistribution.from_method({arguments})"
