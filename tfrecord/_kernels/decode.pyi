"""Kernel: decodes tf.Example wire bytes to columns, and single records to dicts.

`decode_reference` does the same in Python.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

# Key; kind (0 any, 1 bytes, 2 float, 3 int64); shape of a dense row, None: ragged; a dense row of defaults
# (bytes in the stored dtype), None: a missing or empty row is a failure. A single record may lack a ragged
# column with b""; in a batch, any ragged column may be absent.
_Request = tuple[str, int, tuple[int, ...] | None, bytes | None]
# Status (see `codes`), row, key, two numbers with details, step of a feature list (-1: none).
_Failure = tuple[int, int, str | None, int, int, int]
# Offsets and lengths (int64) and buffer ids (int32; None if none were given), or numbers; None: unknown kind.
_Values = (
    tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32] | None]
    | npt.NDArray[Any]
    | None
)

# Presence, bool (columns, records), and the columns.
_Found = tuple[npt.NDArray[np.bool_], list[tuple[Any, ...]] | dict[str, npt.NDArray[Any]]]

SIMD_LEVELS: dict[str, int]
BEST_LEVEL: int

class Decoder:
    """Decodes records to the requested columns. It has no state of a batch, so threads may share it.

    `columns` are those of an Example, or of the context of a SequenceExample; None: all that are found.
    `lists`: False for an Example, else the feature lists. `simd` is a level of SIMD_LEVELS, or -1 for the
    best one; ValueError if the processor does not have it. `plain` says that all columns are dense and hold
    numbers; `decode` then returns them as a dict.
    """

    def __init__(
        self,
        columns: tuple[_Request, ...] | None,
        lists: tuple[_Request, ...] | bool | None = False,
        simd: int = -1,
        plain: bool = False,
    ) -> None: ...
    def decode(
        self,
        buffers: tuple[Any, ...],
        offsets: npt.NDArray[np.int64] | None,
        lengths: npt.NDArray[np.int64] | None,
        buffer_ids: npt.NDArray[np.int32] | None,
        num_threads: int = 1,
        bad: list[tuple[int, int]] | None = None,
    ) -> tuple[_Failure | None, _Found | None, _Found | None]:
        """Decode the payloads at these places; without `offsets`, every buffer is one payload.

        With `bad`, invalid payloads are left out, and their rows and statuses are added to the list. Only the
        bytes that are read for the columns are checked. A wrong kind or number of values is still a failure.

        Returns a failure, or the features and the feature lists: which records have which column, and the
        columns (key, kind, splits, values), or for lists (key, kind, splits of steps, present steps, splits,
        values), in the order requested or found. A plain decoder returns a new dict of key to values.

        `splits` (int64, starts at 0, one more than rows) is None for a dense column, whose values have its
        shape. Arrays are new; byte strings are offsets into `buffers`, which are read only during the call.

        Raises:
            ValueError: a payload is outside its buffer, or the arrays do not match each other.
            MemoryError: the columns do not fit into memory.
        """

    def record(self, payload: Any) -> tuple[_Failure | None, dict[str, Any], dict[str, Any]]:
        """A failure, or one record as dicts of bytes, object arrays, arrays of numbers, and None for an
        unknown kind.

        Of a request, only key, kind and whether there is a default matter. Without a default, a missing
        feature is a failure, and so is a dense one without a kind."""

    def records(
        self, payloads: tuple[Any, ...], shapes: tuple[tuple[int, ...] | None, ...] | None = None
    ) -> list[dict[str, Any]]:
        """The first payloads as dicts, as `record` gives them, up to one that it must be asked for.

        `shapes` has an entry for each column: None, or the shape of a dense column of numbers, which is
        checked, and filled with defaults. SequenceExamples must all be asked for.
        """

def same_items(request: dict[Any, Any], items: tuple[Any, ...]) -> bool:
    """Whether the keys and values of a dict, in turn, are these objects themselves."""

def lengths_of(buffers: tuple[Any, ...]) -> npt.NDArray[np.int64] | int:
    """Sizes in bytes, or the number of the first item that is not a contiguous bytes-like."""

def empty(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """An uninitialized array; a large one uses memory that the library keeps and reuses."""

def gather(
    buffers: tuple[Any, ...],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    buffer_ids: npt.NDArray[np.int32] | None,
    out: Any,
) -> None:
    """Copy byte strings one after another to `out`, which has exactly their bytes (contiguous, writable).

    Raises:
        ValueError: a byte string is outside its buffer, or `out` has another size.
    """

def decode_varints(data: Any, simd: int = -1) -> npt.NDArray[np.int64] | int:
    """The values of a packed run, or a status if it is not valid."""

def record_class(payload: Any) -> int:
    """What a payload says about the type of the records of its file: a `RecordClass` of `codes`. Every value
    is checked."""

def survey(
    buffer: Any, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[int, int, bool, dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Which features the records at these places have, without decoding values.

    Returns a status (0, or why a record is not a valid message), the number of records before that one,
    whether any has feature lists, and for each key of features and of feature lists: kinds (bits 1 << kind),
    number of records that have it, least and most values (steps), least and most values per step (2**63 - 1
    and -1 if there are none).
    """

def check_records(
    buffers: tuple[Any, ...],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    buffer_ids: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[np.uint8]:
    """A status (see `codes`) for each of the records at these places: 0 for a valid Example or
    SequenceExample, else that of the first invalid bytes. Every byte is checked.

    Raises:
        ValueError: a record is outside its buffer, or the arrays do not match each other.
    """
