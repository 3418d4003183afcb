"""Detect what a byte string is: an image, a sound, text, or another common format. Looks only at headers."""

from __future__ import annotations

import json
from typing import NamedTuple

# The longest text that is checked completely.
_TEXT_MAX = 1 << 16


class Content(NamedTuple):
    """`kind`: "image", "audio", "text", "data" or "empty". `label`: a few words for people.

    `mime`: the type with which a browser shows it, "" if it should not. `extension`: for a file's name.
    """

    kind: str
    label: str
    mime: str = ""
    extension: str = "bin"


def sniff_bytes(data: memoryview | bytes) -> Content:
    """Detect the format of these bytes. Never raises."""
    view = memoryview(data).cast("B")
    if not len(view):
        return Content("empty", "empty")
    head = bytes(view[:64])
    for probe in (_jpeg, _png, _gif, _webp, _bmp, _tiff, _wave, _sound, _other):
        found = probe(view, head)
        if found is not None:
            return found
    return _text(view) or Content("data", f"{len(view):,} bytes {bytes(view[:8]).hex(' ')}")


def _size(name: str, width: int, height: int, mime: str, extension: str) -> Content:
    return Content("image", f"{name} {width}x{height}", mime, extension)


def _jpeg(view: memoryview, head: bytes) -> Content | None:
    """The size is in the first start-of-frame segment (ITU-T T.81, B.2.2)."""
    if head[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    while at + 9 <= len(view):
        if view[at] != 0xFF:
            break
        marker = view[at + 1]
        if marker == 0xFF or marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 1 if marker == 0xFF else 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (
                int.from_bytes(view[at + 5 : at + 7], "big"),
                int.from_bytes(view[at + 7 : at + 9], "big"),
            )
            return _size("JPEG", width, height, "image/jpeg", "jpg")
        if marker in (0xD9, 0xDA):
            break
        at += 2 + max(2, int.from_bytes(view[at + 2 : at + 4], "big"))
    return Content("image", "JPEG", "image/jpeg", "jpg")


def _png(view: memoryview, head: bytes) -> Content | None:
    if head[:8] != b"\x89PNG\r\n\x1a\n" or head[12:16] != b"IHDR" or len(head) < 24:
        return None
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    return _size("PNG", width, height, "image/png", "png")


def _gif(view: memoryview, head: bytes) -> Content | None:
    if head[:6] not in (b"GIF87a", b"GIF89a") or len(head) < 10:
        return None
    width, height = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return _size("GIF", width, height, "image/gif", "gif")


def _webp(view: memoryview, head: bytes) -> Content | None:
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP" or len(head) < 30:
        return None
    width = height = 0
    if head[12:16] == b"VP8X":
        width, height = 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    elif head[12:16] == b"VP8 ":
        width, height = (int.from_bytes(head[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    elif head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return _size("WebP", width, height, "image/webp", "webp")


def _bmp(view: memoryview, head: bytes) -> Content | None:
    if head[:2] != b"BM" or len(head) < 26 or int.from_bytes(head[2:6], "little") != len(view):
        return None
    width, height = (int.from_bytes(head[at : at + 4], "little", signed=True) for at in (18, 22))
    return _size("BMP", width, abs(height), "image/bmp", "bmp")


def _tiff(view: memoryview, head: bytes) -> Content | None:
    known = head[:4] in (b"II*\0", b"MM\0*")
    return Content("image", f"TIFF {len(view):,} bytes", "", "tiff") if known else None


def _wave(view: memoryview, head: bytes) -> Content | None:
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None
    label = "WAV"
    if head[12:16] == b"fmt " and len(head) >= 36:
        channels, rate = int.from_bytes(head[22:24], "little"), int.from_bytes(head[24:28], "little")
        per_second = int.from_bytes(head[28:32], "little")
        seconds = f" {len(view) / per_second:.1f} s" if per_second else ""
        label = f"WAV {rate / 1000:g} kHz {'mono' if channels == 1 else f'{channels} channels'}{seconds}"
    return Content("audio", label, "audio/wav", "wav")


def _sound(view: memoryview, head: bytes) -> Content | None:
    if head[:4] == b"fLaC":
        return Content("audio", "FLAC", "audio/flac", "flac")
    if head[:4] == b"OggS":
        return Content("audio", "Ogg", "audio/ogg", "ogg")
    frame = len(head) > 2 and head[0] == 0xFF and head[1] & 0xF6 in (0xF2, 0xF0) and head[1] & 0xE0 == 0xE0
    layer3 = frame and head[1] & 0x06 == 0x02 and head[2] & 0xF0 not in (0x00, 0xF0)
    if head[:3] == b"ID3" or layer3:
        return Content("audio", "MP3", "audio/mpeg", "mp3")
    return None


_MAGICS = (
    (b"%PDF-", "PDF", "pdf"),
    (b"PK\x03\x04", "zip", "zip"),
    (b"\x1f\x8b\x08", "gzip", "gz"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zst"),
    (b"\x93NUMPY", "npy", "npy"),
    (b"\x89HDF\r\n\x1a\n", "HDF5", "h5"),
    (b"PAR1", "Parquet", "parquet"),
    (b"\x00\x00\x00\x0cJXL ", "JPEG XL", "jxl"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG 2000", "jp2"),
)


def _other(view: memoryview, head: bytes) -> Content | None:
    for magic, name, extension in _MAGICS:
        if head.startswith(magic):
            return Content("data", f"{name} {len(view):,} bytes", "", extension)
    if head[4:8] == b"ftyp":
        return Content("data", f"MP4 family {len(view):,} bytes", "", "mp4")
    return None


def as_text(data: memoryview | bytes) -> str | None:
    """The bytes as text if they are UTF-8 without control characters, else None."""
    raw = bytes(data)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if text.isprintable() or all(c.isprintable() or c in "\t\n\r" or not c.isascii() for c in text):
        return text
    return None


def _text(view: memoryview) -> Content | None:
    part = bytes(view[:_TEXT_MAX])
    if len(view) > _TEXT_MAX:  # the cut may split a character
        part = part[: -4 + next((i for i in range(4) if part[-4 + i] & 0xC0 != 0x80), 0) or None]
    text = as_text(part)
    if text is None:
        return None
    looks_json = text[:1] in "{[" and text[-1:] in "}]" and len(view) <= _TEXT_MAX
    if looks_json:
        try:
            json.loads(text)
            return Content("text", f"JSON {len(view):,} bytes", "", "json")
        except (ValueError, RecursionError):
            pass
    return Content("text", f"text {len(view):,} bytes", "", "txt")
