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
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle, islice
from typing import Any
from unittest import mock

import numpy as np

import indexer
import tfrecord
from benchlib import tasks_compressed
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
from tfrecord._columns import pixels

_DTYPE = {"bytes": "bytes", "float": "float32", "int": "int64"}


def version() -> str:
    """The version, if it is installed, and the engine."""
    return f"{getattr(tfrecord, '__version__', 'checkout')} ({tfrecord.engine})"


def _features(spec: Spec) -> dict[str, Any]:
    wanted = spec.get("columns")
    out: dict[str, Any] = {}
    for name, kind, length in spec["features"]:
        if wanted is not None and name not in wanted:
            continue
        if spec.get("form", "fixed") == "fixed":
            out[name] = tfrecord.FixedLenFeature(() if length == 1 else (length,), _DTYPE[kind])
        else:
            out[name] = tfrecord.RaggedFeature(_DTYPE[kind])
    return out


def _own_index(path: str) -> tuple[tempfile.TemporaryDirectory[str], str]:
    folder = tempfile.TemporaryDirectory()
    index_path = os.path.join(folder.name, "data.tfindex")
    indexer.build_index(path, index_path)
    return folder, index_path


def _reader(spec: Spec, **options: Any) -> tuple[Any, Any]:
    """The reader of a request, and an object that must live as long as the reader."""
    keep: Any = None
    index: Any = False
    if spec.get("index"):
        keep, index = _own_index(spec["path"])
    return tfrecord.TFRecordReader(spec["path"], index=index, **options), keep


def _holding(keep: Any, run: Run) -> Run:
    """``run``, which also keeps a temporary folder alive."""

    def held() -> int | dict[str, Any]:
        return run() if keep is None or keep.name else 0

    return held


def _rows(batches: Iterable[Any]) -> int:
    return sum(len(batch) if hasattr(batch, "buffers") else batch.num_rows for batch in batches)


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
    reader, keep = _reader(spec, record_type="bytes")
    return _holding(keep, lambda: _rows(reader.batches(spec["batch"])))


def raw_one(spec: Spec) -> Run:
    """Payloads in stored order, verified, one Python object each."""

    def run() -> int:
        records = tfrecord.tfrecord_iterator(spec["path"])
        return sum(1 for _ in islice(records, spec.get("limit")))

    return run


def iterate(spec: Spec) -> Run:
    """``for record in reader`` over byte records, verified."""
    reader, keep = _reader(spec, record_type="bytes")
    return _holding(keep, lambda: sum(1 for _ in islice(reader, spec.get("limit"))))


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
    features, threads = _features(spec), spec.get("threads", 1)
    batches: list[Any] = list(batches_of(spec))
    if spec.get("source") != "list":
        batches = [tfrecord.BytesColumn.from_list(batch) for batch in batches]

    def run() -> int:
        return _rows(tfrecord.parse_example(batch, features, num_threads=threads) for batch in batches)

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
    reader, keep = _reader(spec, features=_features(spec), record_type="example")
    threads = spec.get("threads", 1)
    return _holding(keep, lambda: _rows(reader.batches(spec["batch"], num_threads=threads)))


def load(spec: Spec) -> Run:
    """``tfrecord_loader``: the file record by record to dicts, verified."""
    short = {name: kind for name, kind, _ in spec["features"]}

    def run() -> int:
        loader = tfrecord.tfrecord_loader(spec["path"], None, short)
        return sum(1 for _ in islice(loader, spec.get("limit")))

    return run


def random_read(spec: Spec) -> Run:
    """``read_raw`` (payloads) or ``read`` (columns) of random positions, verified."""
    reader, keep = _reader(spec | {"index": True}, features=_features(spec), record_type="example")
    positions = [np.array(some) for some in draws(spec)]
    take = reader.read_raw if spec["raw"] else reader.read
    return _holding(keep, lambda: _rows(take(some) for some in positions))


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

        keep, index_path = _own_index(spec["path"])
        dataset: Any = TFRecordDataset(
            spec["path"], index_path, _features(spec), shuffle=True, batch_size=spec["batch"]
        )
        batches = dataset.__iter__
    else:
        reader, keep = _reader(spec | {"index": True}, features=_features(spec), record_type="example")
        batches = partial(reader.batches, spec["batch"], shuffle=True, seed=1)
    name = spec["features"][0][0]

    def run() -> dict[str, Any]:
        drop_pages(spec["path"])
        start = time.perf_counter()
        rows = sum(len(batch[name]) for batch in batches())
        return {"records": rows, "seconds": time.perf_counter() - start}

    return _holding(keep, run)


def _columns(spec: Spec) -> dict[str, Any]:
    records = read_payloads(spec["path"], spec.get("limit"))
    batch = tfrecord.parse_example(records, _features(spec))
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


def torch_epoch(spec: Spec) -> Run:
    """One epoch of the iterable dataset, whose batches come from columns, through a DataLoader."""
    import torch.utils.data

    from tfrecord.torch import TFRecordDataset

    folder, index_path = _own_index(spec["path"])
    workers = spec["workers"]
    dataset: Any = TFRecordDataset(
        spec.get("url", spec["path"]),
        index_path,
        _features(spec),
        shuffle=spec["shuffle"],
        batch_size=spec["batch"],
        cache=spec.get("cache"),
    )
    loader: Any = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )
    name = spec["features"][0][0]

    return _holding(folder, lambda: sum(len(batch[name]) for batch in loader))


def _image_loader(spec: Spec, features: dict[str, Any], **options: Any) -> Any:
    import torch.utils.data

    from tfrecord.torch import TFRecordDataset

    workers = spec["workers"]
    dataset: Any = TFRecordDataset(
        spec["path"], None, features, shuffle=True, batch_size=spec["batch"], **options
    )
    return torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )


def images(spec: Spec) -> Run:
    """An epoch of JPEGs decoded by ImageFeature: from a reader's batches, or through a DataLoader."""
    side = spec["side"]
    image = tfrecord.ImageFeature((side, side, 3), num_threads=spec.get("threads"))
    features = {"image": image, "label": tfrecord.FixedLenFeature((), "int64")}
    if "workers" in spec:
        loader = _image_loader(spec, features)
        return lambda: sum(len(batch["image"]) for batch in loader)
    reader = tfrecord.TFRecordReader(spec["path"], index=False, features=features)
    pillow, simplejpeg = pixels.load_decoders()
    decoders = (pillow, simplejpeg if spec.get("simplejpeg", True) else None)

    def run() -> int:
        with mock.patch.object(pixels, "load_decoders", lambda: decoders):
            return _rows(reader.batches(spec["batch"]))

    return run


def image_transform(spec: Spec) -> Run:
    """The same without ImageFeature: Pillow in a transform."""
    import io

    import torch
    from PIL import Image

    def decoded(batch: Any) -> Any:
        images = [np.asarray(Image.open(io.BytesIO(data))) for data in batch["image"]]
        return {"image": torch.from_numpy(np.stack(images)), "label": batch["label"]}

    features = {name: tfrecord.FixedLenFeature((), _DTYPE[kind]) for name, kind, _ in spec["features"]}
    loader = _image_loader(spec, features, transform=decoded)
    return lambda: sum(len(batch["image"]) for batch in loader)


def peak(spec: Spec) -> Run:
    """One pass, and the most memory that the process had of its own."""
    folder, index_path = _own_index(spec["path"])

    def once() -> int:
        if spec["work"] == "index":
            return len(indexer.build_index(spec["path"], os.path.join(folder.name, "again.tfindex")))
        options: dict[str, Any] = {"index": index_path, "features": _features(spec)}
        with tfrecord.TFRecordReader(spec["path"], **options) as reader:
            return _rows(reader.batches(spec["batch"], shuffle=spec["work"] == "shuffled"))

    def run() -> dict[str, Any]:
        start = time.perf_counter()
        with OwnMemory() as used:
            records = once()
        return {"records": records, "seconds": time.perf_counter() - start, "rss": used.peak}

    return _holding(folder, run)


def overlap(spec: Spec) -> Run:
    """Epochs of batches, each with a step that takes as long as loading a batch did, and needs no CPU."""
    from tfrecord.torch import TFRecordDataset

    folder, index_path = _own_index(spec["path"])
    options: Any = {"batch_size": spec["batch"], "prefetch": spec["prefetch"]}
    dataset: Any = TFRecordDataset(spec["path"], index_path, _features(spec), **options)
    name = spec["features"][0][0]

    def epoch(step: float) -> int:
        rows = 0
        for batch in dataset:
            rows += len(batch[name])
            if step:
                time.sleep(step)
        return rows

    passes = []
    for _ in range(4):
        start = time.perf_counter()
        epoch(0)
        passes.append(time.perf_counter() - start)
    step = min(passes) / len(dataset)
    return _holding(folder, lambda: epoch(step))


def remote_random(spec: Spec) -> Run:
    """Payloads at random positions behind a URL; the index is a local file."""
    folder, index_path = _own_index(spec["path"])
    options: dict[str, Any] = {"storage_options": spec.get("storage"), "record_type": "bytes"}
    options["io_concurrency"] = spec.get("at_once", 64)
    reader = tfrecord.TFRecordReader(spec["url"], index=index_path, **options)
    turns = cycle(draws(spec))
    return _holding(folder, lambda: len(reader.read_raw(next(turns))))


def _served(spec: Spec) -> Any:
    """A reader of the server's data set where there is a URL, else of the file."""
    options: dict[str, Any] = {"features": _features(spec), "record_type": "example"}
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
    return lambda: _rows(reader.batches(spec["batch"]))


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
    return _rows(split.batches(batch))


def splits(spec: Spec) -> Run:
    """``make_splits`` without Ray: all of them here, or in ``processes`` others."""
    keep, index_path = _own_index(spec["path"])
    reader = tfrecord.TFRecordReader(spec["path"], index=index_path)
    size, count = spec["batch"], spec.get("processes", 1)
    if count == 1:
        return _holding(keep, lambda: sum(_split_rows(s, size) for s in tfrecord.make_splits(reader)))
    pool = multiprocessing.get_context("forkserver").Pool(count)

    def run() -> int:
        work = [(split, size) for split in tfrecord.make_splits(reader, 4 * count)]
        return sum(pool.starmap(_split_rows, work))

    return _holding(keep, run)


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
    "torch_epoch": torch_epoch,
    "overlap": overlap,
    "images": images,
    "image_transform": image_transform,
    "peak": peak,
    "remote_random": remote_random,
    "served_random": served_random,
    "served_scan": served_scan,
    "tfds_examples": tfds_examples,
    "tfds_batches": tfds_batches,
    "splits": splits,
    **tasks_compressed.TASKS,
}
