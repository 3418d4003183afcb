"""All errors of the library: each says which file, which record, and where.

Records are counted from 0 within their file. An offset is where the record's frame starts; for a compressed
file, in the decompressed stream. No error ever quotes a record's bytes. All of them pickle with their
attributes, because they pass between processes.
"""

from __future__ import annotations

import shlex
from typing import Any, TypeVar

__all__ = [
    "ChecksumError",
    "CompressionError",
    "CorruptRecordError",
    "DecodeError",
    "FeatureKindError",
    "ImageError",
    "IndexFileError",
    "MissingFeatureError",
    "RemoteError",
    "StaleIndexError",
    "TFRecordError",
    "TruncatedRecordError",
    "UnsupportedCompressionError",
]

_Placed = TypeVar("_Placed", bound="_PlacedError")
_Located = TypeVar("_Located", bound="_LocatedError")

_TEXTS = {
    "truncated_header": "the file ends inside a record's header",
    "truncated_record": "the file ends inside a record",
    "bad_length_crc": "the checksum of the length does not match",
    "bad_payload_crc": "the checksum of the payload does not match",
    "record_too_long": "the record is longer than allowed",
    "index_mismatch": "there is no record of the indexed length here",
    "truncated_stream": "the compressed stream ends early",
    "bad_stream": "the compressed stream is damaged",
    "trailing_garbage": "bytes follow the end of the compressed stream",
    "unsupported_compression": "this compression is not supported",
    "bad_message": "the payload is not a valid message",
    "unreadable": "the file cannot be read",
}


def printable(text: str) -> str:
    """The text with everything escaped that UTF-8 cannot encode: a path may hold any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _rebuild(cls: type[TFRecordError], args: tuple[Any, ...], state: dict[str, Any]) -> TFRecordError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class TFRecordError(RuntimeError):
    """Root of the family."""

    def __str__(self) -> str:
        return printable(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class _PlacedError(TFRecordError):
    """A failure at a certain place in a file."""

    def __init__(
        self,
        path: str | None,
        record: int | None,
        offset: int | None,
        reason: str,
        detail: str = "",
        hint: str = "",
    ) -> None:
        self.path = path
        self.record = record
        self.offset = offset
        self.reason = reason
        self.detail = detail
        self.hint = hint
        super().__init__(self._text())

    def at(self: _Placed, record: int | None, offset: int | None) -> _Placed:
        """A copy of this error at another place in its file: the record that it made unreadable."""
        return type(self)(self.path, record, offset, self.reason, self.detail, self.hint)

    def _text(self) -> str:
        place = "" if self.path is None else f"{self.path}: "
        if self.record is not None and self.offset is not None:
            place += f"record {self.record} at offset {self.offset}: "
        elif self.record is not None:
            place += f"record {self.record}: "
        elif self.offset is not None:
            place += f"offset {self.offset}: "
        text = place + _TEXTS.get(self.reason, self.reason)
        if self.detail:
            text += f": {self.detail}"
        if self.reason in _TEXTS:
            text += f" ({self.reason})"
        return f"{text}. {self.hint}" if self.hint else text


class CorruptRecordError(_PlacedError):
    """A record's frame is damaged.

    Attributes: ``path``, ``record`` (from 0 within the file), ``offset`` (where the frame starts), ``reason``
    (``truncated_header``, ``truncated_record``, ``bad_length_crc``, ``bad_payload_crc``, ``record_too_long``
    or ``index_mismatch``), ``detail`` and ``hint`` (what the file looks like, or what to do).
    """


class TruncatedRecordError(CorruptRecordError):
    """The file ends inside a record."""


class ChecksumError(CorruptRecordError):
    """A checksum does not match."""


class RemoteError(TFRecordError, OSError):
    """A store could not be read or written: the network failed, or the answer was not valid.

    Attributes: ``url`` (without credentials) and ``reason``. ``on_error`` never skips it: the data is not
    damaged.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.reason)


class CompressionError(_PlacedError):
    """A compressed stream is damaged, truncated, or followed by other data.

    It has the attributes of `CorruptRecordError`; ``reason`` is ``truncated_stream``, ``bad_stream``,
    ``trailing_garbage`` or ``unsupported_compression``. ``record`` and ``offset`` are those of the first
    record that could not be delivered, None if no records were being read.
    """


class UnsupportedCompressionError(CompressionError, ValueError):
    """An unknown compression name: a `ValueError`, raised as soon as the option is given."""


class IndexFileError(TFRecordError):
    """An index file cannot be used: it is damaged, hostile, of an unknown version, or not of this data.

    Attributes: ``path`` (the data file, None if not known), ``index_path``, ``reason``.
    """

    def __init__(self, path: str | None, index_path: str | None, reason: str) -> None:
        self.path = path
        self.index_path = index_path
        self.reason = reason
        super().__init__(self._text())

    def _text(self) -> str:
        if self.index_path is None:
            data = self.path if self.path is not None else "the data"
            return f"{data} changed since its records were looked up: {self.reason}. Open it again"
        if self.path is None:
            rebuild = f"tfrecord.build_index(DATA, {self.index_path!r})"
            return f"index {self.index_path}: {self.reason}. Rebuild it: {rebuild}"
        if self.index_path == self.path:
            return f"index {self.index_path}: {self.reason}. This is the data file, not its index"
        # Both commands keep the schema and the columns of the index.
        rebuild = f"tfrecord.build_index({self.path!r}, {self.index_path!r})"
        if self.index_path == f"{self.path}.tfindex":
            rebuild = f"tfrecord index {shlex.quote(self.path)}"
        return f"index {self.index_path} of {self.path}: {self.reason}. Rebuild it: {rebuild}"


class StaleIndexError(IndexFileError):
    """The index was made for another file, or for an earlier state of this one."""


class _LocatedError(TFRecordError):
    """A failure to decode a record's payload; `at` may add the place later."""

    def __init__(
        self,
        reason: str = "",
        *,
        key: str | None = None,
        path: str | None = None,
        record: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.reason = reason
        self.key = key
        self.path = path
        self.record = record
        self.offset = offset
        super().__init__(reason)

    def at(self: _Located, path: str | None, record: int | None, offset: int | None = None) -> _Located:
        """A copy of this error with its place added."""
        copy = type(self)(self.reason, key=self.key, path=path, record=record, offset=offset)
        copy.__cause__ = self.__cause__
        return copy

    def __str__(self) -> str:
        parts = []
        if self.path is not None:
            parts.append(self.path)
        if self.record is not None:
            offset = "" if self.offset is None else f" at offset {self.offset}"
            parts.append(f"record {self.record}{offset}")
        if self.key is not None:
            parts.append(f"feature {self.key!r}")
        if self.reason:
            parts.append(self.reason)
        return printable(": ".join(parts))


class DecodeError(_LocatedError, ValueError):
    """A payload is not a valid message, or a value is not what was asked for.

    Attributes: ``reason`` (text), ``key``, ``path``, ``record``, ``offset`` (each None if not known).
    """


class ImageError(DecodeError):
    """The bytes of an `ImageFeature` are not a JPEG or PNG file, or are damaged, or claim too many pixels."""


class MissingFeatureError(_LocatedError, KeyError):
    """A requested feature is not in the record. It has the attributes of `DecodeError`."""

    def __init__(
        self,
        reason: str = "is missing and has no default",
        *,
        key: str | None = None,
        path: str | None = None,
        record: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(reason, key=key, path=path, record=record, offset=offset)


class FeatureKindError(_LocatedError, TypeError):
    """A feature has another type than was asked for. It has the attributes of `DecodeError`."""
