"""Ragged columns with one value in each row are filled while they are counted.

The result is the same wherever a row is unlike the others, in batches of several parts and with threads.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfrecord._columns.decoding import as_payloads, decode_batch
from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.errors import DecodeError, FeatureKindError
from tfrecord.features import compile_features
from tfrecord.parse import parse_example, parse_sequence_example

# More than a part of a batch, and enough for three threads.
COUNT = 4_000
PAD = b"x" * 500
UNLIKE: dict[str, dict[str, list[Any]]] = {
    "more": {"number": [1, 2, 3], "weight": [0.5, 0.25], "name": [b"a", b"", b"c"]},
    "none": {"number": [], "weight": [], "name": []},
}


def values(row: int) -> dict[str, Any]:
    return {"number": [row - 5], "weight": [row / 2], "name": [b"%d" % row]}


def encoded(row: dict[str, Any] | None) -> bytes:
    kinds = {"number": "int", "weight": "float", "name": "byte"}
    features: dict[str, Any] = {} if row is None else {name: (row[name], kinds[name]) for name in row}
    return encode_example({**features, "pad": (PAD, "byte")})


def rows_with(places: dict[int, str]) -> list[dict[str, Any] | None]:
    rows: list[dict[str, Any] | None] = [values(row) for row in range(COUNT)]
    for place, what in places.items():
        rows[place] = UNLIKE.get(what)
    return rows


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "features", [None, {"number": "int", "weight": "float", "name": "byte"}], ids=["all", "named"]
)
@pytest.mark.parametrize(
    "places",
    [{}, {0: "more"}, {COUNT - 1: "none"}, {COUNT // 2: "absent"}, {9: "more", COUNT - 2: "absent"}],
    ids=["alike", "first", "last", "absent", "two"],
)
def test_rows_unlike_the_others(places: dict[int, str], features: Any, threads: int) -> None:
    rows = rows_with(places)
    batch = parse_example(list(map(encoded, rows)), features, num_threads=threads)
    for name in ("number", "weight", "name"):
        assert batch[name].to_list() == [[] if row is None else row[name] for row in rows]
        assert batch.present[name].tolist() == [row is not None for row in rows]
        assert batch[name].row_splits[-1] == len(batch[name].values)


@pytest.mark.parametrize("threads", [1, 3])
def test_invalid_records_are_left_out(threads: int) -> None:
    payloads = [b"\xff" if row % 1000 == 7 else encoded(values(row)) for row in range(COUNT)]
    bad: list[DecodeError] = []
    plan = compile_features({"number": "int", "name": "byte"})
    batch: Any = decode_batch(as_payloads(payloads), plan, num_threads=threads, bad=bad)
    kept = [row for row in range(COUNT) if row % 1000 != 7]
    assert [error.record for error in bad] == list(range(7, COUNT, 1000))
    assert batch["number"].to_list() == [[row - 5] for row in kept]
    assert batch["name"].to_list() == [[b"%d" % row] for row in kept]
    assert len(batch["number"].values) == len(batch["name"].values) == len(kept)


@pytest.mark.parametrize("threads", [1, 3])
def test_two_kinds_are_an_error(threads: int) -> None:
    payloads = [encoded(values(row)) for row in range(COUNT)]
    payloads[COUNT - 3] = encode_example({"number": (b"text", "byte"), "pad": (PAD, "byte")})
    with pytest.raises(FeatureKindError, match="is of kind bytes") as caught:
        parse_example(payloads, num_threads=threads)
    assert (caught.value.key, caught.value.record) == ("number", COUNT - 3)


def test_steps_of_feature_lists() -> None:
    steps = [[[row], [row, 1]] if row == 3 else [[row], [7]] for row in range(50)]
    names = [[[b"%d" % row]] * (row % 3) for row in range(50)]
    payloads = [
        encode_sequence_example({}, {"number": (step, "int"), "name": (name, "byte")})
        for step, name in zip(steps, names, strict=True)
    ]
    for kept in (payloads, payloads[:3]):
        batch = parse_sequence_example(kept)
        assert batch.feature_lists["number"].to_list() == steps[: len(kept)]
        assert batch.feature_lists["name"].to_list() == names[: len(kept)]
