"""`ImageFeature`: which files become which pixels, on either decoder, and what is refused."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tfrecord
from tfrecord import (
    DecodeError,
    FixedLenFeature,
    ImageError,
    ImageFeature,
    MissingFeatureError,
    TFRecordReader,
    encode_example,
    encode_sequence_example,
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
)
from tfrecord._columns import images, pixels

Image = pytest.importorskip("PIL.Image")

ROOT = Path(__file__).resolve().parents[2]
_LABEL = FixedLenFeature((), "int")


@pytest.fixture(params=["simplejpeg", "Pillow"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each test runs with and without simplejpeg."""
    if request.param == "simplejpeg":
        pytest.importorskip("simplejpeg")
    else:
        monkeypatch.setitem(sys.modules, "simplejpeg", None)
    pixels.load_decoders.cache_clear()
    yield request.param
    pixels.load_decoders.cache_clear()


def encoded(image: Any, form: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, form, **options)
    return file.getvalue()


def photo(height: int = 24, width: int = 40, seed: int = 0) -> Any:
    """Smooth colours, which JPEG keeps."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.BICUBIC))


def wide_png(colour_type: int, samples: Any, width: int, height: int) -> bytes:
    """A PNG of 16 bits per sample; Pillow writes only grey ones."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    head = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def one(data: bytes, *args: Any, **options: Any) -> Any:
    """The image of a single record; the same in a batch."""
    record = encode_example({"image": (data, "bytes")})
    features = {"image": ImageFeature(*args, **options)}
    found = parse_single_example(record, features)["image"]
    batch = parse_example([record, record], features)["image"]
    assert found.dtype == np.uint8 and found.flags.writeable and len(batch) == 2
    for image in batch:
        assert np.array_equal(image, found) and image.flags.writeable
    return found


# ---- the spec ----------------------------------------------------------------------------------------------


def test_the_spec_is_a_value() -> None:
    spec = ImageFeature((224, 224, 3), resize=True, max_pixels=10**6, num_threads=2)
    assert pickle.loads(pickle.dumps(spec)) == spec == eval(repr(spec)) and hash(spec)
    assert spec != ImageFeature((224, 224, 3)) and ImageFeature((-1, None, 1)).shape == (None, None, 1)
    assert repr(ImageFeature()) == "ImageFeature((None, None, 3))"
    with pytest.raises(AttributeError):
        spec.resize = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (2, 3)}, "height, width, channels"),
        ({"shape": (2, 3, 2)}, "1, 3 or 4 channels"),
        ({"shape": (0, 3, 3)}, "height, width, channels"),
        ({"shape": (-2, 3, 3)}, "height, width, channels"),
        ({"shape": 3}, "height, width, channels"),
        ({"shape": ("2", 3, 3)}, "height, width, channels"),
        ({"shape": (2**20, 2**20, 3)}, "more than"),
        ({"resize": True}, "resize=True needs a height and a width"),
        ({"max_pixels": 0}, "max_pixels is 0"),
        ({"num_threads": 0}, "num_threads is 0"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageFeature(**options)


# ---- colours -----------------------------------------------------------------------------------------------


@given(st.data())
def test_a_png_gives_back_its_pixels(data: st.DataObject) -> None:
    channels = data.draw(st.sampled_from([1, 3, 4]))
    sizes = st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(channels))
    image = data.draw(arrays(np.uint8, sizes))
    file = encoded(image if channels > 1 else image[..., 0], "PNG")
    assert np.array_equal(one(file, (None, None, channels)), image)
    assert np.array_equal(one(file, image.shape), image)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"optimize": True}])
def test_a_jpeg_is_what_pillow_makes_of_it(options: dict[str, Any]) -> None:
    file = encoded(photo(23, 41), **options)
    image = Image.open(io.BytesIO(file))
    assert np.array_equal(one(file), np.asarray(image))
    opaque = one(file, (23, 41, 4))
    assert np.array_equal(opaque[..., :3], np.asarray(image)) and (opaque[..., 3] == 255).all()
    luma = Image.open(io.BytesIO(file))
    luma.draft("L", luma.size)
    assert np.array_equal(one(file, (23, 41, 1))[..., 0], np.asarray(luma))


def test_grey_files_in_colour_and_colour_files_in_grey() -> None:
    grey = photo()[..., 0]
    for form in ("JPEG", "PNG"):
        file = encoded(grey, form)
        stored = np.asarray(Image.open(io.BytesIO(file)))
        assert np.array_equal(one(file), np.repeat(stored[..., None], 3, -1))
        assert np.array_equal(one(file, (None, None, 1))[..., 0], stored)
    luma = np.asarray(Image.fromarray(photo()).convert("L"))
    assert np.array_equal(one(encoded(photo(), "PNG"), (None, None, 1))[..., 0], luma)


def test_cmyk_becomes_rgb() -> None:
    file = encoded(Image.fromarray(photo()).convert("CMYK"))
    stored = np.asarray(Image.open(io.BytesIO(file))).astype(int)
    expected = (255 - stored[..., :3]) * (255 - stored[..., 3:]) / 255
    assert np.abs(one(file) - expected).max() <= 1


def test_alpha_is_kept_or_dropped_and_never_blended() -> None:
    image = np.dstack([photo(), photo(seed=1)[..., 0]])
    file = encoded(image, "PNG")
    assert np.array_equal(one(file, (None, None, 4)), image)
    assert np.array_equal(one(file), image[..., :3])
    opaque = one(encoded(photo(), "PNG"), (None, None, 4))
    assert np.array_equal(opaque[..., :3], photo()) and (opaque[..., 3] == 255).all()
    both = encoded(Image.fromarray(image).convert("LA"), "PNG")
    assert np.array_equal(one(both, (None, None, 4))[..., 3], image[..., 3])
    # One colour, or one entry of a palette, may stand for "transparent".
    marked = encoded(photo(), "PNG", transparency=tuple(map(int, photo()[0, 0])))
    assert np.array_equal(one(marked), photo()) and one(marked, (None, None, 4))[0, 0, 3] == 0
    luma = np.asarray(Image.fromarray(photo()).convert("L"))
    assert np.array_equal(one(marked, (None, None, 1))[..., 0], luma)
    palette = Image.fromarray(photo()).quantize(8)
    file = encoded(palette, "PNG", transparency=3)
    assert np.array_equal(one(file), np.asarray(palette.convert("RGB")))
    hidden = np.asarray(palette) == 3
    assert np.array_equal(one(file, (None, None, 4))[..., 3] == 0, hidden) and hidden.any()


def test_sixteen_bits_become_the_upper_eight() -> None:
    samples = np.random.default_rng(0).integers(0, 1 << 16, (5, 7, 4), dtype=np.uint16)
    high = (samples >> 8).astype(np.uint8)
    assert np.array_equal(one(wide_png(2, samples[..., :3], 7, 5)), high[..., :3])
    assert np.array_equal(one(wide_png(6, samples, 7, 5), (None, None, 4)), high)
    grey = wide_png(0, samples[..., :1], 7, 5)
    assert np.array_equal(one(grey, (5, 7, 1)), high[..., :1])
    four = one(grey, (5, 7, 4))
    assert np.array_equal(four[..., :3], np.repeat(high[..., :1], 3, -1)) and (four[..., 3] == 255).all()


def test_an_exif_orientation_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    assert np.array_equal(one(encoded(photo(), exif=exif)), one(encoded(photo())))


def test_resize() -> None:
    for channels in (1, 3, 4):
        file = encoded(photo(60, 33), "PNG")
        whole = one(file, (None, None, channels))
        image = Image.fromarray(whole if channels > 1 else whole[..., 0])
        expected = np.asarray(image.resize((20, 10), Image.BILINEAR)).reshape(10, 20, channels)
        assert np.array_equal(one(file, (10, 20, channels), resize=True), expected)
    assert np.array_equal(one(encoded(photo(10, 20)), (10, 20, 3), resize=True), one(encoded(photo(10, 20))))


# ---- what is refused ---------------------------------------------------------------------------------------


def png_claims(height: int, width: int) -> bytes:
    data = bytearray(encoded(photo(), "PNG"))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


def jpeg_claims(height: int, width: int) -> bytes:
    data = bytearray(encoded(photo()))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


DAMAGED: list[tuple[bytes, dict[str, Any], str]] = [
    (b"no image", {}, r"is not a JPEG or PNG file \(8 bytes\)"),
    (encoded(photo(), "GIF"), {}, "is not a JPEG or PNG file"),
    (encoded(photo())[:-100], {}, "is a JPEG that cannot be decoded: .*truncated"),
    (encoded(photo(), "PNG")[:-400], {}, "is a PNG that cannot be decoded"),
    (encoded(photo())[:20], {}, "is a JPEG that ends before the size of the image"),
    (b"\xff\xd8" + b"\xff" * 20_000_000, {}, "ends before the size"),
    (b"\xff\xd8\xff\x01" + b"\xff\x01" * 200_000, {}, "ends before the size"),
    (encoded(photo(), "PNG")[:30], {}, "is a PNG with a damaged header"),
    (png_claims(0, 5), {}, "is a PNG without pixels"),
    (jpeg_claims(5, 0), {}, "is a JPEG without pixels"),
    (jpeg_claims(60_000, 60_000), {}, "is an image of 60000 x 60000 pixels, more than max_pixels=89,478,485"),
    (png_claims(1 << 30, 1 << 30), {}, "more than max_pixels"),
    (png_claims(9000, 9000), {}, "an image of 9000 x 9000 pixels, more than its .* bytes can hold"),
    (encoded(photo()), {"max_pixels": 24 * 40 - 1}, "an image of 24 x 40 pixels, more than max_pixels=959"),
    (jpeg_claims(60_000, 60_000), {"shape": (8, 8, 3), "resize": True}, "more than max_pixels"),
]


@pytest.mark.parametrize(("data", "options", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_images(data: bytes, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ImageError, match=message) as caught:
        one(data, **options)
    assert caught.value.key == "image" and caught.value.record == 0


def test_bombs_are_refused_before_memory_is_allocated() -> None:
    options = ImageFeature()._column.image
    assert options is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pixels, "load_decoders", lambda: pytest.fail("a decoder was asked"))
        for data in (jpeg_claims(60_000, 60_000), png_claims(9000, 9000)):
            with pytest.raises(ImageError, match="more than"):
                pixels.image_pixels(data, options)


def test_another_size_than_declared_is_an_error_of_the_request() -> None:
    for shape in ((24, 41, 3), (None, 41, 3), (25, None, 3)):
        with pytest.raises(DecodeError, match="is an image of 24 x 40 pixels, not") as caught:
            one(encoded(photo()), shape)
        assert not isinstance(caught.value, ImageError)


@given(st.sampled_from(["JPEG", "PNG"]), st.integers(0, 2**32))
def test_damage_raises_nothing_else(form: str, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(encoded(photo(), form))
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        found = one(bytes(data[: rng.choice([len(data), rng.randrange(len(data))])]))
    except ImageError:
        return
    assert found.shape[2] == 3


def test_a_missing_image() -> None:
    features = {"image": ImageFeature()}
    for record in (encode_example({}), encode_example({"image": ([], "bytes")})):
        for parse in (lambda r: parse_example([r], features), lambda r: parse_single_example(r, features)):
            with pytest.raises(MissingFeatureError, match="image"):
                parse(record)
    with pytest.raises(DecodeError, match="has 2 values, not 1"):
        parse_example([encode_example({"image": ([b"a", b"b"], "bytes")})], features)


# ---- batches -----------------------------------------------------------------------------------------------


def written(path: Path, count: int = 40, damaged: tuple[int, ...] = ()) -> list[Any]:
    """A file of images of two sizes and formats, whose pixels are returned."""
    made = []
    with tfrecord.TFRecordWriter(path, index=True) as writer:
        for i in range(count):
            data = encoded(photo(24 + i % 2, 40, i), "PNG" if i % 3 else "JPEG")
            made.append(None if i in damaged else one(data))
            data = data[:-300] if i in damaged else data
            writer.write({"image": (data, "bytes"), "label": (i, "int")})
    return made


def test_columns_of_one_size_and_of_several(tmp_path: Path) -> None:
    made = written(tmp_path / "a")
    reader: Any = TFRecordReader(tmp_path / "a", features={"image": ImageFeature(), "label": _LABEL})
    batch = reader.read(range(40))
    assert batch["image"].dtype == object and all(map(np.array_equal, batch["image"], made))
    assert batch.nbytes == sum(image.nbytes for image in made) + 40 * 8
    assert "images" in repr(batch) and batch.row(3)["image"].shape == (25, 40, 3)
    assert pickle.loads(pickle.dumps(batch)) == batch == tfrecord.concat([batch[:9], batch[9:]])
    assert batch != batch[::-1] and batch[[1, 0]]["image"][1].shape == (24, 40, 3)
    with pytest.raises(TypeError, match="no Arrow type"):
        pytest.importorskip("pyarrow")
        batch.to_arrow()
    reader = TFRecordReader(tmp_path / "a", features={"image": ImageFeature((24, 40, 3), resize=True)})
    dense = reader.read(range(0, 40, 2))["image"]
    assert dense.shape == (20, 24, 40, 3) and np.array_equal(dense, np.stack(made[::2]))
    assert reader.read([0]).to_list()[0]["image"] == made[0].tolist()
    assert len(reader.read([])["image"]) == 0


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_any_number_of_threads_gives_the_same(tmp_path: Path, threads: int | None) -> None:
    made = written(tmp_path / "a", 30, damaged=(4, 20))
    features = {"image": ImageFeature(num_threads=threads), "label": _LABEL}
    reader: Any = TFRecordReader(tmp_path / "a", features=features)
    with pytest.raises(ImageError) as caught:
        reader.read(range(30))
    assert caught.value.record == 4 and caught.value.path == str(tmp_path / "a")
    reader = TFRecordReader(tmp_path / "a", features=features, on_error="skip")
    batch = reader.read(range(30))
    assert batch["label"].tolist() == [i for i in range(30) if i not in (4, 20)]
    assert all(
        np.array_equal(image, made[i]) for i, image in zip(batch["label"], batch["image"], strict=True)
    )


def test_the_threads_are_those_of_one_pool() -> None:
    """They decode, and stay for the next batch; a process that multiprocessing started has none."""
    seen: set[str] = set()
    barrier = threading.Barrier(2, timeout=20)
    record = encode_example({"image": (encoded(photo()), "bytes")})
    real = images.image_pixels

    def decode(*args: Any) -> Any:
        seen.add(threading.current_thread().name)
        barrier.wait()
        return real(*args)

    features = {"image": ImageFeature(num_threads=2)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "image_pixels", decode)
        parse_example([record] * 8, features)
    assert len(seen) == 2 and any(name.startswith("tfrecord-images") for name in seen)
    assert images._pool() is images._pool()


def test_a_forked_process_has_a_pool_of_its_own() -> None:
    record = encode_example({"image": (encoded(photo()), "bytes")})
    features = {"image": ImageFeature(num_threads=2)}
    parse_example([record] * 4, features)
    program = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from tfrecord import ImageFeature, parse_example
records, features = [bytes.fromhex({record.hex()!r})] * 4, {{"image": ImageFeature(num_threads=2)}}
parse_example(records, features)
child = os.fork()
if not child:
    os._exit(len(parse_example(records, features)))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 4)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)


def test_damaged_images_and_damaged_messages_go_to_on_error_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with tfrecord.TFRecordWriter(path, index=True) as writer:
        for i in range(12):
            good = encode_example({"image": (encoded(photo()), "bytes"), "label": (i, "int")})
            writer.write_bytes(
                {2: b"\xff", 5: encode_example({"image": (b"x", "bytes")}), 7: b"\x01"}.get(i, good)
            )
    features = {"image": ImageFeature((24, 40, 3))}
    with pytest.raises(DecodeError):
        TFRecordReader(path, features=features, record_type="example").read(range(12))
    met: list[int | None] = []
    options: dict[str, Any] = {"features": features, "record_type": "example"}
    reader: Any = TFRecordReader(path, on_error=lambda error: met.append(error.record), **options)
    assert len(reader.read(range(12))["image"]) == 9 and sorted(met) == [2, 5, 7]
    assert reader.num_skipped == 3
    assert [len(batch) for batch in reader.batches(4)] == [3, 2, 4]
    assert len(list(reader)) == 9 and len(met) == 3


def test_batches_deliver_the_records_before_a_damaged_image(tmp_path: Path) -> None:
    written(tmp_path / "a", damaged=(21,))
    reader: Any = TFRecordReader(tmp_path / "a", features={"image": ImageFeature(), "label": _LABEL})
    found = []
    with pytest.raises(ImageError, match="record 21 at offset .*: feature 'image': is a"):
        for batch in reader.batches(16):
            found += batch["label"].tolist()
    assert found == list(range(21))
    found = []
    with pytest.raises(ImageError, match="record 21"):
        for record in reader:
            found.append(int(record["label"]))
    assert found == list(range(21))


def test_columns_that_are_not_asked_for_are_not_decoded(tmp_path: Path) -> None:
    written(tmp_path / "a", damaged=(0,))
    reader: Any = TFRecordReader(tmp_path / "a", features={"image": ImageFeature(), "label": _LABEL})
    assert reader.read([0], columns=["label"])["label"].tolist() == [0]


def test_images_in_feature_lists() -> None:
    frames = [[photo(8, 9, 3 * i + j) for j in range(i)] for i in range(3)]
    records = [
        encode_sequence_example({}, {"frame": ([[encoded(image, "PNG")] for image in images], "bytes")})
        for images in frames
    ]
    lists = {"frame": ImageFeature((8, 9, 3))}
    batch = parse_sequence_example(records, None, lists)
    column = batch.feature_lists["frame"]
    assert column.row_splits.tolist() == [0, 0, 1, 3]
    assert np.array_equal(column.values, np.stack([image for images in frames for image in images]))
    found = parse_single_sequence_example(records[2], None, lists)[1]["frame"]
    assert all(map(np.array_equal, found, frames[2]))
    with pytest.raises(ValueError, match="feature list 'frame' holds images, which need a full shape"):
        parse_sequence_example(records, None, {"frame": ImageFeature()})
    records[1] = encode_sequence_example({}, {"frame": ([[encoded(frames[1][0])], [b"x"]], "bytes")})
    for parse in (
        lambda: parse_sequence_example(records, None, lists),
        lambda: parse_single_sequence_example(records[1], None, lists),
    ):
        with pytest.raises(ImageError, match="step 1 of this feature list: is not a JPEG") as caught:
            parse()
        assert caught.value.key == "frame"


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    record = encode_example({"image": (encoded(photo()), "bytes")})
    with pytest.raises(ImportError, match=r"needs Pillow.*pip install 'tfrecord\[images\]'"):
        parse_example([record], {"image": ImageFeature()})


def test_cpus_are_those_that_the_process_may_use() -> None:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert images._cpus() == cpus
