"""Errors on their way from a server to a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer import errors

__all__ = ["decode_error", "encode_error"]

# gRPC limits the trailers of an answer, in which an error stands, to 8 KiB.
_MOST_TEXT = 1500
_PLACED = (errors.CorruptRecordError, errors.CompressionError)
_LOCATED = (errors.DecodeError, errors.MissingFeatureError, errors.FeatureKindError)
_INDEX = (errors.IndexFileError,)
_REQUESTS: dict[str, type[Exception]] = {
    found.__name__: found for found in (ValueError, TypeError, KeyError, IndexError)
}
_CLASSES = {
    found.__name__: found
    for found in (
        errors.ChecksumError,
        errors.CompressionError,
        errors.CorruptRecordError,
        errors.DecodeError,
        errors.FeatureKindError,
        errors.IndexFileError,
        errors.MissingFeatureError,
        errors.StaleIndexError,
        errors.TruncatedRecordError,
    )
}


def encode_error(error: Exception, names: Mapping[str, str]) -> dict[str, Any] | None:
    """An error as a map; None for one that is nobody's business but the server's.

    ``names``: the paths of the data set's files, each with its name within the data set. No other path gets
    out: errors name a file only in their ``path``, their reason may repeat it.
    """
    kind = type(error).__name__
    if kind in _REQUESTS:
        text = str(error.args[0]) if kind == "KeyError" and error.args else str(error)
        return {"type": kind, "reason": _clean(text, names)}
    if kind not in _CLASSES:
        return None
    found: dict[str, Any] = {"type": kind}
    path = getattr(error, "path", None)
    if path is not None:
        found["file"] = names.get(path, "")
    for key in ("record", "offset", "key", "reason", "detail", "hint"):
        value = getattr(error, key, None)
        if value not in (None, ""):
            found[key] = _clean(value, names) if isinstance(value, str) else int(value)
    return found


def _clean(text: str, names: Mapping[str, str]) -> str:
    if "/" in text:
        for path, name in names.items():
            text = text.replace(path, name)
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "..."


def decode_error(found: Mapping[str, Any], base: str) -> Exception:
    """The error that `encode_error` described; ``base`` is what goes before the file's name."""
    kind, reason = str(found.get("type")), str(found.get("reason", ""))
    if kind in _REQUESTS:
        return _REQUESTS[kind](reason)
    file = found.get("file")
    path = f"{base}/{file}" if file else base
    cls: Any = _CLASSES.get(kind)
    record, offset = (_count(found.get(key)) for key in ("record", "offset"))
    if cls is None:
        return errors.RemoteError(base, reason or kind)
    if issubclass(cls, _INDEX):
        return cls(path, None, reason)  # type: ignore[no-any-return]
    if issubclass(cls, _PLACED):
        detail, hint = str(found.get("detail", "")), str(found.get("hint", ""))
        return cls(path, record, offset, reason, detail, hint)  # type: ignore[no-any-return]
    key = found.get("key")
    return cls(reason, key=key, path=path if file else None, record=record, offset=offset)  # type: ignore[no-any-return]


def _count(value: Any) -> int | None:
    return None if value is None else int(value)
