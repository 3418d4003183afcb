"""Every value of folders that tensorflow-datasets wrote, as it reads them itself."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfrecord import tfds
from tfrecord.columns import BytesColumn, Ragged
from tfrecord.tfds.features import FeaturesDict
from tfrecord.tfds.splits import resolve_split

pytestmark = [pytest.mark.one_run, pytest.mark.xdist_group("tfds"), pytest.mark.timeout(300)]

CASES = [
    *("scalars", "tensors", "encoded", "sequences", "nesting", "optionals", "labels"),
    *("images", "jpeg", "audio", "translations", "episodes", "table", "custom"),
]


def entry(value: Any, i: int) -> Any:
    """Step ``i`` of a dict of columns."""
    return {key: entry(item, i) for key, item in value.items()} if isinstance(value, dict) else value[i]


def differences(ours: Any, theirs: Any, where: str, near: bool = False) -> Iterator[str]:
    """Where two values differ, in type, dtype, shape or value."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict) or ours.keys() != theirs.keys():
            yield f"{where}: other keys"
            return
        for key in theirs:
            yield from differences(ours[key], theirs[key], f"{where}/{key}", near)
    elif isinstance(theirs, tuple) and theirs[0] == "dataset":
        for i, step in enumerate(theirs[1]):
            yield from differences(entry(ours, i), step, f"{where}[{i}]", near)
    elif isinstance(theirs, tuple):
        leaf = ours
        while isinstance(leaf, Ragged):
            leaf = leaf.values
        dtype = None if isinstance(leaf, BytesColumn) else leaf.dtype
        if not isinstance(ours, Ragged) or ours.to_list() != theirs[1] or dtype != theirs[2]:
            yield f"{where}: {ours!r} is not {theirs!r}"
    elif isinstance(theirs, bytes):
        if type(ours) is not bytes or ours != theirs:
            yield f"{where}: {ours!r} is not {theirs!r}"
    elif type(ours) is not type(theirs) or ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        yield f"{where}: {ours!r} is of another type than {theirs!r}"
    elif near:
        gap = np.abs(ours.astype(int) - theirs)
        if gap.max() > 8 or gap.mean() >= 2.5:
            yield f"{where}: pixels differ by up to {gap.max()}, {gap.mean():.1f} on average"
    elif not np.array_equal(ours, theirs, equal_nan=ours.dtype.kind in "fc"):
        yield f"{where}: {ours!r} is not {theirs!r}"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:unknown connectors")
def test_every_value_is_that_of_as_numpy(written: dict[str, Any], case: str) -> None:
    folder, splits = written[case]
    for split, examples in splits.items():
        reader = tfds.open(folder, split)
        assert len(reader) == len(examples)
        whole = reader[:]
        assert whole.num_rows == len(examples)
        for i, (ours, theirs) in enumerate(zip(reader, examples, strict=True)):
            assert not list(differences(ours, theirs, f"{split}/{i}", near=case == "jpeg"))
            assert not list(differences(reader[i], theirs, f"{split}/{i}", near=case == "jpeg"))
            for path, column in leaves(whole):
                assert same_row(column, i, at(ours, path)), path


def leaves(batch: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, column in batch.items():
        if isinstance(column, dict):
            yield from leaves(column, (*path, name))
        else:
            yield (*path, name), column


def at(record: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        record = record[name]
    return record


def listed(value: Any) -> Any:
    """Any value as Python lists."""
    if isinstance(value, Ragged | BytesColumn):
        return value.to_list()
    if isinstance(value, list):
        return [listed(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def same_row(column: Any, i: int, value: Any) -> bool:
    """Whether a row of a column is the value of the record."""
    row = listed(column[i])
    return bool(
        row == listed(value) or row == [listed(value)] or np.array_equal(row, listed(value), equal_nan=True)
    )


def test_names_of_classes(written: dict[str, Any]) -> None:
    features = tfds.open(written["labels"][0]).features
    label: Any = features["label"]
    # TFDS writes names in lines, so that it reads a vertical tab but no line break.
    assert label.names == [
        *("plain", "with space", "ünïcode ☃", "a/b", "tab\tin", "vertical\x0btab"),
        *("line\u2028sep", "-1", "'quote\""),
    ]
    assert [label.int2str(i) for i in range(3)] == label.names[:3] and label.str2int("a/b") == 3
    inner: Any = features["in"]
    assert isinstance(inner, FeaturesDict)
    assert inner["side"].names == ["left", "right"] and inner["x/y"].names == ["p", "q"]  # type: ignore[attr-defined]
    other: Any = features
    assert other["count"].names == ["0", "1", "2", "3", "4"] and other["seg"].names == ["road", "sky"]
    assert other["many"]["kind"].names == ["one", "two"]
    with pytest.raises(ValueError, match="no class -1"):
        label.int2str(-1)


def test_split_arithmetic_is_that_of_tfds(peer: Path) -> None:
    """All forms, on splits of 0 to 50 examples."""
    found = pickle.loads((peer / "splits.pickle").read_bytes())
    assert len(found) > 50_000

    def ours(spec: Any, lengths: tuple[int, ...]) -> Any:
        infos = {"train": tfds.SplitInfo("train", lengths), "test": tfds.SplitInfo("test", (7,))}
        if isinstance(spec, tuple):
            base, count, index, drop = spec
            spec = tfds.even_splits(base, count, drop_remainder=drop)[index]
        try:
            return [(part.split.name, part.start, part.stop) for part in resolve_split(spec, infos)]
        except ValueError:
            return None

    for (spec, lengths), theirs in found.items():
        if theirs is not None:  # TFDS counts fewer than no examples where the end is before the start
            theirs = [(name, start, max(start, stop)) for name, start, stop in theirs]
        assert ours(spec, lengths) == theirs, (spec, lengths)


def test_the_table_of_connectors_is_complete(peer: Path) -> None:
    """docs/tfds.md has a line for each connector class in the package of the peer."""
    classes = set(pickle.loads((peer / "connectors.pickle").read_bytes()))
    assert {"Image", "Sequence", "Dataset", "TranslationVariableLanguages"} <= classes
    page = Path(__file__).parents[2].joinpath("docs", "tfds.md").read_text()
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    table = {name.strip().strip("`"): state.strip() for name, state in rows}
    assert table.keys() == classes
    assert set(table.values()) <= {"equal", "raw", "refused", "-"}


def test_the_peer_is_meant_where_it_is_named() -> None:
    python = os.environ.get("TFRECORD_TFDS_PYTHON")
    assert python is None or Path(python).exists()
