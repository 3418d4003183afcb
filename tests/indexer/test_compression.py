from __future__ import annotations

import gzip
import zlib

import pytest

from indexer.compression import detect, normalize_compression
from indexer.errors import UnsupportedCompressionError
from indexer.framing import frame_header, frame_record

DATA = frame_record(b"alpha") * 100


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("AUTO", "auto"),
        ("", ""),
        ("NONE", ""),
        ("GZIP", "gzip"),
        ("Gzip", "gzip"),
        ("zlib", "zlib"),
        ("ZSTD", "zstd"),
        ("zst", "zstd"),
    ],
)
def test_names_of_compressions(name: str | None, meaning: str) -> None:
    assert normalize_compression(name) == meaning


@pytest.mark.parametrize("name", ["SNAPPY", "lz4", "gzip2", "7"])
def test_unknown_compressions(name: str) -> None:
    with pytest.raises(ValueError, match="'GZIP', 'ZLIB'") as caught:
        normalize_compression(name)
    assert isinstance(caught.value, UnsupportedCompressionError)
    assert caught.value.reason == "unsupported_compression"
    with pytest.raises(TypeError):
        normalize_compression(3)  # type: ignore[arg-type]


def test_detection_looks_for_a_frame_first() -> None:
    assert detect(gzip.compress(DATA)) == "gzip"
    assert detect(zlib.compress(DATA, 1)) == detect(zlib.compress(DATA, 9)) == "zlib"
    for length in (0x8B1F, 0x9C78, 0x0178, 0xDA78):  # as first bytes: those of gzip and zlib
        assert detect(frame_header(length)) is None
    for head in (b"", b"x", b"hC is text", b"x^2 + y^2 = z^2, and so on", b"\x1f", DATA):
        assert detect(head) is None
