"""Trees of features: the older form of the file, connectors that are not known, and hostile ones."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prepared import TEXT, dict_of, image, node, sequence, tensor, write_folder

from indexer.errors import DecodeError, MissingFeatureError
from tfrecord import tfds

pytest.importorskip("PIL")


def folder_of(tmp_path: Path, features: Any, *records: dict[str, Any]) -> Path:
    return write_folder(tmp_path, features, {"train": [records]})


def test_the_older_form(tmp_path: Path) -> None:
    core = "tensorflow_datasets.core.features"

    def old(name: str, **content: Any) -> dict[str, Any]:
        return {"type": f"{core}.{name}", "content": content}

    inner = old("feature.Tensor", shape=[2], dtype="float32")
    features = old(
        "features_dict.FeaturesDict",
        label=old("class_label_feature.ClassLabel", num_classes=3),
        text=old("text_feature.Text"),
        rows=old("sequence_feature.Sequence", feature=inner, length=None),
        features=old("feature.Tensor", shape=[], dtype="int32"),
        type=old("feature.Tensor", shape=[None], dtype="string"),
        image=old("image_feature.Image", shape=[None, None, 3], dtype="uint8", encoding_format="png"),
        new={
            **old("scalar.Scalar"),
            "content": '{"dtype": "bool"}',
            "proto_cls": "tensorflow_datasets.TensorFeature",
        },
    )
    record = {
        "label": (2, "int"),
        "text": (b"hi", "byte"),
        "rows": ([1.0, 2.0, 3.0, 4.0], "float"),
        "features": (7, "int"),
        "type": ([b"a"], "byte"),
        "image": (b"?", "byte"),
        "new": (1, "int"),
    }
    folder = folder_of(tmp_path, features, record)
    (folder / "label.labels.txt").write_text("one\n\n two \r\nthree\n")
    reader = tfds.open(folder, decode=False)
    example = reader[0]
    assert example["label"] == 2 and reader.features["label"].names == ["one", "two", "three"]  # type: ignore[attr-defined]
    assert example["rows"].tolist() == [[1, 2], [3, 4]] and example["type"].tolist() == [b"a"]
    assert (example["text"], example["features"], example["image"]) == (b"hi", 7, b"?")
    assert example["new"].dtype == bool and example["features"].dtype == np.int32


def test_unknown_connectors_keep_their_raw_keys(tmp_path: Path) -> None:
    own = {"pythonClassName": "my_lab.features.Mesh", "jsonFeature": {"json": "{}"}}
    features = dict_of(mesh=own, obs=dict_of(mesh=own, x=tensor("int64")), steps=sequence(dict_of(mesh=own)))
    record = {
        "mesh": ([1.5, 2.5], "float"),
        "obs/mesh/points": ([1, 2, 3], "int"),
        "obs/mesh/name": (b"cube", "byte"),
        "obs/x": (4, "int"),
        "steps/mesh": ([b"a", b"b"], "byte"),
    }
    folder = folder_of(tmp_path, features, record, record)
    with pytest.warns(UserWarning, match=r"unknown connectors.*: my_lab\.features\.Mesh$") as caught:
        reader = tfds.open(folder)
    assert len(caught) == 1 and caught[0].filename == __file__
    example = reader[1]
    assert example["mesh"].tolist() == [1.5, 2.5] and example["obs"]["mesh/points"].tolist() == [1, 2, 3]
    assert example["obs"]["mesh/name"] == b"cube" and example["obs"]["x"] == 4
    assert example["steps"]["mesh"].tolist() == [b"a", b"b"]
    assert reader[:]["obs"]["mesh/points"].to_list() == [[1, 2, 3]] * 2


def test_columns(tmp_path: Path) -> None:
    features = dict_of(a=dict_of(b=tensor("int64"), c=TEXT), d=tensor("int64"))
    record = {"a/b": (1, "int"), "a/c": (b"x", "byte"), "d": (2, "int")}
    reader = tfds.open(folder_of(tmp_path, features, record))
    assert {*reader.read([0], ["a/b", "d"])} == {"a", "d"} and {*reader.read([0], "a")["a"]} == {"b", "c"}
    assert next(reader.batches(1, ["a/c"]))["a"]["c"].to_list() == [b"x"]
    with pytest.raises(KeyError, match="no feature 'a/d'"):
        reader.read([0], ["a/d"])


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (tensor("float99"), "dtype 'float99' is not supported"),
        (tensor("O"), "dtype 'O' is not supported"),
        (tensor("int64", -1, -1), "several unknown dimensions"),
        (sequence(tensor("int64", -1)), "several unknown dimensions"),
        (sequence(sequence(tensor("int64", -1))), "several unknown dimensions"),
        (tensor("complex64", 2), "complex64"),
        (tensor("int64", 2**31), "a size of the shape is '2147483648'"),
        (tensor("int64", 2**30, 2**30), "more than"),
        (tensor("int64", -7), "a size of the shape is '-7'"),
        (tensor("int64", *[1] * 40), "not a list of sizes"),
        (tensor("int64", 2**22, optional=True), "too large to be optional"),
        (tensor("int64", encoding="lz4"), "encoding 'lz4'"),
        (tensor("string", encoding="zlib"), "strings cannot have the encoding"),
        (tensor("int64", -1, 0), "beside a 0"),
        (image(3, 3), "not the shape of an image"),
        (image(3, 3, 3, dtype="int64"), "images of int64"),
        (image(3, 3, 3, dtype="float32"), "one channel, not 3"),
        (sequence(tensor("int64"), length=-5), "the length is '-5'"),
        (sequence(5), "is a JSON int"),
        ({"pythonClassName": 3}, "no class name"),
        ({**node("Tensor"), "jsonFeature": {"json": "{"}}, "not valid JSON"),
    ],
)
def test_features_that_cannot_be(tmp_path: Path, feature: Any, message: str) -> None:
    folder = folder_of(tmp_path, dict_of(thing=feature), {"thing": (1, "int")})
    with pytest.raises(tfds.TFDSError, match=message) as caught:
        tfds.open(folder)
    assert "thing" in str(caught.value)


def test_trees_that_cannot_be(tmp_path: Path) -> None:
    def open_with(features: Any) -> None:
        folder = folder_of(tmp_path, features, {"x": (1, "int")})
        tfds.open(folder)

    with pytest.raises(tfds.TFDSError, match="the root is a Tensor"):
        open_with(tensor("int64"))
    with pytest.raises(tfds.TFDSError, match="stored under the key 'a/b'"):
        open_with(dict_of(**{"a/b": tensor("int64")}, a=dict_of(b=tensor("int64"))))
    deep = tensor("int64")
    for _ in range(60):
        deep = sequence(deep)
    with pytest.raises(tfds.TFDSError, match="nested too deep"):
        open_with(dict_of(x=deep))
    with pytest.raises(tfds.TFDSError, match="features are not an object"):
        open_with(node("FeaturesDict", "featuresDict", features=[]))


def test_names_of_features_do_not_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.labels.txt").write_text("secret\n")
    label = node("ClassLabel", "classLabel", numClasses="2")
    names = {"../secret": label, "nul\0": label}
    folder = folder_of(tmp_path / "f", dict_of(**names), {name: (1, "int") for name in names})
    reader: Any = tfds.open(folder)
    assert reader.features["../secret"].names == ["0", "1"] and reader[0]["../secret"] == 1


RECORD_ERRORS: list[tuple[Any, dict[str, Any], str]] = [
    (tensor("uint8", 2), {"x": ([1, 300], "int")}, "300"),
    (tensor("int64", 2), {"x": ([1], "int")}, "has 1 values, not 2"),
    (tensor("int64", -1, 2), {"x": ([1], "int")}, "not rows of 2"),
    (tensor("int64", 2, -1), {"x": ([1], "int")}, "not rows of 2"),
    (tensor("int64", 2, encoding="bytes"), {"x": (b"123", "byte")}, "has 3 bytes"),
    (tensor("int64", 2, encoding="zlib"), {"x": (b"123", "byte")}, "not valid zlib"),
    (tensor("int8", 2, encoding="zlib"), {"x": (zlib.compress(bytes(3)), "byte")}, "more than the 2 bytes"),
    (tensor("int8", 2, encoding="zlib"), {"x": (zlib.compress(bytes(2))[:-3], "byte")}, "ends early"),
    (
        tensor("int8", 0, encoding="zlib"),
        {"x": (zlib.compress(bytes(1 << 20)), "byte")},
        "more than the 0 bytes",
    ),
    (image(-1, -1, 3), {"x": (b"no image", "byte")}, "not an image that Pillow can decode"),
    (sequence(sequence(tensor("int64"))), {"x/ragged_row_lengths_0": ([1], "int")}, "do not add up"),
    (sequence(sequence(tensor("int64"))), {"x/ragged_row_lengths_0": ([-1], "int")}, "do not add up"),
    (
        sequence(sequence(tensor("int64"))),
        {"x/ragged_row_lengths_0": ([2**62, 2**62], "int")},
        "do not add up",
    ),
    (sequence(sequence(tensor("int64"))), {"x/ragged_flat_values": ([1], "int")}, "do not add up"),
]


@pytest.mark.parametrize(("feature", "record", "message"), RECORD_ERRORS)
def test_records_that_disagree_with_the_features(
    tmp_path: Path, feature: Any, record: dict[str, Any], message: str
) -> None:
    """One error with file, record and feature, however the record is read; those before it are delivered."""
    good = {
        "Tensor": {"x": {"none": ([1, 2], "int")}.get(feature.get("tensor", {}).get("encoding"), None)},
        "Image": {"x": None},
        "Sequence": {"x/ragged_flat_values": ([], "int"), "x/ragged_row_lengths_0": ([], "int")},
    }[feature["pythonClassName"].rpartition(".")[2]]
    first = {key: value for key, value in good.items() if value is not None}
    records = [first, record] if first else [record]
    reader = tfds.open(folder_of(tmp_path, dict_of(x=feature), *records))
    last = len(records) - 1
    for read in (
        lambda: reader[last],
        lambda: reader[:],
        lambda: list(reader),
        lambda: list(reader.batches(8)),
    ):
        with pytest.raises(DecodeError, match=message) as caught:
            read()
        assert caught.value.record == last and (caught.value.key or "").startswith("x")
        assert caught.value.path == reader.paths[0]
    if first:
        assert "x" in next(iter(reader))


def test_shapes_of_the_record_are_checked(tmp_path: Path) -> None:
    feature = tensor("int8", -1, -1, 2, encoding="zlib")

    def record(shape: list[int], size: int) -> dict[str, Any]:
        return {"x/shape": (shape, "int"), "x/value": (zlib.compress(bytes(size)), "byte")}

    reader = tfds.open(
        folder_of(
            tmp_path,
            dict_of(x=feature),
            record([1, 2, 2], 4),
            record([1, 2, 3], 6),
            record([-1, 2, 2], 4),
            record([2**62, 2**62, 2], 4),
            record([2**31, 0, 2], 1 << 20),
            record([1, 1, 2], 1 << 20),
        )
    )
    assert reader[0]["x"].shape == (1, 2, 2) and reader[:1]["x"].to_list() == [[[[0, 0], [0, 0]]]]
    messages = [
        "does not match",
        "does not match",
        "has 4 bytes",
        "more than the 0 bytes",
        "more than the 2 bytes",
    ]
    for i, message in enumerate(messages, 1):
        with pytest.raises(DecodeError, match=message):
            reader[i]


def test_missing_values(tmp_path: Path) -> None:
    features = dict_of(must=tensor("int64"), may=tensor("int32", optional=True), some=tensor("int64", -1))
    reader = tfds.open(folder_of(tmp_path, features, {"must": (1, "int")}, {}))
    assert reader[0]["may"] == np.iinfo(np.int32).min and reader[0]["some"].shape == (0,)
    for read in (lambda: reader[1], lambda: reader[:], lambda: list(reader)):
        with pytest.raises(MissingFeatureError, match="must"):
            read()


def test_large_shapes_take_no_memory_before_their_values_are_there(tmp_path: Path) -> None:
    size = (1 << 20) + 1
    features = dict_of(x=tensor("uint8", size), y=sequence(tensor("float32", 2**29), length=3))
    record = {"x": (np.arange(size) % 256, "int"), "y": ([1.0], "float")}
    folder = folder_of(tmp_path, features, record)
    assert tfds.open(folder).read([0], ["x"])["x"].shape == (1, size)
    with pytest.raises(DecodeError, match="feature 'y': has 1 values, not 1610612736"):
        tfds.open(folder)[0]


def test_sequences_of_no_length(tmp_path: Path) -> None:
    features = dict_of(x=sequence(tensor("int64"), length=0), n=tensor("int64"))
    reader = tfds.open(
        folder_of(
            tmp_path, features, {"n": (1, "int"), "x": ([], "int")}, {"n": (2, "int"), "x": ([1], "int")}
        )
    )
    assert reader[0]["x"].shape == (0,) and reader[:1]["x"].to_list() == [[]]
    with pytest.raises(DecodeError, match="has 1 values, not 0"):
        list(reader)


def png(pixels: Any, **options: Any) -> bytes:
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", **options)
    return file.getvalue()


def wide_png() -> bytes:
    """A PNG of 16 bits in colour, of one pixel; Pillow writes none."""
    import struct

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(7))) + chunk(b"IEND", b"")


def test_images(tmp_path: Path) -> None:
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3)
    features = dict_of(
        fixed=image(2, 3, 1),
        open=image(-1, -1, 3),
        wide=image(-1, -1, 1, dtype="uint16"),
        any=image(-1, -1, -1),
    )
    record = {name: (png(grey), "byte") for name in ("fixed", "open", "wide", "any")}
    folder = folder_of(tmp_path, features, record)
    example = tfds.open(folder)[0]
    assert example["fixed"].tolist() == grey[..., None].tolist() and example["fixed"].flags.writeable
    assert example["open"].tolist() == np.repeat(grey[..., None], 3, -1).tolist()
    assert example["wide"].tolist() == (grey[..., None].astype(int) * 257).tolist()
    assert example["any"].shape == (2, 3, 1)
    assert tfds.open(folder, decode=False)[0]["open"] == png(grey)
    column = tfds.open(folder)[:]["open"]
    assert column.to_padded().shape == (1, 2, 3, 3)


def test_images_that_are_not_as_declared(tmp_path: Path) -> None:
    large = png(np.zeros((50, 40), np.uint8))
    features = dict_of(x=image(2, 3, 1, dtype="uint8"))
    reader = tfds.open(folder_of(tmp_path / "a", features, {"x": (large, "byte")}))
    with pytest.raises(DecodeError, match="an image of 50 x 40 pixels, not 2 x 3"):
        reader[0]
    features = dict_of(x=image(-1, -1, 3, dtype="uint16"))
    reader = tfds.open(folder_of(tmp_path / "b", features, {"x": (wide_png(), "byte")}))
    with pytest.raises(DecodeError, match="16 bits in colour"):
        reader[0]
    assert json.loads((tmp_path / "b" / "features.json").read_text()) == features


def test_jpegs_are_the_same_by_either_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from PIL import Image

    from tfrecord._columns import pixels

    pytest.importorskip("simplejpeg")
    small = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    photo = Image.fromarray(small).resize((23, 17), Image.BICUBIC)
    files = []
    for mode in ("RGB", "L", "CMYK"):
        file = io.BytesIO()
        photo.convert(mode).save(file, "JPEG")
        files.append(file.getvalue())
    features = dict_of(grey=image(-1, -1, 1), colour=image(-1, -1, 3))
    records = [{"grey": (data, "byte"), "colour": (data, "byte")} for data in files]
    reader: Any = tfds.open(folder_of(tmp_path, features, *records))
    found = list(reader)
    pillow, _ = pixels.load_decoders()
    monkeypatch.setattr(pixels, "load_decoders", lambda: (pillow, None))
    for one, other in zip(found, reader, strict=True):
        assert np.array_equal(one["grey"], other["grey"]) and one["grey"].shape == (17, 23, 1)
        assert np.array_equal(one["colour"], other["colour"]) and one["colour"].shape == (17, 23, 3)
