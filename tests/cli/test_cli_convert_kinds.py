"""Files of other formats: one kind per feature in all of them, and files that contradict themselves."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import Run

from tfrecord import TFRecordReader
from tfrecord._cli.conversion import json_and_tar


def made(run: Run, target: Path, *sources: Path) -> list[dict[str, Any]]:
    outcome = run("convert", *sources, target)
    assert outcome.code == 0, outcome.err
    with TFRecordReader(target) as reader:
        return reader[:].to_list()


def refused(run: Run, target: Path, *sources: Path) -> str:
    outcome = run("convert", *sources, target)
    assert outcome.code == 1 and not target.exists(), outcome
    assert "Traceback" not in outcome.err
    return str(outcome.err)


def lines(path: Path, *documents: Any) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def tar(path: Path, **files: bytes | str) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name.replace("__", "."))
            data = content.encode() if isinstance(content, str) else content
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_numbers_have_one_kind_in_all_json_files(run: Run, tmp_path: Path) -> None:
    whole, text = lines(tmp_path / "a.jsonl", {"x": 1}), lines(tmp_path / "c.jsonl", {"x": "1"})
    fraction = lines(tmp_path / "b.jsonl", {"y": 0}, {"x": 1.5})
    assert made(run, tmp_path / "o.tfrecord", whole, fraction) == [{"x": [1.0]}, {"y": [0]}, {"x": [1.5]}]
    said = refused(run, tmp_path / "p.tfrecord", fraction, text)
    assert f"c.jsonl: line 1: feature 'x': text here, but a number in line 2 of {fraction}" in said


@pytest.mark.parametrize("form", ["parquet", "arrow", "npz"])
def test_columns_have_one_kind_in_all_files(run: Run, tmp_path: Path, form: str) -> None:
    def write(name: str, values: Any) -> Path:
        path = tmp_path / f"{name}.{form}"
        if form == "npz":
            np.savez(path, x=values)
            return path
        pa = pytest.importorskip("pyarrow")
        table = pa.table({"x": pa.array(values)})
        if form == "parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        return path

    whole, small, fraction = write("a", [1, 2]), write("b", np.array([True])), write("c", [0.5])
    assert made(run, tmp_path / "o.tfrecord", whole, small) == [{"x": [1]}, {"x": [2]}, {"x": [1]}]
    said = refused(run, tmp_path / "p.tfrecord", whole, fraction)
    assert "c." in said and f"'x' holds float values here, and int64 values in {whole}" in said


def test_numbers_of_a_tar_file_have_one_kind(run: Run, tmp_path: Path) -> None:
    """Its samples become records at once, so that an integer cannot become a float later."""
    files = {"1__tfrecord__json": '{"x": 1, "y": 0.5}', "2__tfrecord__json": '{"x": [1, 2.5], "y": 3}'}
    said = refused(run, tmp_path / "o.tfrecord", tar(tmp_path / "a.tar", **files))
    assert "sample '2': feature 'x': a fraction here, but an integer in sample '1'" in said
    files["1__tfrecord__json"] = '{"x": {"float": [1]}, "y": 0.5}'
    found = made(run, tmp_path / "o.tfrecord", tar(tmp_path / "b.tar", **files))
    assert found == [{"x": [1.0], "y": [0.5]}, {"x": [1.0, 2.5], "y": [3.0]}]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"1__tfrecord__json": '{"x": 1, "x": 2}'}, "'x' twice"),
        ({"1__tfrecord__json": '{"x": 1e999}'}, "too large"),
        ({"1__tfrecord__json": '{"x": 1}', "1__x__jpg": b"\xff\xd8"}, "'x' has two values"),
        ({"1__tfrecord__json": "{}", "1__x__jpg": b"a", "1__x__png": b"b"}, "'x' has two values"),
        ({"1__tfrecord__raw": b"a", "1__x__jpg": b"b"}, "other files beside it"),
        ({"1__tfrecord__json": "[]"}, "a record is a JSON object"),
    ],
    ids=["name twice", "huge", "file and value", "two files", "raw and file", "list"],
)
def test_tar_samples_that_would_lose_values(
    run: Run, tmp_path: Path, files: dict[str, Any], reason: str
) -> None:
    assert reason in refused(run, tmp_path / "o.tfrecord", tar(tmp_path / "a.tar", **files))


@pytest.mark.parametrize("suffix", ["gz", "zz", "zst"])
def test_compressed_json(run: Run, tmp_path: Path, suffix: str) -> None:
    if suffix == "zst":
        pytest.importorskip("zstandard")
    source = lines(tmp_path / "a.jsonl", {"x": {"int64": [1]}}, {"x": {"int64": []}})
    packed, back = tmp_path / f"b.jsonl.{suffix}", tmp_path / "c.jsonl"
    assert run("convert", source, packed).code == 0
    assert packed.read_bytes()[:1] != b"{"
    assert run("convert", packed, back).code == 0
    assert back.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("name", ["o.parquet.gz", "o.npz.zst", "o.tar.gz", "o.arrow.zz"])
def test_names_that_promise_a_compression(run: Run, tmp_path: Path, name: str) -> None:
    source = lines(tmp_path / "a.jsonl", {"x": 1})
    outcome = run("convert", source, tmp_path / name)
    assert outcome.code == 2 and "not compressed as a whole" in outcome.err
    assert not (tmp_path / name).exists()


def test_a_line_that_never_ends(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_and_tar, "most_record_bytes", lambda: 2_000_000)
    source = lines(tmp_path / "a.jsonl", {"x": 1}, {"x": "a" * 5_000_000})
    assert "line 2 is longer than 2,000,000 bytes" in refused(run, tmp_path / "o.tfrecord", source)


METADATA = {
    "no JSON": b"{",
    "a list": b"[]",
    "unknown": b'{"record_type": "exampel"}',
    "a list as type": b'{"record_type": []}',
    "no column": b'{"record_type": "bytes"}',
    "no struct": b'{"record_type": "sequence_example"}',
}


@pytest.mark.parametrize("metadata", METADATA.values(), ids=METADATA)
def test_arrow_metadata_that_does_not_fit(run: Run, tmp_path: Path, metadata: bytes) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"context": [1]}).replace_schema_metadata({"tfrecord": metadata})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    assert "a.arrow: rows from 0 on: " in refused(run, tmp_path / "o.tfrecord", tmp_path / "a.arrow")


def test_an_archive_of_other_files(run: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.txt", "hello")
    assert "its member 'a.txt' is not an array" in refused(run, tmp_path / "o.tfrecord", tmp_path / "a.npz")


def test_headers_that_raise_inside_other_packages(run: Run, tmp_path: Path) -> None:
    """Python's tokenizer reads the header of an array; a column's name in Parquet may be no UTF-8."""
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(b"(3,)") + 3] = ord(" ")
    (tmp_path / "a.npz").write_bytes(without_checksums(bytes(data)))
    assert "a.npz: not a valid npz file" in refused(run, tmp_path / "o.tfrecord", tmp_path / "a.npz")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pytest.importorskip("pyarrow").table({"column": [1]}), tmp_path / "a.parquet")
    data = bytearray((tmp_path / "a.parquet").read_bytes().replace(b"column", b"col\xbcmn"))
    (tmp_path / "a.parquet").write_bytes(data)
    assert "a.parquet: not a valid parquet" in refused(run, tmp_path / "o.tfrecord", tmp_path / "a.parquet")


def without_checksums(archive: bytes) -> bytes:
    """A zip archive with the checksums that its stored members have now."""
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        parts = [(one, archive[one.header_offset :].split(b"\x93NUMPY", 1)[1]) for one in held.infolist()]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for one, rest in parts:
            made.writestr(one.filename, (b"\x93NUMPY" + rest)[: one.file_size])
    return out.getvalue()


def test_columns_of_one_name(run: Run, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    whole = pa.array([1])
    struct = pa.StructArray.from_arrays([whole, whole], names=["x", "x"])
    metadata = {"tfrecord": b'{"record_type": "sequence_example"}'}
    for name, columns, names, about in (
        ("a.arrow", [whole, whole], ["x", "x"], None),
        ("b.arrow", [struct], ["context"], metadata),
    ):
        table = pa.table(columns, names=names).replace_schema_metadata(about)
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
        assert "two columns have the name 'x'" in refused(run, tmp_path / "o.tfrecord", tmp_path / name)


@pytest.mark.parametrize(
    ("about", "reason"), [("[]", "not a JSON object"), ('{"dense": []}', "no array 'x/row_splits'")]
)
def test_npz_of_ours_that_does_not_fit(run: Run, tmp_path: Path, about: str, reason: str) -> None:
    arrays = {"__tfrecord__": np.array(about), "x/values": np.zeros(2)}
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    assert reason in refused(run, tmp_path / "o.tfrecord", tmp_path / "a.npz")
