"""`read_tfrecords`: TFRecord files as a Ray dataset."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import ray
from ray import cloudpickle
from ray.data import Dataset, read_datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from indexer.options import check_options
from tfrecord.ray.blocks import BlockPlan, plan_blocks, read_block
from tfrecord.ray.skips import SkipLog, warn_after_each_pass
from tfrecord.reader import TFRecordReader
from tfrecord.splits import Split, make_splits, reader_of

__all__ = ["TFRecordDatasource", "read_tfrecords"]


def read_tfrecords(
    paths: Any,
    *,
    columns: Iterable[str] | None = None,
    features: Any = None,
    sequence_features: Any = None,
    index: Any = "auto",
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    include_paths: bool = False,
    **reader_options: Any,
) -> Dataset:
    """TFRecord files as a `ray.data.Dataset` of Arrow blocks.

    Every block has the same schema. It comes from ``features``, or else from the extended indexes of all
    files (a feature with the same shape in all records is a plain column, others are `large_list`), or else
    from each file's first records (every column is a `large_list`). A record that does not match is an error
    with file, record and key. Columns of SequenceExamples are called ``context/NAME`` and
    ``feature_lists/NAME``; records that are not messages give one column ``record``.

    Args:
        paths: files, globs, folders, or a `tfrecord.TFRecordReader`, whose options then apply. Workers must
            find the files at the same paths.
        columns: features to read; None: all. (If Ray can, it drops unused columns before reading.)
        features, sequence_features, index: as for `tfrecord.TFRecordReader`. With an index, `count` reads no
            data.
        override_num_blocks: None: blocks of about 64 MiB, but at least one per CPU.
        concurrency, ray_remote_args: as in Ray's own ``read_...`` functions.
        include_paths: add a column ``path`` with the file of each record.
        reader_options: other options of `tfrecord.TFRecordReader`. With ``on_error="skip"``, ``max_skips``
            counts over all workers, the number of rows is known only after reading, and the driver warns at
            the end of each pass with the number of records skipped so far.

    Raises:
        KeyError, FeatureKindError, ValueError: the columns do not match the data.

    `tfrecord.make_splits` raises for bad files. While the dataset is read, damage raises
    `CorruptRecordError`, `CompressionError` or `DecodeError` at once; an `OSError` is raised after a few
    attempts.
    """
    check_options(read_tfrecords, reader_options, list(inspect.signature(TFRecordReader).parameters))
    options = dict(features=features, sequence_features=sequence_features, **reader_options)
    if hasattr(paths, "_view"):
        options = {name: value for name, value in options.items() if value is not None}
    reader = reader_of(paths, index, options)
    if reader is paths:  # the code below changes it
        reader = cloudpickle.loads(cloudpickle.dumps(reader))
    policy, skips = reader._view.store.policy, None
    if policy.skips:
        skips = SkipLog(policy.on_error, policy.max_skips)
        policy.on_error, policy.max_skips = skips, None
    plan = plan_blocks(reader, columns, include_paths)
    splits = _splits(reader, override_num_blocks)
    dataset = read_datasource(
        TFRecordDatasource(splits, plan, counted=skips is None),
        override_num_blocks=max(1, len(splits)),
        concurrency=concurrency,
        **_remote_options(ray_remote_args or {}),
    )
    if skips is not None:
        warn_after_each_pass(dataset.context, skips)
    return dataset


def _splits(reader: Any, count: int | None) -> list[Split]:
    if count is not None:
        return make_splits(reader, count)
    splits = make_splits(reader)
    cpus = int(ray.cluster_resources().get("CPU", 1))
    return splits if len(splits) >= cpus else make_splits(reader, cpus)


def _remote_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of Ray tasks in the form of this Ray version: newer ones have arguments instead of a dict."""
    named = inspect.signature(read_datasource).parameters
    options = {name: value for name, value in given.items() if name in named}
    rest = {name: value for name, value in given.items() if name not in named}
    return {**options, "ray_remote_args": rest} if rest else options


class TFRecordDatasource(Datasource):  # type: ignore[misc]
    """The splits of a dataset as read tasks, one block each.

    ``counted``: whether the number of rows of a split is known for certain.
    """

    def __init__(self, splits: list[Split], plan: BlockPlan, *, counted: bool) -> None:
        super().__init__()
        self._split_list = splits
        self._plan = plan
        self._counted = counted
        self._projection_map: dict[str, str] | None = None

    def estimate_inmemory_data_size(self) -> int:
        return sum(split.num_bytes for split in self._split_list)

    def supports_projection_pushdown(self) -> bool:
        # Some versions of Ray expect the read to rename columns too; those drop columns after reading.
        return hasattr(Datasource, "get_projection_map") and not hasattr(Datasource, "get_column_renames")

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        plan = self._plan.select(self._projection_map)
        if not self._split_list:
            metadata = BlockMetadata(0, 0, input_files=None, exec_stats=None)
            return [ReadTask(lambda: [plan.schema.empty_table()], metadata, schema=plan.schema)]
        return [self._task(split, plan, per_task_row_limit) for split in self._split_list]

    def _task(self, split: Split, plan: BlockPlan, limit: int | None) -> ReadTask:
        def read() -> list[Any]:
            return [read_block(split, plan, limit)]

        rows = split.num_rows if self._counted else None
        metadata = BlockMetadata(rows, split.num_bytes, input_files=list(split.paths), exec_stats=None)
        limited = {} if limit is None else {"per_task_row_limit": limit}
        return ReadTask(read, metadata, schema=plan.schema, **limited)
