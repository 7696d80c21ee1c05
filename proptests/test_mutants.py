"""The faulty samplers are what they say they are, and the correct ones are correct.

That the catalogue rejects each mutant is tested beside the catalogue.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from specsim.acceptance import AcceptanceDistribution
from specsim.mutants import PROPERTY_IDS, Correct, Mutant, all_correct, all_mutants
from specsim.mutants.base import UniformSampler
from specsim.mutants.registry import Law, Sampler, correct, mutant

# Of each comparison of a sampler with a law. The tests of single cells are exact binomial ones,
# each at this rate divided by the number of cells, so the rate holds whatever the counts are.
ALPHA = 1e-6
DRAWS = 3_000
# Both methods, both ends and beyond them, integers, and a fraction that one decimal spoils.
LENGTHS = ((4.7, 8), (1.2, 8), (2.25, 16), (7.6, 8), (3.0, 4), (-1.0, 4), (1.5, 2))
CONFIGURATIONS = [
    (acc_len, method, max_len)
    for method in ("match-expected", "multinomial")
    for acc_len, max_len in LENGTHS
]
WITH_LAW = [entry for entry in all_mutants() if entry.law is not None]


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (Mutant, Correct)) else None


def misfit(
    sampler: Sampler,
    law: AcceptanceDistribution,
    configuration: tuple[float, str, int],
    draws: int = DRAWS,
) -> str | None:
    """Return what speaks against `law`; by chance something does with probability ALPHA."""
    counts = Counter(sampler(*configuration) for _ in range(draws))
    lengths = range(1, law.max_len + 1)
    if stray := set(counts) - set(lengths):
        return f"out of range: {stray}"
    for length, probability in zip(lengths, law.pmf.tolist(), strict=True):
        p_value = binomtest(counts[length], draws, min(probability, 1.0)).pvalue
        if p_value < ALPHA / law.max_len:
            return f"{counts[length]} of {draws} are {length}, expected {draws * probability:.1f}"
    return None


@pytest.mark.parametrize("entry", WITH_LAW, ids=name_of)
def test_draws_have_the_stated_law(entry: Mutant) -> None:
    # 14 configurations: a false alarm at a rate of at most 1.4e-5 for each mutant.
    assert entry.law is not None
    sampler = entry.factory(7)
    for configuration in CONFIGURATIONS:
        assert misfit(sampler, entry.law(*configuration), configuration) is None


@pytest.mark.parametrize("entry", all_correct(), ids=name_of)
def test_correct_samplers_have_the_configured_law(entry: Correct) -> None:
    # A false alarm at a rate of at most 1.4e-5 for each sampler with a perfect generator.
    sampler = entry.factory(7)
    for configuration in CONFIGURATIONS:
        law = AcceptanceDistribution.from_method(*configuration)
        assert misfit(sampler, law, configuration) is None


@pytest.mark.parametrize("entry", WITH_LAW, ids=name_of)
def test_a_law_that_the_draws_do_not_have_is_noticed(entry: Mutant) -> None:
    """The twin of the test above: the configured law is not the mutant's, and that shows.

    Least visible is a weight of 0.2 in place of 0.25, nine standard deviations off in 6,000
    draws where six suffice: missed with a probability below 0.002.
    """
    law = entry.law
    assert law is not None
    right = AcceptanceDistribution.from_method
    plain = max(CONFIGURATIONS, key=lambda c: law(*c).tv(right(*c)))
    assert misfit(entry.factory(7), right(*plain), plain, draws=6_000) is not None


def test_every_fault_of_law_is_visible_in_its_law() -> None:
    for entry in WITH_LAW:
        assert entry.law is not None
        distances = [
            entry.law(*configuration).tv(AcceptanceDistribution.from_method(*configuration))
            for configuration in CONFIGURATIONS
        ]
        assert max(distances) > 0.04, entry.name


def test_spreads_have_the_right_mean() -> None:
    for entry in WITH_LAW:
        if entry.name.startswith(("spread-", "constant-")):
            assert entry.law is not None
            for acc_len, method, max_len in CONFIGURATIONS:
                right = AcceptanceDistribution.from_method(acc_len, method, max_len)
                assert entry.law(acc_len, method, max_len).mean == pytest.approx(right.mean)


def test_names_and_statements() -> None:
    entries: list[Mutant | Correct] = [*all_mutants(), *all_correct()]
    names = [entry.name for entry in entries]
    assert len(names) == len(set(names))
    for entry in entries:
        assert entry.name == entry.name.lower().replace(" ", "-")
        assert entry.statement.endswith(".")
        assert entry.statement[0].isupper() or entry.statement.startswith(("torch", "specsim"))


def test_each_property_has_a_mutant() -> None:
    assert {entry.caught_by for entry in all_mutants()} == set(PROPERTY_IDS)
    assert all(entry.source for entry in all_mutants())


@pytest.mark.parametrize("entry", [*all_mutants(), *all_correct()], ids=name_of)
def test_everything_is_callable_on_ordinary_configurations(entry: Mutant | Correct) -> None:
    sampler = entry.factory(None)
    for acc_len, method, max_len in ((4.7, "match-expected", 8), (3.5, "multinomial", 8)):
        for _ in range(130):
            length = sampler(acc_len, method, max_len)
            assert isinstance(length, (int, float, torch.Tensor))
            assert 0 <= float(length) <= max_len + 1


@pytest.mark.parametrize("entry", all_correct(), ids=name_of)
def test_correct_samplers_keep_the_contract(entry: Correct) -> None:
    sampler = entry.factory(3)
    for method in ("match-expected", "multinomial"):
        assert {sampler(acc_len, method, 1) for acc_len in (-3.0, 0.5, 1.0, 4.7, 1e300)} == {1}
        assert sampler(1e300, method, 8) == 8
        assert sampler(-1e300, method, 8) == 1
        assert type(sampler(2.5, method, 4)) is int
        for wrong in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match="finite"):
                sampler(wrong, method, 8)
    for unknown in ("no-such-method", ""):
        with pytest.raises(ValueError, match="method"):
            sampler(4.7, unknown, 8)
    assert [sampler(3, "match-expected", 8) for _ in range(50)] == [3] * 50


@pytest.mark.parametrize(
    "name", ["python-generator", "numpy-generator", "inverse-cdf", "pool-of-65536"]
)
def test_a_seed_repeats_the_draws_of_samplers_with_their_own_generator(name: str) -> None:
    entry = next(entry for entry in all_correct() if entry.name == name)
    runs = [
        [sampler(4.5, "multinomial", 8) for _ in range(100)]
        for sampler in (entry.factory(1), entry.factory(1), entry.factory(2))
    ]
    assert runs[0] == runs[1] != runs[2]


def test_instances_share_no_state() -> None:
    for entry in all_mutants():
        if entry.caught_by == "S.freshness":
            alone, first, second = entry.factory(5), entry.factory(5), entry.factory(6)
            expected = [alone(4.5, "match-expected", 8) for _ in range(200)]
            drawn = []
            for _ in range(200):
                drawn.append(first(4.5, "match-expected", 8))
                second(4.7, "match-expected", 8)
            assert drawn == expected, entry.name


def lengths_of(name: str, n: int, acc_len: float = 4.5) -> list[object]:
    sampler = next(entry for entry in all_mutants() if entry.name == name).factory(11)
    return [sampler(acc_len, "match-expected", 8) for _ in range(n)]


@pytest.mark.parametrize(
    ("name", "related"),
    [
        ("draw-cached", lambda x: len(set(x)) == 1),
        ("refreshed-every-2nd-call", lambda x: x[::2] == x[1::2]),
        ("refreshed-every-40th-call", lambda x: all(x[i] == x[i - i % 40] for i in range(len(x)))),
        ("frozen-after-2000-calls", lambda x: len(set(x[2000:])) == 1 < len(set(x[:2000]))),
        ("antithetic-pairs", lambda x: all(x[i] + x[i + 1] == 9 for i in range(0, len(x), 2))),
        ("antithetic-blocks-of-64", lambda x: all(x[i] + x[i + 64] == 9 for i in range(64))),
        ("paired-at-lag-2", lambda x: x[0::4] == x[2::4] and x[1::4] == x[3::4]),
        ("pool-of-64", lambda x: x[:-64] == x[64:]),
        ("error-diffused", lambda x: all(x[i] != x[i + 1] for i in range(len(x) - 1))),
    ],
)
def test_stale_lengths_are_related_as_stated(
    name: str, related: Callable[[list[object]], bool]
) -> None:
    """A correct sampler shows none of these in 2,400 lengths, but for a chance of 2⁻⁶⁴."""
    assert related(lengths_of(name, 2_400))
    fresh = UniformSampler(11)
    assert not related([fresh(4.5, "match-expected", 8) for _ in range(2_400)])


def test_coarse_keys_mix_configurations_up() -> None:
    samplers = {entry.name: entry.factory(2) for entry in all_mutants()}
    draws = samplers["draw-cached-coarsely"]
    first = draws(4.7, "match-expected", 8)
    assert {draws(4.1, method, 8) for method in ("match-expected", "multinomial")} == {first}
    weights = samplers["weights-cached-coarsely"]
    weights(4.999, "match-expected", 8)
    # Weight 0.001 in truth: 5 comes more often than not with probability below 1e-60.
    later = Counter(weights(4.001, "match-expected", 8) for _ in range(100))
    assert later[5] > 50


def numpy_state() -> object:
    return np.random.get_state(legacy=False)["state"]["key"].tolist()


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("reseeds-random", lambda: random.getstate()),
        ("reseeds-numpy", numpy_state),
        ("reseeds-torch", lambda: torch.get_rng_state().tolist()),
        ("reseeds-random-from-entropy", lambda: random.getstate()),
        (
            "reseeds-numpy-from-entropy",
            numpy_state,
        ),
        ("reseeds-torch-from-entropy", lambda: torch.get_rng_state().tolist()),
    ],
)
def test_reseeding_is_what_it_is_called(name: str, state: Callable[[], object]) -> None:
    sampler = next(entry for entry in all_mutants() if entry.name == name).factory(1)
    states = []
    for _ in range(2):
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)
        before = state()
        sampler(4.5, "match-expected", 8)
        states.append(state())
        assert states[-1] != before
    # A constant seed gives one and the same state, entropy another one each time.
    assert (states[0] == states[1]) == (not name.endswith("entropy"))


def test_registration_refuses_what_is_known_or_unknown() -> None:
    with pytest.raises(ValueError, match="'draw-cached' a second time"):
        correct("draw-cached", statement="x.")(UniformSampler)
    with pytest.raises(ValueError, match=r"got S\.nothing"):
        mutant("new", caught_by="S.nothing", statement="x.", source="x")(UniformSampler)
    assert "new" not in {entry.name for entry in all_mutants()}


def test_misfit_notices_a_planted_fault() -> None:
    """The twin of the comparisons: one length in fifty is moved, and 3,000 draws show it.

    The chance of missing it is below 1e-6: 60 strays are expected where none are possible.
    """

    class Off(UniformSampler):
        def __call__(self, acc_len: float, method: str, max_len: int) -> int:
            return super().__call__(acc_len, method, max_len) + (self.random.random() < 0.02)

    configuration = (3.0, "match-expected", 8)
    law: Law = AcceptanceDistribution.from_method
    assert misfit(Off(1), law(*configuration), configuration) is not None
    assert misfit(UniformSampler(1), law(*configuration), configuration) is None
