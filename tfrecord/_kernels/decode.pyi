"""Kernel: tf.Example wire bytes to columns, and to dicts of single records.

`decode_reference` is its twin.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

# Key; kind (0 any, 1 bytes, 2 float, 3 int64); shape of a dense row, None: ragged; a dense row of defaults
# (the stored dtype's bytes), None: a missing or empty row is a failure. A ragged column with b"" may be
# missing from a single record; in a batch any may.
_Request = tuple[str, int, tuple[int, ...] | None, bytes | None]
# Status (see `codes`), row, key, two numbers that say more, step of a feature list (-1: none).
_Failure = tuple[int, int, str | None, int, int, int]
# Offsets and lengths (int64) and buffer ids (int32; None where none were given), or numbers; None: no kind
# known.
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
    """Decodes records to the columns that it was made for. It holds no state of a batch, so threads may share
    it.

    `columns` of an Example, or of the context of a SequenceExample: None for all that are found. `lists`:
    False for an Example, else the feature lists. `simd` is a level of SIMD_LEVELS, -1 the processor's best;
    ValueError where the processor does not have it. `plain` says that all columns are dense and hold numbers,
    and that `decode` is to give them as a dict.
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
        """Decode the payloads at these places; without `offsets` every buffer is one.

        With `bad`, payloads that are not valid are left out, and their rows and statuses are added to the
        list. Only what is read for the columns is checked. A wrong kind or number of values is still a
        failure.

        Gives a failure, or what was found of features and of feature lists: which records have which column,
        and the columns (key, kind, splits, values), or for lists (key, kind, splits of steps, present steps,
        splits, values), in the order asked or found. A plain decoder gives a new dict of key to values.

        `splits` (int64, from 0 on, one more than rows) is None for a dense column, whose values have its
        shape. Arrays are new; byte strings are places in `buffers`, which are read only within the call.

        Raises:
            ValueError: a payload lies outside its buffer, or the arrays do not fit each other.
            MemoryError: the columns do not fit into memory.
        """

    def record(self, payload: Any) -> tuple[_Failure | None, dict[str, Any], dict[str, Any]]:
        """A failure, or one record as dicts: bytes, object arrays, arrays of numbers, None without a kind.

        Of the requests count key, kind, and whether there is a default: without one a missing feature is a
        failure, and so is a dense one without a kind."""

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
    """Sizes in bytes, or the place of the first that is no contiguous bytes-like."""

def empty(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """An array of anything; a large one uses memory that the library keeps and reuses."""

def gather(
    buffers: tuple[Any, ...],
    offsets: npt.NDArray[np.int64],
    buffer_ids: npt.NDArray[np.int32] | None,
    out: Any,
) -> None:
    """Copy byte strings of one length into the rows of `out` (uint8, two dimensions, C order).

    Raises:
        ValueError: one lies outside its buffer.
    """

def decode_varints(data: Any, simd: int = -1) -> npt.NDArray[np.int64] | int:
    """The values of a packed run, or the status that says what is wrong with it."""

def record_class(payload: Any) -> int:
    """What a payload says about the records of its file: a `RecordClass` of `codes`. Every
    value is checked."""

def survey(
    buffer: Any, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[int, int, bool, dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Which features the records at these places have, without decoding values.

    Gives a status (0, or why a record is not a valid message), the number of records before that one, whether
    any has feature lists, and for each key of features and of feature lists: kinds (bits 1 << kind), records
    that have it, least and most values (steps), least and most values per step (2**63 - 1 and -1 where there
    are none).
    """

def check_records(
    buffers: tuple[Any, ...],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    buffer_ids: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[np.uint8]:
    """A status (see `codes`) for each of the records at these places: 0 for a valid message, Example
    or SequenceExample; else what is wrong where it first is. All of it is checked, nothing is kept.

    Raises:
        ValueError: a record lies outside the buffer, or the arrays do not fit each other.
    """
