"""What bytes are, by their beginning, and values in words."""

from __future__ import annotations

import numpy as np
import pytest
from samples import png, wave

from tfrecord._cli.describe import value_text
from tfrecord._cli.sniffing import sniff_bytes


@pytest.mark.parametrize(
    ("data", "label"),
    [
        (png(640, 480), "PNG 640x480"),
        (b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08\x01\xe0\x02\x80\x01\x00", "JPEG 640x480"),
        (b"\xff\xd8\xff", "JPEG"),
        (b"GIF89a\x80\x02\xe0\x01", "GIF 640x480"),
        (
            b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x7f\x02\x00\xdf\x01\x00",
            "WebP 640x480",
        ),
        (wave(1.0), "WAV 8 kHz mono 1.0 s"),
        (b"fLaC", "FLAC"),
        (b"ID3\x03", "MP3"),
        (b'{"a": 1}', "JSON 8 bytes"),
        ("größer".encode(), "text 8 bytes"),
        (b"", "empty"),
        (b"\x93NUMPY\x01", "npy 7 bytes"),
        (b"\xff\xfe\xfd", "3 bytes ff fe fd"),
    ],
)
def test_sniffing(data: bytes, label: str) -> None:
    assert sniff_bytes(data).label == label


def test_sniffing_takes_anything() -> None:
    heads = [
        b"\xff\xd8\xff",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\0\0\0\0WEBP",
        b"RIFF\0\0\0\0WAVE",
        b"BM",
        b"GIF89a",
        b"{",
    ]
    generator = np.random.default_rng(0)
    for head in heads:
        for size in (0, 1, 5, 60, 3000):
            assert sniff_bytes(head + generator.bytes(size)).label


def test_values_in_words() -> None:
    assert value_text(None) == "(no kind)"
    assert value_text(np.arange(100)) == "[0, 1, 2, 3, 4, 5, 6, 7, … 100 values]"
    assert value_text(np.array([0.1], np.float32)) == "0.1"
    assert value_text(np.array([], np.int64)) == "[]"
    assert value_text(b"a\x1b\n") == "3 bytes 61 1b 0a"
    assert value_text(b"line\nline") == '"line\\nline"'
    assert value_text(("é" * 300).encode()).endswith("(600 bytes)")
