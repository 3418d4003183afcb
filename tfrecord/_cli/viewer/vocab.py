"""Vocabularies: the texts of token ids."""

from __future__ import annotations

import json
import os
import re
from typing import Any

_MOST_BYTES = 256 << 20
_IDS = re.compile(r"(?i)(?:^|[^a-z])(?:ids?|tokens?|inputs?|targets?|words?|text)(?:$|[^a-z])")
_OTHER = re.compile(r"(?i)type|segment|position|mask(?!ed)|length|len$")


def _byte_alphabet() -> dict[str, int]:
    """The characters by which byte-level tokenizers (GPT-2 and later) write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(rest)}


class Vocabulary:
    """The tokens by id; ``feature`` is the only feature that they are for, None for every one whose name and
    values fit.

    Tokens are read as WordPiece (``##ing``), SentencePiece (``▁the``) or byte-level (``Ġthe``) tokens.
    """

    def __init__(self, tokens: dict[int, str], feature: str | None = None) -> None:
        self.tokens = tokens
        self.feature = feature
        self._bytes = _byte_alphabet() if any(token[:1] == "Ġ" for token in tokens.values()) else None

    def speaks_of(self, name: str, values: Any) -> bool:
        """Whether these numbers of a feature are shown as tokens."""
        if self.feature is not None:
            return name == self.feature
        fits = _IDS.search(name) and not _OTHER.search(name.replace("token_type", "type"))
        return bool(fits) and len(values) > 1 and int(values.min()) >= 0 and int(values.max()) in self.tokens

    def text(self, number: int) -> str:
        """The text of one token, with the space before it."""
        token = self.tokens.get(number)
        if token is None:
            return f"<{number}>"
        if self._bytes is not None:
            found = [self._bytes.get(c) for c in token]
            if None not in found:
                return bytes(b for b in found if b is not None).decode("utf-8", "replace")
        return token.replace("▁", " ").removeprefix("##")


def read_vocabulary(given: str) -> Vocabulary:
    """A vocabulary from ``FILE`` or ``FEATURE=FILE``: a text file with one token a line, or the
    ``tokenizer.json`` of Hugging Face. Raises OSError, or ValueError for another JSON file."""
    feature, mark, path = given.partition("=")
    if not mark or os.path.exists(given):
        feature, mark, path = "", "", given
    with open(path, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{path} is too large for a vocabulary")
    text = data.decode("utf-8", "replace")
    try:
        tokens = _of_json(json.loads(text)) if text.lstrip()[:1] == "{" else None
    except (ValueError, RecursionError, TypeError, KeyError, IndexError):
        if path.endswith(".json"):
            raise ValueError(f"{path} is not a tokenizer.json: it has no model.vocab") from None
        tokens = None
    if tokens is None:
        lines = text.removesuffix("\n").split("\n")
        tokens = {number: line.removesuffix("\r") for number, line in enumerate(lines)}
    return Vocabulary(tokens, feature if mark else None)


def _of_json(found: Any) -> dict[int, str]:
    """The vocabulary of a tokenizer: an object of ids by token, or a list of tokens with scores."""
    vocab = found["model"]["vocab"]
    if isinstance(vocab, dict):
        tokens = {int(number): str(token) for token, number in vocab.items()}
    else:
        tokens = {number: str(entry[0]) for number, entry in enumerate(vocab)}
    return tokens | {int(one["id"]): str(one["content"]) for one in found.get("added_tokens") or ()}
