"""What a run of an accept rule shows, in the reader's words, and as a program that shows it."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import rel_entr

from specsim.adapters.accept import AcceptTarget, Form
from specsim.evidence.law import FloatArray, IntArray
from specsim.evidence.lossless import chain_emitted_law
from specsim.properties.lossless_cases import LosslessCase
from specsim.properties.lossless_evidence import CLEAR
from specsim.properties.lossless_runs import CaseResult, Stray

# Tables with more numbers are not written out in a program.
_LONGEST_TABLES = 150
_ROUNDING = 1e-6
# Sequences that a program prints, those furthest from their law.
_SHOWN = 16


def deviation(result: CaseResult) -> str:
    """Say which token came too often after which tokens, given what `p` says."""
    if result.stray is not None:
        return _stray_text(result.stray)
    case, counts = result.case, result.tokens.counts
    best, text = -math.inf, ""
    for j, table in enumerate(case.target):
        seen = counts.sum(axis=tuple(range(j + 1, case.gamma + 1)))
        score, where = _most_excessive(seen, table)
        if score <= best:
            continue
        best = score
        *prefix, token = where
        total = int(seen[tuple(prefix)].sum())
        after = (
            f"after {_listed(tuple(prefix))} came {token}"
            if prefix
            else f"the first token was {token}"
        )
        text = (
            f"{after} in {seen[where] / total:.1%} of {total:,} requests; p gives "
            f"{table[where]:.1%}"
        )
    return text


def bonus_remark(result: CaseResult) -> str | None:
    """Say which bonus came too often after how many accepted tokens, by the chain rule's law."""
    case = result.case
    if result.accepted is None or case.ragged or result.stray is not None:
        return None
    law = np.stack(
        [
            part.reshape(-1, case.size).sum(axis=0)
            for part in chain_emitted_law(case.draft, case.target)
        ]
    )
    sums = law.sum(axis=1, keepdims=True)
    # A number of accepted tokens that never occurs has no bonus to speak of; and rounding may give
    # a bonus that the exact law doesn't.
    given = np.divide(law, sums, out=np.ones_like(law), where=sums > 0.0)
    score, (accepted, bonus) = _most_excessive(result.bonuses, np.maximum(given, _ROUNDING))
    if score < CLEAR:
        return None
    total = int(result.bonuses[accepted].sum())
    which = "all drafts" if accepted == case.gamma else f"exactly {accepted}"
    return (
        f"with {which} accepted the bonus was {bonus} in "
        f"{result.bonuses[accepted, bonus] / total:.1%} of {total:,} requests; the chain rule "
        f"gives {given[accepted, bonus]:.1%}"
    )


def accepted_text(result: CaseResult) -> str:
    """Compare the shares of the numbers accepted with the chain rule's."""
    assert result.accepted is not None
    counts = result.accepted.test.counts
    shares = counts / max(int(counts.sum()), 1)
    return f"accepted {_shares(shares)}; p and q imply {_shares(result.case.accepted_law)}"


def program(
    result: CaseResult, target: AcceptTarget, import_line: str, seed: int, *, calls: int
) -> str:
    """Return a complete program that calls the rule on a case and prints what came of it.

    Parameters
    ----------
    result
        Of the case to show.
    target
        The rule.
    import_line
        Makes its name known.
    seed
        Seeds the program's draws.
    calls
        Batches to run; with 1, what the rule returns is printed instead of being counted.
    """
    case = result.case
    made = _tables(case, seed)
    generator = (
        f"generator = torch.Generator().manual_seed({seed})"
        if target.takes_generator
        else f"torch.manual_seed({seed})"
    )
    lines = [
        "import random",
        "from collections import Counter",
        "from itertools import product",
        "",
        "import torch",
        "",
        *made[0],
        import_line,
        "",
        *made[1],
        f"size, gamma, bs = {case.size}, {case.gamma}, {max(case.batches)}",
        f"source = random.Random({seed})",
        generator,
        "",
        "",
        "def law(tables, prefix):",
        "    table = tables[len(prefix)]",
        "    for token in prefix:",
        "        table = table[token]",
        "    return table",
        "",
        "",
        "def drawn(tables, tokens, length):",
        "    tokens = list(tokens)",
        "    while len(tokens) < length:",
        "        tokens += source.choices(range(size), law(tables, tokens))",
        "    return tokens",
        "",
        "",
        "def rows(tables, tokens, length):",
        "    return [law(tables, tokens[:j]) for j in range(length)]",
        "",
        "",
        *_loop(case, target, result.form, calls),
    ]
    return "\n".join([*lines, ""])


def _loop(case: LosslessCase, target: AcceptTarget, form: Form, calls: int) -> list[str]:
    """Return the lines that call the rule and print what came."""
    lens = (
        "[source.randint(1, gamma + 1) for _ in range(bs)]" if case.ragged else "[gamma + 1] * bs"
    )
    call = target.call_repr(ragged=case.ragged)
    prepare = [
        "    drafts = [drawn(q, [], gamma) for _ in range(bs)]",
        "    draft_tokens = torch.tensor(drafts)",
        "    draft_probs = torch.tensor([rows(q, tokens, gamma) for tokens in drafts])",
        "    target_probs = torch.tensor([rows(p, tokens, gamma + 1) for tokens in drafts])",
        *([f"    verify_lens = torch.tensor({lens})"] if "verify_lens" in call else []),
    ]
    if calls == 1:
        return [line[4:] for line in prepare] + [f"print({call})"]
    taken = {
        "pair": [f"    correct_len, bonus = {call}"],
        "attributes": [f"    result = {call}",
                       "    correct_len, bonus = result.correct_len, result.bonus"],
        "mapping": [f"    result = {call}",
                    '    correct_len, bonus = result["correct_len"], result["bonus"]'],
    }[form]  # fmt: skip
    implied = ", ".join(f"{share:.6g}" for share in case.accepted_law)
    return [
        "seen, accepted, again, before = Counter(), Counter(), 0, None",
        f"for _ in range({calls}):",
        *prepare,
        *taken,
        "    for tokens, k, token in zip(drafts, correct_len.tolist(), bonus.tolist()):",
        "        # What is emitted, completed from p to gamma + 1 tokens.",
        "        emitted = tuple(drawn(p, [*tokens[:k], token], gamma + 1))",
        "        seen[emitted] += 1",
        "        accepted[k] += 1",
        "        again += emitted == before",
        "        before = emitted",
        f"requests = {calls} * bs",
        "found, same = [], 0.0",
        "for tokens in product(range(size), repeat=gamma + 1):",
        "    expected = 1.0",
        "    for j, token in enumerate(tokens):",
        "        expected *= law(p, tokens[:j])[token]",
        "    same += expected**2",
        "    found.append((tokens, seen[tokens] / requests, expected))",
        "found.sort(key=lambda entry: -abs(entry[1] - entry[2]))",
        f"for tokens, share, expected in found[:{_SHOWN}]:",
        '    print(tokens, f"seen {share:.4f}, p gives {expected:.4f}")',
        'print(f"the same as the request before: {again / requests:.4f}; independent {same:.4f}")',
        f"for k, expected in enumerate([{implied}]):",
        '    print(f"accepted {k}: {accepted[k] / requests:.4f}; the chain rule {expected:.4f}")',
    ]


def _tables(case: LosslessCase, seed: int) -> tuple[list[str], list[str]]:
    """Return the import and the lines that define q and p."""
    written = sum(table.size for model in (case.draft, case.target) for table in model)
    lines = ["# q[j] and p[j] give the law of token j after each j tokens before it."]
    if written <= _LONGEST_TABLES:
        for name, model in (("q", case.draft), ("p", case.target)):
            lines.append(f"{name} = {[_rounded(table) for table in model]!r}")
        return [], lines
    return (
        ["from specsim.properties.lossless_cases import lossless_cases"],
        [
            f'cases = {{case.name: case for case in lossless_cases("thorough", {seed})}}',
            f"case = cases[{case.name!r}]",
            *lines,
            "q = [table.tolist() for table in case.draft]",
            "p = [table.tolist() for table in case.target]",
        ],
    )


def _rounded(table: FloatArray) -> object:
    """Return a table as nested lists of numbers that read well."""
    return np.vectorize(lambda number: float(f"{number:.9g}"))(table).tolist()


def _stray_text(stray: Stray) -> str:
    what = "accepted the draft token" if stray.accepted else "gave the bonus"
    after = f" after {_listed(stray.prefix)}" if stray.prefix else " as the first token"
    return f"{what} {stray.token}{after}, to which p gives probability 0"


def _most_excessive(seen: IntArray, law: FloatArray) -> tuple[float, tuple[int, ...]]:
    """Return where a token came too often given its prefix, and how many nats that is.

    Parameters
    ----------
    seen : ndarray, shape (..., V), int64
    law : ndarray, shape (..., V)
        Probabilities given the prefix.
    """
    totals = seen.sum(axis=-1, keepdims=True)
    share = seen / np.maximum(totals, 1)
    # Rounding may leave a probability a little above 1.
    per_draw = rel_entr(share, law) + rel_entr(1.0 - share, np.maximum(1.0 - law, 0.0))
    nats = np.multiply(totals, per_draw, out=np.zeros(seen.shape), where=totals > 0)
    excess = np.where(share > law, nats, -math.inf)
    where = np.unravel_index(int(np.argmax(excess)), excess.shape)
    return float(excess[where]), tuple(int(k) for k in where)


def _listed(tokens: tuple[int, ...]) -> str:
    noun = "token" if len(tokens) == 1 else "tokens"
    return f"{noun} {', '.join(map(str, tokens))}"


def _shares(shares: FloatArray) -> str:
    return ", ".join(f"{k}: {share:.1%}" for k, share in enumerate(shares))
