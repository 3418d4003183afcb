"""Thumbnails and masks, made by Pillow where it is installed."""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from indexer.errors import TFRecordError
from tfrecord._cli.viewer.data import NotFound, Place, ViewData
from tfrecord._cli.viewer.hints import Hints
from tfrecord._cli.viewer.objects import masks_of, picture_of
from tfrecord._optional import is_installed, optional

# What a browser is sent as it is.
SHOWN = frozenset("image/jpeg image/png image/gif image/webp image/bmp".split())
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP")
_CACHED_BYTES = 64 << 20
# A picture of more pixels is not decoded; a JPEG is decoded at an eighth of its size.
_MOST_PIXELS = 24_000_000
_MOST_JPEG_PIXELS = 80_000_000
_SMALL_FILE = 16_000
_MOST_MASKS = 100

Sent = tuple[str, bytes]  # MIME type and content


class Pictures:
    """Small versions of images, kept while there is room. Safe to use from several threads."""

    def __init__(self, data: ViewData, hints: Hints) -> None:
        self.data = data
        self.hints = hints
        self._kept: OrderedDict[tuple[Any, ...], Sent] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "tfrecord-pictures")
        self.can_shrink = is_installed("PIL")

    def close(self) -> None:
        """Drop what is still to be done."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def thumb(self, place: Place, width: int) -> Sent:
        """An image at most so wide and high; as it is, if it is small or cannot be made smaller."""
        return self._get((place, width), lambda: self._thumb(place, width))

    def mask(self, position: int, width: int) -> Sent:
        """All masks of a record in one picture, each number in a colour, 0 transparent."""
        return self._get((position, width), lambda: self._mask(position, width))

    def prepare(self, places: Iterable[Place], width: int) -> None:
        """Begin to make thumbnails that will be asked for."""
        if self.can_shrink:
            for place in places:
                if (place, width) not in self._kept:
                    self._pool.submit(self._try, place, width)

    def _try(self, place: Place, width: int) -> None:
        try:
            self.thumb(place, width)
        except (NotFound, TFRecordError, ValueError):
            pass

    def _get(self, key: tuple[Any, ...], make: Callable[[], Sent]) -> Sent:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._size += len(made[1])
            while self._size > _CACHED_BYTES:
                self._size -= len(self._kept.popitem(last=False)[1][1])
        return made

    def _thumb(self, place: Place, width: int) -> Sent:
        data = self.data.bytes_at(place)
        picture = picture_of(place, data)
        if picture is None:
            raise NotFound("this value is not an image")
        as_it_is = picture.mime, bytes(data)
        is_small = 0 < max(picture.width, picture.height) <= width and len(data) <= _SMALL_FILE
        if is_small or not self.can_shrink:
            return as_it_is
        most = _MOST_JPEG_PIXELS if picture.mime == "image/jpeg" else _MOST_PIXELS
        if picture.width * picture.height > most:
            raise NotFound(f"the image is too large for a thumbnail: {picture.label}")
        return shrunk(data, width) or as_it_is

    def _mask(self, position: int, width: int) -> Sent:
        if not self.can_shrink:
            raise NotFound("masks need Pillow: pip install 'tfrecord[images]'")
        masks = [
            mask
            for mask in masks_of(self.data.record(position), self.hints)[:_MOST_MASKS]
            if (found := picture_of(Place(position), mask)) and found.width * found.height <= _MOST_PIXELS
        ]
        made = coloured(masks, width)
        if made is None:
            raise NotFound("the record has no mask")
        return made


def _opened(data: Any) -> Any:
    return optional("PIL.Image").open(io.BytesIO(data), formats=_FORMATS)


def shrunk(data: Any, width: int) -> Sent | None:
    """The image in at most so many pixels each way; None if it is broken."""
    try:
        image = _opened(data)
        is_jpeg = image.format == "JPEG"
        if is_jpeg:
            image.draft("RGB", (width, width))
        if image.mode.startswith(("I", "F")):  # 16 bits, or floats: from black to white
            pixels = np.asarray(image, np.float64)
            span = float(np.ptp(pixels)) or 1.0
            image = optional("PIL.Image").fromarray(((pixels - pixels.min()) * (255 / span)).astype(np.uint8))
        has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
        if image.mode not in ("L", "RGB"):
            image = image.convert("RGBA" if has_alpha else "RGB")
        image.thumbnail((width, width))
        out = io.BytesIO()
        if has_alpha:
            image.save(out, "PNG")
            return "image/png", out.getvalue()
        image.save(out, "JPEG", quality=82)
        return "image/jpeg", out.getvalue()
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError):
        return None


def coloured(masks: list[Any], width: int) -> Sent | None:
    """Masks as one picture: several in a colour each, a single one in a colour for each number in it."""
    image_module = optional("PIL.Image")
    canvas: Any = None
    for number, data in enumerate(masks):
        try:
            image = _opened(data)
            if image.mode not in ("L", "P", "1", "I;16"):
                image = image.convert("L")
            image.thumbnail((width, width), image_module.Resampling.NEAREST)
            pixels = np.asarray(image).astype(np.int64)
        except (OSError, ValueError, SyntaxError, EOFError, MemoryError):
            continue
        if canvas is None:
            canvas = np.zeros((*pixels.shape, 4), np.uint8)
        if pixels.shape != canvas.shape[:2]:
            continue
        ids = np.where(pixels > 0, number + 1, 0) if len(masks) > 1 else pixels
        canvas[ids > 0] = _palette(ids[ids > 0])
    if canvas is None:
        return None
    out = io.BytesIO()
    image_module.fromarray(canvas).save(out, "PNG")
    return "image/png", out.getvalue()


def _palette(ids: Any) -> Any:
    """A bright colour for each number, far from those of its neighbours."""
    hue = (ids * 0.618034) % 1.0 * 6
    ramp = np.abs((hue[:, None] + np.array([0, 4, 2])) % 6 - 3) - 1
    colours = (80 + 175 * np.clip(ramp, 0, 1)).astype(np.uint8)
    return np.concatenate([colours, np.full((len(ids), 1), 255, np.uint8)], axis=1)
