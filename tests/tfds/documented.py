"""The folders that the examples of docs/tfds.md read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from prepared import TEXT, dict_of, image, node, sequence, tensor, write_folder


def picture(*shape: int) -> bytes:
    """A PNG of noise."""
    pixels = np.random.default_rng(sum(shape)).integers(0, 256, shape).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_all(folder: Path) -> None:
    """Write them."""
    label = node("ClassLabel", "classLabel", numClasses="10")
    digit = [{"image": (picture(28, 28), "byte"), "label": (i % 10, "int")} for i in range(100)]
    digits = folder / "digits" / "3.0.1"
    write_folder(
        digits,
        dict_of(image=image(28, 28, 1), label=label),
        {"train": [digit[:50], digit[50:]], "test": [digit[:9]]},
    )
    (digits / "label.labels.txt").write_text("".join(f"{i}\n" for i in range(10)))

    boxes = sequence(dict_of(bbox=node("BBoxFeature", "boundingBox", bboxFormat="REL_YXYX"), label=label))
    photos = [
        {
            "image": (picture(20 + i, 30, 3), "byte"),
            "objects/bbox": ([0.0, 0.1, 0.5, 0.9] * (i % 3), "float"),
            "objects/label": ([1] * (i % 3), "int"),
        }
        for i in range(10)
    ]
    write_folder(
        folder / "photos" / "1.0.0", dict_of(image=image(-1, -1, 3), objects=boxes), {"train": [photos]}
    )

    step = dict_of(
        observation=dict_of(image=image(16, 16, 3), state=tensor("float32", 3)),
        action=tensor("float32", 2),
        language_instruction=TEXT,
    )
    episodes: list[dict[str, Any]] = [
        {
            "steps/observation/image": ([picture(16, 16, 3)] * length, "byte"),
            "steps/observation/state": (np.ones(3 * length, np.float32), "float"),
            "steps/action": (np.ones(2 * length, np.float32), "float"),
            "steps/language_instruction": ([b"pick up the cup"] * length, "byte"),
        }
        for length in (7, 3, 12)
    ]
    steps = dict_of(steps=sequence(step, connector="Dataset"))
    write_folder(folder / "robot" / "0.1.0", steps, {"train": [episodes]})
