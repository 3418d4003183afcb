"""Options of the datasets, checked when a dataset is made."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from indexer.compression import Compression
from indexer.options import check_options, near_matches
from tfrecord._kernels.record_type import RecordTypeName
from tfrecord.features import one_of
from tfrecord.flight.addresses import is_service_url
from tfrecord.flight.client import connect
from tfrecord.iterator_utils import check_queue_size
from tfrecord.reader import TFRecordReader
from tfrecord.sampling.share import SPLITS
from tfrecord.splits import Split
from tfrecord.torch._source import Source

__all__ = [
    "DatasetOptions",
    "ReaderOptions",
    "as_integer",
    "asked_features",
    "check_shuffle",
    "check_split",
    "check_transform",
    "known_options",
    "open_source",
]

# Reader options that datasets take under another name, or as their own arguments.
_NOT_PASSED_ON = (
    "paths",
    "index",
    "features",
    "sequence_features",
    "compression_type",
    "on_error",
    "max_skips",
)


class ReaderOptions(TypedDict, total=False):
    """Options of `TFRecordReader` that the datasets pass on to it."""

    record_type: RecordTypeName
    allow_missing: bool
    verify: bool
    mmap: bool
    access: Literal["auto", "spool", "points"]
    max_spool_bytes: int | str
    max_record_bytes: int | None
    num_threads: int
    storage_options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None
    io_concurrency: int
    max_retries: int
    request_timeout: float
    cache: str | None
    cache_bytes: int | str


@dataclass(frozen=True)
class DatasetOptions:
    """How a dataset orders, splits and batches an epoch, as the caller gave it: see `TFRecordDataset`.

    Raises ValueError or TypeError for invalid options.
    """

    seed: int | None = 0
    rank: int | None = None
    world_size: int | None = None
    split: str = "exact"
    batch_size: int | None = None
    drop_last: bool = False
    reshuffle_each_epoch: bool = True
    prefetch: int = 0

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            splits, near = ", ".join(map(repr, SPLITS)), near_matches(self.split, SPLITS)
            raise ValueError(f"split must be one of {splits}, got {self.split!r}{near}")
        if self.seed is not None:
            as_integer(self.seed, "seed")
        if self.batch_size is not None:
            as_integer(self.batch_size, "batch_size", 1)
        elif self.drop_last:
            raise ValueError("drop_last needs a batch_size (the DataLoader has its own drop_last)")
        as_integer(self.prefetch, "prefetch", 0)


def asked_features(
    features: Any, description: Any, sequence_features: Any, sequence_description: Any
) -> dict[str, Any]:
    """Reader options for the requested features, given under the names of 2.x or of 1.x.

    A description alone declares plain Examples, as in the loaders, and requires what it names.

    Raises:
        TypeError: the same thing is given under both names.
    """
    found: dict[str, Any] = {}
    if features is not None or description is not None:
        found["features"] = one_of(features, description)
    if sequence_features is not None or sequence_description is not None:
        names = ("sequence_features", "sequence_description")
        found["sequence_features"] = one_of(sequence_features, sequence_description, names)
    elif description:
        found["record_type"] = "example"
    return found


def check_shuffle(shuffle: Any, queue_size: int | None) -> tuple[bool | str, int | None]:
    """Check the two shuffle options; a queue size of 0 means no queue."""
    if shuffle is None:
        shuffle = False
    if not isinstance(shuffle, bool) and shuffle != "block":
        near = near_matches(shuffle, ("block",))
        if isinstance(shuffle, int):
            near = f"; shuffle_queue_size={shuffle} shuffles through a buffer"
        raise ValueError(f"shuffle must be False, True or 'block', got {shuffle!r}{near}")
    return shuffle, check_queue_size(queue_size) if queue_size else None


def as_integer(value: Any, what: str, least: int | None = None, most: int | None = None) -> int:
    """`value` as an int; TypeError if it is not one, ValueError outside `least` .. `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, got {value!r}") from None
    below = least is not None and (number < least or isinstance(value, bool))
    if below or (most is not None and number > most):
        upper = "" if most is None else f" and at most {most}"
        raise ValueError(f"{what} must be an integer of at least {least}{upper}, got {value!r}")
    return number


def check_transform(transform: Any) -> None:
    """Raise TypeError if it is not callable."""
    if transform is not None and not callable(transform):
        raise TypeError(f"transform must be a function, got {type(transform).__name__}")


def known_options(called: Callable[..., Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """`options`, if the reader has them all.

    Otherwise raises TypeError, which blames the function that the user called and suggests similar names.
    """
    reader_options = [
        name for name in inspect.signature(TFRecordReader).parameters if name not in _NOT_PASSED_ON
    ]
    check_options(called, options, reader_options)
    return options


def open_source(
    data_path: Any,
    index_path: Any,
    asked: Mapping[str, Any],
    compression_type: Compression | None,
    **options: Any,
) -> tuple[TFRecordReader[Any], Source]:
    """The records of a path, list, glob, folder or reader: the reader, and its records for a dataset.

    `asked`: what `asked_features` made.
    """
    if isinstance(data_path, TFRecordReader):
        given = {"index_path": index_path, "compression_type": compression_type, **asked, **options}
        usual = {"on_error": "raise"}
        named = [name for name, value in given.items() if value != usual.get(name)]
        if named:
            raise ValueError(f"a TFRecordReader has its own {', '.join(named)}: give them to the reader")
        return data_path, Source(data_path._view)
    if isinstance(data_path, Split):
        raise TypeError("a Split is not a path: give split.reader() to the dataset")
    if is_service_url(data_path):
        return _open_remote(data_path, index_path, compression_type, {**asked, **options})
    reader: TFRecordReader[Any] = TFRecordReader(
        data_path,
        index="auto" if index_path is None else index_path,
        compression_type=compression_type,
        **{**asked, **options},
    )
    return reader, Source(reader._view)


def _open_remote(
    url: str, index_path: Any, compression_type: Any, options: dict[str, Any]
) -> tuple[TFRecordReader[Any], Source]:
    """The records of a data set that a server holds."""
    settings = options.pop("storage_options", None) or {}
    settings = dict(settings() if callable(settings) else settings)
    known = inspect.signature(connect).parameters
    named = [name for name in options if name not in known]
    given = {"index_path": index_path, "compression_type": compression_type}
    named += [name for name, value in given.items() if value is not None]
    if named:
        raise ValueError(f"{url} is on a server, but only files have {', '.join(named)}")
    check_options(connect, settings, ("token", "tls_roots"))
    reader = connect(url, **settings, **options)
    return reader, Source(reader._view)


def check_split(split: str, sources: Sequence[Source], drop_none: bool) -> None:
    """Equal shares need exact counts: ValueError if these cannot be known."""
    if split == "exact":
        return
    if drop_none or any(source.skips for source in sources):
        raise ValueError(
            f"split={split!r} promises equal shares, but drop_none and on_error may leave records out"
        )
    for source in sources:
        if not source.positioned:
            raise ValueError(
                f"split={split!r} needs the number of records, and {source.paths[0]} is compressed "
                "and has no index: build an index (tfrecord index PATH)"
            )
