"""`tfrecord stats`: counts, ranges and values of columns."""

from __future__ import annotations

import numpy as np
import pytest
from samples import MakeFile, Run, odd_examples, odd_sequences

from tfrecord._reading import payload_batches
from tfrecord.encode import encode_example, encode_sequence_example


def test_stats_are_right(run: Run, make_file: MakeFile) -> None:
    values = [[1, 2], [], [5], [-(2**63), 2**63 - 1]]
    records = [{"n": (value, "int"), "f": ([0.5, float("nan"), float("inf")], "float")} for value in values]
    made = [encode_example(record) for record in records] + [encode_example({"s": ("ab", "bytes")})] * 3
    document = run("stats", "--json", make_file(made)).json()
    columns = {column["name"]: column for column in document["columns"]}
    n = columns["n"]
    assert (n["present"], n["missing"], n["values"], n["min"], n["max"]) == (4, 3, 5, -(2**63), 2**63 - 1)
    assert n["values_per_record"]["histogram"] == {"0": 1, "1": 1, "2-3": 2}
    f = columns["f"]
    assert (f["min"], f["max"], f["mean"], f["not_finite"]) == (0.5, 0.5, 0.5, 8)
    s = columns["s"]
    assert s["top"] == [{"value": "ab", "count": 3}] and (s["min"], s["max"], s["of"]) == (2, 2, "bytes")
    assert document["records"] == 7


def test_stats_do_not_depend_on_batches_and_threads(
    run: Run, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(3)
    made = [
        encode_example(
            {"a": (int(generator.integers(9)), "int"), "b": (generator.random(2).astype("f4"), "float")}
        )
        for _ in range(3000)
    ]
    path = make_file(made)
    expected = run("stats", "--threads", 1, "--json", path).json()
    monkeypatch.setattr(
        payload_batches.batches, "__kwdefaults__", {**payload_batches.batches.__kwdefaults__, "records": 70}
    )
    found = run("stats", "--threads", 4, "--json", path).json()
    for one, other in zip(expected["columns"], found["columns"], strict=True):
        assert one.pop("mean") == pytest.approx(other.pop("mean"))
        if one["name"] == "b":
            one.pop("top"), other.pop("top"), one.pop("top_error"), other.pop("top_error")
        assert one == other


def test_stats_of_mixed_kinds_and_missing_columns(run: Run, make_file: MakeFile) -> None:
    path = make_file(odd_examples())
    columns = run("stats", "--json", path).json()["columns"]
    kinds = {(column["name"], column["kind"]): column["present"] for column in columns}
    assert kinds["n", "int64"] == 3 and kinds["n", "float"] == 1 and kinds["n", "bytes"] == 1
    assert run("stats", "--columns", "nothing", path).code == 2
    assert run("stats", make_file(odd_sequences(), "s")).code == 0
    assert "not Examples" in run("stats", make_file([b"\xff"], "raw")).out


def test_stats_of_feature_lists_count_values_and_steps_apart(run: Run, make_file: MakeFile) -> None:
    made = [
        encode_sequence_example({"id": (1, "int")}, {"t": ([[1, 2, 3], [4]], "int"), "none": ([], "int")}),
        encode_sequence_example({"id": (2, "int")}, {"t": ([[], [], []], "int"), "none": ([], "int")}),
        encode_sequence_example({"id": (3, "int")}, {}),
    ]
    document = run("stats", "--json", make_file(made)).json()
    columns = {column["name"]: column for column in document["columns"]}
    t, none = columns["t"], columns["none"]
    assert (t["present"], t["missing"], t["values"]) == (2, 1, 4)
    assert t["values_per_record"] == {"min": 0, "max": 4, "mean": 2.0, "histogram": {"0": 1, "4-7": 1}}
    assert t["steps_per_record"] == {"min": 2, "max": 3, "mean": 2.5, "histogram": {"2-3": 2}}
    nothing = {"min": 0, "max": 0, "mean": 0.0, "histogram": {"0": 2}}
    assert (none["kind"], none["present"], none["values"]) == ("no kind", 2, 0)
    assert none["values_per_record"] == none["steps_per_record"] == nothing
    assert "steps_per_record" not in columns["id"]
    words = run("stats", make_file(made)).out
    assert "t (2..3 (2.5) steps)" in words and "0..4 (2)" in words and "4611" not in words


def test_stats_where_kinds_differ_between_steps(run: Run, make_file: MakeFile) -> None:
    document = run("stats", "--json", make_file(odd_sequences())).json()
    lists = {(c["name"], c["kind"]): c for c in document["columns"] if c.get("where") == "feature_lists"}
    ints, texts = lists["t", "int64"], lists["t", "bytes"]
    assert (ints["present"], ints["values"], ints["values_per_record"]["max"]) == (3, 5, 3)
    assert (texts["present"], texts["values"], texts["steps_per_record"]["max"]) == (1, 1, 2)
    for column in document["columns"]:
        per = column["values_per_record"]
        assert 0 <= per["min"] <= per["mean"] <= per["max"]
        assert per["mean"] == pytest.approx(column["values"] / column["present"])
        assert sum(per["histogram"].values()) == column["present"]
