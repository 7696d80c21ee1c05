"""safe_fixed_token on tokenizers with incomplete characters, special tokens and gaps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from specsim.verify.tokens import safe_fixed_token, token_to_fix

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class ByteTokenizer:
    """Ids that stand for bytes; decodes like a byte-level BPE, bad UTF-8 replaced."""

    def __init__(self, pieces: list[bytes | None]) -> None:
        self.pieces = pieces

    def __len__(self) -> int:
        return len(self.pieces)

    def decode(self, ids: list[int]) -> str:
        found = [self.pieces[token] for token in ids]
        if None in found:
            raise KeyError(f"no token {ids}")
        return b"".join(piece for piece in found if piece).decode("utf-8", errors="replace")


SKIPPED: list[bytes | None] = [
    None,
    b"",
    b" ",
    b"\n",
    b"\x00",
    b"\xc3",
    b"\xa9",
    b"a\xe2\x82",
    b"<pad>",
    b"<|end|>",
    b"[MASK]",
    "\u200b".encode(),
]


@given(
    skipped=st.lists(st.sampled_from(SKIPPED), max_size=30),
    after=st.lists(st.sampled_from([*SKIPPED, b"x", b"!", "é".encode()]), max_size=5),
    word=st.sampled_from([b"a", b" the", b"Zebra"]),
)
def test_the_first_word_is_taken(
    skipped: list[bytes | None], after: list[bytes | None], word: bytes
) -> None:
    assert safe_fixed_token(ByteTokenizer([*skipped, word, *after])) == len(skipped)


@pytest.mark.parametrize("text", ["!", "é", "的", "<", "[", "1", "a-b", " ⁇ "])
def test_any_printable_token_does_where_there_is_no_word(text: str) -> None:
    assert safe_fixed_token(ByteTokenizer([*SKIPPED, text.encode(), b"?"])) == len(SKIPPED)
    assert safe_fixed_token(ByteTokenizer([text.encode(), *SKIPPED, b"word"])) == len(SKIPPED) + 1


def test_nothing_printable() -> None:
    with pytest.raises(ValueError, match="got none among 12 ids"):
        safe_fixed_token(ByteTokenizer(SKIPPED))


def test_a_token_that_only_shows_alone_is_not_taken() -> None:
    """Such a pair would look as if decoding hung after the first token."""

    class Joining(ByteTokenizer):
        def decode(self, ids: list[int]) -> str:
            return REPLACEMENT if len(ids) > 1 and 0 in ids else super().decode(ids)

    assert safe_fixed_token(Joining([b"a", b"b"])) == 1


@pytest.mark.parametrize(
    "listed",
    [
        {"all_special_ids": [0]},
        {"get_added_tokens_decoder": lambda: {0: SimpleNamespace(special=True)}},
        {"added_tokens_decoder": {0: SimpleNamespace(special=True)}},
        {"special_tokens_set": {"PAD"}},
    ],
)
def test_a_special_token_of_letters_is_not_taken(listed: dict[str, Any]) -> None:
    tokenizer = ByteTokenizer([b"PAD", b"b"])
    assert safe_fixed_token(tokenizer) == 0
    for name, value in listed.items():
        setattr(tokenizer, name, value)
    assert safe_fixed_token(tokenizer) == 1


def test_an_added_token_that_is_not_special_may_be_taken() -> None:
    tokenizer = ByteTokenizer([b"word", b"b"])
    tokenizer.added_tokens_decoder = {0: SimpleNamespace(special=False)}  # type: ignore[attr-defined]
    assert safe_fixed_token(tokenizer) == 0


def test_special_tokens_that_decode_skips_on_demand() -> None:
    class Skipping(ByteTokenizer):
        def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
            return super().decode([i for i in ids if not (skip_special_tokens and i == 0)])

    assert safe_fixed_token(Skipping([b"EOS", b"b"])) == 1


@pytest.mark.parametrize(
    "size", [{"vocab_size": 3}, {"vocab_size": lambda: 3}, {"get_vocab_size": lambda: 3}]
)
def test_ways_to_tell_the_number_of_ids(size: dict[str, Any]) -> None:
    words = [" ", "!", "b", "c"]
    tokenizer = SimpleNamespace(decode=lambda ids: "".join(words[i] for i in ids), **size)
    assert safe_fixed_token(tokenizer) == 2


def test_ids_beyond_the_number_are_not_tried() -> None:
    words = [" ", "!", "b"]
    tokenizer = SimpleNamespace(decode=lambda ids: "".join(words[i] for i in ids), vocab_size=2)
    assert safe_fixed_token(tokenizer) == 1


def test_objects_that_are_no_tokenizers() -> None:
    with pytest.raises(TypeError, match="tokenizer must have a decode method, got None"):
        safe_fixed_token(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tokenizer must tell its number of ids"):
        safe_fixed_token(SimpleNamespace(decode=lambda ids: "a"))


TEXT = ["naïve café 的确 是 这样 的 🙂🙂 ok", "的的的 是是是 ééé 🙂 word word words"]


@pytest.mark.parametrize("vocabulary", [300, 340])
def test_a_byte_level_bpe(vocabulary: int) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["PAD", "<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    assert tokenizer.decode([0], skip_special_tokens=False) == "PAD"
    incomplete = [
        i for i in range(tokenizer.get_vocab_size()) if REPLACEMENT in tokenizer.decode([i])
    ]
    assert len(incomplete) >= 100
    token = safe_fixed_token(tokenizer)
    assert token not in incomplete
    assert token > 1
    assert tokenizer.decode([token] * 3).strip().isalpha()


def test_a_byte_level_bpe_of_bytes_beyond_ascii() -> None:
    """Its only printable id is the one that joins two bytes into a character."""
    pieces = {"<s>": 0, "Ã": 1, "©": 2, "ð": 3, "Ã©": 4}
    tokenizer = Tokenizer(models.BPE(pieces, [("Ã", "©")]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    assert tokenizer.decode([1]) == REPLACEMENT
    assert safe_fixed_token(tokenizer) == 4
    assert tokenizer.decode([4]) == "é"


@pytest.mark.parametrize(
    ("mode", "token", "expected"),
    [
        ("real-draft-token", None, None),
        ("real-draft-token", 5, None),
        ("fixed", 5, 5),
        ("fixed", 0, 0),
    ],
)
def test_token_modes(mode: str, token: int | None, expected: int | None) -> None:
    assert token_to_fix(mode, token) == expected


@pytest.mark.parametrize(
    ("mode", "token", "error", "text"),
    [
        ("fixed", None, ValueError, "fixed_token_id must be a token id when mode is 'fixed'"),
        ("fixed", -1, ValueError, "fixed_token_id must be an integer >= 0, got -1"),
        ("fixed", 1.5, TypeError, "fixed_token_id must be an integer, got 1.5"),
        ("other", 1, ValueError, "mode must be one of 'real-draft-token', 'fixed', got 'other'"),
    ],
)
def test_wrong_token_modes(mode: str, token: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        token_to_fix(mode, token, "mode")
