"""Programs that show a failure again, complete and short enough to read."""

from __future__ import annotations

from specsim.properties.session import Session
from specsim.targets import Configuration, Program


def one_call(session: Session, configuration: Configuration, draws: int) -> str:
    """Return a program that prints lengths of one configuration."""
    program = session.target.program(configuration)
    if program.many is None:
        body = f"for _ in range({draws}):\n    print(repr({program.length}))"
    else:
        body = f"print({program.lengths(draws)})"
    return "\n".join([session.import_line, "", *program.setup, body, ""])


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
    programs = _programs(session, configurations)
    drawn = programs[0].lengths(draws)
    if len(programs) > 1:
        drawn = f"[({_in_turn(programs)})[0] for _ in range({draws})]"
    return "\n".join(
        [
            "from collections import Counter",
            "",
            "from specsim import AcceptanceDistribution, SequentialTest",
            session.import_line,
            "",
            *_setup(programs),
            f"lengths = [int(length) for length in {drawn}]",
            f"law = {_law(configurations[0])}",
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
    programs = _programs(session, configurations)
    return "\n".join(
        [
            "from collections import Counter",
            "",
            session.import_line,
            "",
            *_setup(programs),
            f"print(Counter(({_in_turn(programs)}) for _ in range({draws})))",
            "",
        ]
    )


def _programs(session: Session, configurations: tuple[Configuration, ...]) -> list[Program]:
    return [session.target.program(c, number) for number, c in enumerate(configurations, 1)]


def _setup(programs: list[Program]) -> list[str]:
    """Return the lines of all programs, each line once."""
    return list(dict.fromkeys(line for program in programs for line in program.setup))


def _in_turn(programs: list[Program]) -> str:
    return ", ".join(program.length for program in programs)


def _law(configuration: Configuration) -> str:
    if configuration.rates is not None:
        return f"AcceptanceDistribution.from_rates({list(configuration.rates)!r})"
    arguments = f"{configuration.acc_len!r}, {configuration.method!r}, {configuration.max_len}"
    return f"AcceptanceDistribution.from_method({arguments})"
