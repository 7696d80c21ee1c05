"""Which tokens a forced acceptance length commits, and a fixed token that can be printed."""

from __future__ import annotations

from typing import Any, Literal, Protocol, SupportsIndex, TypeAlias

from specsim.arguments import integer

TokenMode: TypeAlias = Literal["real-draft-token", "fixed"]
TOKEN_MODES: tuple[TokenMode, ...] = ("real-draft-token", "fixed")

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def token_to_fix(
    token_mode: str, fixed_token_id: SupportsIndex | None, name: str = "token_mode"
) -> int | None:
    """Return the id that every committed token becomes, None in real-draft-token mode.

    Parameters
    ----------
    token_mode
        ``"real-draft-token"`` or ``"fixed"``.
    fixed_token_id
        Required in fixed mode, and ignored otherwise.
    name
        What the caller calls `token_mode`, for the error.

    Raises
    ------
    ValueError
        If the mode is unknown, or `fixed_token_id` is missing or negative in fixed mode.
    TypeError
        If `fixed_token_id` is not an integer in fixed mode.
    """
    if token_mode not in TOKEN_MODES:
        known = ", ".join(repr(mode) for mode in TOKEN_MODES)
        raise ValueError(f"{name} must be one of {known}, got {token_mode!r}")
    if token_mode == "real-draft-token":
        return None
    if fixed_token_id is None:
        raise ValueError(f"fixed_token_id must be a token id when {name} is 'fixed', got None")
    return integer(fixed_token_id, "fixed_token_id", 0)


class Tokenizer(Protocol):
    """Anything that turns token ids into text."""

    def decode(self, ids: list[int], /) -> str:
        """Return the text of a list of token ids."""


def safe_fixed_token(tokenizer: Tokenizer) -> int:
    """Return a token id that decodes to printable text on its own.

    It is the lowest id of ASCII letters, white space around them allowed; without any, the
    lowest printable one. It never decodes to an incomplete character, alone or repeated (a
    detokenizer that waits for the rest of a character emits nothing), nor is it a special token.

    Parameters
    ----------
    tokenizer
        Any object with ``decode(ids)``, and with its number of ids as ``len()``, ``vocab_size``
        or ``get_vocab_size()`` (attribute or method): those of the ``tokenizers`` and
        ``transformers`` packages are such objects.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        If `tokenizer` has no ``decode`` or does not tell its number of ids.
    ValueError
        If no id qualifies.

    Notes
    -----
    A token is taken as special if the tokenizer lists it as such (``all_special_ids``,
    ``get_added_tokens_decoder()`` or ``added_tokens_decoder``, ``special_tokens_set``), if
    ``decode(ids, skip_special_tokens=True)`` drops it, or if its text is markup such as
    ``<pad>`` or ``[MASK]``.
    """
    if not callable(getattr(tokenizer, "decode", None)):
        raise TypeError(f"tokenizer must have a decode method, got {tokenizer!r}")
    count = _number_of_ids(tokenizer)
    special_ids, special_texts = _special_tokens(tokenizer)
    fallback = None
    for token in range(count):
        if token in special_ids:
            continue
        text = _decoded(tokenizer, [token])
        if not _is_readable(text) or text in special_texts:
            continue
        # Some byte-level tokens only complete a character: twice the token shows it.
        if not _is_readable(_decoded(tokenizer, [token, token])):
            continue
        word = text.strip()
        if word.isascii() and word.isalpha():
            return token
        if fallback is None:
            fallback = token
    if fallback is None:
        raise ValueError(
            "tokenizer must have an id that decodes to printable text on its own, got none "
            f"among {count} ids"
        )
    return fallback


def _is_readable(text: str) -> bool:
    """Whether text shows on its own, is complete, and is no markup such as ``<pad>``."""
    word = text.strip()
    is_markup = word[:1] + word[-1:] in ("<>", "[]") and len(word) > 2
    return bool(word) and word.isprintable() and _REPLACEMENT not in text and not is_markup


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    """Return the text of ids, special tokens left out where that can be asked for."""
    try:
        try:
            text = tokenizer.decode(ids, skip_special_tokens=True)
        except TypeError:
            text = tokenizer.decode(ids)
    except (LookupError, ValueError, OverflowError):
        # An id in a gap of the vocabulary.
        return ""
    return text if isinstance(text, str) else ""


def _number_of_ids(tokenizer: Any) -> int:
    if hasattr(tokenizer, "__len__"):
        return len(tokenizer)
    for name in ("vocab_size", "get_vocab_size"):
        size = getattr(tokenizer, name, None)
        if size is not None:
            return integer(size() if callable(size) else size, f"tokenizer.{name}", 0)
    raise TypeError(
        "tokenizer must tell its number of ids by len(), vocab_size or get_vocab_size(), got "
        f"{tokenizer!r}"
    )


def _special_tokens(tokenizer: Any) -> tuple[set[int], set[str]]:
    """Return the ids and the texts that the tokenizer itself calls special."""
    ids = set(getattr(tokenizer, "all_special_ids", ()))
    added = getattr(tokenizer, "get_added_tokens_decoder", None)
    decoder = added() if callable(added) else getattr(tokenizer, "added_tokens_decoder", {})
    ids.update(token for token, entry in decoder.items() if getattr(entry, "special", False))
    return ids, set(getattr(tokenizer, "special_tokens_set", ()))
