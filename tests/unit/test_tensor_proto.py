"""TensorProto blobs. The bytes were written by TensorFlow 2.21."""

from __future__ import annotations

import numpy as np
import pytest

from indexer.errors import DecodeError
from tfrecord.tensor_proto import decode_tensor_proto


def blob(dtype: int, shape: bytes, rest: bytes) -> bytes:
    return bytes([8, dtype, 0x12, len(shape)]) + shape + rest


def dims(*sizes: int) -> bytes:
    return b"".join(bytes([0x12, 2, 8, size]) for size in sizes)


def test_serialized_tensors() -> None:
    made = decode_tensor_proto(b'\x08\x13\x12\x08\x12\x02\x08\x02\x12\x02\x08\x02"\x08\x00>\x00@\x00B\x00D')
    assert made.dtype == np.float16 and made.tolist() == [[1.5, 2.0], [3.0, 4.0]] and made.flags.writeable
    made = decode_tensor_proto(b"\x08\x07\x12\x08\x12\x02\x08\x01\x12\x02\x08\x02B\x02a\x00B\x02bb")
    assert made.dtype == object and made.tolist() == [[b"a\0", b"bb"]]


def test_an_image_of_floats() -> None:
    array = np.random.default_rng(0).random((80, 100)).astype(np.float32)
    content = array.tobytes()
    size = bytes([0x80 | len(content) & 0x7F, 0x80 | len(content) >> 7 & 0x7F, len(content) >> 14])
    made = decode_tensor_proto(memoryview(blob(1, dims(80, 100), b'"' + size + content)))
    assert made.dtype == np.float32 and np.array_equal(made, array)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (1, "f4"),
        (2, "f8"),
        (3, "i4"),
        (4, "u1"),
        (5, "i2"),
        (6, "i1"),
        (8, "c8"),
        (9, "i8"),
        (10, "?"),
        (17, "u2"),
        (18, "c16"),
        (19, "f2"),
        (22, "u4"),
        (23, "u8"),
    ],
)
def test_dtypes(number: int, dtype: str) -> None:
    values = np.array([0, 1], dtype)
    content = values.tobytes()
    made = decode_tensor_proto(blob(number, dims(2), bytes([0x22, len(content)]) + content))
    assert made.dtype == values.dtype and made.tolist() == values.tolist() and made.flags.writeable
    assert decode_tensor_proto(blob(number, dims(2), b"")).tolist() == [0, 0]


def test_values_in_fields() -> None:
    assert decode_tensor_proto(b"\x08\x04\x12\x04\x12\x02\x08\x03:\x01\x07").tolist() == [7, 7, 7]
    made = decode_tensor_proto(b"\x08\x08\x12\x04\x12\x02\x08\x02J\x08\x00\x00\x80?\x00\x00\x00@")
    assert made.dtype == np.complex64 and made.tolist() == [1 + 2j, 1 + 2j]
    made = decode_tensor_proto(b"\x08\x01\x12\x04\x12\x02\x08\x05*\x08\x00\x00\x80?\x00\x00\x00@")
    assert made.tolist() == [1, 2, 2, 2, 2]
    assert decode_tensor_proto(blob(19, dims(2), b"\x6a\x03\x80\x78\x00")).tolist() == [1.0, 0.0]
    assert decode_tensor_proto(blob(9, dims(), b"\x52\x01\x05")).tolist() == 5
    assert decode_tensor_proto(blob(10, dims(2), b"\x5a\x02\x01\x00")).tolist() == [True, False]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (blob(14, dims(1), b""), "bfloat16"),
        (blob(99, dims(1), b""), "dtype is 99; known are float32"),
        (b"", "dtype is 0"),
        (blob(20, dims(), b""), "resource"),
        (b"\x08\x01\x12\x50", "not a valid TensorProto"),
        (blob(1, dims(2), b'"\x04\0\0\0\0'), "1 values do not fill the shape"),
        (blob(1, dims(1), b'"\x08' + bytes(8)), "2 values do not fill the shape"),
        (blob(1, dims(1), b'"\x03\0\0\0'), "3 bytes are not a whole number of float32"),
        (blob(4, dims(1), b":\x02\x80\x02"), "256 does not fit uint8"),
        (blob(8, dims(1), b"J\x04\0\0\0\0"), "odd number of parts"),
        (blob(1, b"\x18\x01", b""), "no complete shape"),
        (blob(1, b"\x12\x0b\x08" + b"\xff" * 9 + b"\x01", b""), "no complete shape"),
        (blob(1, b"\x12\x06\x08\xff\xff\xff\xff\x7f" * 3, b""), "0 are stored"),
        (
            blob(1, b"\x12\x0a\x08" + b"\xff" * 8 + b"\x7f\x12\x02\x08\x00" + b"\x12\x02\x08\x02", b""),
            "the shape",
        ),
    ],
    ids=range(14),
)
def test_what_is_wrong_is_said(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message) as caught:
        decode_tensor_proto(data)
    assert isinstance(caught.value, ValueError)


def test_a_few_bytes_cannot_ask_for_much() -> None:
    data = blob(1, b"\x12\x05\x08\x80\x80\x80\x10", b"")
    with pytest.raises(DecodeError, match="33554432 values, 0 are stored"):
        decode_tensor_proto(data)
    assert decode_tensor_proto(data, max_fill=1 << 25).shape == (1 << 25,)
