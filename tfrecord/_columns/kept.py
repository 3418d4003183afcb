"""Columns stored in an index: one value per record of some features, or how many values a feature has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError
from indexer.options import near_matches
from tfrecord._kernels.codes import BYTES, REASONS
from tfrecord._kernels.engine import decode_kernel as kernel

__all__ = ["NO_COLUMNS", "KeptColumns", "counted"]

# Longer byte strings do not belong in an index.
_LONGEST_KEPT = 256
_LENGTH = re.compile(r"len\((.+)\)\Z", re.DOTALL)
NO_COLUMNS = "columns=[] builds the index without columns"
_OTHER_KIND = f"has a different kind than before ({NO_COLUMNS})"


def counted(name: str) -> str | None:
    """The feature whose values the column ``name`` counts: ``"tokens"`` for ``"len(tokens)"``, else None."""
    match = _LENGTH.match(name)
    return match[1] if match else None


class KeptColumns:
    """Collects one entry per record for each of ``names``.

    A name is that of a feature with at most one value per record: numbers become int64 or float32, byte
    strings (at most 256 bytes, none ending in NUL) fixed-width bytes. Records without a value are masked.
    ``len(x)`` is how many values the feature ``x`` has (steps, if it is a feature list), int64, 0 if it is
    missing.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        for name in self.names:
            if not isinstance(name, str):
                raise TypeError(f"columns must be names of features, not {name!r}")
        self._values = [name for name in self.names if counted(name) is None]
        self._lengths = [name for name in self.names if counted(name) is not None]
        keys = dict.fromkeys([*self._values, *(counted(name) or "" for name in self._lengths)])
        self._keys = list(keys)
        requests = tuple((key, 0, None, b"") for key in keys)
        lists = tuple((counted(name), 0, None, b"") for name in self._lengths)
        self._decoder = kernel.Decoder(requests, lists or False)
        self._parts: dict[str, list[tuple[Any, npt.NDArray[np.bool_]]]] = {name: [] for name in self.names}
        self._found: set[str] = set()
        self._count = 0

    def update(self, buffer: Any, offsets: Any, sizes: Any) -> None:
        """Add the records at these places (int64) of a buffer. A record that is not a valid message has no
        values.

        Raises:
            DecodeError, FeatureKindError: a value cannot be stored.
        """
        count = len(offsets)
        rows = np.arange(count)
        failure, features, lists = self._decoder.decode((buffer,), offsets, sizes, None)
        if failure is not None:
            rows = np.flatnonzero(kernel.check_records((buffer,), offsets, sizes) == 0)
            failure, features, lists = self._decoder.decode((buffer,), offsets[rows], sizes[rows], None)
        if failure is not None:
            status, row, key = failure[:3]
            record = self._count + int(rows[row])
            if status in REASONS:
                raise DecodeError(REASONS[status], key=key, record=record)
            raise FeatureKindError(_OTHER_KIND, key=key, record=record)
        assert features is not None
        lengths = np.zeros((len(self._keys), count), np.int64)
        for place, column in enumerate(features[1]):
            lengths[place, rows] = np.diff(column[2])
            if features[0][place].any():
                self._found.add(self._keys[place])
        for place, name in enumerate(self._values):
            self._keep(name, buffer, lengths[place], features[1][place])
        for place, name in enumerate(self._lengths):
            sizes_of = lengths[self._keys.index(counted(name) or "")]
            if lists is not None and lists[0][place].any():
                self._found.add(counted(name) or "")
                sizes_of[rows] += np.diff(lists[1][place][2])
            self._parts[name].append((sizes_of, np.ones(count, np.bool_)))
        self._count += count

    def _keep(self, name: str, buffer: Any, lengths: Any, column: tuple[Any, ...]) -> None:
        if (lengths > 1).any():
            row = int((lengths > 1).argmax())
            reason = (
                f"has {lengths[row]} values, but an index column holds at most one per record ({NO_COLUMNS})"
            )
            raise DecodeError(reason, key=name, record=self._count + row)
        _, kind, _, values = column
        present = lengths == 1
        if not present.any():
            self._parts[name].append((None, present))
            return
        if kind == BYTES:
            values = self._byte_strings(name, buffer, np.flatnonzero(present), *values[:2])
        for earlier, _ in self._parts[name]:
            if earlier is not None and earlier.dtype.kind != values.dtype.kind:
                raise FeatureKindError(_OTHER_KIND, key=name, record=self._count + int(present.argmax()))
        filled = np.zeros(len(present), values.dtype)
        filled[present] = values
        self._parts[name].append((filled, present))

    def _byte_strings(self, name: str, buffer: Any, rows: Any, offsets: Any, lengths: Any) -> Any:
        data = memoryview(buffer).cast("B")
        values = []
        for row, offset, length in zip(rows.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
            value = bytes(data[offset : offset + length])
            if length > _LONGEST_KEPT or value.endswith(b"\0"):
                what = f"has {length} bytes" if length > _LONGEST_KEPT else "ends in NUL"
                reason = f"{what}, which an index cannot store ({NO_COLUMNS})"
                raise DecodeError(reason, key=name, record=self._count + row)
            values.append(value)
        return np.array(values, "S")

    def finish(self, known: Collection[str]) -> dict[str, Any]:
        """The columns: arrays, masked if records lack a value.

        ``known``: the names of all features, for the error about one that no record has.

        Raises:
            MissingFeatureError: no record has the feature.
        """
        if self._count:
            for name in self.names:
                if (key := counted(name) or name) not in self._found:
                    reason = f"no record has it{near_matches(key, known)}"
                    if key in known:  # but not among the features of the context
                        reason = f"is a feature list, of which an index can keep the length: 'len({key})'"
                    raise MissingFeatureError(f"{reason} ({NO_COLUMNS})", key=key)
        return {name: _joined(parts) for name, parts in self._parts.items()}


def _joined(parts: list[tuple[Any, npt.NDArray[np.bool_]]]) -> Any:
    """All parts as one array; a part without any value takes the type of the others."""
    types = [values.dtype for values, _ in parts if values is not None]
    dtype = np.result_type(*types) if types else np.dtype(np.int64)
    filled = [np.zeros(len(present), dtype) if values is None else values for values, present in parts]
    values = np.concatenate(filled) if filled else np.empty(0, dtype)
    present = np.concatenate([present for _, present in parts]) if parts else np.empty(0, np.bool_)
    return values if present.all() else np.ma.MaskedArray(values, ~present)
