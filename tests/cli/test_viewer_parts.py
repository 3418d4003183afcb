"""The parts of the viewer by themselves."""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from samples import png, wave

from tfrecord._cli.viewer.data import Place, Shown
from tfrecord._cli.viewer.drawings import sparkline, waveform
from tfrecord._cli.viewer.hints import Hints
from tfrecord._cli.viewer.html import el, link
from tfrecord._cli.viewer.jobs import Job
from tfrecord._cli.viewer.objects import Box, Picture, boxes_drawing, boxes_of, main_picture, masks_of
from tfrecord._cli.viewer.search import ordered, rows_with
from tfrecord._cli.viewer.sounds import samples_of
from tfrecord._columns.bytes_column import BytesColumn

# ---- markup


class One(HTMLParser):
    """Reads one element."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "b"
        self.attrs = dict(attrs)
        self.data = ""

    def handle_data(self, data: str) -> None:
        self.data += data


@given(st.text())
def test_text_stays_text(text: str) -> None:
    one = One()
    one.feed(el("b", text, title=text))
    one.close()
    spelt = "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )
    assert (one.data, one.attrs["title"]) == (spelt, spelt)
    assert link("x", {"q": text}).isascii() and not set(link("x", {"q": text})) & set("<>\"' \n")


# ---- order and text search

NUMBERS = arrays.arrays(np.int64, st.integers(0, 30), elements=st.integers(-3, 3)) | arrays.arrays(
    np.float32, st.integers(0, 30), elements=st.sampled_from([0.0, -1.5, 2.0, np.nan, np.inf])
)


@given(NUMBERS, st.booleans(), st.integers(0, 32), st.integers(0, 32), st.data())
def test_a_page_in_order(values: Any, backwards: bool, start: int, count: int, data: st.DataObject) -> None:
    lost = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), bool)
    masked = np.ma.MaskedArray(values, lost) if lost.any() else values
    gone = lost | np.isnan(values)
    sign = -1 if backwards else 1
    expected = sorted(np.flatnonzero(~gone).tolist(), key=lambda i: sign * values[i].item())
    expected += np.flatnonzero(gone).tolist()
    assert ordered(masked, backwards, start, start + count).tolist() == expected[start : start + count]


def test_bytes_in_order() -> None:
    names = np.array([b"b", b"a", b"c", b"a"])
    assert ordered(names, False, 0, 3).tolist() == [1, 3, 0]
    assert ordered(names, True, 0, 9).tolist() == [2, 0, 1, 3]


PAYLOADS = st.lists(st.text("ab", max_size=6).map(str.encode), max_size=12)


@given(PAYLOADS, st.text("ab", min_size=1, max_size=4).map(str.encode), st.integers(0, 3))
def test_which_payloads_contain_a_text(payloads: list[bytes], needle: bytes, gap: int) -> None:
    starts = np.cumsum([0, *(len(one) + gap for one in payloads)])[:-1]
    lengths = np.array([len(one) for one in payloads], np.int64)
    whole = b"".join(one + b"b" * gap for one in payloads)
    expected = [row for row, one in enumerate(payloads) if needle in one]
    one_buffer = BytesColumn._trusted((memoryview(whole),), starts.astype(np.int64), lengths)
    assert rows_with(one_buffer, needle) == expected
    assert rows_with(BytesColumn.from_list(payloads), needle) == expected
    order = np.arange(len(payloads))[::-1]
    assert rows_with(one_buffer[order], needle) == [len(payloads) - 1 - row for row in expected[::-1]]


# ---- work in the background


def test_a_job_stops_and_continues() -> None:
    may = threading.Semaphore(0)

    def steps() -> Iterator[int]:
        for _ in range(4):
            assert may.acquire(timeout=20)
            yield 10

    job = Job(steps(), 40)
    assert (job.state, job.done) == ("new", 0)
    job.stop()
    assert job.state == "new"
    job.start()
    job.start()
    job.stop()
    may.release(4)
    assert job.state == "stopped" and not job.has_ended
    job.start()
    job.wait(20)
    assert (job.state, job.done, job.has_ended) == ("done", 40, True)
    job.start()
    assert job.state == "done"


def test_a_job_that_fails_says_why() -> None:
    job = Job((1 // n for n in (1, 0)), 2)
    job.start()
    job.wait(20)
    assert (job.state, job.done) == ("failed", 1) and "ZeroDivisionError" in job.error


# ---- sounds and drawings


def wav(kind: int, bits: int, data: bytes, channels: int = 1) -> bytes:
    form = struct.pack(
        "<HHIIHH", kind, channels, 8000, 8000 * channels * bits // 8, channels * bits // 8, bits
    )
    chunks = b"WAVE" + b"junk\3\0\0\0abc\0" + b"fmt " + struct.pack("<I", 16) + form
    return b"RIFF\0\0\0\0" + chunks + b"data" + struct.pack("<I", len(data)) + data


@pytest.mark.parametrize(
    ("data", "samples"),
    [
        (wav(1, 8, bytes([128, 255, 0])), [0, 127 / 128, -1]),
        (wav(1, 16, struct.pack("<3h", 0, 16384, -32768)), [0, 0.5, -1]),
        (wav(1, 16, struct.pack("<4h", 0, 1, 16384, 2), 2), [0, 0.5]),
        (wav(1, 24, b"\0\0\x40\0\0\x80"), [0.5, -1]),
        (wav(1, 32, struct.pack("<2i", 1 << 30, -(1 << 31))), [0.5, -1]),
        (wav(3, 32, struct.pack("<2f", 0.25, -1)), [0.25, -1]),
        (wav(3, 64, struct.pack("<3d", 0.25, -1, 1e300)), [0.25, -1, np.inf]),
        (wav(1, 16, struct.pack("<h", 16384) + b"\1"), [0.5]),
        (wav(2, 4, b"abc"), None),
        (wav(1, 16, b""), None),
        (wav(1, 12, b"abcdef"), None),
        (b"RIFF", None),
        (b"OggS", None),
    ],
    ids=range(13),
)
def test_samples_of_wav_files(data: bytes, samples: list[float] | None) -> None:
    found = samples_of(data)
    assert (None if found is None else found.tolist()) == samples


@given(st.binary(max_size=80), st.integers(0, 60))
def test_damaged_sounds_do_no_harm(noise: bytes, cut: int) -> None:
    for data in (wave()[:cut] + noise, b"RIFF\0\0\0\0WAVE" + noise):
        found = samples_of(data)
        assert found is None or (found.dtype == np.float32 and 0 < len(found) <= len(data))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values",
    [[1.0], [np.nan, np.inf, -np.inf], [3e38, -3e38] * 300, [0] * 1000, [2**63 - 1, -(2**63)]],
    ids=range(5),
)
def test_odd_numbers_are_drawn(values: list[float]) -> None:
    assert "nan" not in sparkline(np.array(values)) and "<svg" in waveform(np.array(values), "x")


# ---- pictures, boxes, masks

PICTURE = Picture(Place(0, "image"), "PNG 200x100", "image/png", 200, 100)


def record(**context: Any) -> Shown:
    named = {name.replace("__", "/"): value for name, value in context.items()}
    return Shown(0, 0, "f", 0, 0, "example", memoryview(b""), named)


def texts(*values: str) -> Any:
    return np.array([value.encode() for value in values], object)


def sides(*boxes: tuple[float, ...]) -> dict[str, Any]:
    names = ("xmin", "ymin", "xmax", "ymax")
    columns = np.array(boxes, np.float32).reshape(-1, 4).T
    return {f"image__object__bbox__{name}": column for name, column in zip(names, columns, strict=True)}


def test_boxes_of_the_object_detection_api() -> None:
    given = sides((0.25, 0.5, 0.5, 1), (0, 0, 1, 1))
    found = boxes_of(record(**given, image__object__class__text=texts("cat", "dog")), PICTURE, Hints())
    assert found == [Box(0.25, 0.5, 0.5, 1, "cat"), Box(0, 0, 1, 1, "dog")]
    numbers = record(**given, image__object__class__label=np.array([3, 4]))
    assert [box.label for box in boxes_of(numbers, PICTURE, Hints())] == ["3", "4"]
    named = Hints(names={"image/object/class/label": ["a", "b", "c", "d"]})
    assert [box.label for box in boxes_of(numbers, PICTURE, named)] == ["d", "4"]
    pixels = boxes_of(record(**sides((50, 25, 100, 100))), PICTURE, Hints())
    assert pixels == [Box(0.25, 0.25, 0.5, 1, "")]


def test_boxes_of_tfds() -> None:
    given = record(objects__bbox=np.array([0, 0.25, 0.5, 0.75], np.float32), objects__label=np.array([1]))
    hints = Hints(names={"objects/label": ["cat", "dog"]}, boxes={"objects/bbox"})
    assert boxes_of(given, PICTURE, hints) == [Box(0.25, 0, 0.75, 0.5, "dog")]


@pytest.mark.parametrize(
    "given",
    [
        {"image__object__bbox__xmin": np.zeros(2)},
        {**sides((0, 0, 1, 1)), "image__object__bbox__xmin": np.zeros(2)},
        {**sides((0, 0, 1, 1)), "image__object__bbox__xmin": texts("a")},
        sides((np.nan, 0, 1, 1)),
        sides((np.nan,) * 4),
        sides((-np.inf, 0, 1, 1)),
        sides((0, 0, 1e30, 1)),
        sides(),
        {"bbox": np.zeros(3)},
        {"bbox": None},
    ],
    ids=range(10),
)
def test_what_is_no_box(given: dict[str, Any]) -> None:
    assert boxes_of(record(**given), PICTURE._replace(width=0), Hints()) == []
    assert boxes_drawing([], PICTURE, True) is None


def test_the_main_picture_is_no_mask() -> None:
    given = record(image__mask=np.array([png(2, 2)] * 2, object), image__encoded=texts("x"), z=png(9, 9))
    found = main_picture(given, Hints())
    assert found is not None and found.place.name == "z" and (found.width, found.height) == (9, 9)
    assert len(masks_of(given, Hints())) == 2
    assert main_picture(given, Hints(masks={"z"})) is None


# ---- Pillow


def encoded(image: Any, form: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def test_pictures_are_made_smaller() -> None:
    module = pytest.importorskip("PIL.Image")
    from tfrecord._cli.viewer.pictures import shrunk

    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        mime, data = shrunk(encoded(module.new(mode, (400, 100))), 50) or ("", b"")
        small = module.open(io.BytesIO(data))
        assert small.size in ((50, 12), (50, 13)), mode
        assert mime == ("image/png" if mode in ("LA", "RGBA") else "image/jpeg"), mode
    for mode, form in (("CMYK", "JPEG"), ("RGB", "JPEG"), ("P", "GIF"), ("RGB", "WEBP"), ("RGB", "BMP")):
        assert shrunk(encoded(module.new(mode, (400, 100)), form), 50), form
    whole = encoded(module.new("RGB", (400, 100)))
    assert shrunk(whole[:60], 50) is None and shrunk(b"", 50) is None
    assert shrunk(encoded(module.new("RGB", (9, 9)), "TIFF"), 50) is None
    assert shrunk(b"%!PS-Adobe-3.0 EPSF-3.0\n", 50) is None


def test_masks_are_coloured() -> None:
    module = pytest.importorskip("PIL.Image")
    from tfrecord._cli.viewer.pictures import coloured

    left, right = module.new("L", (4, 2)), module.new("L", (4, 2))
    left.putpixel((0, 0), 1)
    right.putpixel((3, 1), 255)
    mime, data = coloured([encoded(left), b"broken", encoded(right)], 100) or ("", b"")
    found = module.open(io.BytesIO(data))
    assert (mime, found.mode, found.size) == ("image/png", "RGBA", (4, 2))
    assert found.getpixel((0, 0)) != found.getpixel((3, 1)) and found.getpixel((1, 1))[3] == 0
    assert found.getpixel((0, 0))[3] == found.getpixel((3, 1))[3] == 255
    classes = module.new("P", (2, 1))
    classes.putdata([0, 7])
    found = module.open(io.BytesIO((coloured([encoded(classes)], 100) or ("", b""))[1]))
    assert found.getpixel((0, 0))[3] == 0 and found.getpixel((1, 0))[3] == 255
    assert coloured([b"broken"], 100) is None
