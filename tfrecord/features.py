"""What to decode: the specs of features, their short names, and the plan made from them.

The spec alone decides the type of a column. `FixedLenFeature` is a dense array; `VarLenFeature`,
`RaggedFeature` and the short names (``"byte"``/``"bytes"``, ``"int"``/``"int64"``, ``"float"``/``"float32"``)
are ragged. ``"str"`` and ``"string"`` are bytes, as in TensorFlow.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from indexer.options import known_names, near_matches, suggests_options
from tfrecord._dtypes import DTYPES, check_cast, normal_default, normal_shape, resolve_dtype, resolve_stored

__all__ = [
    "DTYPES",
    "EMPTY",
    "NAMED",
    "REQUIRED",
    "Column",
    "FeaturePlan",
    "FixedLenFeature",
    "ImageOptions",
    "RaggedFeature",
    "Spec",
    "VarLenFeature",
    "check_cast",
    "compile_features",
    "no_feature",
    "one_of",
    "resolve_dtype",
]

EMPTY, NAMED, REQUIRED = "empty", "named", "required"


@dataclass(frozen=True)
class ImageOptions:
    """How the images of a column are decoded: see `tfrecord.ImageFeature`. An open size is None."""

    height: int | None
    width: int | None
    channels: int
    resize: bool
    max_pixels: int
    num_threads: int | None


@dataclass(frozen=True)
class Column:
    """One requested feature, ready for the kernels.

    ``kind`` is None if any type will do. ``shape`` is None for a ragged column. ``dtype`` is None for
    bytes.
    ``default`` is a whole row: bytes of numbers in ``dtype``, or a tuple of bytes. ``absent`` says what to do
    about a record that lacks a ragged column: ``EMPTY`` (an empty row), ``NAMED`` (the same, but at least one
    record should have it) or ``REQUIRED`` (an error). ``image`` says how a column of one byte string is
    decoded to images, if it is.
    """

    key: str
    kind: str | None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    default: Any = None
    raw: bool = False
    absent: str = EMPTY
    image: ImageOptions | None = None
    #: Whether numbers come out exactly as stored, if there are any.
    exact: bool = field(init=False, compare=False, repr=False)
    #: Whether a dense column holds numbers exactly as stored.
    stored: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        exact = not self.raw and self.dtype in (None, "int64", "float32")
        object.__setattr__(self, "exact", exact)
        object.__setattr__(self, "stored", exact and self.shape is not None and self.dtype is not None)


class Spec:
    """The common base of the specs: immutable values, compared and hashed by their content."""

    __slots__ = ("_column", "_hash", "dtype")
    _column: Column

    def _settle(self, column: Column) -> None:
        object.__setattr__(self, "_column", column)
        object.__setattr__(self, "_hash", hash((type(self).__name__, column)))

    def column(self, key: str) -> Column:
        return replace(self._column, key=key)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and type(self) is type(other) and self._column == other._column

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]


def _copied(value: Any) -> Any:
    """The value of a default for us to keep: the caller may change a list, an array or a buffer later."""
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value))
    return bytes(value) if isinstance(value, bytearray | memoryview) else copy.copy(value)


class FixedLenFeature(Spec):
    """The same number of values in every record: a dense column of shape ``(n, *shape)``.

    If the first size of a raw array is -1, it may vary between records; the column is then a `Ragged` whose
    `values` have the shape ``(total, *shape[1:])``.

    Args:
        shape: sizes of one record's values; ``()`` or ``[]`` for a scalar, an int for a vector.
        dtype: ``"float32"``, ``"int64"``, ``"bytes"``, a short name, or a target dtype (``"int32"``,
            ``"uint8"``, ``"bool"``, ``"float64"``, ``"float16"``, ...; NumPy dtypes and scalar classes too).
            Integers and bool must be exact; float16 rounds.
        default_value: what a record gets if the feature is missing, has no type, or is empty: one value for
            all elements, or a whole row. None: such a record is an error.
        raw: the feature is one byte string, the little-endian buffer of an array of `dtype` and `shape`. One
            size may be -1 and is computed from the length; it must be the same for all records of a batch,
            unless it is the first.

    Raises:
        ValueError: an unknown dtype (the message lists the valid ones), a bad shape, or a default that does
            not fit.
    """

    __slots__ = ("default_value", "raw", "shape")
    shape: tuple[int, ...]
    dtype: Any
    default_value: Any
    raw: bool

    @suggests_options
    def __init__(self, shape: Any, dtype: Any, default_value: Any = None, *, raw: bool = False) -> None:
        kind, target = resolve_stored(dtype, bool(raw))
        sizes = normal_shape(shape, raw=bool(raw))
        default = None
        if default_value is not None:
            default_value = _copied(default_value)
            default = normal_default(default_value, kind, target, sizes, bool(raw))
        for name, value in (
            ("shape", sizes),
            ("dtype", dtype),
            ("default_value", default_value),
            ("raw", bool(raw)),
        ):
            object.__setattr__(self, name, value)
        self._settle(Column("", kind, target, sizes, default, bool(raw)))

    def __repr__(self) -> str:
        default = "" if self.default_value is None else f", default_value={self.default_value!r}"
        return f"FixedLenFeature({self.shape!r}, {self.dtype!r}{default}{', raw=True' if self.raw else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), (self.shape, self.dtype, self.default_value), {"raw": self.raw})


class VarLenFeature(Spec):
    """Any number of values in each record: a `Ragged` column.

    Args:
        dtype: as for `FixedLenFeature`.
        raw: the feature is one byte string, the little-endian buffer of an array of `dtype`, of any size. A
            record without the feature, or with an empty list, is an empty row.
        shape: the shape of the array in a raw feature. Its first size is -1, so row i of the column has the
            shape ``(rows, *shape[1:])``, and the column's `values` ``(total, *shape[1:])``.

    Raises:
        ValueError: an unknown dtype (the message lists the valid ones), a shape that does not begin with -1,
            or a shape without `raw`.

    >>> VarLenFeature("float32", raw=True, shape=(-1, 3))  # points of a mesh
    VarLenFeature('float32', raw=True, shape=(-1, 3))
    """

    __slots__ = ("raw", "shape")
    dtype: Any
    raw: bool
    shape: tuple[int, ...] | None

    @suggests_options
    def __init__(self, dtype: Any, *, raw: bool = False, shape: Any = None) -> None:
        kind, target = resolve_stored(dtype, bool(raw))
        sizes = None
        if raw:
            sizes = normal_shape((-1,) if shape is None else shape, raw=True)
            if sizes[:1] != (-1,):
                raise ValueError(f"the shape {sizes} of a {type(self).__name__} does not begin with -1")
        elif shape is not None:
            raise ValueError("shape is only for raw arrays: give raw=True too")
        for name, value in (("dtype", dtype), ("raw", bool(raw)), ("shape", sizes)):
            object.__setattr__(self, name, value)
        # A record without the feature is an empty row: the default is an empty array.
        self._settle(Column("", "bytes", target, sizes, b"", True) if raw else Column("", kind, target))

    def __repr__(self) -> str:
        shape = "" if self.shape in (None, (-1,)) else f", shape={self.shape!r}"
        return f"{type(self).__name__}({self.dtype!r}{', raw=True' if self.raw else ''}{shape})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), (self.dtype,), {"raw": self.raw, "shape": self.shape})


class RaggedFeature(VarLenFeature):
    """The same as `VarLenFeature`, under TensorFlow's other name."""

    __slots__ = ()


def _remake(cls: type, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return cls(*args, **options)


@dataclass(frozen=True)
class FeaturePlan:
    """Compiled features: hashable and picklable. ``columns`` is None if every feature found is wanted."""

    columns: tuple[Column, ...] | None
    #: Columns whose values differ from what is stored: dense, raw, or with another dtype.
    special: tuple[Column, ...] = field(init=False, compare=False, repr=False)
    #: Whether every column is dense and holds numbers exactly as stored.
    plain: bool = field(init=False, compare=False, repr=False)
    #: Whether there are dense columns without values, which single records must be asked for again.
    hollow: bool = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        special = (
            c for c in self.columns or () if c.shape is not None or c.dtype not in (None, "int64", "float32")
        )
        object.__setattr__(self, "special", tuple(special))
        object.__setattr__(self, "plain", bool(self.columns) and all(c.stored for c in self.columns or ()))
        hollow = any(column.shape is not None and 0 in column.shape for column in self.special)
        object.__setattr__(self, "hollow", hollow)
        object.__setattr__(self, "_hash", hash(self.columns))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return FeaturePlan, (self.columns,)

    @cached_property
    def row_shapes(self) -> tuple[tuple[int, ...] | None, ...] | None:
        """For each column the shape of one record's values, if they are dense numbers as stored."""
        if self.columns is None:
            return None
        return tuple(column.shape if column.stored else None for column in self.columns)

    @cached_property
    def unfinished(self) -> tuple[Column, ...]:
        """The special columns that need more than a shape."""
        return tuple(column for column in self.special if not column.stored)

    @cached_property
    def required(self) -> tuple[tuple[int, Column], ...]:
        """Number and column of each ragged column that every record must have."""
        return tuple((i, column) for i, column in enumerate(self.columns or ()) if column.absent == REQUIRED)

    @cached_property
    def needed(self) -> tuple[tuple[int, Column], ...]:
        """Number and column of each column that every record must have; for feature lists that includes dense
        ones without a default."""
        return tuple(
            (i, column)
            for i, column in enumerate(self.columns or ())
            if column.absent == REQUIRED or (column.shape is not None and column.default is None)
        )

    @cached_property
    def images(self) -> tuple[Column, ...]:
        """The columns that are decoded to images."""
        return tuple(column for column in self.columns or () if column.image is not None)

    @property
    def is_typed(self) -> bool:
        """Whether the plan says which columns there are and the type of each."""
        return self.columns is not None and all(column.kind is not None for column in self.columns)

    @property
    def names(self) -> tuple[str, ...] | None:
        return None if self.columns is None else tuple(column.key for column in self.columns)

    def select(self, names: Iterable[str]) -> FeaturePlan:
        """The plan for some of the columns, in the given order; repeated names count once.

        Raises:
            KeyError: the plan does not have one of the names.
        """
        wanted = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
        if self.columns is None:
            return compile_features(wanted) if wanted else FeaturePlan(())
        known = {column.key: column for column in self.columns}
        for name in wanted:
            if name not in known:
                raise no_feature(name, known)
        return FeaturePlan(tuple(known[name] for name in wanted))


_ALL = FeaturePlan(None)


def no_feature(name: str, known: Iterable[str]) -> KeyError:
    """The error for the name of a feature that is not among the known ones."""
    names = list(known)
    return KeyError(f"no feature {name!r}{known_names(name, names)}")


def other_part(name: object, context: Collection[str], lists: Collection[str]) -> str:
    """The end of a message about a feature that its part of a record lacks: the other part has it, or near
    matches."""
    if name in lists:
        return f"; {name!r} is a feature list: ask for it in sequence_features"
    if name in context:
        return f"; {name!r} is in the context: ask for it in features"
    return near_matches(name, [*context, *lists])


def compile_features(features: Any, *, required: bool = False, keep: bool = True) -> FeaturePlan:
    """Make a plan from a user's request.

    Args:
        features: None, ``[]`` or ``{}``: every feature. A list or tuple of names: these, of any type. A
            mapping of names to a spec, a short name, or None (any type). A plan is returned as it is.
        required: whether every record must have the features that have just a name or short name, as in 1.x.
            (A spec always follows its own rule.)
        keep: keep the plan of a mapping for the next call with an equal one.

    Raises:
        TypeError: a name is not a string, or features is none of these.
        ValueError: a name is given twice, or a type is unknown (the message lists the valid ones).
    """
    if features is None:
        return _ALL
    if isinstance(features, FeaturePlan):
        return features
    absent = REQUIRED if required else NAMED
    if isinstance(features, Mapping):
        items = tuple(features.items())
        try:
            return (_compile if keep else _compile.__wrapped__)(items, absent)
        except TypeError:  # it holds something unhashable: compile it again, for the clear message
            return _compile.__wrapped__(items, absent)
    if isinstance(features, list | tuple):
        return _compile.__wrapped__(tuple((name, None) for name in features), absent)
    raise TypeError(
        f"features must be None, a list of names or a dict of name to type, not {type(features).__name__}"
    )


@lru_cache(maxsize=256)
def _compile(items: tuple[tuple[Any, Any], ...], absent: str) -> FeaturePlan:
    if not items:
        return _ALL
    columns: dict[str, Column] = {}
    for name, spec in items:
        if not isinstance(name, str):
            raise TypeError(f"the name of a feature must be a str, not {name!r}")
        key = str(name)
        try:
            key.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the name {key!r} is not valid Unicode, so no record can have it") from None
        if key in columns:
            raise ValueError(f"the feature {key!r} is named twice")
        if spec is None:
            columns[key] = Column(key, None, absent=absent)
        elif isinstance(spec, Spec):
            columns[key] = spec.column(key)
        else:
            columns[key] = _named_column(key, spec, absent)
    return FeaturePlan(tuple(columns.values()))


def _named_column(key: str, name: Any, absent: str) -> Column:
    try:
        kind, dtype = resolve_dtype(name)
    except ValueError as error:
        others = "or a FixedLenFeature, VarLenFeature, RaggedFeature or ImageFeature"
        raise ValueError(f"feature {key!r}: {error}, {others}") from None
    return Column(key, kind, dtype, absent=absent)


def one_of(
    features: Any, description: Any, names: tuple[str, str] = ("features", "description")
) -> FeaturePlan:
    """The plan for a request under the 2.x name, or the 1.x name, which makes named features required.

    Raises:
        TypeError: both are given; also as for `compile_features`.
    """
    if features is not None and description is not None:
        raise TypeError(f"give {names[0]} or {names[1]}, not both: they are two names for the same thing")
    if features is not None:
        return compile_features(features)
    return compile_features(description, required=True)
