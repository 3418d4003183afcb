"""The side of tfrecord 1.14.6, from which this library descends, in its own environment."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import tempfile
from itertools import islice
from typing import Any

from benchlib.common import Run, Spec, Task, read_payloads, scratch

# By name, because it is not the package of this checkout, which has the same name.
lineage: Any = importlib.import_module("tfrecord")
create_index: Any = importlib.import_module("tfrecord.tools.tfrecord2idx").create_index
_TYPENAMES = {"byte": "bytes_list", "float": "float_list", "int": "int64_list"}
_SHORT = {"bytes": "byte", "float": "float", "int": "int"}


def version() -> str:
    """The installed distribution's version."""
    return importlib.metadata.version("tfrecord")


def _description(spec: Spec) -> dict[str, str]:
    return {name: _SHORT[kind] for name, kind, _ in spec["features"]}


def index(spec: Spec) -> Run:
    """``create_index``: scans the headers, checks nothing, writes the text index."""

    def run() -> int:
        with scratch(spec) as folder:
            create_index(spec["path"], os.path.join(folder, "out.tfindex"))
        return int(spec["records"])

    return run


def raw_one(spec: Spec) -> Run:
    """``tfrecord_iterator``, unverified."""

    def run() -> int:
        return sum(1 for _ in islice(lineage.tfrecord_iterator(spec["path"]), spec["limit"]))

    return run


def decode_one(spec: Spec) -> Run:
    """What its loader does with each record: parse the message, then make the dict."""
    extract: Any = importlib.import_module("tfrecord.reader").extract_feature_dict
    example_class: Any = importlib.import_module("tfrecord.example_pb2").Example
    description = _description(spec) if spec.get("described", True) else None
    records = read_payloads(spec["path"], spec["limit"])

    def run() -> int:
        for record in records:
            example = example_class()
            example.ParseFromString(record)
            extract(example.features, description, _TYPENAMES)
        return len(records)

    return run


def read(spec: Spec) -> Run:
    """``tfrecord_loader``: the file record by record to dicts, unverified."""
    description = _description(spec)

    def run() -> int:
        loader = lineage.tfrecord_loader(spec["path"], None, description)
        return sum(1 for _ in islice(loader, spec["limit"]))

    return run


def write(spec: Spec) -> Run:
    """``TFRecordWriter.write``, one dict per record."""
    path, description = spec["path"], _description(spec)
    loader = islice(lineage.tfrecord_loader(path, None, description), spec["limit"])
    data = [{key: (value, description[key]) for key, value in record.items()} for record in loader]

    def run() -> int:
        with scratch(spec) as folder:
            writer = lineage.TFRecordWriter(os.path.join(folder, "out.tfrecord"))
            for datum in data:
                writer.write(datum)
            writer.close()
        return len(data)

    return run


def torch_epoch(spec: Spec) -> Run:
    """One epoch of ``TFRecordDataset(shuffle_queue_size=1024)`` through a DataLoader with default collate."""
    import torch.utils.data

    dataset_class: Any = importlib.import_module("tfrecord.torch.dataset").TFRecordDataset
    folder = tempfile.TemporaryDirectory()
    index_path = os.path.join(folder.name, "text.tfindex")
    create_index(spec["path"], index_path)
    workers = spec["workers"]
    dataset: Any = dataset_class(spec["path"], index_path, _description(spec), spec["shuffle"])
    loader: Any = torch.utils.data.DataLoader(
        dataset,
        batch_size=spec["batch"],
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="fork" if workers else None,  # its default transform is a lambda
    )
    name = spec["features"][0][0]

    def run() -> int:
        assert folder.name  # lives as long as this function
        return sum(len(batch[name]) for batch in loader)

    return run


TASKS: dict[str, Task] = {
    "index": index,
    "raw_one": raw_one,
    "decode_one": decode_one,
    "read": read,
    "write": write,
    "torch_epoch": torch_epoch,
}
