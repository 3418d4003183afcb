"""The TFDS split language, such as ``"train[:10%]+test"``, with its rounding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from indexer.options import check_count, suggests_options
from tfrecord.tfds.folder import SplitInfo

__all__ = ["Part", "SubSplit", "even_splits", "resolve_split"]

_PART = re.compile(r"^([\w-]+)(?:\[([\d\w%:.-]+)\])?$")
_BOUND = re.compile(r"^(?:(-?[\d_.]+)(%|shard)?)?$")


class Part(NamedTuple):
    """Examples ``start`` up to ``stop`` of one split, 0 <= start <= stop."""

    split: SplitInfo
    start: int
    stop: int


@dataclass(frozen=True)
class SubSplit:
    """A split made by `even_splits`, or a sum of splits; `tfrecord.tfds.open` takes it.

    ``+`` appends another split (or a string).
    """

    parts: tuple[Any, ...]
    index: int = 0
    count: int = 1
    drop_remainder: bool = False

    def __add__(self, other: Any) -> SubSplit:
        return SubSplit((self, _checked(other)))

    def __radd__(self, other: Any) -> SubSplit:
        return SubSplit((_checked(other), self))


@suggests_options
def even_splits(split: Any, n: int, drop_remainder: bool = False) -> list[SubSplit]:
    """``n`` parts of a split, of equal size except that the first few may have one more example.

    Args:
        split: as for `open`; may also come from this function.
        drop_remainder: drop the last few examples, so that all parts have the same size.

    As in TFDS, each summand of ``"train+test"`` is divided separately.
    """
    n = check_count(n, "n")
    return [SubSplit((_checked(split),), index, n, bool(drop_remainder)) for index in range(n)]


def _checked(split: Any) -> Any:
    if not isinstance(split, str | SubSplit):
        raise TypeError(f"a split is a str or comes from even_splits, not {type(split).__name__}")
    return split


def resolve_split(split: Any, splits: Mapping[str, SplitInfo]) -> list[Part]:
    """The examples of a split, in order.

    Raises:
        ValueError: the split is not valid, does not exist, or goes beyond the end.
    """
    if isinstance(_checked(split), SubSplit):
        whole = [part for item in split.parts for part in resolve_split(item, splits)]
        return [_share(part, split) for part in whole]
    if split in splits:
        return [Part(splits[split], 0, splits[split].num_examples)]
    return [part for text in re.split(r"\s*\+\s*", split) for part in _parts_of(text, split, splits)]


def _share(part: Part, split: SubSplit) -> Part:
    each, rest = divmod(part.stop - part.start, split.count)
    extra = (0, 0) if split.drop_remainder else (min(split.index, rest), min(split.index + 1, rest))
    start, stop = each * split.index + extra[0], each * (split.index + 1) + extra[1]
    return Part(part.split, part.start + start, part.start + stop)


def _parts_of(text: str, whole: str, splits: Mapping[str, SplitInfo]) -> list[Part]:
    match = _PART.match(text)
    if match is None:
        raise ValueError(
            f"the split {whole!r} is not valid at {text!r}; write train, train[:10%] or train[5:100]"
        )
    name, selector = match.groups()
    if name == "all":
        if selector is not None:
            raise ValueError(f"the split {whole!r}: 'all' cannot have a slice")
        return [Part(info, 0, info.num_examples) for info in splits.values()]
    if name not in splits:
        raise ValueError(f"no split {name!r}; there are {', '.join(map(repr, splits)) or 'none'}")
    info = splits[name]
    count = info.num_examples
    start, stop = (0, count) if selector is None else _bounds(selector, whole, info)
    if abs(start) > count or abs(stop) > count:
        raise ValueError(f"the split {whole!r} goes beyond the {count:,} examples of {name!r}")
    start, stop = (end if end >= 0 else end + count for end in (start, stop))
    return [Part(info, start, max(start, stop))]


def _bounds(selector: str, whole: str, info: SplitInfo) -> tuple[int, int]:
    """The two ends of a slice in examples; negative ones count from the end."""
    texts = selector.split(":")
    matches = [_BOUND.match(text) for text in texts]
    if len(texts) > 2 or None in matches or not any(texts):
        raise ValueError(f"the split {whole!r}: {selector!r} is not a slice such as :10%, 5:100 or :1shard")
    values = [match[1] for match in matches if match is not None]
    unit = next((match[2] for match in matches if match is not None and match[2]), "")
    if len(texts) == 1 and unit != "shard":
        raise ValueError(f"the split {whole!r}: examples and percents need a slice with a colon, as in [:10]")
    try:
        low, high = [None if value is None else _number(value, unit) for value in (values * 2)[:2]]
    except ValueError:
        raise ValueError(f"the split {whole!r}: {selector!r} holds no valid numbers") from None
    count = info.num_examples
    if unit == "%":
        if max(abs(low or 0), abs(high or 0)) > 100:
            raise ValueError(f"the split {whole!r}: percents must be from -100 to 100")
        return (round((low or 0) * count / 100.0), count if high is None else round(high * count / 100.0))
    if unit != "shard":
        return int(low or 0), count if high is None else int(high)
    if len(texts) == 1 and low is not None:
        high = low + 1
    lengths, first = info.shard_lengths, None if low is None else int(low)
    if high is not None and high <= 0:
        high += len(lengths)
    return (
        0 if first is None else sum(lengths[:first]),
        count if high is None else sum(lengths[: int(high)]),
    )


def _number(text: str, unit: str) -> float:
    return float(text) if unit == "%" else int(text)
