"""Windows of the steps of RLDS episodes, against windows cut by hand."""

from __future__ import annotations

import copy
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prepared import TEXT, dict_of, image, sequence, tensor, write_folder
from test_tfds_features import png

from indexer.errors import ChecksumError, DecodeError
from tfrecord import make_splits, tfds
from tfrecord.columns import Ragged

pytest.importorskip("PIL")

LENGTHS = [5, 1, 3, 0, 8, 2]


def episode(number: int, length: int) -> dict[str, Any]:
    steps = range(length)
    pixels = [png(np.full((2, 3, 3), number * 10 + j, np.uint8)) for j in steps]
    return {
        "id": (number, "int"),
        "steps/observation/image": (pixels, "byte"),
        "steps/observation/any": (pixels, "byte"),
        "steps/action": (np.arange(2 * length, dtype=np.float32), "float"),
        "steps/reward": ([float(j) for j in steps], "float"),
        "steps/text": ([b"%d" % j for j in steps], "byte"),
        "steps/tokens/ragged_flat_values": ([j for j in steps for _ in range(j)], "int"),
        "steps/tokens/ragged_row_lengths_0": ([*steps], "int"),
        "steps/coded": ([zlib.compress(bytes([j, number])) for j in steps], "byte"),
    }


def step_features() -> dict[str, Any]:
    return dict_of(
        observation=dict_of(image=image(2, 3, 3), any=image(-1, -1, 3)),
        action=tensor("float32", 2),
        reward=tensor("float32"),
        text=TEXT,
        tokens=sequence(tensor("int32")),
        coded=tensor("uint8", 2, encoding="zlib"),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    features = dict_of(steps=sequence(step_features(), connector="Dataset"), id=tensor("int64"))
    shards = [[episode(i, n) for i, n in enumerate(LENGTHS)][:4], [episode(4, 8), episode(5, 2)]]
    return write_folder(tmp_path, features, {"train": shards})


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def listed(value: Any) -> Any:
    if hasattr(value, "to_list"):
        return value.to_list()
    return [item.tolist() for item in value] if isinstance(value, list) else value.tolist()


@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("pad", [False, True])
def test_windows(folder: Path, window: int, stride: int, pad: bool) -> None:
    reader = tfds.open(folder)
    episodes = list(reader.episodes())
    assert [len(one["steps"]["reward"]) for one in episodes] == LENGTHS
    expected = [
        (number, start)
        for number, length in enumerate(LENGTHS)
        for start in range(0, length, stride)
        if pad or start + window <= length
    ]
    steps = reader.steps(window, stride, pad)
    assert list(zip(steps.episodes.tolist(), steps.starts.tolist(), strict=True)) == expected
    assert len(steps) == len(expected)
    batch = dict(flat(steps[:]))
    padding = batch.pop("is_padding", None)
    for i, (found, (number, start)) in enumerate(zip(steps, expected, strict=True)):
        count = min(window, LENGTHS[number] - start)
        whole = dict(flat(episodes[number]["steps"]))
        again = dict(flat(steps[i]))
        mark = [place >= count for place in range(window)]
        if pad:
            assert padding is not None and padding[i].tolist() == mark == again["is_padding"].tolist()
        for name, value in flat(found):
            if name == "is_padding":
                continue
            assert len(value) == window and listed(value[:count]) == listed(
                whole[name][start : start + count]
            )
            assert listed(again[name]) == listed(value) == listed(batch[name][i]) or name.endswith("any")
            if isinstance(value, np.ndarray):
                assert not any(np.any(item) for item in value[count:])
    assert "is_padding" in steps[:] if pad else "is_padding" not in steps[:]


def test_shapes_of_batches(folder: Path) -> None:
    steps = tfds.open(folder).steps(3, pad=True)
    batch = steps.read([5, 0, 5])
    assert batch.num_rows == 3  # type: ignore[union-attr]
    found: Any = batch
    assert found["observation"]["image"].shape == (3, 3, 2, 3, 3) and found["action"].shape == (3, 3, 2)
    assert found["text"].shape == (3, 3) and found["is_padding"].shape == (3, 3)
    assert isinstance(found["tokens"], Ragged) and isinstance(found["observation"]["any"], Ragged)
    assert [*steps.read([0], ["observation/image", "reward"])] == ["observation", "reward", "is_padding"]
    shuffled = list(steps.batches(4, shuffle=True, seed=3))
    assert sum(one.num_rows for one in shuffled) == len(steps)  # type: ignore[union-attr]
    assert [one["is_padding"].shape for one in steps.batches(8, drop_last=True)] == [(8, 3)] * (
        len(steps) // 8
    )


def test_a_reader_of_windows(folder: Path) -> None:
    reader = tfds.open(folder, "train[1:]")
    steps = reader.steps(2)
    for other in (pickle.loads(pickle.dumps(steps)), copy.copy(steps)):
        assert listed(other[3]["action"]) == listed(steps[3]["action"])
    assert steps.locate(2)[0] == reader.paths[1] and steps.episodes[2] == 3
    chosen = steps.select([4, 0])
    assert len(chosen) == 2 and listed(chosen[0]["coded"]) == listed(steps[4]["coded"])
    assert [listed(one["coded"]) for one in chosen] == [listed(steps[4]["coded"]), listed(steps[0]["coded"])]
    assert bytes(steps.raw(2)) == bytes(reader.raw(3)) == steps.read_raw([2])[0]
    assert {*steps.features} == {"observation", "action", "reward", "text", "tokens", "coded"}
    with pytest.raises(IndexError):
        steps[len(steps)]
    with pytest.raises(TypeError, match="split the episodes"):
        make_splits(steps, 2)
    (first, second) = make_splits(reader, 2)
    total = sum(len(split.reader().steps(2)) for split in (first, second))
    assert total == len(steps)


def test_what_cannot_be_windows(folder: Path, tmp_path: Path) -> None:
    reader = tfds.open(folder)
    for options in ({"window": 0}, {"stride": 0}, {"window": 1.5}):
        with pytest.raises(ValueError, match="an integer of at least 1"):
            reader.steps(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_error must be 'raise'"):
        tfds.open(folder, on_error="skip").steps()
    plain = write_folder(tmp_path / "plain", dict_of(x=tensor("int64")), {"train": [[{"x": (1, "int")}]]})
    for call in (tfds.open(plain).steps, tfds.open(plain).episodes):
        with pytest.raises(tfds.TFDSError, match="not RLDS episodes"):
            call()
    empty = write_folder(tmp_path / "empty", dict_of(steps=sequence(dict_of())), {"train": [[{}]]})
    with pytest.raises(tfds.TFDSError, match="can be divided into windows"):
        tfds.open(empty).steps()
    features = dict_of(steps=sequence(dict_of(is_padding=tensor("bool"))))
    clash = write_folder(tmp_path / "clash", features, {"train": [[{"steps/is_padding": ([1], "int")}]]})
    assert len(tfds.open(clash).steps()) == 1
    with pytest.raises(ValueError, match="the key of the padding mask"):
        tfds.open(clash).steps(pad=True)


def test_episodes_that_are_damaged(folder: Path, tmp_path: Path) -> None:
    path = Path(tfds.open(folder).paths[1])
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    steps = tfds.open(folder).steps(2)  # counting verifies nothing but the lengths
    with pytest.raises(ChecksumError, match="record 1"):
        list(steps)
    features = dict_of(steps=sequence(dict_of(a=tensor("int64"), b=tensor("int64", 2))))
    short = {"steps/a": ([1, 2, 3], "int"), "steps/b": ([1, 2, 3, 4], "int")}
    good = {"steps/a": ([1, 2], "int"), "steps/b": ([1, 2, 3, 4], "int")}
    other = write_folder(tmp_path / "short", features, {"train": [[good, short]]})
    windows = tfds.open(other).steps(2)
    assert len(windows) == 3
    with pytest.raises(DecodeError, match=r"record 1: feature 'steps/b': has fewer steps"):
        windows[2]
    with pytest.raises(DecodeError, match=r"record 1: feature 'steps/b'"):
        list(windows)
    coded = {"steps/a": ([1, 2, 3], "int"), "steps/c": ([b"xyz"] * 3, "byte")}
    features = dict_of(steps=sequence(dict_of(a=tensor("int64"), c=tensor("int64", encoding="zlib"))))
    third = write_folder(tmp_path / "coded", features, {"train": [[coded]]})
    with pytest.raises(DecodeError, match=r"record 0: feature 'steps/c': is not valid zlib"):
        tfds.open(third).steps(2)[1]


def test_steps_of_a_fixed_number(tmp_path: Path) -> None:
    features = dict_of(steps=sequence(dict_of(a=tensor("int64")), length=3))
    records = [{"steps/a": ([i, i + 1, i + 2], "int")} for i in (0, 10)]
    steps = tfds.open(write_folder(tmp_path, features, {"train": [records]})).steps(2)
    assert [one["a"].tolist() for one in steps] == [[0, 1], [1, 2], [10, 11], [11, 12]]
