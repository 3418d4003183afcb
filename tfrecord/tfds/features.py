"""The features of a TFDS folder: `features.json` as a tree of connectors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfrecord.tfds.folder import FEATURES_NAME, TFDSError, field, joined, read_json, read_text

__all__ = ["ClassLabel", "Feature", "FeaturesDict", "Image", "Sequence", "Tensor", "Unknown", "read_features"]

Shape = tuple["int | None", ...]

_NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_STRINGS = ("string", "object", "str", "bytes")
_CONTENTS = (
    *("json_feature", "features_dict", "tensor", "class_label", "image", "video", "audio"),
    *("bounding_box", "text", "translation", "sequence"),
)
_MOST_DEPTH = 50
_MOST_DIMENSIONS = 32


@dataclass(frozen=True)
class Feature:
    """One node of the tree. ``connector`` is the name of its class in TFDS."""

    connector: str


@dataclass(frozen=True)
class Tensor(Feature):
    """An array of numbers or of bytes; also Scalar, Text, BBox and Audio.

    ``shape`` has None for each unknown dimension. ``dtype`` is the name of a NumPy dtype, or "bytes".
    ``encoding`` is "none", "bytes" or "zlib". ``optional``: a record may lack it.
    """

    shape: Shape = ()
    dtype: str = "bytes"
    encoding: str = "none"
    optional: bool = False


@dataclass(frozen=True)
class _Labels(Feature):
    num_classes: int | None = None
    given: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The class names, by number; the numbers as text if the folder has no names."""
        return list(self.given) or [str(number) for number in range(self.num_classes or 0)]

    def int2str(self, number: int) -> str:
        """The name of a class. ValueError for a number that is not a class, such as -1, which means "no
        label"."""
        if not 0 <= number < len(self.names):
            raise ValueError(f"there is no class {number}; there are {len(self.names)}, from 0")
        return self.names[number]

    def str2int(self, name: str) -> int:
        """The number of a class. ValueError for an unknown name."""
        try:
            return self.names.index(name)
        except ValueError:
            raise ValueError(f"there is no class {name!r}") from None


@dataclass(frozen=True)
class ClassLabel(_Labels, Tensor):
    """A class by number: int64, -1 if there is no label. ``names`` are those of `FEATURE.labels.txt`."""

    dtype: str = "int64"


@dataclass(frozen=True)
class Image(_Labels):
    """An image, stored as a file (PNG, JPEG, ...); ``names`` are those of a LabeledImage's pixels."""

    shape: Shape = (None, None, 3)
    dtype: str = "uint8"


@dataclass(frozen=True)
class Sequence(Feature):
    """Any number of a feature, or ``length`` of them.

    Also Dataset, Video and TranslationVariableLanguages.
    """

    feature: Feature = Feature("")
    length: int | None = None

    def __getitem__(self, name: str) -> Feature:
        """A feature of the dict that this is a sequence of."""
        if not isinstance(self.feature, FeaturesDict):
            raise KeyError(f"a sequence of {self.feature.connector} has no {name!r}")
        found: Feature = self.feature[name]
        return found


@dataclass(frozen=True)
class Unknown(Feature):
    """An unknown connector: its keys stay as they are in the record."""


class FeaturesDict(Feature, Mapping[str, Feature]):
    """Features by name; also Translation."""

    def __init__(self, connector: str, features: Mapping[str, Feature]) -> None:
        super().__init__(connector)
        object.__setattr__(self, "_features", dict(features))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._features[name]  # type: ignore[attr-defined]
        except KeyError:
            raise KeyError(f"no feature {name!r}; there are {', '.join(map(repr, self)) or 'none'}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self._features)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeaturesDict) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.connector}({dict(self)!r})"


def read_features(folder: str) -> FeaturesDict:
    """The features of a prepared folder, with the names of their classes.

    Raises:
        TFDSError: `features.json` is missing or damaged, or has a feature that cannot be read.
    """
    path = joined(folder, FEATURES_NAME)
    try:
        node = read_json(path)
    except FileNotFoundError:
        raise TFDSError(
            f"{path} is missing; TFDS writes it since version 3.1: prepare the dataset again"
        ) from None
    root = _Builder(folder, path).feature(node, ())
    if not isinstance(root, FeaturesDict):
        raise TFDSError(f"{path}: the root is a {root.connector}, not a FeaturesDict")
    return root


class _Builder:
    """Builds features from JSON. ``names`` is the path of a feature in the tree."""

    def __init__(self, folder: str, path: str) -> None:
        self.folder = folder
        self.path = path

    def wrong(self, names: tuple[str, ...], reason: str) -> TFDSError:
        return TFDSError(f"{self.path}: " + (f"feature {'/'.join(names)!r}: " if names else "") + reason)

    def feature(self, node: Any, names: tuple[str, ...], depth: int = 0) -> Feature:
        if depth > _MOST_DEPTH:
            raise self.wrong((), "features are nested too deeply")
        if not isinstance(node, dict):
            raise self.wrong(names, f"is a JSON {type(node).__name__}, not an object")
        kind, content = self._described(node, names)
        module, _, connector = kind.rpartition(".")
        make = _MAKERS.get(connector) if not module or "core.features" in module else None
        if make is None or content.get("use_encoder"):
            return Unknown(kind)
        made = make(self, content, names, depth)
        return made if isinstance(made, FeaturesDict) else replace(made, connector=connector)

    def _described(self, node: dict[str, Any], names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
        """The class of a connector and its content, in either form of the file."""
        if "type" in node:
            kind, content = node["type"], node.get("content", {})
            if str(kind).endswith(".FeaturesDict") and not node.get("proto_cls"):
                content = {"features": content}
        else:
            kind = field(node, "python_class_name")
            content = next((field(node, name) for name in _CONTENTS if field(node, name) is not None), {})
            if field(node, "json_feature") is not None and isinstance(content, dict):
                content = content.get("json", "{}")
        if isinstance(content, str):
            try:
                content = json.loads(content)
            except (ValueError, RecursionError):
                raise self.wrong(names, "its content is not valid JSON") from None
        if not isinstance(kind, str) or not isinstance(content, dict):
            raise self.wrong(names, "has no class name and content")
        return kind, content

    def shape(self, content: dict[str, Any], names: tuple[str, ...], default: Shape = ()) -> Shape:
        given = field(content, "shape")
        sizes = (
            default if given is None else given.get("dimensions", []) if isinstance(given, dict) else given
        )
        if not isinstance(sizes, list | tuple) or len(sizes) > _MOST_DIMENSIONS:
            raise self.wrong(names, f"the shape {str(sizes)[:80]} is not a list of sizes")
        return tuple(self.count(size, names, "a size of the shape") for size in sizes)

    def dtype(self, content: dict[str, Any], names: tuple[str, ...], default: str = "") -> str:
        dtype = field(content, "dtype") or default
        if isinstance(dtype, str) and dtype in _STRINGS:
            return "bytes"
        if not isinstance(dtype, str) or dtype not in _NUMBERS:
            raise self.wrong(names, f"the dtype {str(dtype)[:40]!r} is not supported")
        return dtype

    def count(self, value: Any, names: tuple[str, ...], what: str) -> int | None:
        """A number below 2**31, or None if it is missing or -1."""
        if value is None or str(value) == "-1":
            return None
        if isinstance(value, bool) or not re.fullmatch("[0-9]{1,10}", str(value)) or int(value) >= 2**31:
            raise self.wrong(names, f"{what} is {str(value)[:40]!r}")
        return int(value)

    def labels(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The class names of a feature, from its file, without blank lines."""
        name = "-".join(name.replace("/", ".") for name in names)
        path = joined(self.folder, name.replace("\0", "") + ".labels.txt")
        try:
            text = read_text(path)
        except FileNotFoundError:
            return ()
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return tuple(line.strip() for line in lines if line.strip())

    # ---- one function per connector ------------------------------------------------------------------------

    def features_dict(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> FeaturesDict:
        found = content.get("features", {})
        if not isinstance(found, dict):
            raise self.wrong(names, "its features are not an object")
        made = {name: self.feature(node, (*names, name), depth + 1) for name, node in sorted(found.items())}
        return FeaturesDict("FeaturesDict", made)

    def tensor(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Tensor:
        encoding = str(field(content, "encoding") or "none").lower()
        if encoding not in ("none", "bytes", "zlib"):
            raise self.wrong(names, f"the encoding {encoding[:40]!r} is not supported")
        dtype = self.dtype(content, names)
        shape = self.shape(content, names)
        if dtype == "bytes" and encoding != "none":
            raise self.wrong(names, f"strings cannot have the encoding {encoding!r}")
        return Tensor("", shape, dtype, encoding, field(content, "optional") is True)

    def class_label(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> ClassLabel:
        classes = self.count(field(content, "num_classes"), names, "the number of classes")
        return ClassLabel("", num_classes=classes, given=self.labels(names))

    def text(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Tensor:
        return Tensor("")

    def bounding_box(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Tensor:
        return Tensor("", (4,), "float32")

    def audio(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Tensor:
        if field(content, "lazy_decode"):
            return Tensor("")  # the encoded file: sound is not decoded here
        made = self.tensor({"dtype": "int64", **content}, names, depth)
        return made if field(content, "shape") is not None else replace(made, shape=(None,))

    def image(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Image:
        label = content.get("label")
        classes = field(label, "num_classes") if isinstance(label, dict) else content.get("labels")
        shape = self.shape(content, names, (None, None, 3)) or (None, None, 3)
        if len(shape) not in (3, 4) or shape[-1] not in (None, 1, 3, 4):
            raise self.wrong(names, f"the shape {shape} is not the shape of an image")
        dtype = self.dtype(content, names, "uint8")
        if dtype not in ("uint8", "uint16", "float32"):
            raise self.wrong(names, f"images of {dtype} are not supported")
        if dtype == "float32" and shape[-1] != 1:
            raise self.wrong(names, f"images of float32 have one channel, not {shape[-1]}")
        return Image("", self.count(classes, names, "the number of classes"), shape=shape, dtype=dtype)

    def labeled_image(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Image:
        made = self.image({"shape": [None, None, 1], **content}, names, depth)
        return replace(made, given=self.labels(names))

    def video(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Sequence:
        shape = self.shape(content, names, (None, None, None, 3)) or (None, None, None, 3)
        frame = self.image({**content, "shape": list(shape[1:])}, names, depth)
        return Sequence("", replace(frame, connector="Image"), shape[0])

    def sequence(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Sequence:
        inner = self.feature(content.get("feature"), names, depth + 1)
        return Sequence("", inner, self.count(field(content, "length"), names, "the length"))

    def translation(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> FeaturesDict:
        languages = field(content, "languages", [])
        if not isinstance(languages, list) or not all(isinstance(name, str) for name in languages):
            raise self.wrong(names, "languages is not a list of names")
        return FeaturesDict("Translation", {name: Tensor("Text") for name in sorted(languages)})

    def variable_translation(self, content: dict[str, Any], names: tuple[str, ...], depth: int) -> Sequence:
        return Sequence(
            "", FeaturesDict("FeaturesDict", {n: Tensor("Text") for n in ("language", "translation")})
        )


_MAKERS: dict[str, Callable[[_Builder, dict[str, Any], tuple[str, ...], int], Any]] = {
    "Audio": _Builder.audio,
    "BBoxFeature": _Builder.bounding_box,
    "ClassLabel": _Builder.class_label,
    "Dataset": _Builder.sequence,
    "FeaturesDict": _Builder.features_dict,
    "Image": _Builder.image,
    "LabeledImage": _Builder.labeled_image,
    "Scalar": _Builder.tensor,
    "Sequence": _Builder.sequence,
    "Tensor": _Builder.tensor,
    "Text": _Builder.text,
    "Translation": _Builder.translation,
    "TranslationVariableLanguages": _Builder.variable_translation,
    "Video": _Builder.video,
}
