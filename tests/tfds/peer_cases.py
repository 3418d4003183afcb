"""The data sets that `peer.py` prepares. Runs in the peer's Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow_datasets as tfds  # type: ignore[import-not-found, import-untyped, unused-ignore]

f = tfds.features
CASES: dict[str, tuple[Any, dict[str, list[Any]], int]] = {}
RNG = np.random.default_rng(0)
NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def case(
    name: str, features: dict[str, Any], examples: list[Any], shards: int = 1, **more: list[Any]
) -> None:
    """A data set of a split "train", and of others."""
    CASES[name] = (features, {"train": examples, **more}, shards)


def image(*shape: int, dtype: Any = np.uint8) -> Any:
    return RNG.integers(0, np.iinfo(dtype).max, shape).astype(dtype)


def define() -> None:
    """All cases."""
    for some in (dense, sequences, optional_and_labels, media, others):
        some()


def dense() -> None:
    """Numbers and text, tensors of any shape, encoded ones."""
    edges = {n: [np.iinfo(n).min, np.iinfo(n).max, 0] for n in NUMBERS[1:]} | {"bool": [True, False, True]}
    edges |= {n: [float(np.finfo(n).tiny), -1.5, 0.1] for n in FLOATS}
    case(
        "scalars",
        {n: f.Scalar(np.dtype(n)) for n in NUMBERS + FLOATS} | {"text": f.Text()},
        [
            {n: np.dtype(n).type(edges[n][i]) for n in NUMBERS + FLOATS} | {"text": ["", "a b", "é\0x"][i]}
            for i in range(3)
        ],
    )
    case(
        "tensors",
        {n: f.Tensor(shape=(2, 3), dtype=np.dtype(n)) for n in NUMBERS + FLOATS}
        | {
            "open": f.Tensor(shape=(None, 2), dtype=np.int32),
            "late": f.Tensor(shape=(2, None), dtype=np.float32),
        }
        | {
            "mid": f.Tensor(shape=(2, None, 3), dtype=np.uint64),
            "flat": f.Tensor(shape=(None,), dtype=np.int64),
        }
        | {"words": f.Tensor(shape=(None,), dtype=np.str_), "pair": f.Tensor(shape=(2,), dtype=np.str_)},
        [
            {n: (np.arange(6).reshape(2, 3) * (i + 1) % 2).astype(n) for n in NUMBERS + FLOATS}
            | {
                "open": np.arange(2 * i, dtype=np.int32).reshape(i, 2),
                "late": np.arange(2 * i, dtype=np.float32).reshape(2, i),
                "mid": (np.arange(6 * i, dtype=np.uint64) + np.uint64(2**63)).reshape(2, i, 3),
                "flat": np.arange(i, dtype=np.int64),
                "words": [f"w{j}" for j in range(i)],
                "pair": ["a", "b" * i],
            }
            for i in range(4)
        ],
        shards=2,
    )
    encoded = ["bool", "int16", "int32", "uint8", "int64", "uint64", *FLOATS, "complex64"]
    case(
        "encoded",
        {
            f"{n}_{e}_{k}": f.Tensor(shape=shape, dtype=np.dtype(n), encoding=e)
            for n in encoded
            for e in ("bytes", "zlib")
            for k, shape in {
                "fixed": (2, 2),
                "scalar": (),
                "open": (None, 2),
                "dynamic": (None, None, 2),
            }.items()
        }
        | {"plain": f.Tensor(shape=(2,), dtype=np.int64)},
        [
            {
                f"{n}_{e}_{k}": (np.arange(np.prod(shape, dtype=int)).reshape(shape) + i).astype(n)
                for n in encoded
                for e in ("bytes", "zlib")
                for k, shape in {
                    "fixed": (2, 2),
                    "scalar": (),
                    "open": (i, 2),
                    "dynamic": (i, i + 1, 2),
                }.items()
            }
            | {"plain": np.array([i, 1])}
            for i in range(3)
        ],
    )


def sequences() -> None:
    """Sequences, sequences of those, and nested dicts."""
    case(
        "sequences",
        {
            "ints": f.Sequence(np.int32),
            "three": f.Sequence(np.uint64, length=3),
            "texts": f.Sequence(f.Text()),
            "boxes": f.Sequence(
                {"bbox": f.BBoxFeature(), "label": f.ClassLabel(names=["cat", "dog"]), "crowd": np.bool_}
            ),
            "rows": f.Sequence(f.Tensor(shape=(2,), dtype=np.float32)),
            "nested": f.Sequence(f.Sequence(np.int64)),
            "deep": f.Sequence(f.Sequence(f.Sequence(f.Text()))),
            "nested_rows": f.Sequence(f.Sequence(f.Tensor(shape=(2,), dtype=np.int16))),
            "dicts": f.Sequence({"tokens": f.Sequence(f.Text()), "id": np.int64}),
            "coded": f.Sequence(f.Tensor(shape=(2,), dtype=np.int32, encoding="zlib")),
            "same": f.Sequence(f.Tensor(shape=(None, None), dtype=np.int32, encoding="bytes")),
            "late": f.Sequence(f.Tensor(shape=(None,), dtype=np.int32), length=2),
        },
        [
            {
                "ints": list(range(i)),
                "three": [2**63 + i, 1, 2],
                "texts": [f"t{j}" for j in range(i)],
                "boxes": [
                    {"bbox": f.BBox(0.1 * j, 0.2, 0.5, 1.0), "label": j % 2, "crowd": j == 1}
                    for j in range(i)
                ],
                "rows": [[j, j + 0.5] for j in range(i)],
                "nested": [list(range(j)) for j in range(i)],
                "deep": [[["x"] * k for k in range(j)] for j in range(i)],
                "nested_rows": [[[k, k] for k in range(j)] for j in range(i)],
                "dicts": [{"tokens": ["w"] * j, "id": j} for j in range(i)],
                "coded": [[j, -j] for j in range(i)],
                "same": [np.full((i, 2), j, np.int32) for j in range(i + 1)],
                "late": [list(range(i))] * 2,
            }
            for i in range(4)
        ],
    )
    case(
        "nesting",
        {
            "a/b": np.int64,
            "a": {"c": {"d": f.Text(), "e": f.Tensor(shape=(2,), dtype=np.float32)}, "f": np.bool_},
            "z": {"shape": np.int64, "value": np.int32},
        },
        [
            {"a/b": i, "a": {"c": {"d": "x" * i, "e": [i, 1]}, "f": i == 1}, "z": {"shape": i, "value": -i}}
            for i in range(3)
        ],
    )


def optional_and_labels() -> None:
    """What may be absent, and classes with names."""
    optional = {n: f.Scalar(np.dtype(n), optional=True) for n in NUMBERS + FLOATS}
    optional["string"] = f.Scalar(np.str_, optional=True)
    optional["vector"] = f.Tensor(shape=(2,), dtype=np.int32, optional=True)
    optional["words"] = f.Tensor(shape=(2,), dtype=np.str_, optional=True)
    full = {n: np.dtype(n).type(1) for n in NUMBERS + FLOATS} | {
        "string": "s",
        "vector": [1, 2],
        "words": ["a", "b"],
    }
    case("optionals", optional, [full, dict.fromkeys(optional), full])
    names = [
        "plain",
        "with space",
        "ünïcode ☃",
        "a/b",
        "tab\tin",
        "vertical\x0btab",
        "line\u2028sep",
        "-1",
        "'quote\"",
    ]
    case(
        "labels",
        {
            "label": f.ClassLabel(names=names),
            "count": f.ClassLabel(num_classes=5),
            "in": {"side": f.ClassLabel(names=["left", "right"]), "x/y": f.ClassLabel(names=["p", "q"])},
            "seg": f.LabeledImage(labels=["road", "sky"], shape=(2, 2, 1)),
            "many": f.Sequence({"kind": f.ClassLabel(names=["one", "two"])}),
        },
        [
            {
                "label": i - 1,
                "count": i,
                "in": {"side": i % 2, "x/y": 1},
                "seg": np.full((2, 2, 1), i, np.uint8),
                "many": [{"kind": 1}] * i,
            }
            for i in range(3)
        ],
    )


def media() -> None:
    """Images, videos and sounds."""
    case(
        "images",
        {
            "rgb": f.Image(shape=(4, 5, 3)),
            "open": f.Image(),
            "grey": f.Image(shape=(None, None, 1)),
            "rgba": f.Image(shape=(3, 3, 4)),
            "grey16": f.Image(shape=(3, 2, 1), dtype=np.uint16),
            "depth": f.Image(shape=(3, 2, 1), dtype=np.float32),
            "frames": f.Sequence(f.Image(shape=(2, 2, 3))),
            "open_frames": f.Sequence(f.Image()),
            "video": f.Video(shape=(None, 3, 2, 3)),
            "clip": f.Video(shape=(2, 3, 2, 3)),
        },
        [
            {
                "rgb": image(4, 5, 3),
                "open": image(2 + i, 3, 3),
                "grey": image(2, 2 + i, 1),
                "rgba": image(3, 3, 4),
                "grey16": image(3, 2, 1, dtype=np.uint16),
                "depth": RNG.normal(size=(3, 2, 1)).astype(np.float32),
                "frames": [image(2, 2, 3)] * i,
                "open_frames": [image(2, 3 + i, 3)] * i,
                "video": image(i + 1, 3, 2, 3),
                "clip": image(2, 3, 2, 3),
            }
            for i in range(3)
        ],
    )
    smooth = np.add.outer(np.arange(40) * 3, np.arange(30) * 4)[..., None] + np.array([0, 20, 40])
    case(
        "jpeg",
        {
            "photo": f.Image(encoding_format="jpeg"),
            "grey": f.Image(shape=(None, None, 1), encoding_format="jpeg"),
        },
        [
            {
                "photo": (smooth + i).clip(0, 255).astype(np.uint8),
                "grey": smooth[..., :1].clip(0, 255).astype(np.uint8),
            }
            for i in range(2)
        ],
    )
    case(
        "audio",
        {
            "wave": f.Audio(),
            "short": f.Audio(shape=(None,), dtype=np.int16, sample_rate=16000),
            "stereo": f.Audio(shape=(None, 2), dtype=np.int32),
        },
        [
            {
                "wave": np.arange(i * 3),
                "short": np.arange(i, dtype=np.int16),
                "stereo": np.arange(4 * i, dtype=np.int32).reshape(-1, 2),
            }
            for i in range(3)
        ],
    )


def others() -> None:
    """Translations, episodes, and a table in several splits."""
    case(
        "translations",
        {
            "fixed": f.Translation(["en", "de"]),
            "open": f.TranslationVariableLanguages(["en", "de", "fr"]),
        },
        [
            {
                "fixed": {"en": "cat" * i, "de": "Katze"},
                "open": {"en": "cat", "fr": ["chat", "chatte"][: i + 1]},
            }
            for i in range(2)
        ],
    )
    case(
        "episodes",
        {
            "steps": f.Dataset(
                {
                    "observation": {
                        "image": f.Image(shape=(4, 4, 3)),
                        "wrist": f.Image(),
                        "state": f.Tensor(shape=(3,), dtype=np.float32),
                    },
                    "action": f.Tensor(shape=(2,), dtype=np.float32),
                    "reward": f.Scalar(np.float32),
                    "is_first": np.bool_,
                    "is_last": np.bool_,
                    "is_terminal": np.bool_,
                    "language_instruction": f.Text(),
                    "tokens": f.Sequence(np.int32),
                    "coded": f.Tensor(shape=(None, None), dtype=np.int16, encoding="zlib"),
                }
            ),
            "episode_metadata": {"file_path": f.Text(), "id": np.int64},
        },
        [
            {
                "steps": [
                    {
                        "observation": {
                            "image": image(4, 4, 3),
                            "wrist": image(2, 3, 3),
                            "state": [i, j, 0.5],
                        },
                        "action": [j, -j],
                        "reward": float(j),
                        "is_first": j == 0,
                        "is_last": j == length - 1,
                        "is_terminal": False,
                        "language_instruction": f"do {i}",
                        "tokens": list(range(j)),
                        "coded": np.full((j, 2), i, np.int16),
                    }
                    for j in range(length)
                ],
                "episode_metadata": {"file_path": f"/e/{i}", "id": i},
            }
            for i, length in enumerate([5, 1, 3, 8, 2])
        ],
        shards=2,
    )
    rows = [{"x": i, "y": float(i), "name": f"n{i}"} for i in range(57)]
    case(
        "table",
        {"x": np.int64, "y": np.float32, "name": f.Text()},
        rows,
        shards=5,
        test=rows[:7],
        validation=rows[:5],
    )
