"""NumPy `.npz` files to records and back, in bounded memory.

A feature that every record has with the same number of values is one array `name`, `(n,)` or `(n, k)`. Others
are `name/values` and `name/row_splits` (n + 1), and `name/present` if some record lacks the feature. Byte
strings are `name/bytes` (uint8), `name/offsets` (one more than there are strings) and `name/row_splits`.
Feature lists are under `feature_lists/name`, with `steps` dividing records into steps. `__tfrecord__` says
what the file was.
"""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.lib import format as npy

from indexer.errors import TFRecordError
from indexer.framing import frame_record
from indexer.outputs import Outputs
from tfrecord._cli.conversion.arrow import RECORD, encode_rows
from tfrecord._cli.conversion.layout import REST, ColumnKinds, Layout, columns_of
from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord._reading.payload_batches import Batch, batch_of_frames

_META = "__tfrecord__"
_LISTS = "feature_lists/"
_CONTEXT = "context/"
_PARTS = ("values", "row_splits", "present", "bytes", "offsets", "steps")
_ROWS = 4096
_COPY = 1 << 20


class _Growing:
    """A growing array, in an unlinked temporary file."""

    def __init__(self, dtype: Any, outputs: Outputs) -> None:
        self.dtype = np.dtype(dtype)
        self.count = 0
        self._file = outputs.keep(tempfile.TemporaryFile())

    def add(self, values: Any) -> None:
        values = np.ascontiguousarray(values, self.dtype)
        self._file.write(values.tobytes())
        self.count += values.size

    def copy_to(self, target: Any, shape: tuple[int, ...]) -> None:
        header = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_2_0(target, header)
        self._file.seek(0)
        while piece := self._file.read(_COPY):
            target.write(piece)


class NpzSink:
    """Collects columns in temporary files and joins them into one archive at the end."""

    def __init__(self, outputs: Outputs, path: str, layout: Layout) -> None:
        self._file = outputs.open(path)
        self._outputs = outputs
        self._layout = layout
        self._arrays: dict[str, _Growing] = {}
        self._last: dict[str, int] = {}
        self._prefix = _CONTEXT if layout.record_type == "sequence_example" else ""
        self._rows = 0

    def _add(self, name: str, dtype: Any, values: Any) -> None:
        if name not in self._arrays:
            self._arrays[name] = _Growing(dtype, self._outputs)
            if name.endswith(("/row_splits", "/offsets", "/steps")):
                self._arrays[name].add(np.zeros(1, np.int64))
        self._arrays[name].add(values)

    def _splits(self, name: str, lengths: Any) -> None:
        """Append the running sums of these lengths."""
        sums = self._last.get(name, 0) + np.cumsum(lengths, dtype=np.int64)
        self._add(name, np.int64, sums)
        if len(sums):
            self._last[name] = int(sums[-1])

    def write(self, payloads: BytesColumn) -> None:
        self._rows += len(payloads)
        if self._layout.record_type == "bytes":
            self._strings(RECORD, payloads)
            return
        decoded, rest = columns_of(payloads, self._layout)
        context = decoded.context if isinstance(decoded, SequenceBatch) else decoded
        for key, column in context.items():
            name = self._prefix + _quoted(key)
            self._splits(f"{name}/row_splits", column.lengths())
            self._add(f"{name}/present", np.bool_, context.present[key])
            self._values(name, column.values)
        lists = decoded.feature_lists if isinstance(decoded, SequenceBatch) else ColumnBatch({})
        for key, column in lists.items():
            name = _LISTS + _quoted(key)
            self._splits(f"{name}/steps", column.lengths())
            self._add(f"{name}/present", np.bool_, lists.present[key])
            self._splits(f"{name}/row_splits", column.values.lengths())
            self._values(name, column.values.values)
        if self._layout.rest:
            self._strings(
                REST, BytesColumn.from_list([item or b"" for item in rest or [b""] * len(payloads)])
            )

    def _values(self, name: str, values: Any) -> None:
        if isinstance(values, BytesColumn):
            self._strings(name, values)
        else:
            self._add(f"{name}/values", values.dtype, values)

    def _strings(self, name: str, column: BytesColumn) -> None:
        flat = column.compact()
        self._splits(f"{name}/offsets", flat.lengths)
        self._add(f"{name}/bytes", np.uint8, np.frombuffer(flat.buffers[0], np.uint8))

    def close(self) -> None:
        layout = self._layout
        dense = {
            self._prefix + _quoted(key): found.most
            for key, found in layout.context.items()
            if found.kind != "bytes" and found.least == found.most > 0 and self._everywhere(key, found.most)
        }
        document = {
            "version": 1,
            "record_type": layout.record_type,
            "rows": self._rows,
            "dense": sorted(dense),
        }
        with zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in self._arrays.items():
                key, _, part = name.rpartition("/")
                shape: tuple[int, ...] = (array.count,)
                if key in dense:
                    if part != "values":
                        continue
                    name, shape = key, (self._rows,) if dense[key] == 1 else (self._rows, dense[key])
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    array.copy_to(member, shape)
            with archive.open(f"{_META}.npy", "w") as member:
                npy.write_array(member, np.array(json.dumps(document)))

    def _everywhere(self, key: str, count: int) -> bool:
        """Whether every row has this many values; False for a name that would look like a part of another
        feature."""
        array = self._arrays.get(f"{self._prefix}{_quoted(key)}/values")
        return (
            key.rpartition("/")[2] not in _PARTS and array is not None and array.count == self._rows * count
        )


def read_npz(path: str, kinds: ColumnKinds) -> Iterator[Batch]:
    """The rows of an `.npz` file as records. In archives from other tools, every array is a feature, with
    rows along its first axis.

    Raises TFRecordError if arrays do not match, or hold values that no feature can hold.
    """
    arrays: dict[str, Any] = {}
    with open(path, "rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array")
            arrays = {name: archive[name] for name in archive.files}
            for name, array in arrays.items():
                if not isinstance(array, np.ndarray):  # the bytes of another kind of file
                    raise ValueError(f"its member {name!r} is not an array")
        except (OSError, MemoryError):
            raise
        except Exception as error:  # of zipfile, zlib, and Python's tokenizer, which reads the headers
            raise TFRecordError(f"{path}: not a valid npz file: {error}") from None
    try:
        document = json.loads(str(arrays.pop(_META))) if _META in arrays else {}
        if not isinstance(document, dict):
            raise ValueError(f"{_META} is not a JSON object")
        yield from _batches(path, arrays, document, kinds)
    except KeyError as error:
        raise TFRecordError(f"{path}: there is no array {error}") from None
    except (IndexError, TypeError, ValueError) as error:
        raise TFRecordError(f"{path}: {error}") from None


def _batches(
    path: str, arrays: dict[str, Any], document: dict[str, Any], kinds: ColumnKinds
) -> Iterator[Batch]:
    kind = document.get("record_type", "example")
    own, dense = bool(document), frozenset(document.get("dense", []))
    strings = _column(arrays, REST) if f"{REST}/bytes" in arrays else None
    if kind == "bytes":
        column = _column(arrays, RECORD) if f"{RECORD}/bytes" in arrays else BytesColumn.from_list([])
        for first in range(0, len(column), _ROWS):
            part = column[first : first + _ROWS]
            yield batch_of_frames(path, first, b"".join(frame_record(part.view(i)) for i in range(len(part))))
        return
    context: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    flags: tuple[dict[str, Any], dict[str, Any]] = ({}, {})  # of the context, of the lists
    for name in sorted({_key_of(name, own, dense) for name in arrays} - {REST}):
        if not own or name in dense:
            column = arrays[name]
        else:
            column = Ragged(_column(arrays, name), arrays[f"{name}/row_splits"])
        into, key = context, name
        if own and kind == "sequence_example":
            into, key = (
                (lists, name[len(_LISTS) :]) if name.startswith(_LISTS) else (context, name[len(_CONTEXT) :])
            )
        into[key] = Ragged(column, arrays[f"{name}/steps"]) if into is lists else column
        if own:
            into[unquote(key)] = into.pop(key)
            key = unquote(key)
        kinds.check(path, name, into[key])
        if f"{name}/present" in arrays:
            flags[into is lists][key] = arrays[f"{name}/present"]
    rows = document.get("rows") if own else None
    batch: Any = ColumnBatch(context, flags[0], rows)
    if kind == "sequence_example":
        batch = SequenceBatch(batch, ColumnBatch(lists, flags[1], rows))
    for first in range(0, batch.num_rows, _ROWS):
        part = batch[first : first + _ROWS]
        rest = None if strings is None else strings[first : first + _ROWS].to_list()
        yield batch_of_frames(path, first, encode_rows(part, rest))


def _quoted(key: str) -> str:
    """A feature's name in an archive member's name: characters that zip cannot hold are escaped as in
    URLs."""
    return re.sub(r"[\x00-\x1f%\\]", lambda match: f"%{ord(match[0]):02X}", key)


def _key_of(name: str, own: bool, dense: frozenset[str]) -> str:
    """The feature that an array belongs to."""
    return name if not own or name in dense else name.rpartition("/")[0]


def _column(arrays: dict[str, Any], name: str) -> Any:
    if f"{name}/bytes" not in arrays:
        return arrays[f"{name}/values"]
    offsets = arrays[f"{name}/offsets"]
    return BytesColumn((arrays[f"{name}/bytes"].tobytes(),), offsets[:-1], np.diff(offsets))
