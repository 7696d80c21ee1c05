"""Batches that executors are made to commit: a few known ones, and a strategy for others."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from specsim.adapters.finalizing import Batch, Offer, Request
from specsim.properties.exploration import acceptance_lengths
from specsim.properties.finalize_model import Case
from specsim.targets import Configuration

OFF_LENGTHS = (0.0, -1.0)
_DTYPES = ("int64", "int32")
_GAMMA = 7
# Of the batches of a known case. An executor that keeps tokens shows it where a batch is as large
# as the one before, so that its tensors fit; one above 512 needs another buffer.
_SIZES = (5, 5, 3, 1, 0, 8, 600, 5)
_IDS_EACH = 100
_FIXED_IDS = (0, 31_999)
_MOST_REQUESTS = 4
_IDS = 4
# Around and above the capacity that buffers have at least.
_LARGE = st.integers(510, 640)


def distinct_requests(
    gamma: int,
    count: int,
    first_id: int,
    verify_lens: Sequence[int] = (),
    caps: Sequence[int] = (),
) -> tuple[Request, ...]:
    """Return requests whose ids differ at every position, but for what the target would accept.

    Request k accepts k mod (gamma + 1) draft tokens. Limits are given to the requests in turn.
    """
    requests = []
    for number in range(count):
        base = first_id + number * _IDS_EACH
        accepted = number % (gamma + 1)
        drafts = tuple(range(base, base + gamma))
        others = range(base + _IDS_EACH // 2, base + _IDS_EACH // 2 + gamma + 1)
        requests.append(
            Request(
                drafts,
                (*drafts[:accepted], *others[accepted:]),
                prefix_len=base % 977 + number,
                verify_len=verify_lens[number % len(verify_lens)] if verify_lens else None,
                cap=caps[number % len(caps)] if caps else None,
            )
        )
    return tuple(requests)


def known_cases(methods: Sequence[str], offer: Offer) -> list[Case]:
    """Return what every executor is tried with.

    Every batch of a case has other tokens than the one before, so that stale ones show.
    """
    first = methods[0]
    cases = [
        Case(Configuration(length, method, gamma + 1), _batches(gamma, offer, number))
        for number, (length, method, gamma) in enumerate(
            [
                *((4.7, method, _GAMMA) for method in methods),
                *((length, first, _GAMMA) for length in (1.0, 3.0, 5.0, 8.0, 11.5)),
                (1.5, first, 1),
                (1.0, first, 0),
                *((length, first, _GAMMA) for length in OFF_LENGTHS),
                (0.0, first, 0),
            ]
        )
    ]
    if offer.fixed:
        configuration = Configuration(4.7, first, _GAMMA + 1)
        cases += [
            Case(configuration, _batches(_GAMMA, offer, number), token)
            for number, token in enumerate(_FIXED_IDS)
        ]
    return cases


def _batches(gamma: int, offer: Offer, number: int) -> tuple[Batch, ...]:
    top = gamma + 1
    tight, ragged = [1, top, 2, 5, 3], [2, 1, top, top + 1, top + 4, 4]
    given: list[tuple[str, ...]] = [()]
    given += [(name,) for name in offer.limits]
    if len(offer.limits) > 1:
        given.append(offer.limits)
    batches = []
    for k in range(number, number + 2 * len(_SIZES)):
        bs = at_most(_SIZES[k % len(_SIZES)], offer)
        limits = given[(k + k // len(_SIZES)) % len(given)]
        pattern = distinct_requests(
            gamma,
            min(bs, 11),
            1_000 + 10 * k,
            [min(limit, top) for limit in tight] if "verify_lens" in limits else (),
            ragged if "caps" in limits else (),
        )
        dtypes = _DTYPES[(number + k // 2) % 2], _DTYPES[(number + k // 3) % 2]
        batches.append(Batch(gamma, bs, pattern, *dtypes))
    return tuple(batches)


@st.composite
def cases(draw: DrawFn, methods: Sequence[str], offer: Offer) -> Case:
    """Return a strategy for executors and their steps, with few token ids, so that many agree."""
    gamma = draw(st.integers(0, 8))
    forced = acceptance_lengths(gamma + 1, forced=True)
    is_off = draw(st.integers(0, 3)) == 3
    acc_len = draw(st.sampled_from(OFF_LENGTHS) if is_off else forced)
    configuration = Configuration(acc_len, draw(st.sampled_from(methods)), gamma + 1)
    token = None
    if offer.fixed and not is_off and draw(st.integers(0, 3)) == 3:
        token = draw(st.integers(0, 200_000))
    batches = draw(st.lists(_batches_of(gamma, offer), min_size=1, max_size=3))
    return Case(configuration, tuple(batches), token)


@st.composite
def _batches_of(draw: DrawFn, gamma: int, offer: Offer) -> Batch:
    sizes = st.one_of(st.integers(0, 2), st.integers(0, 6), st.integers(3, 8), _LARGE)
    bs = at_most(draw(sizes), offer)
    count = min(draw(st.integers(1, _MOST_REQUESTS)), bs)
    limits = [name for name in offer.limits if draw(st.booleans())]
    requests = st.builds(
        Request,
        _tokens(gamma),
        _tokens(gamma + 1),
        st.integers(0, 1_000_000),
        st.integers(1, gamma + 1) if "verify_lens" in limits else st.none(),
        st.integers(1, gamma + 4) if "caps" in limits else st.none(),
    )
    pattern = tuple(draw(requests) for _ in range(count))
    dtypes = st.sampled_from(_DTYPES)
    return Batch(gamma, bs, pattern, draw(dtypes), draw(dtypes))


def at_most(bs: int, offer: Offer) -> int:
    """Return a batch size that the executor's steps have slots for."""
    return bs if offer.most is None else min(bs, offer.most)


def _tokens(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Return a strategy for token ids below `_IDS`: one number's digits, as that is one choice."""
    numbers = st.integers(0, _IDS**count - 1)
    return numbers.map(lambda number: tuple(number // _IDS**k % _IDS for k in range(count))[::-1])
