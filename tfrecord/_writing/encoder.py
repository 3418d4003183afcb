"""Values to the bytes of tf.train.Example and tf.train.SequenceExample, without protobuf.

The bytes are the shortest valid ones and depend only on the values and the order of the dict: the same in
both engines. Which values are accepted: `tfrecord._writing.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.framing import FRAME_OVERHEAD
from tfrecord._kernels import encode_reference
from tfrecord._kernels.engine import encode_kernel
from tfrecord._writing import values as _values
from tfrecord._writing.flat_columns import FlatBatch

__all__ = ["MAX_EXAMPLE_BYTES", "encode_example", "encode_sequence_example"]

Datum = Mapping[str, tuple[Any, str]]
# The same, or values as a reader returns them; for a SequenceExample the pair of both.
Record = Mapping[str, Any] | tuple[Mapping[str, Any], Mapping[str, Any]]

# protobuf, and so every reader of Examples, refuses messages of 2 GiB or more.
MAX_EXAMPLE_BYTES = 2**31 - 1

_kernel: Any = encode_kernel or encode_reference
# A bytes-like as a whole frame.
frame_bytes: Callable[[Any], bytes] = _kernel.frame
# Scalars whose conversion is exact and runs no Python code; all others go by the rules of `_values`.
_INT_SCALARS = frozenset({np.dtype(code).type for code in "bBhHiIlLqQ"})
_FLOAT_SCALARS = _INT_SCALARS | {np.float16, np.float32, np.float64}


def _too_large(key: object, size: int) -> None:
    expected = f"at most {MAX_EXAMPLE_BYTES} bytes (2 GiB - 1) in one Example"
    if key is not None:
        _values.refuse(ValueError, key, f"a record of at least {size} bytes", expected)
    raise ValueError(f"got a record of {size} bytes, expected {expected}")


def _new_encoder(split_spec: Callable[[Any, Any, bool], tuple[Any, int]]) -> Any:
    return _kernel.RecordEncoder(
        _values.TYPE_NAMES,
        _values.check_key,
        split_spec,
        _values.to_values,
        _values.to_steps,
        _too_large,
        np.ndarray,
        _INT_SCALARS,
        _FLOAT_SCALARS,
    )


_encoder = _new_encoder(_values.split_spec)
# Takes the values of a reader, too.
_frame_encoder = _new_encoder(_values.split_value)


def encode_example(datum: Datum) -> bytes:
    """One record as the bytes of a tf.train.Example.

    Args:
        datum: name to ``(value, typename)``, with typename ``"bytes"``/``"byte"``, ``"float"``/``"float32"``
            or ``"int"``/``"int64"`` (surrounding blanks are ignored). A value is a scalar, a list, tuple or
            array of any shape (written flat, in C order), or a CPU tensor; text is written as UTF-8. An empty
            list keeps its type. NumPy ``S`` arrays lose trailing zero bytes: keep exact bytes in a list or an
            object array.

    Raises:
        TypeError: a value has the wrong type (any float for an integer feature, None, numbers for bytes). The
            message names the feature.
        ValueError: a value does not fit (an integer beyond int64, a finite number beyond float32, a ragged
            list, an unknown type name, an Example of 2 GiB or more). The message names the feature.

    >>> encode_example({"label": (3, "int")}).hex(" ")
    '0a 10 0a 0e 0a 05 6c 61 62 65 6c 12 05 1a 03 0a 01 03'
    """
    return _encode(datum, None, False)


def encode_sequence_example(context: Datum, sequence: Datum) -> bytes:
    """One record as the bytes of a tf.train.SequenceExample.

    `context` is as for `encode_example`. In `sequence` a value is a list of steps, each a scalar, list or
    array (of its own length); the first axis of an array counts the steps. Empty steps are kept. Errors as
    for `encode_example`.
    """
    if sequence is None:
        raise TypeError("the feature lists: got None, expected a dict {name: (list of steps, typename)}")
    return _encode(context, sequence, False)


def encode_frame(datum: Record, sequence: Mapping[str, Any] | None) -> bytes:
    """The complete frame of one record: an Example, or with `sequence` a SequenceExample.

    Values that come from a reader need no type name.
    """
    if type(datum) is tuple and sequence is None and len(datum) == 2:
        datum, sequence = datum
    return _encode(datum, sequence, True)


def _encode(datum: Any, sequence: Any, framed: bool) -> bytes:
    if type(datum) is not dict:
        datum = dict(_values.check_datum(datum, "the record"))
    if sequence is not None and type(sequence) is not dict:
        sequence = dict(_values.check_datum(sequence, "the feature lists"))
    encoder = _frame_encoder if framed else _encoder
    encoded: bytes = encoder.encode(datum, sequence, MAX_EXAMPLE_BYTES, framed)
    return encoded


class RowFrames:
    """The rows of a batch, measured and ready to be encoded one run at a time.

    `lengths` holds the size of each payload in bytes (uint64). If a row cannot be one record, raises a
    ValueError that names row and feature.
    """

    def __init__(self, rows: FlatBatch) -> None:
        self.lengths: npt.NDArray[np.uint64] = np.zeros(rows.num_rows, np.uint64)
        self._encoder = _kernel.RowEncoder(
            rows.columns, rows.num_rows, rows.num_context, rows.is_sequence, MAX_EXAMPLE_BYTES
        )
        status, row, column = self._encoder.measure(self.lengths)
        if status:
            key = rows.columns[column].key.decode() if column < len(rows.columns) else ""
            problems = {
                1: "row splits that fall or lie outside the values",
                2: "a byte string outside its buffer",
            }
            got = f"in row {row} {problems.get(status, 'a record of 2 GiB or more')}"
            _values.refuse(ValueError, key, got, "one Example per row")

    def size(self, start: int, stop: int, step: int = 1) -> int:
        """The size of the frames of these rows in bytes."""
        lengths = self.lengths[start:stop:step]
        return int(lengths.sum()) + FRAME_OVERHEAD * len(lengths)

    def frames(self, start: int, stop: int, step: int = 1) -> bytes:
        """The frames of these rows, one after another. The GIL is released."""
        encoded: bytes = self._encoder.frames(start, stop, step, self.size(start, stop, step))
        return encoded
