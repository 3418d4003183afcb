"""Memory that another thread or process writes to while it is decoded gives any values, or an error of ours.

Nothing else may happen: no crash, no other exception."""

from __future__ import annotations

import mmap
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.errors import DecodeError, TFRecordError
from indexer.framing import check_frames, scan
from tfrecord._kernels.engine import decode_kernel, encode_kernel, engine
from tfrecord._kernels.record_type import classify
from tfrecord._writing.encoder import encode_example, encode_sequence_example
from tfrecord.columns import BytesColumn
from tfrecord.features import VarLenFeature
from tfrecord.parse import parse_example, parse_sequence_example, parse_single_example
from tfrecord.reader import TFRecordReader
from tfrecord.writer import TFRecordWriter

ROUNDS = 40 if engine == "native" else 2


KEYS = [(b"k01", b"k02"), (b"k02", b"k01"), (b"own1", b"own2")]
KINDS = [
    (b"\x1a\x04\x08\x05\x08\x06", b"\x0a\x04\x0a\x05\x08\x06"),
    (b"\x0a\x09\n\x04aaaa", b"\x12\x09\n\x04aaaa"),
    (b"\x0a\x06\n\x04aaaa", b"\x12\x06\n\x04aaaa"),
]
VALUES = [
    (b"k03", b"k\xff3"),  # no UTF-8
    (b"\x08\x05\x08\x06", b"\x08\x85\x08\x06"),  # two integers become one
    (b"\x7f" * 8, b"\xff" * 7 + b"\x7f"),
    (b"\x0a\x04aaaa", b"\x0a\x44aaaa"),  # a length that runs beyond the record
]
SWAPS = {"keys": KEYS, "kinds": KINDS, "values": VALUES[2:3], "all": KEYS + KINDS + VALUES}

Swaps = list[tuple[bytes, bytes]]
Places = list[tuple[int, bytes, bytes]]


def places_of(data: bytes, swaps: Swaps) -> Places:
    """Where one byte string may become another of the same length."""
    found = []
    for old, new in swaps:
        at = data.find(old)
        while at >= 0:
            found.append((at, old, new))
            at = data.find(old, at + 1)
    return found


def in_two_parts(key: bytes, kind: int, content: bytes) -> bytes:
    """A map entry whose Feature has its list in two parts, which only the complete walk takes."""
    value = (bytes([kind << 3 | 2, len(content)]) + content) * 2
    entry = b"\n" + bytes([len(key)]) + key + b"\x12" + bytes([len(value)]) + value
    return b"\n" + bytes([len(entry)]) + entry


def one_record(number: int) -> bytes:
    record = encode_example(
        {
            "k01": (number % 100, "int"),
            "k02": ([1.5, 2.5], "float"),
            "k03": ([b"aaaa", b"bb"], "byte"),
            "k04": ([127] * 60 + [number], "int"),
            "k05": ([5, 6], "int"),
            f"own{number % 7}": (b"aaaa", "byte"),
        }
    )
    odd = in_two_parts(b"k06", 3, b"\x08\x05\x08\x06") + in_two_parts(b"k07", 1, b"\n\x04aaaa\n\x01z")
    return record + b"\n" + bytes([len(odd)]) + odd


@contextmanager
def changing(buffers: list[Any], swaps: Swaps) -> Iterator[None]:
    """A thread that swaps parts of the buffers until the end; then they are as before."""
    before = [bytes(buffer) for buffer in buffers]
    places = [(buffer, *place) for buffer in buffers for place in places_of(bytes(buffer), swaps)]
    stop = threading.Event()

    def run() -> None:
        turn = 0
        while not stop.is_set():
            for buffer, at, old, new in places:
                buffer[at : at + len(old)] = new if turn % 2 == 0 else old
            turn += 1

    thread = threading.Thread(target=run)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
        for buffer, content in zip(buffers, before, strict=True):
            buffer[:] = content


def used(batch: Any) -> Any:
    use(batch)
    return batch.to_list()


def use(batch: Any) -> None:
    """Look at all that came out: it has to fit together."""
    for name, column in batch.items():
        assert len(column) == len(batch.present[name]) == batch.num_rows
        if hasattr(column, "row_splits"):
            splits = column.row_splits
            assert splits[0] == 0 and (np.diff(splits) >= 0).all() and splits[-1] == len(column.values)
            column = column.values
        if isinstance(column, BytesColumn):
            sizes = np.array([memoryview(buffer).nbytes for buffer in column.buffers], np.int64)
            ids = np.zeros(len(column), np.int32) if column.buffer_ids is None else column.buffer_ids
            assert (column.offsets >= 0).all() and (column.lengths >= 0).all()
            assert (
                column.offsets + column.lengths <= sizes[ids.reshape(-1)].reshape(column.offsets.shape)
            ).all()


SPEC = {"k01": "int", "k02": "float", "k03": "byte", "k04": "int", "k05": "int", "k06": "int", "k07": "byte"}

DECODERS: dict[str, Callable[[list[Any]], Any]] = {
    "every feature": lambda rows: used(parse_example(rows)),
    "every feature, two threads": lambda rows: used(parse_example(rows, num_threads=2)),
    "a spec": lambda rows: used(parse_example(rows, SPEC)),
    "a spec, two threads": lambda rows: used(parse_example(rows, SPEC, num_threads=2)),
    "one record": lambda rows: repr([parse_single_example(row) for row in rows]),
    "SequenceExamples": lambda rows: used(parse_sequence_example(rows).context),
    "kinds of records": lambda rows: [classify(row) for row in rows],
}


@pytest.mark.parametrize("swaps", SWAPS)
@pytest.mark.parametrize("name", DECODERS)
def test_a_thread_that_changes_what_is_decoded(name: str, swaps: str) -> None:
    rows = [bytearray(one_record(number)) for number in range(200)]
    expected = DECODERS[name](rows)
    with changing(rows, SWAPS[swaps]):
        for _ in range(ROUNDS):
            try:
                DECODERS[name](rows)
            except TFRecordError:
                pass
    assert DECODERS[name](rows) == expected  # nothing wrong was remembered


@pytest.mark.parametrize("swaps", SWAPS)
def test_a_thread_that_changes_one_buffer_of_many_records(swaps: str) -> None:
    rows = [one_record(number) for number in range(300)]
    buffer = bytearray(b"".join(rows))
    lengths = np.array([len(row) for row in rows], np.int64)
    payloads = BytesColumn([buffer], np.cumsum(lengths) - lengths, lengths)
    expected = used(parse_example(payloads, SPEC))
    with changing([buffer], SWAPS[swaps]):
        for threads in [1, 2] * (ROUNDS // 2):
            for spec in (None, SPEC):
                try:
                    use(parse_example(payloads, spec, num_threads=threads))
                except TFRecordError:
                    pass
            decode_kernel.survey(buffer, payloads.offsets, payloads.lengths)
            decode_kernel.check_records((buffer,), payloads.offsets, payloads.lengths)
    assert used(parse_example(payloads, SPEC)) == expected


def use_as_tables(batch: Any) -> None:
    """All that reads the buffers of byte strings again."""
    batch.to_list()
    repr(batch)
    batch._repr_html_()
    pickle.loads(pickle.dumps(batch))
    for column in batch.values():
        leaf = column.values if hasattr(column, "row_splits") else column
        if isinstance(leaf, BytesColumn):
            leaf.compact()
    pa = pytest.importorskip("pyarrow")
    for options in ({}, {"binary_views": True}, {"text": True}, {"nullable": True}):
        try:
            table = batch.to_arrow(**options)
        except DecodeError as error:
            assert options == {"text": True} and error.key is not None
        else:
            assert table.num_rows == batch.num_rows
            if "binary_views" not in options:
                table.validate(full=True)
                assert batch.num_rows == pa.table(batch).num_rows


STRINGS = [(b"aaaa", b"a\xffaa"), (b"bb", b"\xc3\x28")]
SAME_KIND = [(b"k04", b"k05"), (b"own1", b"own2"), *VALUES[2:3]]


@pytest.mark.parametrize("swaps", [STRINGS, SAME_KIND], ids=["strings", "keys and values"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thread_that_changes_what_becomes_a_table(swaps: Swaps, threads: int) -> None:
    rows = [bytearray(one_record(number)) for number in range(200)]
    rows += [bytearray(encode_example({"image": (b"GIF89aaaa", "byte"), "k03": (["aaaa"], "byte")}))] * 3
    with changing(rows, swaps):
        for _ in range(max(ROUNDS // 4, 1) if swaps is STRINGS else 2 * ROUNDS):  # most of these raise
            for spec in (None, SPEC, {"k04": VarLenFeature("uint8"), "k03": "byte"}):
                try:
                    batch = parse_example(rows, spec, num_threads=threads)
                except TFRecordError:
                    continue
                use_as_tables(batch)


def test_a_thread_that_changes_raw_arrays() -> None:
    rows = [bytearray(encode_example({"a": (b"\0\1" * 40 * (n % 3), "byte")})) for n in range(200)]
    specs = [{"a": VarLenFeature(dtype, raw=True, shape=(-1, 2))} for dtype in ("bool", "int8")]
    with changing(rows, [(b"\0\1\0\1", b"\0\7\0\1")]):
        for spec in specs * ROUNDS:
            try:
                column = parse_example(rows, spec)["a"]
            except TFRecordError:
                continue
            assert len(column.values) == column.row_splits[-1]
            assert column.values.dtype == np.int8 or column.values.view(np.uint8).max() <= 1


def test_a_thread_that_changes_feature_lists() -> None:
    steps = [[1, 2], [127] * 40, [3]]
    rows = [
        bytearray(
            encode_sequence_example({"k01": (1, "int")}, {"k02": (steps, "int"), "k03": (steps, "int")})
        )
        for _ in range(100)
    ]
    with changing(rows, KEYS + VALUES):
        for threads in [1, 2] * (ROUNDS // 2):
            try:
                batch = parse_sequence_example(rows, num_threads=threads)
                assert all(len(column) == len(rows) for column in batch.feature_lists.values())
            except TFRecordError:
                pass


def test_a_thread_that_changes_frames() -> None:
    frame = b"\x08" + bytes(7)
    data = bytearray((frame + bytes(4) + b"\x7f" * 8 + bytes(4)) * 2000)
    with changing([data], VALUES):
        for _ in range(ROUNDS):
            found = scan(data, verify=False)
            assert found.lengths.tolist() == [8] * 2000  # headers do not change
            check_frames(data, found.offsets, found.lengths, verify=True)


@pytest.mark.skipif(encode_kernel is None, reason="plain Python encodes from lists")
def test_a_thread_that_changes_arrays_while_they_are_encoded() -> None:
    array = np.full(4000, 127, np.int64)
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            array[::3] = 1 << 40
            array[::3] = 127

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(ROUNDS):
            try:
                data = encode_example({"k": (array, "int")})
            except RuntimeError as error:
                assert "changed" in str(error)
            else:
                assert classify(data).name == "EXAMPLE"
    finally:
        stop.set()
        thread.join()


CHANGER = """
import mmap, sys
path, places = sys.argv[1], eval(sys.argv[2])
with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
    print("begun", flush=True)
    while True:
        for at, old, new in places:
            data[at : at + len(old)] = new
        for at, old, new in places:
            data[at : at + len(old)] = old
"""


def test_a_process_that_writes_to_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "changing.tfrecord"
    with TFRecordWriter(path) as writer:
        for number in range(300):
            writer.write_bytes(one_record(number))
    places = places_of(path.read_bytes(), SWAPS["all"])[:400]
    with subprocess.Popen(
        [sys.executable, "-c", CHANGER, str(path), repr(places)], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"begun\n"
            reader = TFRecordReader(path, record_type="example", verify=False)
            checked = TFRecordReader(path, record_type="example")
            with warnings.catch_warnings(), open(path, "rb") as file:
                warnings.simplefilter("ignore")  # of records that look like others
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                for threads in [1, 2] * (ROUNDS // 2):
                    for read in (
                        lambda threads=threads: use(reader.read(range(300), num_threads=threads)),
                        lambda: list(reader),
                        lambda: reader[7],
                        lambda: scan(mapped),
                        lambda: use_as_tables(reader.read(range(100))),
                        lambda: list(reader.batches(64)),
                        lambda: list(checked),
                        lambda: checked.read(range(0, 300, 7)),
                        lambda: [bytes(payload) for payload in reader.read_raw(range(50))],
                    ):
                        try:
                            read()
                        except TFRecordError:
                            pass
        finally:
            process.kill()


@pytest.mark.skipif(encode_kernel is None, reason="plain Python encodes a copy of the list")
@pytest.mark.parametrize(("kind", "scalar"), [("int", np.int64), ("float", np.float64)], ids=["int", "float"])
def test_a_list_that_gets_shorter_while_it_is_encoded(kind: str, scalar: type) -> None:
    values: list[Any] = []

    class Meta(type):
        """A class that passes for a NumPy scalar, and clears the list when the kernel looks at it."""

        def __hash__(cls) -> int:
            values.clear()
            return hash(scalar)

        def __eq__(cls, other: object) -> bool:
            return True

    class Odd(metaclass=Meta):
        def __index__(self) -> int:
            return 1

        def __float__(self) -> float:
            return 1.0

    values[:] = [1, Odd(), *range(200)]
    with pytest.raises(RuntimeError, match="changed"):
        encode_example({"k": (values, kind)})
    assert not values
