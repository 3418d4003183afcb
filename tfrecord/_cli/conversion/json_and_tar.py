"""JSON lines and WebDataset tar files to records and back, record by record and exact."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import struct
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from indexer.compressors import Compressor
from indexer.errors import TFRecordError
from indexer.framing import frame_record
from indexer.names import split_compression
from indexer.outputs import Outputs
from indexer.streams import most_record_bytes, open_stream
from tfrecord._cli.conversion.json_kinds import JsonKinds, is_tagged
from tfrecord._cli.conversion.layout import Layout, build_message, exact_record
from tfrecord._cli.describe import feature_json, kind_of
from tfrecord._cli.sniffing import sniff_bytes
from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.payload_batches import Batch, batch_of_frames

_BATCH_BYTES = 4 << 20
_READ_SIZE = 1 << 20
_JSON = "tfrecord.json"
_PERHAPS_HUGE = re.compile(rb"[eE]\+?\d{3}|\d{300}")
_RAW = "tfrecord.raw"
_SEQUENCE = {"context", "feature_lists"}
# Wraps an Example if the names of its only features would make it look like something else.
_EXAMPLE = "__example__"
_TAKEN = (_SEQUENCE, {_EXAMPLE})


# One record as JSON: features under their names, each with its kind; a record that is not an Example is
# `{"record": ...}`.


def record_json(payload: Any, record_type: str) -> Any:
    """A record as JSON that `record_of_json` turns back into an equal one."""
    if record_type == "bytes":
        return {"record": {"base64": base64.b64encode(payload).decode()}}
    context, lists = exact_record(payload, record_type)
    features = {key: _feature_json(value) for key, value in context.items()}
    if lists is None:
        return {_EXAMPLE: features} if set(features) in _TAKEN else features
    steps = {key: [_feature_json(step) for step in value] for key, value in lists.items()}
    return {"context": features, "feature_lists": steps}


def _feature_json(value: Any) -> Any:
    """A feature as JSON: an empty object has no kind; null is a feature that the record lacks."""
    return {} if value is None else feature_json(value)


def record_of_json(document: Any, kinds: JsonKinds) -> bytes:
    """The payload of such a document. Plain values are accepted too (numbers, strings, lists of either);
    `kinds` knows their kinds.

    Raises ValueError for values that no feature can hold.
    """
    parts = _parts(document)
    return parts if isinstance(parts, bytes) else _message(*parts, kinds)


def _parts(document: Any) -> bytes | tuple[dict[str, Any], dict[str, Any] | None]:
    """A whole record of bytes, or `_features_of` the document."""
    raw: Any = document.get("record") if isinstance(document, dict) and len(document) == 1 else None
    if is_tagged(raw, ("base64",)) and isinstance(raw["base64"], str):  # a list is of a feature of this name
        return base64.b64decode(raw["base64"], validate=True)
    return _features_of(document)


def _features_of(document: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The features and the feature lists (None: an Example) of a document."""
    if not isinstance(document, dict):
        raise ValueError("a record is a JSON object")
    if _is_sequence(document):
        return document["context"], document["feature_lists"]
    if set(document) == {_EXAMPLE} and isinstance(document[_EXAMPLE], dict):
        document = document[_EXAMPLE]
    return document, None


def _is_sequence(document: dict[str, Any]) -> bool:
    return set(document) == _SEQUENCE and all(isinstance(part, dict) for part in document.values())


# An empty list of a feature that has no value in any line.
_UNTOLD = object()


def _message(features: dict[str, Any], lists: dict[str, Any] | None, kinds: JsonKinds) -> bytes:
    made = {key: _feature(key, value, kinds, False) for key, value in features.items() if value is not None}
    context = {key: value for key, value in made.items() if value is not _UNTOLD}
    if lists is None:
        return build_message(context, None)
    steps = {}
    for key, value in lists.items():
        if not isinstance(value, list):
            raise ValueError(f"feature {key!r}: a feature list must be a list of steps")
        told = [_feature(key, step, kinds, True) for step in value]
        steps[key] = [None if step is _UNTOLD else step for step in told]
    return build_message(context, steps)


def _feature(key: str, value: Any, kinds: JsonKinds, in_list: bool) -> Any:
    """The values of a feature; None is one without a kind."""
    if value is None or value == {}:
        return None
    if is_tagged(value):
        ((tag, items),) = value.items()
    else:
        items = value if isinstance(value, list) else [value]
        tag = kinds.kind_of(in_list, key)
        if tag is None:
            return _UNTOLD
    if not isinstance(items, list):
        raise ValueError(f"feature {key!r}: the values must be a list")
    if tag == "int64":
        if not all(isinstance(item, int) and -(1 << 63) <= item < 1 << 63 for item in items):
            raise ValueError(f"feature {key!r}: a value is not a 64-bit integer")
        return np.array([int(item) for item in items], np.int64)
    if tag == "float":
        return np.array([_float32(key, item, kinds) for item in items], np.float32)
    made = np.empty(len(items), object)
    if not all(isinstance(item, str) for item in items):
        raise ValueError(f"feature {key!r}: a value is not a string")
    made[:] = [item.encode() if tag == "text" else base64.b64decode(item, validate=True) for item in items]
    return made


def _float32(key: str, item: Any, kinds: JsonKinds) -> Any:
    if isinstance(item, str):
        if item.startswith("nan:"):
            return np.frombuffer(struct.pack("<I", int(item[4:], 16)), np.float32)[0]
        if item not in ("NaN", "Infinity", "-Infinity"):
            raise ValueError(f"feature {key!r}: {item!r} is not a number")
        return np.float32(item.replace("Infinity", "inf"))
    return kinds.float32(key, item)


class JsonSink:
    """One JSON document per line."""

    def __init__(self, outputs: Outputs, path: str, layout: Layout) -> None:
        self._layout = layout
        self._file = outputs.open(path)
        kind = split_compression(path)[1]
        self._packer = Compressor(kind) if kind else None

    def write(self, payloads: BytesColumn) -> None:
        lines = [
            json.dumps(record_json(payloads.view(row), self._layout.record_type), ensure_ascii=False) + "\n"
            for row in range(len(payloads))
        ]
        data = "".join(lines).encode("utf-8", "surrogatepass")
        self._file.write(data if self._packer is None else self._packer.compress(data))

    def close(self) -> None:
        if self._packer is not None:
            self._file.write(self._packer.finish())


def note_json(path: str, kinds: JsonKinds, name: str) -> None:
    """Note the kinds of a JSON lines file, which the user knows as `name`, before `read_json` makes records
    of it.

    Raises TFRecordError, with the line, for a line that is not a record.
    """
    for number, document in _documents(path):
        with _named(path, number):
            parts = _parts(document)
            if not isinstance(parts, bytes):
                kinds.note(parts[0], parts[1] or {}, f"line {number} of {name}")


def read_json(path: str, kinds: JsonKinds) -> Iterator[Batch]:
    """The records of a JSON lines file, plain or compressed; `kinds` has noted all of its lines.

    Raises TFRecordError, with the line, for a line that is not a record.
    """
    made: list[bytes] = []
    size = first = 0
    for number, document in _documents(path):
        with _named(path, number):
            made.append(frame_record(record_of_json(document, kinds)))
        size += len(made[-1])
        if size >= _BATCH_BYTES:
            yield batch_of_frames(path, first, b"".join(made))
            first += len(made)
            made, size = [], 0
    if made:
        yield batch_of_frames(path, first, b"".join(made))


@contextmanager
def _named(path: str, number: int) -> Iterator[None]:
    """Turn errors within the block into errors of this line."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise TFRecordError(f"{path}: line {number}: {error}") from None


def _documents(path: str) -> Iterator[tuple[int, Any]]:
    """The number of each line that is not empty, and its document."""
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            with _named(path, number):
                document = _document(line)
            yield number, document


def _document(text: bytes) -> Any:
    """A JSON document. ValueError for what Python's reader takes and changes: two values of one name, and
    numbers beyond its range."""
    huge = _finite if _PERHAPS_HUGE.search(text) else None
    return json.loads(text, object_pairs_hook=_without_repeats, parse_float=huge)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; Python would keep the last of several values of a name, and lose the others."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice!r} twice")
    return found


def _finite(text: str) -> float:
    """A number; Python takes those beyond its range for infinite."""
    if math.isinf(value := float(text)):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a file, plain or compressed; the last one may be empty."""
    most = most_record_bytes()
    with open_stream(path) as stream:
        parts: list[bytes] = []
        size = number = 0
        while piece := stream.read_some(_READ_SIZE):
            end, *lines = bytes(piece).split(b"\n")
            parts.append(end)
            size += len(end)
            for line in lines:
                yield b"".join(parts)
                parts, size, number = [line], len(line), number + 1
            if size > most:
                raise TFRecordError(f"{path}: line {number + 1} is longer than {most:,} bytes")
        yield b"".join(parts)


# WebDataset: files whose names are equal up to the first dot are one sample. A single byte string is its own
# file, named after the feature and its format; everything else is in `KEY.tfrecord.json`.


class TarSink:
    """One sample per record, named by its number."""

    def __init__(self, outputs: Outputs, path: str, layout: Layout, first: int = 0) -> None:
        self._layout = layout
        self._number = first
        self._tar = outputs.keep(
            tarfile.open(fileobj=outputs.open(path), mode="w", format=tarfile.PAX_FORMAT)
        )

    def write(self, payloads: BytesColumn) -> None:
        for row in range(len(payloads)):
            payload, key = payloads.view(row), f"{self._number:09d}"
            self._number += 1
            if self._layout.record_type == "bytes":
                self._add(f"{key}.{_RAW}", payload)
                continue
            context, lists = exact_record(payload, self._layout.record_type)
            document: dict[str, Any] = {}
            for name, value in context.items():
                single = kind_of(value) == "bytes" and (not isinstance(value, np.ndarray) or len(value) == 1)
                data = (value[0] if isinstance(value, np.ndarray) else value) if single else b""
                content = sniff_bytes(data)
                if single and content.kind not in ("text", "empty"):
                    self._add(f"{key}.{quote(name, safe='').replace('.', '%2E')}.{content.extension}", data)
                else:
                    document[name] = _feature_json(value)
            if lists is None and set(document) in _TAKEN:
                document = {_EXAMPLE: document}
            if lists is not None:
                steps = {name: [_feature_json(step) for step in value] for name, value in lists.items()}
                document = {"context": document, "feature_lists": steps}
            self._add(
                f"{key}.{_JSON}", json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
            )

    def _add(self, name: str, data: Any) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        self._tar.addfile(member, io.BytesIO(data))

    def close(self) -> None:
        self._tar.close()


def read_tar(path: str) -> Iterator[Batch]:
    """The samples of a WebDataset tar file as records, in order.

    In tar files from other tools, `.cls` is an integer; everything else, `.json` and `.txt` too, is bytes
    under its extension.
    """
    made: list[bytes] = []
    size = first = 0
    kinds = JsonKinds()
    try:
        for name, sample in _samples(path):
            try:
                made.append(frame_record(_record_of_sample(name, sample, kinds)))
            except (ValueError, TypeError, RecursionError) as error:
                raise TFRecordError(f"{path}: sample {name!r}: {error}") from None
            size += len(made[-1])
            if size >= _BATCH_BYTES:
                yield batch_of_frames(path, first, b"".join(made))
                first += len(made)
                made, size = [], 0
    except tarfile.TarError as error:
        raise TFRecordError(f"{path}: not a valid tar file: {error}") from None
    if made:
        yield batch_of_frames(path, first, b"".join(made))


def _samples(path: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    current, sample = None, dict[str, bytes]()
    with tarfile.open(path, "r|*") as tar:
        for member in tar:
            if not member.isfile():
                continue
            place = PurePosixPath(member.name)
            stem, _, rest = place.name.partition(".")
            key = str(place.parent / stem)
            if key != current and current is not None:
                yield current, sample
                sample = {}
            current = key
            file = tar.extractfile(member)
            if rest in sample:
                raise TFRecordError(f"{path}: sample {key!r} has two files {rest!r}")
            sample[rest] = file.read() if file is not None else b""
    if current is not None:
        yield current, sample


def _record_of_sample(key: str, sample: dict[str, bytes], kinds: JsonKinds) -> bytes:
    if _RAW in sample:
        if len(sample) > 1:
            raise ValueError(f"a record of bytes, {_RAW}, has other files beside it")
        return sample[_RAW]
    own = _JSON in sample
    document, lists = _features_of(_document(sample.pop(_JSON))) if own else ({}, None)
    for rest, data in sample.items():
        name = unquote(rest.rpartition(".")[0] if "." in rest else rest) if own else rest
        if name in document:
            raise ValueError(f"feature {name!r} has two values; one is the file {rest!r}")
        if not own and rest == "cls":
            document[name] = {"int64": [int(data)]}
        else:
            document[name] = {"base64": [base64.b64encode(data).decode()]}
    kinds.note_for_good(document, lists or {}, f"sample {key!r}")
    return _message(document, lists, kinds)


__all__ = ["JsonSink", "TarSink", "note_json", "read_json", "read_tar", "record_json", "record_of_json"]
