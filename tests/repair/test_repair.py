"""`tfrecord.verify` and `tfrecord.salvage`: one entry per damage, and the same from the command."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pytest

import tfrecord
from indexer.framing import frame_record
from tfrecord.encode import encode_example
from tfrecord.repair import Damage

PAYLOADS = [encode_example({"i": (i, "int"), "text": ("x" * i, "bytes")}) for i in range(40)]


def damaged_file(path: Path, compression: str = "") -> list[tuple[int, int, int, str]]:
    """Write a file with four damages; (record, offset, length, reason) of each."""
    frames = [bytearray(frame_record(payload)) for payload in PAYLOADS]
    frames[3][-1] ^= 1
    frames[7] = bytearray(frame_record(b"\xff\xffgarbage"))
    frames[10][1] ^= 1
    frames[30][14] ^= 1
    starts = [sum(map(len, frames[:i])) for i in range(len(frames) + 1)]
    data = b"".join(map(bytes, frames))
    path.write_bytes(gzip.compress(data, mtime=0) if compression else data)
    reasons = {3: "bad_payload_crc", 7: "bad_message", 10: "bad_length_crc", 30: "bad_payload_crc"}
    return [(i, starts[i], len(frames[i]), reason) for i, reason in reasons.items()]


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_verify_has_one_entry_per_damage(tmp_path: Path, compression: str) -> None:
    bad, good = tmp_path / "bad.tfrecord", tmp_path / "good.tfrecord"
    expected = damaged_file(bad, compression)
    good.write_bytes(b"".join(map(frame_record, PAYLOADS)))
    seen: list[Damage] = []
    report = tfrecord.verify([bad, good], on_damage=seen.append)
    found = [(damage.record, damage.offset, damage.length, damage.reason) for damage in report.damages]
    assert found == expected and seen == report.damages
    assert {damage.path for damage in report.damages} == {str(bad)}
    assert (report.ok, report.num_damages, report.records) == (False, 4, 36 + 40)
    assert [(file.path, file.ok, file.records) for file in report.files] == [
        (str(bad), False, 36),
        (str(good), True, 40),
    ]
    assert report.files[0].compression == compression and report.files[1].record_type == "example"
    text = str(report.damages[0])
    assert text.startswith(f"{bad}: record 3 at offset {expected[0][1]}: ") and "bad_payload_crc" in text
    assert pickle.loads(pickle.dumps(report)) == report


@pytest.mark.parametrize("kind", [str, Path, list])
def test_verify_takes_what_readers_take(tmp_path: Path, kind: type) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame_record(PAYLOADS[1]))
    paths = {str: str(tmp_path / "*.tfrecord"), Path: tmp_path, list: [path]}[kind]
    assert tfrecord.verify(paths).ok and tfrecord.verify(paths).files[0].path == str(path)
    assert tfrecord.verify(paths, record_type="bytes", num_threads=2, parse=False).records == 1


def test_verify_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame_record(b"x"))
    with pytest.raises(ValueError, match="did you mean 'example'"):
        tfrecord.verify(path, record_type="exmple")
    with pytest.raises(ValueError, match="gzipp"):
        tfrecord.verify(path, compression_type="gzipp")
    with pytest.raises(ValueError, match="num_threads"):
        tfrecord.verify(path, num_threads=0)
    with pytest.raises(ValueError, match="empty"):
        tfrecord.verify([])
    with pytest.raises(FileNotFoundError):
        tfrecord.verify(tmp_path / "absent")


def test_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(map(frame_record, PAYLOADS)))
    size = path.stat().st_size
    calls: list[tuple[int, int]] = []
    tfrecord.verify([path, path], progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (2 * size, 2 * size)
    calls.clear()
    tfrecord.salvage(path, tmp_path / "b", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (size, size)
    pytest.importorskip("tqdm")
    tfrecord.verify(path, progress=True)
    tfrecord.salvage(path, tmp_path / "b", progress=True)
    shown = capsys.readouterr().err
    assert "verify" in shown and "salvage" in shown


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_salvage_has_one_entry_per_damage(tmp_path: Path, compression: str) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    expected = [entry for entry in damaged_file(source, compression) if entry[-1] != "bad_message"]
    report = tfrecord.salvage(source, output)
    found = [(damage.record, damage.offset, damage.length, damage.reason) for damage in report.damages]
    assert found == expected
    assert {damage.path for damage in report.damages} == {str(source)}
    assert report.records == 37 and not report.ok
    again = tfrecord.verify(output, parse=False)
    assert again.ok and again.records == 37


def test_the_functions_have_no_module_beside_them() -> None:
    assert callable(tfrecord.verify) and callable(tfrecord.salvage)
    for name in ("verify", "salvage"):
        with pytest.raises(ModuleNotFoundError):
            __import__(f"tfrecord.{name}")


@pytest.mark.parametrize("content", [gzip.compress(b"", mtime=0), b""])
def test_nothing_to_salvage_is_no_damage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in").write_bytes(content)
    report = tfrecord.salvage(tmp_path / "in", tmp_path / "out")
    assert report.ok and not report.records and not report.hint


def test_what_a_file_without_good_records_is(tmp_path: Path) -> None:
    for content, hint in (
        (
            gzip.compress(gzip.compress(frame_record(b"x"))),
            "the file is compressed twice: decompress it once",
        ),
        (gzip.compress(b"PK\3\4" + bytes(50)), "the file looks like a zip archive"),
        (gzip.compress(b"x")[:10], "the file looks like gzip data"),
    ):
        (tmp_path / "in").write_bytes(content)
        report = tfrecord.salvage(tmp_path / "in", tmp_path / "out")
        assert not report.ok and report.hint.startswith(f"no record was found; {hint}")
