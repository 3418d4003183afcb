"""Tickets: what a client asks for, as a msgpack map or a JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import msgpack
import numpy as np

from indexer.options import listed, near_matches
from tfrecord._columns.arrays import Int64Array
from tfrecord._reading.index_columns import COMPARISONS, as_stored, matching
from tfrecord.features import (
    NAMED,
    Column,
    FeaturePlan,
    FixedLenFeature,
    RaggedFeature,
    VarLenFeature,
    compile_features,
)
from tfrecord.sampling.share import SPLITS

__all__ = [
    "CHOICES",
    "MAX_TICKET",
    "VERSION",
    "Order",
    "Ticket",
    "decode_message",
    "encode_message",
    "feature_words",
    "matches",
]

VERSION = 1
MAX_TICKET = 1 << 20
# Keys of a ticket that choose records, and leave the columns as they are.
CHOICES = frozenset(("positions", "slice", "order", "where", "batch_size"))
_MOST_DEFAULTS = 1 << 21
_COLUMN_BYTES, _LIGHT_BYTES = 1 << 10, 1 << 18
_SIGNS = (*COMPARISONS, "in")
_SPECS = ("fixed", "var", "ragged")
_SPEC_KEYS = ("spec", "dtype", "shape", "default", "raw")


def encode_message(message: Mapping[str, Any], as_json: bool = False) -> bytes:
    """A message in one of the two encodings."""
    if as_json:
        return json.dumps(message).encode()
    packed: bytes = msgpack.packb(message)
    return packed


def decode_message(data: bytes, *, limited: bool = True) -> tuple[dict[str, Any], bool]:
    """The message, and whether it is JSON.

    Raises:
        ValueError: it is longer than 1 MiB, or neither a JSON object nor a msgpack map with names as keys.
    """
    if limited and len(data) > MAX_TICKET:
        raise ValueError(f"the message has {len(data):,} bytes; at most {MAX_TICKET:,} are allowed")
    as_json = data[:1] == b"{"
    try:
        if as_json:
            found = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
        else:
            found = msgpack.unpackb(data, object_pairs_hook=_unique, ext_hook=_no_extension)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        text = str(error)[:200] or type(error).__name__
        raise ValueError(f"the message is neither a JSON object nor a msgpack map: {text}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the message must be a JSON object or a msgpack map, not {type(found).__name__}")
    return found, as_json


def _unique(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    found = {}
    for key, value in pairs:
        if not isinstance(key, str) or key in found:
            raise ValueError(f"{str(key)[:80]!r} is not a name, or is there twice")
        found[key] = value
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON value")


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError("extension types are not allowed")


def _known(message: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in message:
        if key not in known:
            raise ValueError(f"{what} has no key {key[:80]!r}{near_matches(key, known)}")


def _typed(message: Mapping[str, Any], key: str, types: Any, default: Any, words: str) -> Any:
    value = message.get(key)
    if value is None:
        return default
    if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
        raise ValueError(f"{key} must be {words}, not {type(value).__name__}")
    return value


def _integer(message: Mapping[str, Any], key: str, default: Any, least: int, most: int) -> Any:
    value = _typed(message, key, int, default, "an integer")
    if value is not default and not least <= value <= most:
        raise ValueError(f"{key} must be from {least} to {most}, not {value}")
    return value


@dataclass(frozen=True)
class Order:
    """One rank's share of an epoch; see `tfrecord.torch.TFRecordDataset`. ``start`` counts records of the
    rank."""

    shuffle: bool | str = False
    seed: int = 0
    epoch: int = 0
    rank: int = 0
    world_size: int = 1
    start: int = 0
    split: str = "exact"
    drop_last: bool = False

    @classmethod
    def of(cls, message: Any) -> Order:
        if not isinstance(message, dict):
            raise ValueError("order must be a map")
        _known(message, tuple(cls.__dataclass_fields__), "order")
        shuffle = message.get("shuffle", False)
        if not isinstance(shuffle, bool) and shuffle != "block":
            raise ValueError(f"shuffle must be false, true or 'block', not {str(shuffle)[:80]!r}")
        split = message.get("split", "exact")
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {str(split)[:80]!r}")
        most = 2**62
        world_size = _integer(message, "world_size", 1, 1, 2**31)
        return cls(
            shuffle,
            _integer(message, "seed", 0, -most, most),
            _integer(message, "epoch", 0, 0, most),
            _integer(message, "rank", 0, 0, world_size - 1),
            world_size,
            _integer(message, "start", 0, 0, most),
            split,
            _typed(message, "drop_last", bool, False, "true or false"),
        )


@dataclass(frozen=True)
class Ticket:
    """A checked request for records of one data set.

    ``positions`` (int64), ``slice`` and ``order`` are None, except at most one. ``index`` names index columns
    that are wanted instead of records.
    """

    data: str
    columns: tuple[str, ...] | None = None
    plan: FeaturePlan = field(default_factory=lambda: FeaturePlan(None))
    sequence_plan: FeaturePlan | None = None
    raw: bool = False
    index: tuple[str, ...] = ()
    positions: Int64Array | None = None
    slice: slice | None = None
    order: Order | None = None
    where: tuple[tuple[str, str, Any], ...] = ()
    batch_size: int | None = None
    fingerprint: str | None = None
    as_json: bool = False

    @classmethod
    def of(cls, data: bytes) -> Ticket:
        """Raises ValueError that says what is wrong."""
        message, as_json = decode_message(data)
        return cls.of_message(message, as_json)

    @classmethod
    def of_message(cls, message: dict[str, Any], as_json: bool) -> Ticket:
        _known(message, _KEYS, "a ticket")
        version = message.get("v")
        if type(version) is not int or version != VERSION:
            raise ValueError(f"v must be {VERSION}, the version of the ticket, not {str(version)[:80]!r}")
        if not isinstance(message.get("data"), str):
            raise ValueError("data must be the name of a data set")
        columns, index = _names(message, "columns"), _names(message, "index")
        raw = _typed(message, "raw", bool, False, "true or false")
        features, lists = message.get("features"), message.get("sequence_features")
        decodes = columns is not None or features is not None or lists is not None
        if (raw and decodes) or (index and (raw or decodes)):
            raise ValueError("raw, index, and columns or features exclude each other")
        return cls(
            message["data"],
            columns,
            _plan(features),
            None if lists is None else _plan(lists),
            raw,
            index or (),
            fingerprint=_typed(message, "fingerprint", str, None, "text"),
            as_json=as_json,
        ).choosing(message)

    @property
    def is_heavy(self) -> bool:
        """Whether its features take so much memory that nothing made of them may be kept."""
        plans = (self.plan, self.sequence_plan)
        columns = [column for plan in plans if plan is not None for column in plan.columns or ()]
        return sum(_COLUMN_BYTES + 8 * len(column.default or ()) for column in columns) > _LIGHT_BYTES

    def choosing(self, message: Mapping[str, Any]) -> Ticket:
        """The ticket for the records that the `CHOICES` of a message name, and for no others."""
        given = [key for key in ("positions", "slice", "order") if message.get(key) is not None]
        if len(given) > 1:
            raise ValueError(f"a ticket has at most one of positions, slice and order, not {listed(given)}")
        order = message.get("order")
        return replace(
            self,
            positions=_positions(message.get("positions")),
            slice=_slice(message.get("slice")),
            order=None if order is None else Order.of(order),
            where=_conditions(message.get("where")),
            batch_size=_integer(message, "batch_size", None, 1, 2**31),
        )


_KEYS = ("v", "data", "columns", "features", "sequence_features", "raw", "index", "fingerprint", *CHOICES)


def _names(message: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    names = _typed(message, key, list, None, "a list of names")
    if names is None:
        return None
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} must be a list of names")
    return tuple(dict.fromkeys(names))


def _positions(value: Any) -> Int64Array | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        if len(value) % 8:
            raise ValueError(f"positions have {len(value)} bytes, which is not a multiple of 8")
        return np.frombuffer(value, "<i8").astype(np.int64, copy=False)
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise ValueError("positions must be a list of integers, or bytes: little-endian int64")
    try:
        return np.array(value, np.int64)
    except OverflowError:
        raise IndexError("a position does not fit into 64 bits") from None


def _slice(value: Any) -> slice | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("slice must be [start, stop, step]")
    if not all(one is None or (type(one) is int and abs(one) < 2**63) for one in value) or value[2] == 0:
        raise ValueError("the parts of slice must be integers or null, and its step not 0")
    return slice(*value)


def _conditions(value: Any) -> tuple[tuple[str, str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError("where must be a list of [column, operator, value]")
    found = []
    for one in value:
        if not isinstance(one, list) or len(one) != 3 or not isinstance(one[0], str):
            raise ValueError("each condition of where must be [column, operator, value]")
        name, sign, wanted = one
        if sign not in _SIGNS:
            raise ValueError(f"the operator must be one of {listed(_SIGNS)}, not {str(sign)[:80]!r}")
        values = wanted if sign == "in" else [wanted]
        if not isinstance(values, list) or not all(isinstance(v, int | float | str | bytes) for v in values):
            raise ValueError(f"the value beside {sign!r} must be a number or text ('in': a list of them)")
        if any(isinstance(v, int) and abs(v) >= 2**63 for v in values):
            raise ValueError("a value does not fit into 64 bits")
        found.append((name, sign, wanted))
    return tuple(found)


def matches(column: Any, sign: str, wanted: Any, name: str) -> Any:
    """Where a column of an index fulfils a condition; a missing value never does.

    Raises:
        TypeError: the value is not of the column's type.
    """
    if sign == "in":
        return matching(column, wanted, name)
    values = np.ma.getdata(column)
    return COMPARISONS[sign](values, as_stored([wanted], values, name)[0]) & ~np.ma.getmaskarray(column)


# ---- features ------------------------------------------------------------------------------------------


def _plan(value: Any) -> FeaturePlan:
    """Features of a ticket: a list of names, or a map of names to null, a type, or a spec as a map."""
    if value is not None and not isinstance(value, dict | list):
        raise ValueError("features must be a list of names or a map of names to types")
    if isinstance(value, dict):
        _check_defaults(value.values())
        value = {name: _spec(name, one) for name, one in value.items()}
    try:
        return compile_features(value, keep=False)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _check_defaults(specs: Iterable[Any]) -> None:
    """A default is kept for a whole row, however short it was in the ticket."""
    shapes = [
        spec.get("shape") for spec in specs if isinstance(spec, dict) and spec.get("default") is not None
    ]
    count = sum(
        math.prod(abs(extent) for extent in shape if type(extent) is int)
        for shape in shapes
        if isinstance(shape, list)
    )
    if count > _MOST_DEFAULTS:
        raise ValueError(f"the defaults have {count:,} values; a ticket has at most {_MOST_DEFAULTS:,}")


def _spec(name: str, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, dict) or value.get("spec") not in _SPECS or not isinstance(value["spec"], str):
        raise ValueError(f"feature {name!r} must be null, a type, or a map with spec: {listed(_SPECS)}")
    _known(value, _SPEC_KEYS, f"the spec of {name!r}")
    kind, dtype, shape = value["spec"], value.get("dtype"), value.get("shape")
    raw = _typed(value, "raw", bool, False, "true or false")
    if not isinstance(dtype, str):
        raise ValueError(f"the spec of {name!r} needs a dtype")
    if kind != "fixed":
        if value.get("default") is not None:
            raise ValueError(f"the spec of {name!r} is ragged and has no default")
        return (VarLenFeature if kind == "var" else RaggedFeature)(dtype, raw=raw, shape=shape)
    default = value.get("default")
    if default is not None and _depth(default) > 32:
        raise ValueError(f"the default of {name!r} is nested too deeply")
    return FixedLenFeature([] if shape is None else shape, dtype, default, raw=raw)


def _depth(value: Any) -> int:
    depth = 0
    while isinstance(value, list) and value and depth <= 32:
        value, depth = value[0], depth + 1
    return depth


@lru_cache(maxsize=64)
def feature_words(plan: FeaturePlan) -> Any:
    """Compiled features as a ticket has them, not to be changed; None for those that it cannot express."""
    if plan.columns is None:
        return []
    words = {column.key: _word(column) for column in plan.columns}
    try:
        return words if _plan(words) == plan else None
    except ValueError:
        return None


def _word(column: Column) -> Any:
    dtype = column.dtype or column.kind
    if column.shape is None and column.absent == NAMED:
        return dtype
    if column.shape is None:
        return {"spec": "ragged", "dtype": dtype, "raw": column.raw}
    spec: dict[str, Any] = {"spec": "fixed", "dtype": dtype, "shape": list(column.shape), "raw": column.raw}
    if column.default is not None:
        values = column.default
        if column.dtype is not None:
            values = np.frombuffer(values, np.dtype(column.dtype).newbyteorder("<")).tolist()
        spec["default"] = list(values)
    return spec
