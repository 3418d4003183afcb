"""`RemoteStore`: payloads by position from a server, with the interface of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.errors import RemoteError, TFRecordError
from tfrecord._columns.arrays import Int64Array
from tfrecord._columns.batch import BytesColumn
from tfrecord._optional import optional
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.rows import RowBatch
from tfrecord._reading.runs import ReadOptions, RecordRun
from tfrecord._reading.store import Fetched, RecordStore
from tfrecord.flight.connection import Connection, Tries
from tfrecord.flight.failures import decode_error
from tfrecord.flight.tickets import VERSION, encode_message

__all__ = ["RemoteStore"]

# A ticket has at most 1 MiB, and a position 8 bytes.
_MOST_POSITIONS = 1 << 16


class RemoteStore(RecordStore):
    """The records of a data set of a server. Its paths are the data set's URL and the files' names in it.

    ``known``: what the action ``describe`` says. Positions stay those of the files of then.
    """

    has_files = False

    def __init__(self, connection: Connection, known: Mapping[str, Any], policy: DamagePolicy) -> None:
        self.connection, self.known = connection, known
        self._base = connection.address.url
        connection.spread([int(port) for port in known.get("ports", ())])
        files = known["files"]
        super().__init__([f"{self._base}/{name}" for name, _, _ in files], [], ReadOptions(), policy)
        self._set_starts([count for _, count, _ in files])
        self._ticket = {"v": VERSION, "data": connection.address.name, "fingerprint": known["fingerprint"]}
        self._command = encode_message({**self._ticket, "raw": True})
        indexes: Any = [_RemoteIndex(self, number) for number in range(len(files))]
        self.given, self._indexes = tuple(indexes), indexes
        self._columns: dict[str, npt.NDArray[Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteStore, (self.connection, self.known, self.policy)

    # ---- what is known -------------------------------------------------------------------------------------

    def place(self, path: str) -> str:
        return path

    def index(self, number: int) -> Any:
        self.check_open()
        return self.given[number]

    def compression(self, number: int) -> str:
        return str(self.known["files"][number][2])

    def index_column(self, name: str) -> npt.NDArray[Any]:
        """A column of the index, one entry per record; fetched once."""
        if name not in self._columns:
            dtype = self.known["index_columns"][name]
            found = self.scan({"index": [name]}, 0, len(self), 1, DamagePolicy())
            parts = [_index_values(batch.column(0), dtype) for _, batch, _ in found]
            masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
            joined: Any = np.ma.concatenate if masked else np.concatenate
            column = joined(parts) if parts else np.empty(0, np.dtype(dtype))
            column.flags.writeable = False
            self._columns[name] = column
        return self._columns[name]

    def sizes(self, positions: Int64Array) -> Int64Array:
        return self._of_frames("len()", positions)

    def offset_of(self, path: str, record: int) -> int | None:
        number = self.paths.index(path) if path in self.paths else -1
        if number < 0 or self.closed:
            return None
        try:
            return int(self._of_frames("offset()", self.starts[number : number + 1] + record)[0])
        except (TFRecordError, OSError):
            return None

    def ask(self, what: Mapping[str, Any], positions: Int64Array) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Record batches of what a ticket asks for, with their metadata; damage raises."""
        self.check_open()
        return self._ask(encode_message({**self._ticket, **what}), positions, DamagePolicy(), [])

    def _of_frames(self, name: str, positions: Int64Array) -> Int64Array:
        command = encode_message({**self._ticket, "index": [name]})
        parts = [batch.column(0).to_numpy() for batch, _ in self._ask(command, positions, DamagePolicy(), [])]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def open(self, number: int) -> Any:
        raise RemoteError(self.paths[number], "the files of a data set are not sent")

    def open_all(self) -> None:
        pass

    def use_indexes(self, index: Any) -> None:
        pass

    def close(self) -> None:
        super().close()
        self.connection.close()

    # ---- bytes ---------------------------------------------------------------------------------------------

    def fetch_one(self, position: int) -> tuple[memoryview, int, int]:
        payload = self._fetch(np.array([position], np.int64), DamagePolicy()).payloads.view(0)
        return payload, *self.locate(position)

    def fetch_from(self, number: int, record: int) -> memoryview:
        return self.fetch_one(int(self.starts[number]) + record)[0]

    def fetch(self, positions: Int64Array) -> Fetched:
        return self._fetch(positions, self.policy)

    def _fetch(self, positions: Int64Array, policy: DamagePolicy) -> Fetched:
        self.check_open()
        bad: list[int] = []
        parts = [_payloads(batch) for batch, _ in self._ask(self._command, positions, policy, bad)]
        payloads = BytesColumn.concat(parts) if parts else BytesColumn.from_list([])
        return Fetched(payloads, np.delete(positions, bad) if bad else positions)

    def fetch_in_order(self, positions: Int64Array) -> Iterator[Fetched]:
        self.check_open()
        done = 0
        bad: list[int] = []
        for batch, _ in self._ask(self._command, positions, self.policy, bad):
            done += sum(1 for row in bad if row >= done)
            yield Fetched(_payloads(batch), positions[done : done + batch.num_rows])
            done += batch.num_rows

    def _ask(
        self, command: bytes, positions: Int64Array, policy: DamagePolicy, bad: list[int]
    ) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Record batches for positions, with their metadata; ``bad`` gets the rows skipped as damaged."""
        tries = Tries(self.connection)
        most = min(int(self.known["max_rows"]), _MOST_POSITIONS)
        done = 0
        while done < len(positions):
            first, stop = done, min(done + most, len(positions))
            part = positions[first:stop].astype("<i8", copy=False).tobytes()
            try:
                for batch, told in self.connection.ask(command, {"positions": part}):
                    if batch is not None:
                        self._expect(done + batch.num_rows <= stop)
                        yield batch, told
                        done += batch.num_rows
                        tries.succeeded()
                    elif "error" in told:
                        policy.handle(self._told_error(told["error"]))
                        bad.append(done)
                        done += 1
                self._expect(first < done)
            except TFRecordError:
                raise
            except Exception as error:
                tries.failed(error)

    def _expect(self, fits: bool) -> None:
        if not fits:
            raise RemoteError(self._base, "the server gave other records than were asked for")

    def _told_error(self, told: Mapping[str, Any]) -> Any:
        error = decode_error(told, self._base)
        if not isinstance(error, TFRecordError):
            raise error
        return error

    def rows(self) -> Iterator[RowBatch]:
        for first, batch, _ in self.scan({"raw": True}, 0, len(self), 1, self.policy):
            positions = np.arange(first, first + batch.num_rows, dtype=np.int64)
            yield RowBatch(_payloads(batch), self.paths, *self.places(positions))

    def stream(
        self,
        number: int,
        start: int = 0,
        step: int = 1,
        seek: tuple[int, int] = (0, 0),
        policy: DamagePolicy | None = None,
        stop: int | None = None,
    ) -> Iterator[RecordRun]:
        begin, end = self.starts[number : number + 2].tolist()
        end = end if stop is None else min(end, begin + stop)
        for first, batch, _ in self.scan({"raw": True}, begin + start, end, step, policy or self.policy):
            column = _payloads(batch)
            places = column.offsets.view(np.uint64), column.lengths.view(np.uint64)
            yield RecordRun(column._memoryviews()[0], *places, first - begin, step, 0, None, header=0)

    def scan(
        self, what: Mapping[str, Any], start: int, stop: int, step: int, policy: DamagePolicy
    ) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
        """Every ``step``-th record as a ticket asks for it: the position of a batch's first record, the
        record batch, and its metadata."""
        self.check_open()
        tries = Tries(self.connection)
        while start < stop:
            stream = None
            try:
                ticket = {**self._ticket, **what, "slice": [start, stop, step]}
                stream = self.connection.get(encode_message(ticket))
                while start < stop:
                    batch, told = stream.receive()
                    self.check_open()
                    self._expect(batch is not None and start + (batch.num_rows - 1) * step < stop)
                    first = start
                    start += batch.num_rows * step
                    tries.succeeded()
                    yield first, batch, told or {}
            except TFRecordError:
                raise
            except Exception as error:
                start = self._after(error, start, step, policy, tries)
            finally:
                if stream is not None:
                    stream.close()

    def _after(self, error: Exception, start: int, step: int, policy: DamagePolicy, tries: Tries) -> int:
        """Where to go on after an error, if at all."""
        try:
            tries.failed(error)
        except TFRecordError as told:
            if isinstance(told, RemoteError):
                raise
            policy.handle(told)
            return start + step
        return start


class _RemoteIndex:
    """What is known about the index of one file."""

    index_path = None

    def __init__(self, store: RemoteStore, number: int) -> None:
        self._store, self._number = store, number
        known = store.known
        is_message = known["record_type"] != "bytes"
        found: dict[str, Any] = {"record_type": known["record_type"]}
        found["looked_at"] = [int(is_message), int(not is_message)] if known["num_records"] else [0, 0]
        if known.get("schema") is not None:
            # The schema of all files stands with the first.
            found["schema"] = known["schema"] if not number else {"num_records": 0}
        self.metadata = found
        self.compression = store.compression(number)

    def __len__(self) -> int:
        return int(self._store.known["files"][self._number][1])

    @property
    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        return _IndexColumns(self._store, *self._store.starts[self._number : self._number + 2].tolist())


class _IndexColumns(Mapping[str, npt.NDArray[Any]]):
    def __init__(self, store: RemoteStore, start: int, stop: int) -> None:
        self._store, self._rows = store, slice(start, stop)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._store.known["index_columns"]:
            raise KeyError(name)
        return self._store.index_column(name)[self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.known["index_columns"])

    def __len__(self) -> int:
        return len(self._store.known["index_columns"])


def _payloads(batch: Any) -> BytesColumn:
    """The column `record` of a record batch, over its memory."""
    column = batch.column(0)
    if column.type != optional("pyarrow").large_binary() or column.null_count:
        raise TypeError(f"the server sent {column.type} for payloads")
    if not len(column):
        return BytesColumn.from_list([])
    _, splits, data = column.buffers()
    # A copy, since gRPC aligns nothing.
    ends = np.frombuffer(splits, np.int64, len(column) + 1, 8 * column.offset).copy()
    payloads = memoryview(data or b"").cast("B")
    if ends[0] < 0 or ends[-1] > len(payloads) or not (ends[:-1] <= ends[1:]).all():
        raise ValueError("the server sent payloads that lie outside their message")
    return BytesColumn._trusted((payloads,), ends[:-1], np.diff(ends))


def _index_values(column: Any, dtype: str) -> npt.NDArray[Any]:
    """A column of an index as the local one would be: masked where values are missing."""
    target = np.dtype(dtype)
    data = column.buffers()[1]
    values = np.frombuffer(data or b"", target, len(column), target.itemsize * column.offset).copy()
    found: npt.NDArray[Any] = values
    if column.null_count:
        found = np.ma.MaskedArray(values, ~np.asarray(column.is_valid()))
    return found
