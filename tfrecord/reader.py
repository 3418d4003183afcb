"""`TFRecordReader`: any record of any number of files, in any order, as dicts or as columns."""

from __future__ import annotations

import copy
import os
import secrets
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Literal, SupportsIndex, TypedDict, TypeVar, overload

import numpy as np
import numpy.typing as npt

from indexer.compression import Compression
from indexer.options import check_count, check_threads, suggests_options
from indexer.paths import Paths
from indexer.shards import expand_shards
from indexer.stores import StoreOptions, as_bytes
from indexer.streams import normalize_compression
from tfrecord import example_pb2 as example_pb2  # 1.x has these two names here
from tfrecord import iterator_utils as iterator_utils
from tfrecord._columns.arrays import Int64Array, as_position, is_integer
from tfrecord._columns.batch import BytesColumn, ColumnBatch, SequenceBatch
from tfrecord._columns.decoding import as_payloads
from tfrecord._reading.access import check_access
from tfrecord._reading.batches import shuffled_batches, stored_batches
from tfrecord._reading.building import build_index, build_indexes
from tfrecord._reading.call_text import array_text, call_text
from tfrecord._reading.damage import DamagePolicy, OnError
from tfrecord._reading.decoder import LOCATED_ERRORS, Batch, RecordDecoder
from tfrecord._reading.html import reader_html
from tfrecord._reading.index_columns import MergedIndex, matching, read_schema
from tfrecord._reading.page import ReaderPage
from tfrecord._reading.places import CLOSED
from tfrecord._reading.runs import ReadOptions
from tfrecord._reading.store import RecordStore
from tfrecord._reading.tables import ReaderTables
from tfrecord._reading.view import RecordView
from tfrecord.features import compile_features
from tfrecord.loaders import (
    example_loader,
    multi_tfrecord_loader,
    sequence_loader,
    tfrecord_iterator,
    tfrecord_loader,
)
from tfrecord.process import extract_feature_dict, process_feature
from tfrecord.sampling.permutation import Permutation
from tfrecord.schema import Schema

# Re-exported for code that uses tfrecord.reader.tfrecord_loader and so on.
__all__ = [
    "TFRecordReader",
    "build_index",
    "build_indexes",
    "example_loader",
    "extract_feature_dict",
    "multi_tfrecord_loader",
    "process_feature",
    "sequence_loader",
    "tfrecord_iterator",
    "tfrecord_loader",
]


Item = TypeVar("Item")

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack
    from typing_extensions import TypeVar as _DefaultVar

    BatchType = _DefaultVar("BatchType", bound=Batch, default=ColumnBatch)
else:
    BatchType = TypeVar("BatchType")

Features = Mapping[str, Any] | Sequence[str]
Record = dict[str, Any]


class ReaderArguments(TypedDict, total=False):
    """The options of `TFRecordReader`, except those that decide the type of its batches."""

    index: Any
    compression_type: Compression | None
    verify: bool
    on_error: OnError
    max_skips: int | None
    mmap: bool
    access: Literal["auto", "spool", "points"]
    max_spool_bytes: int | str
    max_record_bytes: int | None
    storage_options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None
    io_concurrency: int
    max_retries: int
    request_timeout: float
    cache: str | os.PathLike[str] | None
    cache_bytes: int | str
    num_threads: int
    allow_missing: bool


class TFRecordReader(ReaderTables, ReaderPage, Generic[BatchType]):
    """Random access to the records of one file or many.

    Args:
        paths: a path, a list, a glob or a folder; `str` or `os.PathLike`. Globs and folders are sorted
            naturally and skip index files and markers; a list keeps its order. If shards of a set
            ``NAME-*-of-N`` are missing, a warning names them. URLs need ``tfrecord[remote]``.
        index: ``"auto"`` (the sidecar beside the file, if there is one), ``"build"`` (also build a missing
            one, and replace a stale one), a path, a list with one entry per file, a folder, or False. Without
            an index, the headers are scanned when positions are first needed; iteration alone needs none.
        features, sequence_features: what to decode; see `tfrecord.features`. None: every feature. Either one
            also declares that the records are Examples or SequenceExamples.
        record_type: ``"auto"`` (detect from some of the records), ``"example"``, ``"sequence_example"`` or
            ``"bytes"``.
        compression_type: None detects it from the content; ``""``, ``"GZIP"``, ``"ZLIB"`` as in TensorFlow,
            ``"ZSTD"`` (extra ``zstd``).
        verify: check both checksums of every record that is read, however it is read.
        on_error: ``"raise"``, ``"skip"``, or a callable that gets each error. This skips a record whose
            payload is damaged or is not a valid message, and the rest of a file after a damaged length, a
            truncation, or a damaged stream. A wrong request (`KeyError`, `TypeError`) always raises.
        max_skips: how many damaged records may be skipped; the next one raises.
        mmap: map local files; False reads with pread, for file systems where a mapped file may shrink.
        access: how compressed files are read at random. "points": from the places in the index where the file
            can be entered, each about 1 MiB of content after the last. "spool": from a decompressed copy in
            temporary space, made at first use. "auto": through points, where the index has them, until that
            has decompressed a file twice over, and then from the spool. Records that are read through points
            are always verified.
        max_spool_bytes: how much temporary disk space random access to compressed files may take: a
            number of bytes, or text such as "20GB".
        max_record_bytes: the longest record that may be read into memory from a stream (a compressed file, a
            pipe, a URL), because a small compressed file may hold a huge record. None: 2 GiB, or a quarter
            of the memory that the process may use if that is less.
        storage_options, io_concurrency, max_retries, request_timeout, cache, cache_bytes: how URLs are read;
            see `indexer.stores.StoreOptions`. ``cache`` keeps whole files in a folder (``"auto"``: the user's
            cache folder), which all processes of the host share.
        num_threads: how many threads decode; there is one pool per process. They share batches of 1 MB or
            more; `batches` also decodes several batches at once. The results are the same.
        allow_missing: do not complain about requested features that no record has: they become empty columns,
            or their defaults.

    For type checkers, a reader is a ``TFRecordReader[ColumnBatch]``, unless its options choose another type
    of batch: ``TFRecordReader[SequenceBatch]`` with ``sequence_features`` or
    ``record_type="sequence_example"``, ``TFRecordReader[BytesColumn]`` with ``record_type="bytes"``.

    With an extended index, opening takes the same time for any number of records. If there are more than 64
    local files, each with an index beside it, opening does not read the indexes. Their headers are read
    when a record or the length is first requested, and the rest of an index when a record of its file is. A
    reader can be pickled (its options, not its handles) and used by forked and spawned processes and by
    several threads at once. It keeps few files open, however many there are.

    Raises:
        FileNotFoundError: nothing was found.
        ValueError: an option has an invalid value.
        TypeError: an option has the wrong type.
        StaleIndexError: an index does not match its file If indexes are read later
            (see above), this is raised then.
    """

    @overload
    def __init__(
        self: TFRecordReader[BytesColumn],
        paths: Paths,
        *,
        record_type: Literal["bytes"],
        **options: Unpack[ReaderArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: TFRecordReader[SequenceBatch],
        paths: Paths,
        *,
        features: Features | None = None,
        sequence_features: Features | None = None,
        record_type: Literal["sequence_example"],
        **options: Unpack[ReaderArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: TFRecordReader[SequenceBatch],
        paths: Paths,
        *,
        features: Features | None = None,
        sequence_features: Features,
        record_type: Literal["auto"] = "auto",
        **options: Unpack[ReaderArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: TFRecordReader[ColumnBatch],
        paths: Paths,
        *,
        features: Features | None = None,
        sequence_features: None = None,
        record_type: Literal["auto", "example"] = "auto",
        **options: Unpack[ReaderArguments],
    ) -> None: ...
    @suggests_options
    def __init__(
        self,
        paths: Paths,
        *,
        index: Any = "auto",
        features: Any = None,
        sequence_features: Any = None,
        record_type: Literal["auto", "example", "sequence_example", "bytes"] = "auto",
        compression_type: Compression | None = None,
        verify: bool = True,
        on_error: OnError = "raise",
        max_skips: int | None = None,
        mmap: bool = True,
        access: Literal["auto", "spool", "points"] = "auto",
        max_spool_bytes: int | str = 4 << 30,
        max_record_bytes: int | None = None,
        storage_options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
        io_concurrency: int = 64,
        max_retries: int = 5,
        request_timeout: float = 30.0,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int | str = "20GB",
        num_threads: int = 1,
        allow_missing: bool = False,
    ) -> None:
        call = call_text(type(self).__name__, TFRecordReader.__init__, locals())
        policy = DamagePolicy(on_error, max_skips)
        options = ReadOptions(
            normalize_compression(compression_type),
            bool(verify),
            bool(mmap),
            as_bytes(max_spool_bytes, "max_spool_bytes"),
            None if max_record_bytes is None else check_count(max_record_bytes, "max_record_bytes"),
            check_access(access),
            check_threads(num_threads),
        )
        lists = None if sequence_features is None else compile_features(sequence_features)
        decoder = RecordDecoder(
            compile_features(features), lists, record_type, policy, allow_missing=bool(allow_missing)
        )
        decoder.num_threads = check_threads(num_threads)
        if cache is not None and not isinstance(cache, (str, os.PathLike)):
            raise TypeError(f'cache is None, "auto" or a folder, not {cache!r}')
        folder = None if cache is None else os.fspath(cache)
        remote = StoreOptions(
            storage_options, io_concurrency, max_retries, request_timeout, folder, cache_bytes
        )
        found = expand_shards(paths, remote)
        store = RecordStore(found, [None] * len(found), options, policy)
        try:
            store.open_all()
            store.use_indexes(index)
        except BaseException:
            store.close()
            raise
        self._begin(RecordView(store, decoder), call)

    def _begin(self, view: RecordView, call: str) -> None:
        """Set what every reader has. ``call``: its repr."""
        self._call = call
        self._closed = False
        self._owns_store = True
        self._views: weakref.WeakSet[Any] = weakref.WeakSet()
        self._view = view
        self._schema: Schema | None = None

    @property
    def _view(self) -> RecordView:
        """The view that every method reads from; `ValueError` after `close`."""
        if self._closed:
            raise ValueError(CLOSED)
        return self._what

    @_view.setter
    def _view(self, view: RecordView) -> None:
        self._what = view

    # ---- what is here --------------------------------------------------------------------------------------

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in the order of their records."""
        return self._what.store.paths

    @property
    def num_files(self) -> int:
        """The number of files."""
        return len(self._what.store.paths)

    @property
    def file_starts(self) -> Int64Array:
        """Position of each file's first record, then the number of all records: int64 (num_files + 1,)."""
        return self._view.store.starts

    @property
    def has_index(self) -> bool:
        """Whether all positions are known without another pass over data."""
        return self._view.store.has_index

    @property
    def num_skipped(self) -> int:
        """How many damaged records were skipped; each counts once, the lost rest of a file as one."""
        return self._what.store.policy.num_skipped

    def compression(self, number: int) -> str:
        """Compression of file ``number``: ``""``, ``"gzip"``, ``"zlib"`` or ``"zstd"``."""
        return self._view.store.compression(as_position(number, self.num_files, "files"))

    @property
    def record_type(self) -> str:
        """``"example"``, ``"sequence_example"`` or ``"bytes"``; examines some records if necessary."""
        return self._view.record_type

    def __len__(self) -> int:
        return len(self._view)

    def __repr__(self) -> str:
        # Depends only on the arguments: grain compares it with the repr of the reader in a checkpoint.
        return f"<closed {self._call}>" if self._closed else self._call

    def _repr_html_(self) -> str:
        return reader_html(repr(self), self._what.store, None if self._closed else lambda: self.schema)

    def locate(self, position: SupportsIndex) -> tuple[str, int]:
        """The path of the record at ``position``, and its number within that file."""
        return self._view.locate(as_position(position, len(self), "records"))

    # ---- records -------------------------------------------------------------------------------------------

    def raw(self, position: SupportsIndex) -> memoryview:
        """The payload at ``position``: a read-only view that stays valid as long as you hold it, even after
        `close`. Damage raises, whatever ``on_error`` says."""
        return self._view.fetch_one(as_position(position, len(self), "records"))[0]

    def read_raw(self, positions: Any) -> BytesColumn:
        """The payloads at ``positions``, in that order, without the damaged ones if damage is skipped."""
        return self._view.fetch(self._view.positions(positions)).payloads

    @suggests_options
    def read(
        self, positions: Any, columns: Iterable[str] | None = None, *, num_threads: int | None = None
    ) -> BatchType:
        """The records at ``positions`` as columns, one row each, in that order.

        Args:
            positions: integers in any order, repeats allowed; a list, array, range, slice, or a mask over
                all records.
            columns: names of the features to include; None: all that the reader decodes.
            num_threads: overrides the reader's.

        If damage is skipped, the rows of damaged records are left out, so the batch is shorter than
        ``positions``; a callable ``on_error`` gets the error of each.
        """
        names, threads = self._check_columns(columns), self._threads(num_threads)
        batch: Any = self._view.read(self._view.positions(positions), names, threads)
        return batch  # type: ignore[no-any-return]

    def _threads(self, num_threads: int | None) -> int:
        return self._view.decoder.num_threads if num_threads is None else check_threads(num_threads)

    def _check_columns(self, columns: Iterable[str] | None) -> tuple[str, ...] | None:
        if columns is not None:
            self._view.prepare()  # a schema may have the names
        return self._view.decoder.check_columns(columns)

    @suggests_options
    def decode(
        self,
        payloads: BytesColumn | Sequence[Any],
        positions: Any = None,
        columns: Iterable[str] | None = None,
    ) -> BatchType:
        """Decode payloads (a `BytesColumn` or a sequence of bytes-likes) as this reader does; ``positions``
        are only used in errors."""
        if not isinstance(payloads, BytesColumn):
            payloads = BytesColumn.from_list(as_payloads(payloads).buffers)
        self._view.prepare()
        names = self._check_columns(columns)

        def locate(row: int) -> tuple[str, int]:
            return self.locate(int(positions[row])) if positions is not None else (self.paths[0], row)

        batch: Any = self._view.decoder.batch(payloads, locate, names)
        return batch  # type: ignore[no-any-return]

    @overload  # an array has an __index__ too, but it only works without dimensions
    def __getitem__(self, key: slice | Sequence[int] | npt.NDArray[Any]) -> BatchType: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self: TFRecordReader[ColumnBatch], key: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self: TFRecordReader[SequenceBatch], key: SupportsIndex) -> tuple[Record, Record]: ...
    @overload
    def __getitem__(self: TFRecordReader[BytesColumn], key: SupportsIndex) -> bytes: ...
    def __getitem__(self, key: Any) -> Any:
        """One record for an integer (damage raises, whatever ``on_error`` says); columns, as from `read`, for
        a slice, a list or array of positions, or a mask."""
        if not is_integer(key):
            if getattr(key, "ndim", None) != 0 or not hasattr(key, "__index__"):  # not a scalar tensor
                return self.read(key)
        payload, number, record = self._view.fetch_one(as_position(key, len(self), "records"))
        self._view.prepare()
        self._view.decoder.look(self.paths[number], [payload])
        try:
            return self._view.decoder.one(payload)
        except LOCATED_ERRORS as error:
            raise self._view.decoder.located(error, self.paths[number], record) from None

    @overload
    def __iter__(self: TFRecordReader[ColumnBatch]) -> Iterator[Record]: ...
    @overload
    def __iter__(self: TFRecordReader[SequenceBatch]) -> Iterator[tuple[Record, Record]]: ...
    @overload
    def __iter__(self: TFRecordReader[BytesColumn]) -> Iterator[bytes]: ...
    def __iter__(self) -> Iterator[Any]:
        """All records in stored order (in a view, its own order): good ones first, then damage raises."""
        _ = self._view
        return self._until_closed(chain.from_iterable(self._records()))

    def _until_closed(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            if self._closed:
                raise ValueError(CLOSED)
            yield item

    def _records(self) -> Iterator[list[Any]]:
        self._view.prepare()
        for rows in self._view.rows():
            yield from self._view.decoder.records(rows)
        self._view.end_pass()

    @suggests_options
    def iter_file(self, number: int, *, start: int = 0, step: int = 1) -> Iterator[tuple[int, memoryview]]:
        """Records ``start``, ``start + step``, ... of one file in stored order: (number, payload), raw.

        Streams, even from compressed files, and needs no index. Views stay valid as long as you hold them.
        """
        number = as_position(number, self.num_files, "files")
        if start < 0 or step < 1:
            raise ValueError(f"start must be at least 0 and step at least 1, not {start} and {step}")
        return self._until_closed(
            (run.first + place * run.step, payload)
            for run in self._view.store.stream(number, start, step)
            for place, payload in enumerate(run.payloads())
        )

    @suggests_options
    def batches(
        self,
        batch_size: int,
        columns: Iterable[str] | None = None,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        epoch: int = 0,
        drop_last: bool = False,
        num_threads: int | None = None,
    ) -> Iterator[BatchType]:
        """All records as batches of ``batch_size`` rows; the last batch may be smaller.

        Args:
            shuffle: a true permutation of all records, determined by ``seed`` (None draws one) and ``epoch``
                alone; it needs positions. Otherwise the batches come in stored order, in one pass.
            drop_last: leave out a last batch that is not full.
            num_threads: overrides the reader's. With several, that many batches are decoded at once, ahead.

        Good records before damage come as a batch of their own before it raises. If damage is skipped,
        batches are filled with the records after it; only an intact record that is not a valid message leaves
        its batch shorter.
        """
        size = check_count(batch_size, "batch_size")
        if not isinstance(shuffle, (bool, np.bool_)):
            raise TypeError(f"shuffle is {shuffle!r}; here it is True or False")
        names, threads = self._check_columns(columns), self._threads(num_threads)
        batches: Any
        if not shuffle:
            batches = stored_batches(self._view, size, names, drop_last, threads)
            return self._until_closed(batches)
        order = Permutation(len(self), seed=secrets.randbits(63) if seed is None else seed, epoch=epoch)
        batches = shuffled_batches(self._view, size, names, drop_last, threads, order)
        return self._until_closed(batches)

    # ---- choosing records ----------------------------------------------------------------------------------

    @property
    def index(self) -> MergedIndex:
        """The index of all files as one: ``index.columns["label"]`` is an array with one entry per record."""
        return MergedIndex(self._view.store)

    @property
    def schema(self) -> Schema:
        """The features: a mapping of keys to ``kind``, ``num_present``, ``min_length``, ``max_length`` and
        ``shape`` (None if it varies); for SequenceExamples those of the context, with ``feature_lists``
        beside them.

        It is exact for files with an extended index; for others it comes from some of the records.

        Raises:
            FeatureKindError: a key has different types; the message names key, types and files.
        """
        store = self._view.store
        if self._schema is None:
            self._schema = read_schema(store, self._view.record_type)
        return self._schema

    def select(self, positions: Any) -> Self:
        """A view of some records, in this order, repeats allowed: it reads like a reader, and copies no data.

        ``positions`` are as for `read`; in a view they count within it.
        """
        made = copy.copy(self)
        chosen = self._view.positions(positions)
        made._view = self._view.select(chosen)
        made._call = f"{self._call}.select({array_text(chosen)})"
        made._views, made._owns_store = weakref.WeakSet(), False
        self._views.add(made)
        return made

    def where(self, conditions: Mapping[str, Any] | None = None, /, **named: Any) -> Int64Array:
        """The positions where index columns have these values (``reader.where(label=3)``): int64, ascending.

        A list or array of values means any of them; a callable gets the column and returns a bool array. If
        there are several conditions, all must hold; names that are not identifiers go into the dict. This
        does not read the data.

        Raises:
            KeyError: an index without that column; the message says how to build it.
            TypeError: the conditions are not a dict, or a value is not of the column's type.
        """
        if conditions is not None and not isinstance(conditions, Mapping):
            raise TypeError(
                "conditions are a dict {column: value} or keywords (label=3, or a function of the column: "
                "label=lambda column: column < 3), not "
                f"{type(conditions).__name__}"
            )
        keep = np.ones(len(self), np.bool_)
        columns, selection = self.index.columns, self._view.selection
        for name, wanted in {**(conditions or {}), **named}.items():
            column = columns[name]
            keep &= matching(column if selection is None else column[selection], wanted, name)
        return np.flatnonzero(keep).astype(np.int64, copy=False)

    # ---- life ----------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether this reader, or the reader that this is a view of, was closed."""
        return self._closed

    def close(self) -> None:
        """Release open files and temporary space. Existing payloads stay valid; views made by `select` are
        closed too. Every later read raises `ValueError`. Closing twice is fine.

        Closing a view leaves its reader open.
        """
        self._closed = True
        for view in list(self._views):
            view.close()
        if self._owns_store:
            self._what.store.close()

    def __enter__(self) -> Self:
        _ = self._view
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """The state for a copy in another process, which will be open."""
        return {**self.__dict__, "_closed": False, "_views": None, "_owns_store": True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._views = weakref.WeakSet()
