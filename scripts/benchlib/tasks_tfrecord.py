"""This library's side of every case."""

from __future__ import annotations

import ctypes
import gc
import mmap
import multiprocessing
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

import indexer
import tfrecord
from benchlib import tasks_compressed, tasks_flight, tasks_torch
from benchlib.common import (
    OwnMemory,
    Run,
    Spec,
    Task,
    batches_of,
    draws,
    drop_pages,
    memory,
    read_payloads,
    scratch,
)
from benchlib.ours import features_of, holding, own_index, reader_of, rows_of


def version() -> str:
    """The version, if it is installed, and the engine."""
    return f"{getattr(tfrecord, '__version__', 'checkout')} ({tfrecord.engine})"


def index(spec: Spec) -> Run:
    """A validated build of the extended or text index; with ``schema`` also the features' schema."""
    build: Callable[..., Any] = tfrecord.build_index if spec.get("schema") else indexer.build_index
    options = {} if spec.get("schema") else {"format": spec.get("format", "extended")}

    def run() -> int:
        with scratch(spec) as folder:
            return len(build(spec["path"], os.path.join(folder, "out.tfindex"), **options))

    return run


def raw(spec: Spec) -> Run:
    """Payloads in stored order, verified, in batches."""
    reader, keep = reader_of(spec, record_type="bytes")
    return holding(keep, lambda: rows_of(reader.batches(spec["batch"])))


def raw_one(spec: Spec) -> Run:
    """Payloads in stored order, verified, one Python object each."""

    def run() -> int:
        records = tfrecord.tfrecord_iterator(spec["path"])
        return sum(1 for _ in islice(records, spec.get("limit")))

    return run


def iterate(spec: Spec) -> Run:
    """``for record in reader`` over byte records, verified."""
    reader, keep = reader_of(spec, record_type="bytes")
    return holding(keep, lambda: sum(1 for _ in islice(reader, spec.get("limit"))))


def open_one(spec: Spec) -> Run:
    """Open an index and read one record: the peak of a fresh process, then the median time of 20 more."""
    index_path = spec["path"] + ".tfindex"
    if not os.path.exists(index_path):
        indexer.build_index(spec["path"], index_path)
        gc.collect()

    def once() -> float:
        start = time.perf_counter()
        reader = tfrecord.TFRecordReader(spec["path"], index=index_path, record_type="bytes")
        reader.raw(spec["position"])
        return time.perf_counter() - start

    def run() -> dict[str, Any]:
        once()
        peak = memory()[1]
        return {"records": 1, "seconds": statistics.median(once() for _ in range(20)), "rss": peak}

    return run


def many(spec: Spec) -> Run:
    """Files of one record each, in random order, with a low limit of open files; every value is checked."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spec["open_files"], hard))
    order = list(range(spec["files"]))
    random.Random(spec.get("seed", 0)).shuffle(order)

    def run() -> int:
        reader = tfrecord.TFRecordReader(spec["path"])
        return sum(int(reader[i]["number"][0]) == i for i in order)

    return run


def decode(spec: Spec) -> Run:
    """``parse_example`` over batches in memory: BytesColumns or, with ``source`` "list", lists of bytes."""
    features, threads = features_of(spec), spec.get("threads", 1)
    batches: list[Any] = list(batches_of(spec))
    if spec.get("source") != "list":
        batches = [tfrecord.BytesColumn.from_list(batch) for batch in batches]

    def run() -> int:
        return rows_of(tfrecord.parse_example(batch, features, num_threads=threads) for batch in batches)

    return run


def decode_one(spec: Spec) -> Run:
    """``parse_single_example``: one dict per record; with ``described`` False, of all features."""
    short = {name: kind for name, kind, _ in spec["features"]} if spec.get("described", True) else None
    records = read_payloads(spec["path"], spec["limit"])

    def run() -> int:
        for record in records:
            tfrecord.parse_single_example(record, short)
        return len(records)

    return run


def read(spec: Spec) -> Run:
    """File to columns, verified."""
    reader, keep = reader_of(spec, features=features_of(spec), record_type="example")
    threads = spec.get("threads", 1)
    return holding(keep, lambda: rows_of(reader.batches(spec["batch"], num_threads=threads)))


def load(spec: Spec) -> Run:
    """``tfrecord_loader``: the file record by record to dicts, verified."""
    short = {name: kind for name, kind, _ in spec["features"]}

    def run() -> int:
        loader = tfrecord.tfrecord_loader(spec["path"], None, short)
        return sum(1 for _ in islice(loader, spec.get("limit")))

    return run


def random_read(spec: Spec) -> Run:
    """``read_raw`` (payloads) or ``read`` (columns) of random positions, verified."""
    reader, keep = reader_of(spec | {"index": True}, features=features_of(spec), record_type="example")
    positions = [np.array(some) for some in draws(spec)]
    take = reader.read_raw if spec["raw"] else reader.read
    return holding(keep, lambda: rows_of(take(some) for some in positions))


def _set_readahead(which: str) -> None:
    """Turn readahead off for the files of this process, which does nothing else."""
    from indexer.files import DataFile
    from indexer.localfile import MappedFile

    if which == "ours":
        return
    kinds: list[Any] = [DataFile, *DataFile.__subclasses__()]
    for kind in kinds:
        if "advise" in vars(kind):
            kind.advise = lambda self, ranges: None
    if which == "none":
        made = MappedFile.__init__
        madvise = ctypes.CDLL(None).madvise

        def make(self: Any, *given: Any) -> None:
            made(self, *given)
            start = np.frombuffer(self.buffer(), np.uint8).ctypes.data
            if madvise(ctypes.c_void_p(start), ctypes.c_size_t(self.size), mmap.MADV_RANDOM):
                raise OSError("the map does not take MADV_RANDOM")

        MappedFile.__init__ = make  # type: ignore[method-assign, assignment]


def cold(spec: Spec) -> Run:
    """Shuffled batches of a file whose pages were just dropped.

    ``readahead`` is "ours" (the kernel is told what is coming), "kernel" (it is not, and reads around each
    fault as its setting for the device says) or "none" (nor does it).
    """
    _set_readahead(spec["readahead"])
    batches: Callable[[], Iterable[Any]]
    if spec["through"] == "torch":
        from tfrecord.torch import TFRecordDataset

        keep, index_path = own_index(spec["path"])
        dataset: Any = TFRecordDataset(
            spec["path"], index_path, features_of(spec), shuffle=True, batch_size=spec["batch"]
        )
        batches = dataset.__iter__
    else:
        reader, keep = reader_of(spec | {"index": True}, features=features_of(spec), record_type="example")
        batches = partial(reader.batches, spec["batch"], shuffle=True, seed=1)
    name = spec["features"][0][0]

    def run() -> dict[str, Any]:
        drop_pages(spec["path"])
        start = time.perf_counter()
        rows = sum(len(batch[name]) for batch in batches())
        return {"records": rows, "seconds": time.perf_counter() - start}

    return holding(keep, run)


def _columns(spec: Spec) -> dict[str, Any]:
    records = read_payloads(spec["path"], spec.get("limit"))
    batch = tfrecord.parse_example(records, features_of(spec))
    return dict(batch)


def write_columns(spec: Spec) -> Run:
    """``write_batch`` of columns."""
    columns = _columns(spec)
    rows = len(next(iter(columns.values())))

    def run() -> int:
        with scratch(spec) as folder:
            with tfrecord.TFRecordWriter(
                os.path.join(folder, "out.tfrecord"), index=spec.get("index", False)
            ) as out:
                out.write_batch(columns)
        return rows

    return run


def write_records(spec: Spec) -> Run:
    """``write``, one dict per record."""
    short = {name: kind for name, kind, _ in spec["features"]}
    loader: Any = islice(tfrecord.tfrecord_loader(spec["path"], None, short), spec["limit"])
    data = [{key: (value, short[key]) for key, value in record.items()} for record in loader]

    def run() -> int:
        with scratch(spec) as folder:
            with tfrecord.TFRecordWriter(os.path.join(folder, "out.tfrecord")) as out:
                for datum in data:
                    out.write(datum)
        return len(data)

    return run


def peak(spec: Spec) -> Run:
    """One pass, and the most memory that the process had of its own."""
    folder, index_path = own_index(spec["path"])

    def once() -> int:
        if spec["work"] == "index":
            return len(indexer.build_index(spec["path"], os.path.join(folder.name, "again.tfindex")))
        options: dict[str, Any] = {"index": index_path, "features": features_of(spec)}
        with tfrecord.TFRecordReader(spec["path"], **options) as reader:
            return rows_of(reader.batches(spec["batch"], shuffle=spec["work"] == "shuffled"))

    def run() -> dict[str, Any]:
        start = time.perf_counter()
        with OwnMemory() as used:
            records = once()
        return {"records": records, "seconds": time.perf_counter() - start, "rss": used.peak}

    return holding(folder, run)


def remote_random(spec: Spec) -> Run:
    """Payloads at random positions behind a URL; the index is a local file."""
    folder, index_path = own_index(spec["path"])
    options: dict[str, Any] = {"storage_options": spec.get("storage"), "record_type": "bytes"}
    options["io_concurrency"] = spec.get("at_once", 64)
    reader = tfrecord.TFRecordReader(spec["url"], index=index_path, **options)
    turns = cycle(draws(spec))
    return holding(folder, lambda: len(reader.read_raw(next(turns))))


def _served(spec: Spec) -> Any:
    """A reader of the server's data set where there is a URL, else of the file."""
    options: dict[str, Any] = {"features": features_of(spec), "record_type": "example"}
    if "url" in spec:
        return tfrecord.connect(spec["url"], token=spec["token"], **options)
    return tfrecord.TFRecordReader(spec["path"], **options)


def served_random(spec: Spec) -> Run:
    """Random records as columns, from a server or the file."""
    reader = _served(spec)
    turns = cycle([np.array(some) for some in draws(spec)])
    return lambda: int(reader.read(next(turns)).num_rows)


def served_scan(spec: Spec) -> Run:
    """All records as columns, from a server or the file."""
    reader = _served(spec)
    return lambda: rows_of(reader.batches(spec["batch"]))


def tfds_examples(spec: Spec) -> Run:
    """The examples of a prepared folder one by one, images not decoded."""
    reader = tfrecord.tfds.open(spec["folder"], decode=False)
    return lambda: sum(1 for _ in reader)


def tfds_batches(spec: Spec) -> Run:
    """The same as batches of columns."""
    reader = tfrecord.tfds.open(spec["folder"], decode=False)
    batches: Callable[[int], Any] = reader.batches
    return lambda: sum(batch.num_rows for batch in batches(spec["batch"]))


def _split_rows(split: Any, batch: int) -> int:
    return rows_of(split.batches(batch))


def splits(spec: Spec) -> Run:
    """``make_splits`` without Ray: all of them here, or in ``processes`` others."""
    keep, index_path = own_index(spec["path"])
    reader = tfrecord.TFRecordReader(spec["path"], index=index_path)
    size, count = spec["batch"], spec.get("processes", 1)
    if count == 1:
        return holding(keep, lambda: sum(_split_rows(s, size) for s in tfrecord.make_splits(reader)))
    pool = multiprocessing.get_context("forkserver").Pool(count)

    def run() -> int:
        work = [(split, size) for split in tfrecord.make_splits(reader, 4 * count)]
        return sum(pool.starmap(_split_rows, work))

    return holding(keep, run)


TASKS: dict[str, Task] = {
    "index": index,
    "raw": raw,
    "raw_one": raw_one,
    "iterate": iterate,
    "open": open_one,
    "many": many,
    "decode": decode,
    "decode_one": decode_one,
    "read": read,
    "load": load,
    "random": random_read,
    "cold": cold,
    "write_columns": write_columns,
    "write_records": write_records,
    "peak": peak,
    "remote_random": remote_random,
    "served_random": served_random,
    "served_scan": served_scan,
    "tfds_examples": tfds_examples,
    "tfds_batches": tfds_batches,
    "splits": splits,
    **tasks_compressed.TASKS,
    **tasks_flight.TASKS,
    **tasks_torch.TASKS,
}
