"""`ImageFeature`: a feature that holds one JPEG or PNG file, decoded to pixels."""

from __future__ import annotations

import math
import operator
from typing import Any

from indexer.options import check_count, check_threads, suggests_options
from tfrecord.features import Column, ImageOptions, Spec

__all__ = ["MAX_PIXELS", "ImageFeature"]

#: The most pixels that an image may claim unless the spec says otherwise; Pillow warns from here on.
MAX_PIXELS = 89_478_485


class ImageFeature(Spec):
    """One JPEG or PNG file in every record: decoded to uint8 pixels.

    If height and width are given, the column is one array of shape ``(n, height, width, channels)``, else an
    object array ``(n,)`` with one array ``(height, width, channels)`` per record. `to_torch` and the datasets
    give a tensor or a list of tensors. All of them belong to the caller and are writable. A single record has
    one such array.

    Args:
        shape: ``(height, width, channels)``. None (or -1) is a size that varies. Channels are 1 (grey), 3
            (RGB) or 4 (RGBA).
        resize: scale each image to height and width (bilinear, with antialiasing; the aspect ratio is not
            kept). Without it, an image of another size is an error.
        max_pixels: an image of more pixels is an error. The header of the file is checked before memory is
            allocated. (Above 89,478,485, Pillow has a limit of its own: ``PIL.Image.MAX_IMAGE_PIXELS``.)
        num_threads: how many threads decode a batch; None: one per CPU, but a single one in a process that
            `multiprocessing` started, such as the worker of a DataLoader.

    Raises:
        ValueError: a bad shape, `resize` without a full shape, or a number below 1.

    Needs Pillow. If simplejpeg is installed too, JPEGs are decoded in about two thirds of the time, to the
    same pixels. The file is decoded as `tf.io.decode_image` does it:

    - Grey images get three equal channels, and colour becomes grey: a JPEG by its luma, a PNG by ITU-R 601.
    - With 4 channels, an image without alpha is opaque. With fewer, alpha is dropped; nothing is blended.
    - CMYK becomes RGB. 16 bits per channel become the upper 8.
    - An EXIF orientation is not applied. Of an animation only the first image is read.

    A damaged image raises `ImageError`, which names the file, the record and the feature. Such a record can
    be skipped with `on_error`. A missing or empty feature is a `MissingFeatureError`.

    >>> ImageFeature((224, 224, 3), resize=True)
    ImageFeature((224, 224, 3), resize=True)
    """

    __slots__ = ("max_pixels", "num_threads", "resize", "shape")
    shape: tuple[int | None, int | None, int]
    resize: bool
    max_pixels: int
    num_threads: int | None

    @suggests_options
    def __init__(
        self,
        shape: Any = (None, None, 3),
        *,
        resize: bool = False,
        max_pixels: int = MAX_PIXELS,
        num_threads: int | None = None,
    ) -> None:
        height, width, channels = _image_shape(shape)
        if resize and (height is None or width is None):
            raise ValueError(f"resize=True needs a height and a width, and the shape is {shape!r}")
        if height is not None and width is not None and math.prod((height, width, channels)) >= 2**31:
            raise ValueError(f"the shape {shape!r} has more than 2**31 - 1 elements")
        threads = None if num_threads is None else check_threads(num_threads)
        most = check_count(max_pixels, "max_pixels")
        for name, value in (
            ("shape", (height, width, channels)),
            ("resize", bool(resize)),
            ("max_pixels", most),
            ("num_threads", threads),
        ):
            object.__setattr__(self, name, value)
        options = ImageOptions(height, width, channels, bool(resize), most, threads)
        self._settle(Column("", "bytes", None, (), image=options))

    def __repr__(self) -> str:
        options = [
            f", {name}={getattr(self, name)!r}"
            for name, usual in (("resize", False), ("max_pixels", MAX_PIXELS), ("num_threads", None))
            if getattr(self, name) != usual
        ]
        return f"ImageFeature({self.shape!r}{''.join(options)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.shape, self.resize, self.max_pixels, self.num_threads)


def _remake(shape: Any, resize: bool, max_pixels: int, num_threads: int | None) -> ImageFeature:
    return ImageFeature(shape, resize=resize, max_pixels=max_pixels, num_threads=num_threads)


def _image_shape(shape: Any) -> tuple[int | None, int | None, int]:
    try:
        sizes = [None if size is None else operator.index(size) for size in shape]
    except TypeError:
        sizes = []
    if len(sizes) == 3 and sizes[2] in (1, 3, 4):
        height, width = (None if size == -1 else size for size in sizes[:2])
        if (height is None or height > 0) and (width is None or width > 0):
            return height, width, sizes[2]
    raise ValueError(
        f"the shape of an image is (height, width, channels) with 1, 3 or 4 channels, not {shape!r}; "
        "None is a size that varies"
    )
