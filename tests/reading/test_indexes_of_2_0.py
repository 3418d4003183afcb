"""Indexes that version 2.0.0 wrote."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgpack
import pytest
from recorded import write

from indexer.errors import StaleIndexError
from indexer.framing import crc32c
from tfrecord.encode import encode_example
from tfrecord.reader import TFRecordReader, build_index


@pytest.fixture
def path(tmp_path: Path) -> Path:
    labels = [number % 7 for number in range(1000)]
    payloads = [encode_example({"label": (label, "int"), "x": ([0.5] * 3, "float")}) for label in labels]
    return write(tmp_path / "a.tfrecord", payloads)


def as_by_2_0(path: Path) -> None:
    """Take out of an index what version 2.0.0 did not write."""
    sidecar = Path(f"{path}.tfindex")
    good = sidecar.read_bytes()
    (length,) = struct.unpack_from("<I", good, 12)
    fields = msgpack.unpackb(good[24 : 24 + length])
    for name in ("digest", "settled", "masked"):
        del fields[name]
    fields["padding"] = ""
    fields["padding"] = "x" * (length - len(msgpack.packb(fields)))
    while len(header := msgpack.packb(fields)) > length:
        fields["padding"] = fields["padding"][1:]
    assert len(header) == length
    sidecar.write_bytes(
        struct.pack("<8s4I", b"TFRINDEX", 1, length, crc32c(header), 0) + header + good[24 + length :]
    )


def test_an_index_of_2_0_serves_columns_as_long_as_the_time_agrees(path: Path) -> None:
    build_index(path, columns=["label"])
    as_by_2_0(path)
    assert len(TFRecordReader(path).where(label=3)) == 143
    os.utime(path, (5, 5))
    reader = TFRecordReader(path)
    assert len(reader) == 1000 and reader.read([3])["label"].tolist() == [3]
    with pytest.raises(StaleIndexError, match="cannot tell.*tfrecord index"):
        reader.where(label=3)
    build_index(path)
    assert len(TFRecordReader(path).where(label=3)) == 143


# Four records whose labels are 0, 1, 2, 0, and the index that 2.0.0 built of them with columns=["label"].
DATA_OF_2_0 = bytes.fromhex(
    "1200000000000000241f64250a100a0e0a056c6162656c12051a030a0100a2f358811200000000000000241f64250a10"
    "0a0e0a056c6162656c12051a030a0101f5d6547b1200000000000000241f64250a100a0e0a056c6162656c12051a030a"
    "010294b5bce11200000000000000241f64250a100a0e0a056c6162656c12051a030a0100a2f35881"
)


INDEX_OF_2_0 = bytes.fromhex(
    "544652494e4445580100000008010000d5f2645e0000000089ab6e756d5f7265636f72647304a966696c655f73697a65"
    "cc88ab73747265616d5f73697a65cc88a86d74696d655f6e73cf0de0b6b3a7640000ab636f6d7072657373696f6ea0ab"
    "66696e6765727072696e74cfc388888a8ac3c3c3a86d6574616461746182ab7265636f72645f74797065a76578616d70"
    "6c65a6736368656d6183ab6e756d5f7265636f72647304a8666561747572657381a56c6162656c9608040101cf7fffff"
    "ffffffffffffad666561747572655f6c6973747380a66172726179739395a0a33c75389104cd0140cecfa163df95a0a3"
    "3c75389104cd0180ce3081414195a56c6162656ca33c69389104cd01c0ced12a9929aa696e6465785f73697a65cd01e0"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000002200000000000000"
    "440000000000000066000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "120000000000000012000000000000001200000000000000120000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000010000000000000002000000000000000000000000000000"
)


def test_an_index_that_2_0_wrote(tmp_path: Path) -> None:
    path = tmp_path / "old.tfrecord"
    path.write_bytes(DATA_OF_2_0)
    Path(f"{path}.tfindex").write_bytes(INDEX_OF_2_0)
    reader = TFRecordReader(path)
    assert len(reader) == 4 and reader.has_index and reader.read([3, 1])["label"].tolist() == [0, 1]
    with pytest.raises(StaleIndexError, match="cannot tell"):
        reader.where(label=0)
    os.utime(path, ns=(10**18, 10**18))
    assert TFRecordReader(path).where(label=0).tolist() == [0, 3]
    build_index(path)
    os.utime(path)
    assert TFRecordReader(path).where(label=0).tolist() == [0, 3]
