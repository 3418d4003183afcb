"""Decode stored byte strings to arrays: images, and tensors stored as bytes."""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.errors import DecodeError
from tfrecord._columns.pixels import colours_of, fast_jpeg
from tfrecord._optional import optional
from tfrecord.tfds.features import Image, Shape, Tensor

__all__ = ["decode_image", "decode_tensor"]

Array = npt.NDArray[Any]

_PNG = b"\x89PNG\r\n\x1a\n"
# The largest size to which a tensor of unknown size is inflated.
_MOST_BYTES = 1 << 31


def decode_tensor(data: memoryview, feature: Tensor, given: Sequence[int] | None) -> Array:
    """The array of an encoded tensor: C order, little-endian, owning its memory.

    ``given`` is the shape stored in the record, if more than one dimension is unknown. Never inflates more
    than the shape needs.

    Raises:
        DecodeError: the bytes do not encode such an array.
    """
    dtype = np.dtype(feature.dtype)
    shape = list(feature.shape) if given is None else _merged(given, feature.shape)
    room = math.prod(size for size in shape if size is not None) * dtype.itemsize
    is_open = None in shape
    if feature.encoding == "zlib":
        data = memoryview(_inflated(data, _MOST_BYTES if is_open else min(room, _MOST_BYTES)))
    fits = room and len(data) % room == 0 if is_open else len(data) == room
    if not fits:
        raise DecodeError(
            f"has {len(data):,} bytes, which are not an array of {dtype} of shape {tuple(shape)}"
        )
    sizes = [len(data) // room if size is None else size for size in shape]
    return np.frombuffer(data, dtype.newbyteorder("<")).reshape(sizes).astype(dtype)


def _merged(given: Sequence[int], declared: Shape) -> list[int | None]:
    """The shape stored in a record; it must match the declared one."""
    fits = all(size >= 0 and known in (None, size) for size, known in zip(given, declared, strict=True))
    if not fits:
        raise DecodeError(f"the shape {tuple(given)} of the record does not match {declared}")
    return list(given)


def _inflated(data: memoryview, most: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, most + 1)  # a limit of 0 would mean no limit
    except zlib.error as error:
        raise DecodeError(f"is not valid zlib: {error}") from None
    if len(found) > most:
        raise DecodeError(f"inflates to more than the {most:,} bytes of its shape")
    if not stream.eof:
        raise DecodeError("is a zlib stream that ends early")
    return found


def decode_image(data: memoryview, feature: Image) -> Array:
    """The pixels (height, width, channels) of an image file, or (frames, height, width, 3) of a GIF whose
    declared shape has four dimensions. Needs Pillow.

    Raises:
        DecodeError: the bytes are not an image, or the image does not have the declared size, or it has 16
            bits in colour, which Pillow cannot decode exactly.
    """
    module = optional("PIL.Image")
    channels = feature.shape[-1] or 0
    try:
        with module.open(io.BytesIO(data)) as image:
            _check_size(image.size[::-1], feature.shape[-3:-1])
            if len(feature.shape) == 4:
                return np.stack([_pixels(image, frame, channels) for frame in range(image.n_frames)])
            if feature.dtype == "float32":
                return _pixels(image, 0, 4).view("<f4").astype(np.float32, copy=False)
            if feature.dtype == "uint16":
                return _wide(image, data, channels)
            if image.format == "JPEG" and image.mode != "CMYK" and channels in (1, 3):
                fast = fast_jpeg(bytes(data), (*image.size[::-1], channels))
                if fast is not None:
                    return fast
            return _pixels(image, 0, channels)
    except DecodeError:
        raise
    except Exception as error:  # Pillow raises all kinds of errors for files that it cannot read
        raise DecodeError(f"is not an image that Pillow can decode: {error}") from error


def _check_size(size: tuple[int, int], declared: Shape) -> None:
    """Check, before decompressing anything, that the image has the declared size."""
    if not all(known in (None, found) for found, known in zip(size, declared, strict=True)):
        raise DecodeError(f"is an image of {size[0]} x {size[1]} pixels, not {declared[0]} x {declared[1]}")


def _pixels(image: Any, frame: int, channels: int) -> Array:
    """One frame as uint8."""
    if frame:
        image.seek(frame)
    return colours_of(image, channels)


def _wide(image: Any, data: memoryview, channels: int) -> Array:
    """A PNG as uint16; TensorFlow spreads 8 bits over 16."""
    if image.format == "PNG" and bytes(data[:8]) == _PNG and data[24] == 16:
        if not image.mode.startswith("I"):
            raise DecodeError(
                "is a PNG of 16 bits in colour or with transparency, of which Pillow decodes only 8 bits; "
                "decode=False gives the bytes"
            )
        return np.repeat(np.array(image).astype(np.uint16)[..., None], channels or 1, axis=-1)
    return _pixels(image, 0, channels).astype(np.uint16) * 257
