"""Records as nested dicts: of values for single records, of columns for batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from indexer.options import near_matches, suggests_options
from tfrecord._columns.arrays import Int64Array
from tfrecord._columns.batch import BytesColumn, ColumnBatch
from tfrecord._columns.decoding import decode_batch
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.decoder import LOCATED_ERRORS, RecordDecoder, is_damage
from tfrecord._reading.rows import RowBatch
from tfrecord.features import compile_features
from tfrecord.tfds.folder import TFDSError
from tfrecord.tfds.leaves import Leaf, Values, nested

__all__ = ["NestedBatch", "NestedDecoder", "single"]

# How many records are turned into dicts at a time; fewer if they are large.
_GROUP = 64
_GROUP_BYTES = 1 << 20


class NestedBatch(dict[str, Any]):
    """``num_rows`` records as a dict of columns, nested like the features.

    A column is an array `(n, ...)`, a `BytesColumn`, or a `Ragged` if a dimension is unknown.
    Which one depends on the features, never on the data.
    """

    def __init__(self, columns: Mapping[str, Any], num_rows: int) -> None:
        super().__init__(columns)
        self.num_rows = num_rows

    @suggests_options
    def to_torch(
        self, *, ragged: str = "ragged", fill_value: Any = 0, max_length: Any = None
    ) -> dict[str, Any]:
        """Dicts of tensors, lists of bytes, and ragged columns; options as in `ColumnBatch.to_torch`."""
        options = {"ragged": ragged, "fill_value": fill_value, "max_length": max_length}
        return self.mapped(lambda level: level.to_torch(**options))

    def mapped(self, convert: Callable[[ColumnBatch], Mapping[str, Any]]) -> dict[str, Any]:
        """The results of ``convert`` for the columns of each dict, nested in the same way."""
        return _mapped(self, convert, self.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return NestedBatch, (dict(self), self.num_rows)

    def __repr__(self) -> str:
        return repr(self._flat()).replace("ColumnBatch", "NestedBatch", 1)

    def _repr_html_(self) -> str:
        return self._flat()._repr_html_().replace("ColumnBatch", "NestedBatch", 1)

    def _flat(self) -> ColumnBatch:
        """The columns of all levels, named by their paths."""
        columns = dict(_leaves(self, ""))
        present = {name: np.ones(self.num_rows, np.bool_) for name in columns}
        return ColumnBatch._trusted(columns, present, self.num_rows)


def _leaves(columns: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, column in columns.items():
        if isinstance(column, dict):
            yield from _leaves(column, f"{path}{name}/")
        else:
            yield f"{path}{name}", column


def single(payload: memoryview) -> BytesColumn:
    """A payload as a column of one, without a copy."""
    return BytesColumn._trusted((payload,), np.zeros(1, np.int64), np.array([len(payload)], np.int64))


def _mapped(
    columns: dict[str, Any], convert: Callable[[ColumnBatch], Mapping[str, Any]], count: int
) -> dict[str, Any]:
    here = {name: column for name, column in columns.items() if not isinstance(column, dict)}
    present = {name: np.ones(count, np.bool_) for name in here}
    made = dict(convert(ColumnBatch._trusted(here, present, count)))
    for name, column in columns.items():
        if isinstance(column, dict):
            if name in made:
                raise ValueError(f"the mask of a column needs the name {name!r}, which is already a feature")
            made[name] = _mapped(column, convert, count)
    return made


class NestedDecoder(RecordDecoder):
    """Decodes Examples of TFDS to nested dicts: of values, or of columns."""

    def __init__(self, leaves: Sequence[Leaf], policy: DamagePolicy) -> None:
        specs: dict[str, Any] = {}
        for leaf in leaves:
            found = leaf.specs()
            if clash := specs.keys() & found.keys():
                raise TFDSError(f"two features are stored under the key {clash.pop()!r}")
            specs |= found
        super().__init__(compile_features(specs), None, "example", policy, allow_missing=True)
        self.leaves = {"/".join(leaf.path): leaf for leaf in leaves}
        self._looked = True

    def check_columns(self, columns: Iterable[str] | None) -> tuple[str, ...] | None:
        """The keys of the leaves with these names; KeyError for a name that is neither a leaf nor a dict."""
        if columns is None:
            return None
        chosen: dict[str, None] = {}
        for name in (columns,) if isinstance(columns, str) else columns:
            found = [key for key in self.leaves if key == name or key.startswith(f"{name}/")]
            if not found:
                raise KeyError(f"no feature {name!r}{near_matches(name, self.leaves)}")
            chosen |= dict.fromkeys(found)
        return tuple(chosen)

    def stored(
        self, payloads: Any, columns: tuple[str, ...] | None = None, num_threads: int = 1
    ) -> list[tuple[Leaf, Values]]:
        """The leaves of payloads, not decoded yet."""
        leaves = [self.leaves[key] for key in (self.leaves if columns is None else columns)]
        keys = None if columns is None else [key for leaf in leaves for key in leaf.specs()]
        batch = decode_batch(payloads, self.plan, columns=keys, num_threads=num_threads)
        return [(leaf, leaf.stored(batch)) for leaf in leaves]

    def values(
        self, payloads: Any, columns: tuple[str, ...] | None = None, num_threads: int = 1
    ) -> list[tuple[tuple[str, ...], Values]]:
        """The decoded leaves of payloads, each with its path."""
        found = self.stored(payloads, columns, num_threads)
        return [(leaf.path, leaf.decoded(values)) for leaf, values in found]

    def _decode(
        self, payloads: BytesColumn, columns: tuple[str, ...] | None, num_threads: int, bad: Any = None
    ) -> Any:
        # ``bad`` is not used: an invalid message raises, and the caller then leaves it out.
        found = self.values(payloads, columns, num_threads)
        columns_of = [values.column() for _, values in found]
        return NestedBatch(nested([path for path, _ in found], columns_of), len(payloads))

    def one(self, payload: memoryview) -> Any:
        return self.dicts(single(payload))[0]

    def many(self, payloads: tuple[memoryview, ...]) -> list[Any]:
        return []  # `records` and `dicts` have their own groups

    def dicts(self, payloads: Any) -> list[Any]:
        """One nested dict per payload."""
        found = self.values(payloads)
        paths = [path for path, _ in found]
        rows = [values.rows() for _, values in found]
        if not rows:
            return [{} for _ in range(len(payloads))]
        if all(len(path) == 1 for path in paths):
            names = [path[0] for path in paths]
            return [dict(zip(names, row, strict=True)) for row in zip(*rows, strict=True)]
        return [nested(paths, row) for row in zip(*rows, strict=True)]

    def weights(self, payloads: Any) -> Int64Array:
        """About how many bytes each row is, for the size of groups."""
        return payloads.lengths  # type: ignore[no-any-return]

    def records(self, rows: RowBatch) -> Iterator[list[Any]]:
        """`one` of each row, decoded in groups, or one by one if a group has a bad record."""
        ends = np.cumsum(self.weights(rows.payloads))
        first = 0
        while first < len(rows):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + _GROUP_BYTES, "right")))
            part = rows.part(first, min(last, first + _GROUP))
            part.check()
            try:
                made = self.dicts(part.payloads)
            except LOCATED_ERRORS:
                yield from self._one_by_one(part)
            else:
                yield made
            first += len(part)

    def _one_by_one(self, rows: RowBatch) -> Iterator[list[Any]]:
        for row in range(len(rows)):
            payload = rows.payloads.view(row)
            try:
                yield [self.one(payload)]
            except LOCATED_ERRORS as error:
                located = error.at(*rows.locate(row))
                if not self.policy.skips or not is_damage(payload, error):
                    raise located from None
                self.policy.handle(located)
