"""The loader that mixes sources by weights."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from recorded import example, ids, sequence, write

from indexer.build import build_index
from tfrecord.loaders import (
    multi_tfrecord_loader,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "fold{er}s {0}"
    folder.mkdir()
    write(folder / "a.tfrecord", [example(number) for number in range(20)])
    write(folder / "b.tfrecord", [example(number) for number in range(100, 140)])
    write(folder / "empty.tfrecord", [])
    for name in "ab":
        build_index(folder / f"{name}.tfrecord", folder / f"{name}.index", format="text")
    return folder


@pytest.mark.parametrize("index", [None, "{}.index"])
def test_a_finite_mix_gives_each_record_once(folder: Path, index: str | None) -> None:
    """Braces in the folder's name are text."""
    index = None if index is None else f"{folder}/{index}"
    mixed = ids(
        multi_tfrecord_loader(f"{folder}/{{}}.tfrecord", index, {"a": 0.5, "b": 0.5}, infinite=False, seed=0)
    )
    assert [number for number in mixed if number < 100] == list(range(20))
    assert [number for number in mixed if number >= 100] == list(range(100, 140))
    assert mixed != sorted(mixed)


def test_an_infinite_mix_follows_its_weights(folder: Path) -> None:
    loader = multi_tfrecord_loader(
        f"{folder}/{{}}.tfrecord", None, {"a": 3.0, "b": 1.0}, {"id": "int"}, seed=1
    )
    drawn = Counter(number < 100 for number in ids(itertools.islice(loader, 2000)))
    assert drawn[True] / 2000 == pytest.approx(0.75, abs=0.05)


def test_empty_sources_are_left_out(folder: Path) -> None:
    pattern = f"{folder}/{{}}.tfrecord"
    assert (
        ids(itertools.islice(multi_tfrecord_loader(pattern, None, {"empty": 0.9, "a": 0.1}), 40))
        == [*range(20)] * 2
    )
    assert list(multi_tfrecord_loader(pattern, None, {"empty": 1.0})) == []
    assert list(multi_tfrecord_loader(pattern, None, {"a": 1.0}, shard=(25, 30))) == []
    assert (
        ids(itertools.islice(multi_tfrecord_loader(pattern, None, {"a": 1, "b": 1}, shard=(30, 31)), 3))
        == [130] * 3
    )


def test_weight_zero_is_not_opened(folder: Path) -> None:
    pattern = f"{folder}/{{}}.tfrecord"
    assert ids(multi_tfrecord_loader(pattern, None, {"missing": 0.0, "a": 1.0}, infinite=False)) == [
        *range(20)
    ]
    with pytest.raises(FileNotFoundError, match="missing.tfrecord"):
        multi_tfrecord_loader(pattern, None, {"missing": 0.1, "a": 1.0})


@pytest.mark.parametrize("weights", [(-1, 2), (float("nan"), 1), (float("inf"), 1), (0, 0)])
def test_bad_weights_fail_at_the_call(folder: Path, weights: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        multi_tfrecord_loader(f"{folder}/{{}}.tfrecord", None, dict(zip("ab", weights, strict=True)))
    with pytest.raises(TypeError, match="splits must be a mapping"):
        multi_tfrecord_loader(f"{folder}/{{}}.tfrecord", None, ["a"])  # type: ignore[arg-type]


def test_a_mix_is_repeatable_and_leaves_the_global_generators_alone(folder: Path) -> None:
    python_state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]

    def draw(seed: int | None) -> list[int]:
        loader = multi_tfrecord_loader(f"{folder}/{{}}.tfrecord", None, {"a": 1, "b": 1}, seed=seed)
        return ids(itertools.islice(loader, 50))

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    assert draw(None) != draw(None)
    assert random.getstate() == python_state
    assert np.random.get_state()[1].tolist() == numpy_state  # type: ignore[index]


def test_a_mix_of_sequences(tmp_path: Path) -> None:
    write(tmp_path / "s", [sequence(2)])
    loader = multi_tfrecord_loader(
        f"{tmp_path}/{{}}", None, {"s": 1}, {"id": "int"}, {"tokens": "int"}, None, False
    )
    ((context, lists),) = loader
    assert context["id"].tolist() == [2]
    assert [step.tolist() for step in lists["tokens"]] == [[0, 2], [1, 2]]
