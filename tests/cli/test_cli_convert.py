"""Convert: there and back gives equal values, kinds and missing features, in every format."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import FORMATS, MakeFile, Run, examples, odd_examples, odd_sequences

from indexer.framing import scan
from tfrecord._cli.conversion.layout import exact_record
from tfrecord._kernels.record_type import classify
from tfrecord.encode import encode_example


def payloads_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    found = scan(data)
    assert found.reason is None
    places = zip(found.offsets.tolist(), found.lengths.tolist(), strict=True)
    return [data[at + 12 : at + 12 + length] for at, length in places]


def canonical(value: Any) -> Any:
    """A feature as something that compares exactly: kind and bits."""
    if isinstance(value, list):
        return [canonical(step) for step in value]
    if value is None:
        return None
    if isinstance(value, (bytes, memoryview)):
        return ("bytes", [bytes(value)])
    if value.dtype == object:
        return ("bytes", [bytes(item) for item in value])
    return (str(value.dtype), value.tobytes())


def meaning(payload: bytes, kind: str) -> Any:
    if kind == "bytes":
        return payload
    parts = exact_record(payload, kind)
    return [
        None if part is None else {key: canonical(value) for key, value in part.items()} for part in parts
    ]


DATA = {
    "usual": (examples(), "example"),
    "odd": (odd_examples(), "example"),
    "sequences": (odd_sequences(), "sequence_example"),
    "raw": ([b"", b"\x00\x01", b"text", b"\xff" * 100], "bytes"),
    "none": ([], "example"),
    "empty": ([b"", b""], "example"),
    "names": ([encode_example({"context": (1, "int"), "feature_lists": (b"x\xff", "bytes")})] * 2, "example"),
    "record": ([encode_example({"record": (b"\xff", "bytes")})] * 2, "example"),
    "marker": ([encode_example({"__example__": (1, "int")})] * 2, "example"),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", DATA)
def test_there_and_back(run: Run, make_file: MakeFile, tmp_path: Path, name: str, form: str) -> None:
    if form in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    payloads, kind = DATA[name]
    source, middle, back = make_file(payloads), tmp_path / f"middle.{form}", tmp_path / "back.tfrecord"
    assert run("convert", source, middle)[0] == 0
    assert run("convert", middle, back)[0] == 0
    found = payloads_of(back)
    assert [meaning(payload, kind) for payload in found] == [meaning(payload, kind) for payload in payloads]


@pytest.mark.parametrize("form", ["parquet", "npz", "jsonl"])
def test_kinds_that_differ_between_files(run: Run, make_file: MakeFile, tmp_path: Path, form: str) -> None:
    pytest.importorskip("pyarrow")
    first = make_file([encode_example({"x": (1, "int")})] * 3, "one.tfrecord")
    second = make_file([encode_example({"x": (0.5, "float")})] * 3, "two.tfrecord")
    middle, back = tmp_path / f"m.{form}", tmp_path / "back.tfrecord"
    assert run("convert", first, second, middle)[0] == 0
    assert run("convert", middle, back)[0] == 0
    expected = [meaning(payload, "example") for payload in payloads_of(first) + payloads_of(second)]
    assert [meaning(payload, "example") for payload in payloads_of(back)] == expected


def test_every_valid_message_of_the_cases(
    run: Run, make_file: MakeFile, tmp_path: Path, shared: Path
) -> None:
    pytest.importorskip("pyarrow")
    document = json.loads((shared / "cases" / "wire-cases.json").read_text())
    payloads = [bytes.fromhex(case["hex"]) for case in document["cases"]]
    payloads = [payload for payload in payloads if payload and classify(payload).name == "EXAMPLE"]
    assert len(payloads) > 50
    source = make_file(payloads)
    for form in ("parquet", "npz", "jsonl", "tar"):
        middle, back = tmp_path / f"m.{form}", tmp_path / "back.tfrecord"
        assert run("convert", source, middle)[0] == 0
        assert run("convert", middle, back)[0] == 0
        expected = [meaning(payload, "example") for payload in payloads]
        assert [meaning(payload, "example") for payload in payloads_of(back)] == expected, form


@pytest.mark.parametrize(
    "name", ["toy.nocompress-tfe-tfrecord-00000-of-00002", "penguin_train-00000-of-00001.gz"]
)
def test_real_files(run: Run, shared: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    source = shared / "data" / name
    for form in FORMATS:
        middle, back = tmp_path / f"m.{form}", tmp_path / "back.tfrecord"
        assert run("convert", source, middle)[0] == 0
        assert run("convert", middle, back)[0] == 0
        expected = [meaning(payload, "example") for payload in payloads_of(source)]
        assert [meaning(payload, "example") for payload in payloads_of(back)] == expected, form


# What the other side sees.


def test_parquet_types_and_nulls(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    records = [{"n": (1, "int"), "s": ("é", "bytes"), "l": ([1.5, 2], "float")}, {"l": ([], "float")}, {}]
    source, output = make_file([encode_example(record) for record in records]), tmp_path / "o.parquet"
    assert run("convert", "--text", "s", source, output)[0] == 0
    table = pq.read_table(output)
    assert {field.name: str(field.type) for field in table.schema} == {
        "n": "int64",
        "s": "string",
        "l": "list<element: float>",
    }
    assert table.to_pylist() == [
        {"n": 1, "s": "é", "l": [1.5, 2.0]},
        {"n": None, "s": None, "l": []},
        {"n": None, "s": None, "l": None},
    ]


def test_parquet_of_others(run: Run, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table(
        {
            "flag": [True, False, None],
            "small": pa.array([1, 2, 3], pa.uint8()),
            "double": [0.5, 1.0, None],
            "name": ["a", "b", None],
            "many": [[1, 2], [], None],
            "coded": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )
    source, output = tmp_path / "s.parquet", tmp_path / "o.tfrecord"
    pq.write_table(table, source)
    assert run("convert", source, output)[0] == 0
    first, _, last = (exact_record(payload, "example")[0] for payload in payloads_of(output))
    assert first["flag"].tolist() == [1] and first["double"].tolist() == [0.5] and first["name"] == b"a"
    assert first["many"].tolist() == [1, 2] and first["coded"] == b"x"
    assert set(last) == {"small", "coded"}


def test_float64_is_exact_or_refused(run: Run, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    source, output = tmp_path / "s.parquet", tmp_path / "o.tfrecord"
    pq.write_table(pa.table({"x": [0.1]}), source)
    outcome = run("convert", source, output)
    assert outcome.code == 1 and "'x': 0.1 is not exact" in outcome.err and "--round-floats" in outcome.err
    assert not output.exists()
    assert run("convert", "--round-floats", source, output)[0] == 0
    assert exact_record(payloads_of(output)[0], "example")[0]["x"] == np.float32(0.1)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("[1]", "object"),
        ('{"a": {"int64": [99999999999999999999]}}', "'a'"),
        ('{"a": {"float": [1e99]}}', "'a'"),
        ('{"a": [1, "x"]}', "'a'"),
        ('{"a": {"base64": ["*"]}}', "line 2"),
        ("{", "line 2"),
    ],
)
def test_json_that_is_no_record(run: Run, tmp_path: Path, line: str, text: str) -> None:
    source, output = tmp_path / "s.jsonl", tmp_path / "o.tfrecord"
    source.write_text('{"a": {"int64": [1]}}\n' + line + "\n")
    outcome = run("convert", source, output)
    assert outcome.code == 1 and "line 2" in outcome.err and text in outcome.err
    assert list(tmp_path.iterdir()) == [source]


def test_plain_json_is_taken(run: Run, tmp_path: Path) -> None:
    source, output = tmp_path / "s.jsonl", tmp_path / "o.tfrecord"
    source.write_text('{"i": 1, "f": [1, 2.5], "s": "x", "t": ["a", "b"], "b": true}\n\n')
    assert run("convert", source, output)[0] == 0
    record, _ = exact_record(payloads_of(output)[0], "example")
    assert record["i"].tolist() == [1] and record["f"].dtype == np.float32 and record["s"] == b"x"
    assert record["t"].tolist() == [b"a", b"b"] and record["b"].tolist() == [1]


def test_npz_is_numpys(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    records = [
        {"label": (i, "int"), "x": ([i, 0.5], "float"), "s": ("ab"[: i % 3], "bytes")} for i in range(5)
    ]
    source, output = make_file([encode_example(record) for record in records]), tmp_path / "o.npz"
    assert run("convert", source, output)[0] == 0
    with np.load(output) as arrays:
        assert arrays["label"].tolist() == [0, 1, 2, 3, 4]
        assert arrays["x"].shape == (5, 2) and arrays["x"].dtype == np.float32
        assert arrays["s/offsets"].tolist() == [0, 0, 1, 3, 3, 4]
    other = tmp_path / "other.npz"
    np.savez(other, a=np.arange(6).reshape(3, 2), b=np.array([0.5, 1, 2], np.float32))
    assert run("convert", other, tmp_path / "o.tfrecord")[0] == 0
    record, _ = exact_record(payloads_of(tmp_path / "o.tfrecord")[1], "example")
    assert record["a"].tolist() == [2, 3] and record["b"].tolist() == [1]


def test_tar_is_webdatasets(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    output = tmp_path / "o.tar"
    assert run("convert", make_file(examples(3)), output)[0] == 0
    with tarfile.open(output) as tar:
        names = tar.getnames()
    assert names[:2] == ["000000000.image%2Fencoded.png", "000000000.tfrecord.json"]
    assert not any("/" in name or name.startswith(".") for name in names)
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as tar:
        for name, data in (("a/0.jpg", b"\xff\xd8"), ("a/0.cls", b"7"), ("a/1.jpg", b""), ("a/1.cls", b"8")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert run("convert", other, tmp_path / "o.tfrecord")[0] == 0
    found = [exact_record(payload, "example")[0] for payload in payloads_of(tmp_path / "o.tfrecord")]
    assert [record["cls"].tolist() for record in found] == [[7], [8]]
    assert [record["jpg"] for record in found] == [b"\xff\xd8", b""]


def test_columns_and_shards_and_streams(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    source = make_file(examples(10))
    assert run("convert", "--shards", "3", "--columns", "label", source, tmp_path / "o.tfrecord.gz")[0] == 0
    names = [f"o.tfrecord-{i:05d}-of-00003.gz" for i in range(3)]
    parts = [payloads_of(tmp_path / name) for name in names]
    assert [len(part) for part in parts] == [4, 3, 3]
    labels = [exact_record(payload, "example")[0] for part in parts for payload in part]
    assert [record["label"].tolist() for record in labels] == [[i % 4] for i in range(10)]
    assert all(set(record) == {"label"} for record in labels)
    outcome = run("convert", "--to", "jsonl", "-", "-", stdin=source.read_bytes())
    assert outcome.code == 0 and len(outcome.out.splitlines()) == 10
    again = run("convert", "--from", "jsonl", "-", "-", stdin=outcome.out.encode())
    assert again.out.encode(errors="surrogateescape") == source.read_bytes()


def test_index_of_the_output(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    assert run("convert", "--index", make_file(examples(4)), tmp_path / "o.tfrecord")[0] == 0
    assert (tmp_path / "o.tfrecord.tfindex").exists()
    assert run("info", "--json", tmp_path / "o.tfrecord").json()["files"][0]["index"] == "extended"
    outcome = run("convert", make_file(examples(5)), tmp_path / "o.tfrecord")
    assert outcome.code == 0 and not (tmp_path / "o.tfrecord.tfindex").exists()
    assert run("convert", "--index", make_file(examples(4)), tmp_path / "o.jsonl")[0] == 2


# All or nothing.


def test_keys_that_formats_use_themselves(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    payloads = [
        encode_example({"__tfrecord_rest__": (b"mine", "bytes"), "n": (1, "int")}),
        encode_example({"": (b"\0", "bytes"), "__tfrecord_rest__": ([1, 2], "int")}),
    ]
    path = make_file(payloads)
    for form in FORMATS:
        if form in ("parquet", "arrow"):
            pytest.importorskip("pyarrow")
        assert run("convert", path, tmp_path / f"there.{form}").code == 0, form
        assert run("convert", tmp_path / f"there.{form}", tmp_path / "back.tfrecord").code == 0, form
        back = payloads_of(tmp_path / "back.tfrecord")
        assert [meaning(p, "example") for p in back] == [meaning(p, "example") for p in payloads], form


def test_options_that_mean_nothing_are_refused(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    path, out = make_file(examples(3)), tmp_path / "o"
    for arguments, words in (
        (["--columns", "label,lable"], "no record has a feature 'lable'"),
        (["--to", "jsonl", "--output-compression", "gzip"], "for TFRecord output"),
        (
            ["--to", "parquet", "--text", "captoin"],
            "no record has byte strings 'captoin'; did you mean 'caption'?",
        ),
    ):
        if "parquet" in arguments:
            pytest.importorskip("pyarrow")
        outcome = run("convert", path, out, *arguments)
        assert outcome.code == 2 and words in outcome.err, outcome
        assert not out.exists()
    for output in ("", f"{tmp_path}/absent/", str(tmp_path)):
        assert run("convert", path, output).code == 2
    assert {item.name for item in tmp_path.iterdir()} == {path.name}
