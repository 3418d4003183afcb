"""Every public name of 1.14.6 is where it was."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ITERATORS = ["cycle", "sample_iterators", "shuffle_iterator"]
LOADERS = ["example_loader", "extract_feature_dict", "multi_tfrecord_loader", "process_feature"]
LOADERS += ["sequence_loader", "tfrecord_iterator", "tfrecord_loader"]
MESSAGES = ["BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList"]
MESSAGES += ["Int64List", "SequenceExample"]
DATASETS = ["MultiTFRecordDataset", "TFRecordDataset"]
MODULES = ["example_pb2", "iterator_utils", "reader", "tools", "writer"]
NAMES = {
    "tfrecord": [*MODULES, *ITERATORS, *LOADERS, "TFRecordWriter"],
    "tfrecord.example_pb2": ["DESCRIPTOR", *MESSAGES],
    "tfrecord.iterator_utils": ITERATORS,
    "tfrecord.reader": ["example_pb2", "iterator_utils", *LOADERS],
    "tfrecord.tools": ["create_index", "tfrecord2idx"],
    "tfrecord.tools.tfrecord2idx": ["create_index", "create_indices", "main"],
    "tfrecord.writer": ["TFRecordWriter", "example_pb2"],
    "tfrecord.torch": ["dataset", *DATASETS],
    "tfrecord.torch.dataset": ["iterator_utils", "reader", *DATASETS],
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in NAMES.items() for name in names]
)
def test_it_can_be_imported(module: str, name: str) -> None:
    if module.startswith("tfrecord.torch"):
        pytest.importorskip("torch")
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize(
    "code",
    [
        "from tfrecord.tools import create_index",
        "import tfrecord; tfrecord.tools.tfrecord2idx.create_index",
        "import tfrecord; tfrecord.tools.create_index",
        "import tfrecord; tfrecord.reader.example_pb2.Example()",
        "import tfrecord; tfrecord.writer.example_pb2.Example()",
        "import tfrecord; tfrecord.reader.iterator_utils.cycle",
        "from tfrecord.reader import example_pb2, iterator_utils",
        "from tfrecord.writer import example_pb2",
    ],
)
def test_in_a_new_process(code: str) -> None:
    """Where nothing else has imported a module before."""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
