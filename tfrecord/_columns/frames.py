"""Tables of other libraries as Arrow record batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfrecord._optional import optional


def is_table(data: Any) -> bool:
    """Whether this is a table that `record_batches` takes. Imports nothing."""
    return _is_pandas(data) or any(hasattr(data, f"__arrow_c_{kind}__") for kind in ("stream", "array"))


def record_batches(data: Any) -> list[Any]:
    """The record batches (at least one) of Arrow data from any library, or of a pandas DataFrame.

    Raises TypeError for anything else.
    """
    pa = optional("pyarrow")
    if isinstance(data, pa.RecordBatch):
        return [data]
    if not isinstance(data, pa.Table):
        data = _table(data)
    return data.to_batches() or [
        pa.record_batch([_no_rows(kind) for kind in data.schema.types], data.schema.names)
    ]


def _no_rows(kind: Any) -> Any:
    """An array without rows. For categories it has the type of their values: pyarrow cannot make all types
    of categories."""
    pa = optional("pyarrow")
    return pa.nulls(0, kind.value_type if pa.types.is_dictionary(kind) else kind)


def _is_pandas(data: Any) -> bool:
    kind = type(data)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _table(data: Any) -> Any:
    pa = optional("pyarrow")
    if _is_pandas(data):
        return _pandas_table(data)
    if not is_table(data):
        raise TypeError(
            f"got {type(data).__name__}, expected a table: an Arrow RecordBatch or Table, a DataFrame, or "
            "another object with __arrow_c_stream__"
        )
    if type(data).__module__.partition(".")[0] == "polars":
        for name, kind in getattr(data, "schema", {}).items():  # a Series has none
            if "Object" in str(kind):  # polars would hand out addresses
                raise TypeError(f"column {name!r} holds Python objects (polars type {kind}): cast it first")
    try:
        return pa.table(data)
    except pa.ArrowInvalid as error:
        raise TypeError(f"the {type(data).__name__} is not a table: {error}") from None


def _pandas_table(frame: Any) -> Any:
    """A DataFrame without its index."""
    pa = optional("pyarrow")
    for name in frame.columns:
        if not isinstance(name, str):
            raise TypeError(f"a column name must be a str, not {name!r}")
    arrays = [_pandas_array(frame.iloc[:, i], name) for i, name in enumerate(frame.columns)]
    return pa.Table.from_arrays(arrays, list(frame.columns))


def _pandas_array(series: Any, name: str) -> Any:
    pa = optional("pyarrow")
    if isinstance(series.dtype, optional("pandas").SparseDtype):
        series = series.sparse.to_dense()
    if isinstance(series.dtype, np.dtype):
        if series.dtype.kind in "biuf":
            return pa.array(series.to_numpy())  # a NaN is a value here, as in numpy
    try:
        if series.dtype == object:
            # Within a row a NaN is a value, so only whole rows are checked.
            rows = zip(series, series.isna(), strict=True)
            return pa.array([None if missing else _flat_row(row) for row, missing in rows])
        return pa.array(series, from_pandas=True)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise TypeError(
            f"column {name!r} does not have values of one type that a feature can hold: {reason}"
        ) from None


def _flat_row(value: Any) -> Any:
    """Flatten a row: Arrow takes rows of one dimension, and a feature's values are flat."""
    return value.reshape(-1) if isinstance(value, np.ndarray) and value.ndim > 1 else value
