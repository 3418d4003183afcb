"""What columns and batches offer to other libraries, all of it by way of `to_arrow`."""

from __future__ import annotations

from typing import Any

from indexer.options import suggests_options
from tfrecord._columns.tables import Text, pandas_of
from tfrecord._optional import optional

__all__ = ["ArrowBatch"]


class ArrowBatch:
    """The common part of `ColumnBatch` and `SequenceBatch`, which have `to_arrow`."""

    __slots__ = ()

    @suggests_options
    def to_pandas(self: Any, *, text: Text = False, nullable: bool = False) -> Any:
        """A pandas DataFrame of the columns of `to_arrow`; the options are those of `to_arrow`.

        With `nullable`, numbers have pandas' nullable types (`Int64`, `Float32`, ...). Raises ImportError,
        which says how to install a missing package.
        """
        optional("pandas")
        return pandas_of(self.to_arrow(text=text, nullable=nullable), nullable)

    @suggests_options
    def to_polars(self: Any, *, text: Text = False, nullable: bool = False) -> Any:
        """A polars DataFrame of the columns of `to_arrow`; the options are those of `to_arrow`."""
        return optional("polars").from_arrow(self.to_arrow(text=text, nullable=nullable))

    def __arrow_c_stream__(self: Any, requested_schema: object | None = None) -> Any:
        """For pyarrow, polars, DuckDB and others: a stream of the one RecordBatch of `to_arrow()`."""
        batch = self.to_arrow()
        reader = optional("pyarrow").RecordBatchReader.from_batches(batch.schema, [batch])
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_array__(self: Any, requested_schema: object | None = None) -> Any:
        """For pyarrow and others: the capsules of `to_arrow()`."""
        return self.to_arrow().__arrow_c_array__(requested_schema)

    def __arrow_c_schema__(self: Any) -> Any:
        """For pyarrow and others: the schema of `to_arrow()`."""
        return self[:0].to_arrow().schema.__arrow_c_schema__()

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Any:
        # Without this, numpy and pandas.DataFrame() would take the column names for the data.
        raise TypeError(f"a {type(self).__name__} is not an array: take its columns, or call to_pandas()")
