"""Decode a serialized TensorFlow `TensorProto` (what `tf.io.serialize_tensor` makes) without TensorFlow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError as ProtobufDecodeError

from indexer.errors import DecodeError
from indexer.options import suggests_options
from tfrecord.example_pb2 import _message_classes

__all__ = ["decode_tensor_proto"]

# DataType numbers and field numbers are those of TensorFlow's types.proto and tensor.proto:
# number -> (numpy dtype, the field that holds the values where there is no tensor_content).
_DTYPES: dict[int, tuple[str, str]] = {
    1: ("<f4", "float_val"),
    2: ("<f8", "double_val"),
    3: ("<i4", "int_val"),
    4: ("<u1", "int_val"),
    5: ("<i2", "int_val"),
    6: ("<i1", "int_val"),
    8: ("<c8", "scomplex_val"),
    9: ("<i8", "int64_val"),
    10: ("?", "bool_val"),
    17: ("<u2", "int_val"),
    18: ("<c16", "dcomplex_val"),
    19: ("<f2", "half_val"),
    22: ("<u4", "uint32_val"),
    23: ("<u8", "uint64_val"),
}
_STRING = 7
_NAMES = {14: "bfloat16", 11: "qint8", 12: "quint8", 13: "qint32", 20: "resource", 21: "variant"}
_FieldProto = descriptor_pb2.FieldDescriptorProto
_FIELDS = {
    "dtype": (1, _FieldProto.TYPE_INT32),
    "version_number": (3, _FieldProto.TYPE_INT32),
    "tensor_content": (4, _FieldProto.TYPE_BYTES),
    "float_val": (5, _FieldProto.TYPE_FLOAT),
    "double_val": (6, _FieldProto.TYPE_DOUBLE),
    "int_val": (7, _FieldProto.TYPE_INT32),
    "string_val": (8, _FieldProto.TYPE_BYTES),
    "scomplex_val": (9, _FieldProto.TYPE_FLOAT),
    "int64_val": (10, _FieldProto.TYPE_INT64),
    "bool_val": (11, _FieldProto.TYPE_BOOL),
    "dcomplex_val": (12, _FieldProto.TYPE_DOUBLE),
    "half_val": (13, _FieldProto.TYPE_INT32),
    "uint32_val": (16, _FieldProto.TYPE_UINT32),
    "uint64_val": (17, _FieldProto.TYPE_UINT64),
}


def _message_class() -> Any:
    """A private message class, like those of `example_pb2`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tfrecord/tensor.proto", package="tfrecord", syntax="proto3"
    )
    shape = file.message_type.add(name="TensorShape")
    dim = shape.nested_type.add(name="Dim")
    dim.field.add(name="size", number=1, label=_FieldProto.LABEL_OPTIONAL, type=_FieldProto.TYPE_INT64)
    shape.field.add(
        name="dim",
        number=2,
        label=_FieldProto.LABEL_REPEATED,
        type=_FieldProto.TYPE_MESSAGE,
        type_name=".tfrecord.TensorShape.Dim",
    )
    shape.field.add(
        name="unknown_rank", number=3, label=_FieldProto.LABEL_OPTIONAL, type=_FieldProto.TYPE_BOOL
    )
    tensor = file.message_type.add(name="Tensor")
    tensor.field.add(
        name="tensor_shape",
        number=2,
        label=_FieldProto.LABEL_OPTIONAL,
        type=_FieldProto.TYPE_MESSAGE,
        type_name=".tfrecord.TensorShape",
    )
    for name, (number, kind) in _FIELDS.items():
        many = name.endswith("_val")
        label = _FieldProto.LABEL_REPEATED if many else _FieldProto.LABEL_OPTIONAL
        tensor.field.add(name=name, number=number, label=label, type=kind)
    return _message_classes(file, ["Tensor"])["Tensor"]


_Tensor = _message_class()


@suggests_options
def decode_tensor_proto(
    serialized: bytes | bytearray | memoryview, *, max_fill: int = 1 << 24
) -> npt.NDArray[Any]:
    """The array in a serialized `TensorProto`, with its dtype and shape, in new writable memory.

    Strings become an object array of bytes. If fewer values are stored than the shape has, the last one fills
    the rest (zeros if there is none), as in TensorFlow. `max_fill` limits how many values are filled in, so
    that a few hostile bytes cannot claim gigabytes.

    Raises:
        DecodeError: the message is damaged, NumPy has no such dtype (bfloat16, quantized, resource, ...), or
            values and shape do not match. A ValueError.
    """
    try:
        tensor = _Tensor.FromString(bytes(serialized))
    except ProtobufDecodeError as error:
        raise DecodeError(f"not a valid TensorProto: {error}") from None
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise DecodeError("the TensorProto has no complete shape")
    values = _values(tensor)
    count = math.prod(shape)
    if len(values) > count or (len(values) < count and tensor.tensor_content):
        raise DecodeError(f"{len(values)} values do not fill the shape {shape}")
    if count - len(values) > max_fill:
        raise DecodeError(f"the shape {shape} has {count} values, {len(values)} are stored")
    if len(values) < count:
        last = values[-1:] if len(values) else np.full(1, b"" if values.dtype == object else 0, values.dtype)
        values = np.concatenate([values, np.repeat(last, count - len(values))])
    try:
        return values.reshape(shape)
    except ValueError as error:  # sizes or a rank beyond numpy's limits, around a size of 0
        raise DecodeError(f"the shape {shape}: {error}") from None


def _values(tensor: Any) -> npt.NDArray[Any]:
    """The stored values, flat. Halves are stored as bit patterns, complex numbers as pairs."""
    if tensor.dtype == _STRING:
        strings = np.empty(len(tensor.string_val), object)
        strings[:] = list(tensor.string_val)
        return strings
    if tensor.dtype not in _DTYPES:
        known = ", ".join(np.dtype(name).name for name, _ in _DTYPES.values())
        name = f"{_NAMES[tensor.dtype]} ({tensor.dtype})" if tensor.dtype in _NAMES else str(tensor.dtype)
        raise DecodeError(f"the TensorProto's dtype is {name}; known are {known}, string")
    dtype = np.dtype(_DTYPES[tensor.dtype][0])
    native = dtype.newbyteorder("=")
    if tensor.tensor_content:
        if len(tensor.tensor_content) % dtype.itemsize:
            raise DecodeError(f"{len(tensor.tensor_content)} bytes are not a whole number of {dtype.name}")
        if dtype.kind == "b":
            return np.frombuffer(tensor.tensor_content, np.uint8).astype(np.bool_)
        return np.frombuffer(tensor.tensor_content, dtype).astype(native)
    stored = getattr(tensor, _DTYPES[tensor.dtype][1])
    if dtype.kind == "c":
        parts = np.array(stored, np.float32 if dtype.itemsize == 8 else np.float64)
        if len(parts) % 2:
            raise DecodeError("a complex tensor holds an odd number of parts")
        pairs: npt.NDArray[Any] = parts.view(native)
        return pairs
    if dtype == np.float16:
        return _exact(stored, np.dtype(np.uint16)).view(np.float16)
    if dtype.kind in "iu" and dtype.itemsize < 4:
        return _exact(stored, native)
    return np.array(stored, native)


def _exact(stored: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    wide = np.array(stored, np.int64)
    cast = wide.astype(dtype)
    bad = cast != wide
    if bad.any():
        raise DecodeError(f"the value {int(wide[bad][0])} does not fit {dtype.name}")
    return cast
