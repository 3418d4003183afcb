"""One image file to pixels: the rule for colours, and what a file may claim before it is decoded."""

from __future__ import annotations

import importlib
import io
import re
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexer.errors import DecodeError, ImageError
from tfrecord._optional import optional
from tfrecord.features import ImageOptions

__all__ = ["Pixels", "colours_of", "fast_jpeg", "image_pixels", "load_decoders"]

Pixels = npt.NDArray[np.uint8]

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
# Markers of a JPEG that stand alone, and those that begin a frame (SOF); ITU T.81, table B.1.
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MOST_SEGMENTS = 1 << 16
# The marker itself, after any number of bytes that fill the space before it.
_MARKER = re.compile(rb"[^\xff]")
# Samples per pixel of a PNG by its colour type, and how much deflate shrinks at most.
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEFLATE = 1032
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_SPACES = {1: "GRAY", 3: "RGB", 4: "RGBA"}


class _Header(NamedTuple):
    format: str
    height: int
    width: int
    components: int


def colours_of(image: Any, channels: int) -> Pixels:
    """The current frame of an open Pillow image as uint8 (height, width, channels); 0: 1 or 3 channels, as
    stored."""
    if image.format in ("JPEG", "MPO") and channels == 1:
        image.draft("L", image.size)
    if image.mode.startswith("I"):  # 16-bit grey, of which we need the upper 8
        grey = (np.asarray(image) >> 8).astype(np.uint8)[..., None]
        pixels = np.repeat(grey, min(channels or 1, 3), axis=-1)
        return np.pad(pixels, ((0, 0), (0, 0), (0, 1)), constant_values=255) if channels == 4 else pixels
    if channels in (1, 3) and image.mode in ("L", "RGB"):
        image.info.pop("transparency", None)  # alpha that is not asked for
    if image.mode in ("P", "PA", "LA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA") if channels != 1 else image.convert("LA")
    mode = _MODES.get(channels) or ("L" if image.mode in ("1", "L") else "RGB")
    pixels = np.array(image if image.mode == mode else image.convert(mode))
    return pixels if pixels.ndim == 3 else pixels[..., None]


@cache
def load_decoders() -> tuple[Any, Any]:
    """Pillow's Image module, ready for threads, and simplejpeg or None.

    Raises ImportError with the pip command if Pillow is not installed.
    """
    pillow = optional("PIL.Image")
    pillow.preinit()
    try:
        return pillow, importlib.import_module("simplejpeg")
    except ModuleNotFoundError:
        return pillow, None


def image_pixels(data: bytes, options: ImageOptions, out: Pixels | None = None) -> Pixels:
    """The pixels of a JPEG or PNG file: in ``out`` if it is given and has their shape.

    Raises:
        ImageError: the bytes are not such a file, it is damaged, or it claims too many pixels.
        DecodeError: the image does not have the size that was asked for.
    """
    header = _header(data)
    _check_claims(header, options, len(data))
    pillow, _ = load_decoders()
    size = (header.height, header.width)
    pixels = None
    if header.format == "JPEG" and header.components != 4:
        pixels = fast_jpeg(data, (*size, options.channels), out)
    if pixels is None:
        pixels = _pillow_pixels(pillow, data, header, options.channels)
    if options.resize and size != (options.height, options.width):
        pixels = _resized(pillow, pixels, options)
    return pixels


def fast_jpeg(data: bytes, shape: tuple[int, int, int], out: Pixels | None = None) -> Pixels | None:
    """The pixels of a JPEG by simplejpeg, the same as Pillow's: in ``out`` if that has their shape.

    None if simplejpeg is not installed, or cannot decode the file without a complaint: then Pillow decides.
    """
    simplejpeg = load_decoders()[1]
    if simplejpeg is None:
        return None
    target = out if out is not None and out.shape == shape else None
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, _SPACES[shape[2]], buffer=target)
    except ValueError:
        return None
    return pixels if pixels.shape == shape else None


def _pillow_pixels(pillow: Any, data: bytes, header: _Header, channels: int) -> Pixels:
    try:
        with pillow.open(io.BytesIO(data), formats=(header.format,)) as image:
            if image.size != (header.width, header.height):
                raise ImageError("is damaged: its header gives two sizes")
            return colours_of(image, channels)
    except ImageError:
        raise
    except Exception as error:  # Pillow raises all kinds of errors for files that it cannot read
        raise ImageError(f"is a {header.format} that cannot be decoded: {error}") from error


def _resized(pillow: Any, pixels: Pixels, options: ImageOptions) -> Pixels:
    image = pillow.fromarray(pixels if options.channels > 1 else pixels[..., 0])
    scaled = np.array(image.resize((options.width, options.height), pillow.BILINEAR))
    return scaled if scaled.ndim == 3 else scaled[..., None]


def _check_claims(header: _Header, options: ImageOptions, length: int) -> None:
    """Check the size that a file claims, before memory is allocated for it."""
    size = f"an image of {header.height} x {header.width} pixels"
    if header.height * header.width > options.max_pixels:
        raise ImageError(f"is {size}, more than max_pixels={options.max_pixels:,}")
    for found, wanted in ((header.height, options.height), (header.width, options.width)):
        if not options.resize and wanted not in (None, found):
            wants = f"{options.height or 'any'} x {options.width or 'any'}"
            raise DecodeError(f"is {size}, not {wants}; ImageFeature(..., resize=True) scales it")
    if header.format == "PNG" and header.height * header.width * header.components > length * _DEFLATE * 8:
        raise ImageError(f"is {size}, more than its {length:,} bytes can hold")


def _header(data: bytes) -> _Header:
    """Format and size of an image. ``components`` are bits per pixel of a PNG, components of a JPEG."""
    if data.startswith(_PNG):
        if len(data) < 33 or data[12:16] != b"IHDR" or data[25] not in _SAMPLES:
            raise ImageError("is a PNG with a damaged header")
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        header = _Header("PNG", height, width, data[24] * _SAMPLES[data[25]])
    elif data.startswith(_JPEG):
        header = _jpeg_header(data)
    else:
        raise ImageError(f"is not a JPEG or PNG file ({len(data):,} bytes)")
    if not header.height or not header.width:
        raise ImageError(f"is a {header.format} without pixels")
    return header


def _jpeg_header(data: bytes) -> _Header:
    at = 2
    for _ in range(_MOST_SEGMENTS):
        start = data.find(b"\xff", at)
        found = _MARKER.search(data, start) if start >= 0 else None
        if found is None or found.start() + 9 > len(data) or found[0] == b"\xda":
            break
        at = found.start()
        marker = data[at]
        if marker in _FRAMES:
            sizes = [int.from_bytes(data[at + i : at + i + 2], "big") for i in (4, 6)]
            return _Header("JPEG", sizes[0], sizes[1], data[at + 8])
        at += 1 if marker in _ALONE or not marker else 1 + int.from_bytes(data[at + 1 : at + 3], "big")
    raise ImageError("is a JPEG that ends before the size of the image")
