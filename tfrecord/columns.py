"""Batches of records as columns."""

from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch, TensorRagged, concat

__all__ = ["BytesColumn", "ColumnBatch", "Ragged", "SequenceBatch", "TensorRagged", "concat"]
