"""What tensorflow-datasets does. Runs in the peer's Python.

    python peer.py FOLDER

prepares a data set for each case in FOLDER, and writes there

- expected.pickle: a dict of the name of the case to (path of the version, {split: [example, ...]}), nested
  dicts of what `tfds.as_numpy` gives, ragged tensors as ("ragged", lists, dtype) and nested data sets as
  ("dataset", [step, ...]).
- splits.pickle: what splits mean: (split, lengths of the shards) to [(name, start, stop), ...], None where
  it raises.
- connectors.pickle: the names of all classes of connectors in the package.
"""

from __future__ import annotations

import ast
import os
import pathlib
import pickle
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]
import tensorflow_datasets as tfds  # type: ignore[import-not-found, import-untyped, unused-ignore]
from peer_cases import CASES, case, define

f = tfds.features


def plain(value: Any) -> Any:
    """What `as_numpy` gives, so that it pickles."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tf.RaggedTensor):
        return (
            "ragged",
            value.to_list(),
            value.dtype.as_numpy_dtype().dtype if value.dtype != tf.string else None,
        )
    if isinstance(value, np.ndarray | np.generic | bytes):
        return value
    return ("dataset", [plain(item) for item in value])


def builder_of(name: str, folder: str) -> Any:
    features, splits, shards = CASES[name]

    def info(self: Any) -> Any:
        return tfds.core.DatasetInfo(builder=self, features=f.FeaturesDict(features), disable_shuffling=True)

    def split_generators(self: Any, manager: Any) -> Any:
        return {split: iter(enumerate(examples)) for split, examples in splits.items()}

    members = {
        "VERSION": tfds.core.Version("1.0.0"),
        "_info": info,
        "_split_generators": split_generators,
        "_generate_examples": lambda self: iter(()),
    }
    # TFDS takes the name of the data set from that of the class.
    made = type(name.capitalize(), (tfds.core.GeneratorBasedBuilder,), {**members, "__module__": __name__})
    builder = made(data_dir=folder)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=shards))
    return builder


class Celsius(f.Tensor):  # type: ignore[misc, unused-ignore]
    """A connector that only this file knows."""


def folders(folder: str) -> None:
    """Prepare everything, read it, and write down what was read."""
    define()
    case(
        "custom", {"warm": Celsius(shape=(2,), dtype=np.float32), "x": np.int64}, [{"warm": [1.5, 2], "x": 3}]
    )
    expected = {}
    config = tfds.ReadConfig(interleave_cycle_length=1)
    for name in CASES:
        builder = builder_of(name, folder)
        read = tfds.builder_from_directory(builder.data_dir)
        examples = {
            split: [plain(x) for x in tfds.as_numpy(read.as_dataset(split=split, read_config=config))]
            for split in read.info.splits
        }
        expected[name] = (str(builder.data_dir), examples)
    with open(os.path.join(folder, "expected.pickle"), "wb") as file:
        pickle.dump(expected, file)


def split_forms() -> list[str]:
    """Splits of all forms."""
    ends = {
        "": ["", "0", "1", "2", "3", "5", "10", "25", "49", "50", "51", "-1", "-2", "-5", "-50", "-51"],
        "%": ["", "0", "1", "5", "12.5", "25", "33", "33.3", "50", "66", "75", "99", "100", "101"],
        "shard": ["", "0", "1", "2", "3", "4", "-1", "-2", "-3", "-5"],
    }
    ends["%"] += ["-1", "-10", "-25", "-50", "-99.5", "-100", "-101"]
    forms = [
        f"train[{low + unit if low else ''}:{high + unit if high else ''}]"
        for unit, values in ends.items()
        for low in values
        for high in values
    ]
    forms += [f"train[{end}shard]" for end in ends["shard"][1:]]
    forms += [
        "train",
        "all",
        "train+test",
        "train + test",
        "test+train[:50%]",
        "train[5]",
        "train[10%]",
        "train[]",
    ]
    forms += [
        "all[:10]",
        "nope",
        "train[a:b]",
        "train[1:2:3]",
        "train[:1.5]",
        "train[5:10%]",
        "",
        "+",
        "train+",
    ]
    return sorted({*forms, "train[:1_0]", "train[:.]", "train[:10%:]", " train", "train[: 5]"})


def splits(target: str) -> None:
    """What the forms mean for splits of 0 to 50 examples in one, two and three shards."""
    from tensorflow_datasets.core import naming  # type: ignore[import-not-found, unused-ignore]
    from tensorflow_datasets.core import splits as lib  # type: ignore[import-not-found, unused-ignore]

    template = naming.ShardedFileTemplate(data_dir="/d", dataset_name="d", filetype_suffix="tfrecord")

    def info(name: str, lengths: tuple[int, ...]) -> Any:
        return lib.SplitInfo(name=name, shard_lengths=[*lengths], num_bytes=0, filename_template=template)

    def meaning(infos: Any, spec: Any) -> Any:
        try:
            found = lib._make_absolute_instructions([*infos.values()], spec)
        except Exception:
            return None
        return [
            (one.splitname, one.from_ or 0, infos[one.splitname].num_examples if one.to is None else one.to)
            for one in found
        ]

    found = {}
    for count in range(51):
        layouts = [(count,), (1, 0, count - 1), (count // 3, count - count // 3)]
        for lengths in layouts[: 1 if count < 2 else 3]:
            infos = lib.SplitDict([info("train", lengths), info("test", (7,))])
            for form in split_forms():
                found[form, lengths] = meaning(infos, form)
            for base in ("train", "train[10%:75%]", "train+test"):
                for parts in (1, 2, 3, 7):
                    for drop in (False, True):
                        made = tfds.even_splits(base, parts, drop_remainder=drop)
                        for i, spec in enumerate(made):
                            found[(base, parts, i, drop), lengths] = meaning(infos, spec)
    with open(target, "wb") as file:
        pickle.dump(found, file)


def connectors(target: str) -> None:
    """The classes that derive from FeatureConnector, from the source: not all of it can be imported."""
    bases: dict[str, list[str]] = {}
    for path in pathlib.Path(tfds.__file__).parent.rglob("*.py"):
        if path.name.endswith("_test.py"):
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        # The Sequence of Python is not that of TFDS.
        others = {
            a.name for node in imports if node.module in ("typing", "collections.abc") for a in node.names
        }
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                above = {ast.unparse(base) for base in node.bases} - others
                bases.setdefault(node.name, []).extend(name.split(".")[-1] for name in above)
    found = {"FeatureConnector"}
    while more := {name for name, above in bases.items() if found & {*above}} - found:
        found |= more
    with open(target, "wb") as file:
        pickle.dump(sorted(found), file)


if __name__ == "__main__":
    folders(sys.argv[1])
    splits(os.path.join(sys.argv[1], "splits.pickle"))
    connectors(os.path.join(sys.argv[1], "connectors.pickle"))
