"""Print any text safely on any terminal."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ERRORS = "tfrecord.plain"
# Replacements for our own characters that the encoding lacks.
_PLAIN = {
    "…": "...",
    "«": "<<",
    "»": ">>",
    "·": "-",
    "×": "x",
    **dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True)),
}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """What to write instead of characters that the encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or escaped(c) for c in missing), error.end


codecs.register_error(_ERRORS, _plainly)


@contextmanager
def any_text() -> Iterator[None]:
    """While the block runs, standard output and standard error take any text, in any locale."""
    before = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif hasattr(stream, "reconfigure"):
            before.append((stream, stream.errors))
            stream.reconfigure(errors=_ERRORS)
    try:
        yield
    finally:
        for stream, errors in before:
            stream.reconfigure(errors=errors)


def escaped(character: str) -> str:
    """A character as Python escapes it in a string."""
    return character.encode("unicode_escape").decode()


def safe(text: str, keep: str = "") -> str:
    """The text with every character escaped that could control a terminal, change the text direction or be
    invisible: all that Unicode calls control, format, surrogate, private use, unassigned or separator, except
    the space and the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else escaped(c) for c in text)


def shown(text: str) -> str:
    """The text as standard output can show it: characters that its encoding lacks are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, _ERRORS).decode(encoding)


def say(text: str, *, err: bool = False) -> None:
    """One line of text on standard output, or on standard error; made safe to print."""
    print(safe(text), file=sys.stderr if err else sys.stdout, flush=True)


def complain(text: str) -> None:
    """Print an error or a warning on standard error."""
    say(f"tfrecord: {text}", err=True)
