"""The records of a split as one Arrow table, with the same schema for every split of a dataset."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from indexer.errors import DecodeError
from indexer.options import listed, near_matches
from tfrecord._columns.batch import BytesColumn
from tfrecord._kernels.engine import decode_kernel as kernel
from tfrecord._optional import optional
from tfrecord._reading.decoder import Batch, RecordDecoder
from tfrecord._reading.index_columns import first_records
from tfrecord._reading.rows import RowBatch
from tfrecord._reading.view import RecordView
from tfrecord.features import FeaturePlan, VarLenFeature, compile_features
from tfrecord.schema import FeatureSchema, merge_schemas, typed_plan
from tfrecord.splits import Split

__all__ = ["PATH", "RECORD", "BlockPlan", "plan_blocks", "read_block"]

# The column with the file of each record, and the column of records that are not messages.
PATH = "path"
RECORD = "record"
# Payloads are decoded in steps of about this many bytes.
_STEP_BYTES = 16 << 20
# How many records of each file are read to find the features, if no index lists them.
_FIRST_RECORDS = 64
# Ray's name for the column of a block that has rows but no columns, as when it only counts.
_STUB = "__bsp_stub"
_ATTEMPTS = 5
# System errors that retrying does not fix.
_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)

Keys = tuple[frozenset[str], frozenset[str]]


@dataclass(frozen=True)
class BlockPlan:
    """The form of every block of a dataset.

    ``schema`` is its Arrow schema. ``columns`` are the features to decode, None for all. ``keys`` are the
    features and feature lists in the first records of each file, if nothing else lists the features: a
    record with any other feature does not match the schema.
    """

    schema: Any
    record_type: str
    columns: tuple[str, ...] | None
    include_paths: bool
    keys: Keys | None = None

    def select(self, names: Iterable[str] | None) -> BlockPlan:
        """Only these columns of the schema."""
        if names is None:
            return self
        fields = [self.schema.field(name) for name in names]
        schema = optional("pyarrow").schema(fields, self.schema.metadata)
        if self.record_type == "bytes":
            return replace(self, schema=schema)
        wanted = [name for name in schema.names if not (self.include_paths and name == PATH)]
        if self.record_type == "sequence_example":
            wanted = [name.partition("/")[2] for name in wanted]
        return replace(self, schema=schema, columns=tuple(dict.fromkeys(wanted)), keys=None)


# ---- in the driver -------------------------------------------------------------------------------------


def plan_blocks(reader: Any, columns: Iterable[str] | None, include_paths: bool) -> BlockPlan:
    """Decide the form of a reader's blocks, and make the reader decode exactly that.

    The schema follows from the reader's features, or else from the extended indexes: a column is dense if
    all records have the same shape. If a file has no index, the features come from its first records, and
    every column is a `large_list`.

    Raises:
        KeyError: ``columns`` names an unknown feature. FeatureKindError: a feature has two kinds.
        ValueError: the path column would have the name of a feature. TypeError: the reader is a TFDS reader.
    """
    view: RecordView = reader._view
    decoder = view.decoder
    if type(decoder) is not RecordDecoder:
        raise TypeError(
            f"{type(reader).__name__} gives nested examples, which are not table rows: "
            "map over tfrecord.make_splits(reader), or read its files with features="
        )
    view.prepare()
    sampled = _is_open(decoder)
    if decoder.record_type != "bytes":
        _settle_features(view)
    names = None if columns is None else tuple((columns,) if isinstance(columns, str) else columns)
    if names is not None:
        _check_names(decoder, names)
    empty = decoder.batch(BytesColumn.from_list([]), lambda row: ("", row), names)
    schema = _record_batch(empty).schema
    if include_paths:
        if PATH in schema.names:
            raise ValueError(f"include_paths=True adds a column {PATH!r}, but a feature has that name")
        schema = schema.append(optional("pyarrow").field(PATH, "string"))
    keys = None
    if sampled and names is None:
        keys = tuple(frozenset(plan.names or ()) for plan in decoder.dense or ())
    return BlockPlan(schema, view.record_type, names, include_paths, keys)  # type: ignore[arg-type]


def _is_open(decoder: RecordDecoder) -> bool:
    """Whether the columns of a batch still depend on its records."""
    if decoder.record_type == "bytes":
        return False
    plan, lists = decoder.dense or (decoder.plan, decoder.sequence_plan)
    return plan.columns is None or (decoder.record_type == "sequence_example" and lists.columns is None)


def _settle_features(view: RecordView) -> None:
    """Give all columns a type: that of the indexes, or of each file's first records; then all are ragged."""
    store, decoder = view.store, view.decoder
    record_type = view.record_type
    plan, lists = decoder.dense or (decoder.plan, decoder.sequence_plan)
    if plan.is_typed and (lists.is_typed or record_type != "sequence_example"):
        return
    parts = [
        (path, first_records(store, number, _FIRST_RECORDS, record_type))
        for number, path in enumerate(store.paths)
    ]
    schema = merge_schemas(parts, record_type)
    decoder.dense = (
        _ragged(schema) if plan.columns is None else typed_plan(plan, schema),
        _ragged(schema.feature_lists) if lists.columns is None else typed_plan(lists, schema.feature_lists),
    )


def _ragged(features: Any) -> FeaturePlan:
    found: dict[str, FeatureSchema] = dict(features)
    specs = {key: VarLenFeature(one.kind) for key, one in found.items() if one.kind != "unknown"}
    return compile_features(specs) if specs else FeaturePlan(())


def _check_names(decoder: RecordDecoder, names: tuple[str, ...]) -> None:
    if decoder.record_type == "bytes":
        raise ValueError("records of bytes have no columns to choose from")
    plans = decoder.dense or ()
    known = [name for plan in plans for name in plan.names or ()]
    for name in names:
        if name not in known:
            raise KeyError(f"no feature {name!r}{near_matches(name, known)}; there are {listed(known)}")


def _record_batch(batch: Batch) -> Any:
    """The batch as Arrow arrays that own their memory, because they go to other processes."""
    if isinstance(batch, BytesColumn):
        made = optional("pyarrow").record_batch([batch.to_arrow(binary_views=False)], [RECORD])
        return made.replace_schema_metadata({"tfrecord.record_type": "bytes"})
    return batch.to_arrow(binary_views=False)


# ---- in the workers ------------------------------------------------------------------------------------


def read_block(split: Split, plan: BlockPlan, limit: int | None = None) -> Any:
    """The records of a split as a pyarrow Table; with ``limit``, at least the first ``limit`` records.

    System errors are retried a few times; damage is not.
    """
    for turn in range(_ATTEMPTS):
        try:
            return _read(copy.copy(split), plan, limit)
        except OSError as error:
            if turn == _ATTEMPTS - 1 or isinstance(error, _LASTING):
                raise
            time.sleep(0.1 * 2**turn)
    raise AssertionError("the last attempt returns or raises")


def _read(split: Split, plan: BlockPlan, limit: int | None) -> Any:
    pa = optional("pyarrow")
    tables, count = [], 0
    size = max(1, split.num_rows * _STEP_BYTES // max(split.num_bytes, _STEP_BYTES))
    decode = None if plan.keys is None else partial(_decoded, split.reader()._view.decoder, plan)
    for path, batch in split._walk(size, plan.columns, plan.include_paths, decode):
        made = _record_batch(batch)
        table = pa.Table.from_batches([made])
        if not plan.schema.names:
            table = pa.table({_STUB: pa.nulls(made.num_rows)})
        elif plan.include_paths:
            table = table.append_column(PATH, pa.repeat(path, made.num_rows))
        tables.append(table.select(plan.schema.names or [_STUB]))
        count += made.num_rows
        if limit is not None and count >= limit:
            break
    return pa.concat_tables(tables) if tables else plan.schema.empty_table()


def _decoded(decoder: RecordDecoder, plan: BlockPlan, rows: RowBatch) -> list[Batch]:
    """Batches of payloads that may have features that are not in the schema."""
    free = copy.copy(decoder)
    free.dense = None
    batches: list[Batch] = list(free.batches(rows, None, False, 1))
    if all(_fits(_record_batch(batch).schema, plan) for batch in batches):
        return batches
    assert plan.keys is not None
    _check_keys(rows, plan.keys)
    return list(decoder.batches(rows, None, False, 1))


def _fits(schema: Any, plan: BlockPlan) -> bool:
    fields = {
        field.name: field.type for field in plan.schema if not (plan.include_paths and field.name == PATH)
    }
    return fields == {field.name: field.type for field in schema}


def _check_keys(rows: RowBatch, keys: Keys) -> None:
    """Raise if a record has a feature that is not in the schema."""
    if _strange_key(rows, keys) is None:
        return
    for row in range(len(rows)):
        key = _strange_key(rows.part(row, row + 1), keys)
        if key is not None:
            path, record = rows.locate(row)
            reason = (
                f"is not among the features of the first {_FIRST_RECORDS} records of each file, which "
                "define the schema. Give features=, or build indexes, which list all features (index='build')"
            )
            raise DecodeError(reason, key=key, path=path, record=record)


def _strange_key(rows: RowBatch, keys: Keys) -> str | None:
    for buffer, offsets, lengths in _by_buffer(rows.payloads):
        status, _, _, *tables = kernel.survey(buffer, offsets, lengths)
        if status and len(offsets) > 1:
            return ""  # the kernel stopped at a record that is not a message: check each one
        for table, known in zip(tables, keys, strict=True):
            for key, entry in () if status else table.items():
                if key not in known and entry is not None and entry[0] & 0b1110:
                    return key
    return None


def _by_buffer(payloads: BytesColumn) -> Iterator[tuple[Any, Any, Any]]:
    if payloads.buffer_ids is None:
        yield payloads.buffers[0], payloads.offsets, payloads.lengths
        return
    for number in np.unique(payloads.buffer_ids).tolist():
        here = payloads.buffer_ids == number
        yield payloads.buffers[number], payloads.offsets[here], payloads.lengths[here]
