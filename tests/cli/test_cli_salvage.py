"""Salvage: whatever happened to the bytes, every undamaged record comes back, and no other."""

from __future__ import annotations

import gzip
import random
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from damages import damaged_file
from samples import MakeFile, Run

from indexer.framing import frame_header, frame_record, scan
from tfrecord._repair.resync import FrameFinder, header_at, length_from_checksum
from tfrecord.encode import encode_example
from tfrecord.repair import salvage

Check = Callable[[bytes], list[bytes]]


@pytest.fixture
def salvaged(tmp_path: Path) -> Check:
    def check(data: bytes) -> list[bytes]:
        source, output = tmp_path / "in", tmp_path / "out"
        source.write_bytes(data)
        report = salvage(source, output)
        assert source.read_bytes() == data
        written = output.read_bytes()
        found = scan(written)
        assert found.reason is None and len(found.offsets) == report.records
        assert report.ok == (written == data)
        assert report.bytes_written + report.bytes_lost == len(data)
        return payloads_of(written)

    return check


def payloads_of(data: bytes) -> list[bytes]:
    found = scan(data)
    places = zip(found.offsets.tolist(), found.lengths.tolist(), strict=True)
    return [data[at + 12 : at + 12 + length] for at, length in places]


@pytest.mark.parametrize("block", range(4))
def test_random_damage(salvaged: Check, block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        data, good, known = damaged_file(seed)
        found = salvaged(data)
        assert not Counter(good) - Counter(found), f"seed {seed}: a whole record was lost"
        # What was inserted, or wiped where zeros were, may by itself be the very bytes of a record.
        assert set(found) <= set(known), f"seed {seed}: something else was taken for a record"


FRAMES = [frame_record(bytes([65 + i]) * (10 * i)) for i in range(6)]
WHOLE = b"".join(FRAMES)


def test_nothing_damaged(salvaged: Check) -> None:
    assert salvaged(WHOLE) == payloads_of(WHOLE)
    assert salvaged(b"") == []


@pytest.mark.parametrize("offset", range(len(WHOLE)))
def test_every_single_byte(salvaged: Check, offset: int) -> None:
    data = bytearray(WHOLE)
    data[offset] ^= 0x10
    ends = [sum(map(len, FRAMES[: i + 1])) for i in range(len(FRAMES))]
    hit = next(i for i, end in enumerate(ends) if offset < end)
    assert salvaged(bytes(data)) == payloads_of(b"".join(FRAMES[:hit] + FRAMES[hit + 1 :]))


@pytest.mark.parametrize("kept", range(0, len(WHOLE), 7))
def test_every_cut(salvaged: Check, kept: int) -> None:
    ends = [sum(map(len, FRAMES[: i + 1])) for i in range(len(FRAMES))]
    assert salvaged(WHOLE[:kept]) == payloads_of(WHOLE)[: sum(end <= kept for end in ends)]


INNER = b"".join(frame_record(b"inner %d" % i) for i in range(5))
CARRIERS = [INNER, encode_example({"file": (INNER, "bytes"), "n": (1, "int")})]


@pytest.mark.parametrize("carrier", CARRIERS, ids=["bare", "example"])
@pytest.mark.parametrize("place", [0, 3, 8, 11, 20, -1])
def test_frames_inside_a_damaged_record_are_not_the_files(
    salvaged: Check, carrier: bytes, place: int
) -> None:
    frame = bytearray(frame_record(carrier))
    frame[place] ^= 1
    data = frame_record(b"before") + bytes(frame) + frame_record(b"after") + frame_record(b"last")
    assert salvaged(data) == [b"before", b"after", b"last"]


@pytest.mark.parametrize("carrier", CARRIERS, ids=["bare", "example"])
def test_frames_inside_a_cut_record_are_not_the_files(salvaged: Check, carrier: bytes) -> None:
    frame = frame_record(carrier)
    for kept in range(1, len(frame)):
        assert salvaged(frame_record(b"before") + frame[:kept]) == [b"before"], kept


def test_wiped_border_of_a_record_that_holds_frames(salvaged: Check) -> None:
    frames = [frame_record(CARRIERS[1]), frame_record(b"hit"), frame_record(b"after")]
    data = bytearray(b"".join(frames))
    data[len(frames[0]) - 6 : len(frames[0]) + 8] = bytes(14)
    assert salvaged(bytes(data)) == [b"after"]


def test_a_file_full_of_headers_takes_linear_time(salvaged: Check) -> None:
    # Each header promises all that follows: checking each payload anew would take hours.
    size = 12 * 40_000 + 4
    data = b"".join(_header(size - 12 * i - 28) for i in range(size // 12 - 4))
    assert salvaged(data) == []


def _header(length: int) -> bytes:
    return frame_header(max(length, 0))


def test_a_header_that_stands_before_another_frame(salvaged: Check) -> None:
    # Bytes that are lost between two headers can leave the second as the payload that the first promises.
    frames = [frame_record(bytes([65 + i]) * 8) for i in range(4)]
    assert salvaged(frames[0] + frames[1][:12] + frames[2] + frames[3]) == [b"A" * 8, b"C" * 8, b"D" * 8]


def test_lengths_are_found_from_their_checksums() -> None:
    for length in (0, 1, 255, 1 << 20, (1 << 32) - 1):
        header = _header(length)
        assert length_from_checksum(int.from_bytes(header[8:], "little")) == length
        assert header_at(memoryview(header), 0) == length
    assert header_at(memoryview(bytes(12)), 0) is None
    assert header_at(memoryview(b"short"), 0) is None


def test_long_payloads_are_checked_by_parts() -> None:
    payload = random.Random(5).randbytes(700_000)
    data = memoryview(b"x" * 100_001 + frame_record(payload) + b"y" * 5)
    finder = FrameFinder(data)
    assert list(finder.frames(0)) == [(100_001, 700_000)]
    broken = bytearray(data)
    broken[300_000] ^= 1
    assert list(FrameFinder(memoryview(bytes(broken))).frames(0)) == []


def test_report_says_what_was_lost(tmp_path: Path) -> None:
    data = bytearray(WHOLE)
    data[len(FRAMES[0]) + 14] ^= 1  # in the payload of record 1
    source = tmp_path / "in"
    source.write_bytes(bytes(data) + bytes(40))
    seen: list[tuple[int, int]] = []
    report = salvage(source, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    first, last = report.damages
    assert (first.record, first.offset, first.length) == (1, len(FRAMES[0]), len(FRAMES[1]))
    assert first.reason == "bad_payload_crc"
    assert (last.offset, last.length, last.reason, last.detail) == (
        len(WHOLE),
        40,
        "bad_length_crc",
        "all zeros",
    )
    assert (report.records, report.num_damages, report.ok) == (5, 2, False)
    assert seen[-1] == (len(WHOLE) + 40, len(WHOLE) + 40)


# Compressed files.

RECORDS = [b"record %d " % i * 50 for i in range(300)]
STREAM = b"".join(map(frame_record, RECORDS))


@pytest.mark.parametrize("name", ["gzip", "zlib"])
def test_compressed_files(salvaged: Check, tmp_path: Path, name: str) -> None:
    packed = gzip.compress(STREAM, mtime=0) if name == "gzip" else zlib.compress(STREAM)
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(packed)
    report = salvage(source, output)
    assert report.ok and report.compression == name and output.read_bytes() == STREAM
    for kept in (len(packed) - 1, len(packed) - 9, len(packed) // 2):
        source.write_bytes(packed[:kept])
        report = salvage(source, output)
        assert [damage.reason for damage in report.stream_damages] == ["truncated_stream"]
        found = payloads_of(output.read_bytes())
        assert found == RECORDS[: len(found)]
        assert len(found) > 50


def test_damaged_gzip_member_is_left_for_the_next(tmp_path: Path) -> None:
    parts = [b"".join(map(frame_record, RECORDS[i : i + 100])) for i in (0, 100, 200)]
    members = [gzip.compress(part, mtime=0) for part in parts]
    broken = bytearray(members[1])
    broken[len(broken) // 2 : len(broken) // 2 + 8] = b"\xff" * 8
    source, output = tmp_path / "in.gz", tmp_path / "out.gz"
    source.write_bytes(members[0] + bytes(broken) + members[2])
    report = salvage(source, output)
    found = payloads_of(gzip.decompress(output.read_bytes()))
    assert found[:100] == RECORDS[:100] and found[-100:] == RECORDS[200:]
    assert set(found) <= set(RECORDS)
    assert report.stream_damages and not report.ok


def test_wrong_trailer_loses_nothing(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(STREAM, mtime=0))
    packed[-6] ^= 1
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(bytes(packed))
    report = salvage(source, output)
    assert output.read_bytes() == STREAM
    assert [damage.reason for damage in report.stream_damages] == ["bad_stream"]


@pytest.mark.parametrize("name", ["gzip", "zlib"])
def test_damage_at_the_beginning_of_a_compressed_stream(tmp_path: Path, name: str) -> None:
    first = [b"%d" % (i * i * 7919) for i in range(300)]  # hardly compressible: it ends far behind the damage
    stream = b"".join(map(frame_record, first))
    packed = bytearray(gzip.compress(stream, mtime=0) if name == "gzip" else zlib.compress(stream))
    packed[200] ^= 255
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(bytes(packed))
    report = salvage(source, output)
    assert report.compression == name and report.stream_damages
    found = payloads_of(output.read_bytes())
    assert found and found == first[: len(found)]


def test_plain_file_that_starts_like_zlib(salvaged: Check) -> None:
    data = bytearray(frame_record(bytes(0x9C78)) + frame_record(b"after"))
    data[9] ^= 1
    assert data[:2] == b"\x78\x9c"
    assert salvaged(bytes(data)) == [b"after"]


# The command.


def test_command(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    source = make_file([b"a", b"bb", b"ccc"])
    output = tmp_path / "out"
    assert run("salvage", source, output) == (0, f"3 records to {output}; nothing was lost\n", "")
    data = bytearray(source.read_bytes())
    data[12] ^= 1
    source.write_bytes(bytes(data))
    outcome = run("salvage", source, output)
    assert outcome.code == 1 and "record 0 at offset 0" in outcome.out and "bad_payload_crc" in outcome.out
    assert payloads_of(output.read_bytes()) == [b"bb", b"ccc"]
    document = run("salvage", "--json", source, output).json()
    assert (document["ok"], document["records"], document["damages"][0]["offset"]) == (False, 2, 0)


def test_command_refuses(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    source = make_file([b"a"])
    before = source.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(source)
    for output in (source, link, tmp_path, tmp_path / "no" / "out"):
        outcome = run("salvage", source, output)
        assert outcome.code == 2 and outcome.err, output
    assert source.read_bytes() == before
    assert run("salvage", tmp_path / "absent", tmp_path / "out").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tfrecord", "link"]


def test_text_file_says_what_it_looks_like(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_text("name,label\nx,1\n" * 10)
    outcome = run("salvage", source, tmp_path / "out")
    assert outcome.code == 1 and "text" in outcome.out
    assert (tmp_path / "out").read_bytes() == b""


def test_standard_streams(run: Run, make_file: MakeFile) -> None:
    data = make_file([b"alpha", b"beta"]).read_bytes()
    outcome = run("salvage", "-", "-", stdin=data[:-1])
    assert outcome.code == 1 and outcome.out.encode(errors="surrogateescape") == frame_record(b"alpha")
    assert "truncated_record" in outcome.err


def test_cut_gzip_header_is_said_to_be_cut(tmp_path: Path) -> None:
    whole = gzip.compress(WHOLE, mtime=0)
    for size in (5, 10):
        (tmp_path / "in").write_bytes(whole[:size])
        report = salvage(tmp_path / "in", tmp_path / "out")
        assert [(item.offset, item.reason) for item in report.stream_damages][0][1] == "truncated_stream"
        assert report.compression == "gzip" and not report.ok and not report.records


@pytest.mark.parametrize("kept", range(0, 60, 3))
def test_cut_gzip_member_before_another(tmp_path: Path, kept: int) -> None:
    """The decoder goes on into the next member, whose records are found all the same."""
    chance = random.Random(kept)
    lost = gzip.compress(frame_record(chance.randbytes(10) * 5 + b"abc" * 20), mtime=0)
    kept = min(kept, len(lost) - 1)
    (tmp_path / "in").write_bytes(lost[:kept] + gzip.compress(WHOLE, mtime=0))
    salvage(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out").read_bytes().endswith(WHOLE)


def test_damaged_header_of_the_first_gzip_member(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(WHOLE, mtime=0) * 2)
    whole[0] ^= 1
    (tmp_path / "in").write_bytes(whole)
    report = salvage(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == WHOLE and report.compression == "gzip"
    assert [item.reason for item in report.stream_damages] == ["bad_stream"]


def test_a_file_full_of_members_that_lead_nowhere_takes_linear_time(tmp_path: Path) -> None:
    member = gzip.compress(random.Random(1).randbytes(60_000), 0, mtime=0)[:-8]
    (tmp_path / "in").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\0" * 20_000 + member * 5)
    assert len(salvage(tmp_path / "in", tmp_path / "out").stream_damages) >= 5


def test_frames_inside_a_record_before_one_with_a_damaged_header(salvaged: Check) -> None:
    frames = [bytearray(frame_record(payload)) for payload in (b"first", WHOLE, b"next", b"last")]
    frames[1][70] ^= 1
    for place in (1, 9):  # the length, its checksum
        frames[2][place] ^= 1
        assert salvaged(b"".join(map(bytes, frames))) == [b"first", b"last"]
        frames[2][place] ^= 1
