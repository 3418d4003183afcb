"""The file formats that `convert` knows, by name and by suffix: sources of records and sinks for them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from indexer.compressors import Compressor
from indexer.errors import DecodeError, TFRecordError
from indexer.framing import VERIFY_LENGTHS
from indexer.names import is_data_name, is_url, split_compression
from indexer.options import near_matches
from indexer.outputs import STREAM, Outputs, is_special
from indexer.stores import Url, open_store
from tfrecord._cli.common import no_feature
from tfrecord._cli.conversion.arrow import ArrowSink, read_arrow
from tfrecord._cli.conversion.json_and_tar import JsonSink, TarSink, note_json, read_json, read_tar
from tfrecord._cli.conversion.json_kinds import JsonKinds
from tfrecord._cli.conversion.layout import ColumnKinds, Layout, survey
from tfrecord._cli.conversion.npz import NpzSink, read_npz
from tfrecord._cli.problems import Problems
from tfrecord._kernels.record_type import RecordType
from tfrecord._reading.payload_batches import Batch, batches, checked, part_of, settle_batches

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npz": "npz",
    ".tar": "tar",
}
FORMATS = ("tfrecord", *dict.fromkeys(SUFFIXES.values()))
# Formats whose columns are decided in a pass over all of the data.
SURVEYED = ("parquet", "arrow", "npz")


def format_of(path: str) -> str:
    """The format given by a path's suffix; anything unknown is TFRecord."""
    name = split_compression(path)[0].lower()
    return next((form for suffix, form in SUFFIXES.items() if name.endswith(suffix)), "tfrecord")


def output_format(path: str) -> str:
    """The format given by an output's suffix; TFRecord if it has none. A usage error for an unknown
    suffix."""
    form = format_of(path)
    stem = split_compression(os.path.basename(path))[0]
    foreign = form == "tfrecord" and os.path.splitext(stem)[1] and not is_data_name(path)
    if foreign and not is_special(path):
        suffixes = (".tfrecord", ".tfrecords", ".tfrec", *SUFFIXES)
        known, near = ", ".join(suffixes), near_matches(os.path.splitext(stem)[1], suffixes)
        raise click.UsageError(
            f"{path}: no format has this suffix; known are {known} (TFRecord also with .gz or .zz). "
            f"Or name the format: --to {'|'.join(FORMATS)}{near}"
        )
    return form


class Source:
    """The records of some files, for any number of passes. A pipe is kept in a temporary file for that,
    unless `once` says that there is only one pass. Other formats than TFRecord are fetched from a URL into a
    temporary file, because their libraries need to go to and fro in it.

    With `problems`, records that are not valid messages go there, and batches know their record type, from
    `record_type` or else from the first records of each file.
    """

    def __init__(
        self,
        paths: list[str],
        form: str | None,
        *,
        compression: str | None = None,
        round_floats: bool = False,
        record_type: str = "auto",
        problems: Problems | None = None,
    ) -> None:
        self.paths = paths
        self._record_type, self._problems = record_type, problems
        self._settled: RecordType | None = None
        self._form, self._compression, self._round = form, compression, round_floats
        self._json_kinds: JsonKinds | None = None
        self._column_kinds = ColumnKinds()
        self._spools: dict[str, Any] = {}
        self.once = False

    def __iter__(self) -> Iterator[Batch]:
        for path in self.paths:
            batches_of = self._read(path, verify=None)
            if self._problems is None:
                yield from batches_of
            elif self._form_of(path) == "tfrecord":
                yield from checked(batches_of, self._record_type, self._problems.invalid, self._settle)
            else:  # records of other formats are built here
                for found, batch in settle_batches(batches_of, self._record_type, self._settle):
                    yield batch._replace(record_type=found.name)

    def _settle(self, path: str, found: RecordType) -> RecordType:
        """Settle the one record type of the output: that of the first file that shows it."""
        assert self._problems is not None
        self._problems.settled(path, found)
        if not (found.num_for or found.num_against) or self._record_type != "auto":
            return self._settled or found
        self._settled = self._settled or found
        if found.name != self._settled.name:
            raise click.UsageError(
                f"{path} holds records of type {found.name}, but the files before it have type "
                f"{self._settled.name}; convert them separately, or give --record-type"
            )
        return found

    def _form_of(self, path: str) -> str:
        return self._form or format_of(path)

    def _read(self, path: str, verify: int | None) -> Iterator[Batch]:
        place = self._place(path)
        with _errors_of(path, place):
            for batch in self._read_place(place, self._form_of(path), verify):
                yield batch if place is path else batch._replace(path=path)

    def _read_place(self, place: Any, form: str, verify: int | None) -> Iterator[Batch]:
        if form == "tfrecord":
            options: dict[str, Any] = {} if verify is None else {"verify": verify}
            return batches([place], compression=self._compression, **options)
        if form == "jsonl":
            return read_json(place, self._kinds_of_json())
        if form == "npz":
            return read_npz(place, self._column_kinds)
        if form == "tar":
            return read_tar(place)
        return read_arrow(place, form, self._column_kinds, self._round)

    def _kinds_of_json(self) -> JsonKinds:
        """The kinds of all JSON lines, which are read once for that: a feature has one kind in all files."""
        if self._json_kinds is None:
            kinds = JsonKinds(self._round)
            for path in self.paths:
                if self._form_of(path) == "jsonl":
                    place = self._place(path)
                    with _errors_of(path, place):
                        note_json(place, kinds, path)
            self._json_kinds = kinds
        return self._json_kinds

    def _place(self, path: str) -> str:
        """The file to read: the one given, or a temporary one with the same bytes."""
        form = self._form_of(path)
        spools = (
            not (self.once and form == "tfrecord") if path == STREAM else is_url(path) and form != "tfrecord"
        )
        return self._spooled(path) if spools else path

    def _spooled(self, path: str) -> str:
        """The name of a temporary file with the same bytes."""
        if path not in self._spools:
            spool = self._spools[path] = tempfile.NamedTemporaryFile()
            if path == STREAM:
                shutil.copyfileobj(sys.stdin.buffer, spool)
            else:
                store, key = open_store(path)
                with store.stream(key) as stream:
                    shutil.copyfileobj(stream, spool, 8 << 20)
            spool.flush()
        return str(self._spools[path].name)

    def close(self) -> None:
        """Close the temporary files."""
        for spool in self._spools.values():
            spool.close()

    def count(self) -> int:
        """The number of records, from a header scan if possible."""
        if self._problems is not None:
            return sum(len(batch.payloads) for batch in self)
        return sum(len(batch.payloads) for path in self.paths for batch in self._read(path, VERIFY_LENGTHS))


@contextmanager
def _errors_of(path: str, place: str) -> Iterator[None]:
    """Name the file that the user gave in errors about the temporary file that holds its bytes."""
    try:
        yield
    except TFRecordError as error:
        if place is path:
            raise
        raise TFRecordError(str(error).replace(place, path)) from None


class FrameSink:
    """A TFRecord file; frames are copied unchanged."""

    def __init__(self, outputs: Outputs, path: str, compression: str | None) -> None:
        self._file = outputs.open(path)
        kind = compression or split_compression(path)[1]
        self._packer = Compressor(kind) if kind in ("gzip", "zlib", "zstd") else None

    def write_batch(self, batch: Batch) -> None:
        for piece in batch.frames():
            self._file.write(piece if self._packer is None else self._packer.compress(piece))

    def close(self) -> None:
        if self._packer is not None:
            self._file.write(self._packer.finish())


def shard_names(path: str, count: int) -> list[str]:
    """`base-00000-of-00003`, before a `.gz` and before the suffix of other formats."""
    base = split_compression(path)[0]
    tail = path[len(base) :]
    for suffix in SUFFIXES:
        if base.lower().endswith(suffix):
            base, tail = base[: len(base) - len(suffix)], base[len(base) - len(suffix) :] + tail
    names = [f"{base}-{i:05d}-of-{count:05d}{tail}" for i in range(count)]
    return [Url(name, path.options) for name in names] if isinstance(path, Url) else names


class Target:
    """The output: one file, or consecutive shards of nearly equal size."""

    def __init__(
        self,
        outputs: Outputs,
        path: str,
        form: str,
        *,
        compression: str | None = None,
        text: Iterable[str] = (),
    ) -> None:
        self.outputs, self.path, self.form = outputs, path, form
        self._compression, self._text = compression, frozenset(text)
        self.names: list[str] = []

    def write(
        self,
        source: Iterable[Batch],
        sizes: list[int] | None = None,
        advance: Callable[[Batch], None] | None = None,
    ) -> int:
        """Write all records; `sizes`: how many records each shard takes. Returns the number of records.

        For formats with columns, the source is read twice.
        """
        layout = survey(source) if self.form in SURVEYED else None
        if layout is not None and layout.rows:
            known = {
                key for key, kept in (*layout.context.items(), *layout.lists.items()) if kept.kind == "bytes"
            }
            if unknown := sorted(self._text - known):
                raise click.UsageError(no_feature(unknown, known, "byte strings"))
        names = [self.path] if sizes is None else shard_names(self.path, len(sizes))
        for name in names:
            self.outputs.check(name)
        self.names, written = names, 0
        shard, room = 0, None if sizes is None else sizes[0]
        sink: Any = None
        for batch in source:
            if layout is None:
                layout = Layout(batch.record_type)
            start = 0
            while start < len(batch.payloads):
                while room == 0:
                    self._close(sink, names[shard], layout, written)
                    shard, sink = shard + 1, None
                    room = (sizes or [])[shard]
                sink = sink or self._open(names[shard], layout, written)
                stop = len(batch.payloads) if room is None else min(start + room, len(batch.payloads))
                self._put(sink, part_of(batch, start, stop))
                written += stop - start
                room = None if room is None else room - (stop - start)
                start = stop
            if advance is not None:
                advance(batch)
        while shard < len(names):
            self._close(sink, names[shard], layout or Layout(), written)
            shard, sink = shard + 1, None
        return written

    def _open(self, name: str, layout: Layout, first: int) -> Any:
        if self.form == "tfrecord":
            return FrameSink(self.outputs, name, self._compression)
        if self.form == "jsonl":
            return JsonSink(self.outputs, name, layout)
        if self.form == "tar":
            return TarSink(self.outputs, name, layout, first)
        if self.form == "npz":
            return NpzSink(self.outputs, name, layout)
        return ArrowSink(self.outputs, name, layout, self._text, self.form)

    def _close(self, sink: Any, name: str, layout: Layout, first: int) -> None:
        (sink or self._open(name, layout, first)).close()
        self.outputs.close_kept()

    @staticmethod
    def _put(sink: Any, batch: Batch) -> None:
        if isinstance(sink, FrameSink):
            sink.write_batch(batch)
            return
        try:
            sink.write(batch.payloads)
        except DecodeError as error:
            raise error.at(batch.path, batch.first + (error.record or 0)) from None


def balanced(count: int, shards: int) -> list[int]:
    """The sizes of the shards, equal to within one record."""
    return [count // shards + (i < count % shards) for i in range(shards)]


def check_tfrecord_name(path: str) -> None:
    """Check that the output of a command that writes TFRecord has no name of another format."""
    form = format_of(path)
    if form != "tfrecord":
        raise click.UsageError(f"{path}: this command writes TFRecord; tfrecord convert writes {form}")


def check_compression(form: str, path: str) -> None:
    """Check that the name of the output promises no compression that its format does not have."""
    stem = split_compression(path)[0]
    if stem != path and form not in ("tfrecord", "jsonl"):
        raise click.UsageError(f"{path}: {form} files are not compressed as a whole: write {stem}")


def check_text(form: str, text: list[str] | None) -> None:
    """Check that `--text` is given only for Parquet and Arrow."""
    if text and form not in ("parquet", "arrow"):
        raise click.UsageError("--text is for Parquet and Arrow output")
