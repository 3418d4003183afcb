"""Serialized `ExampleListWithContext` messages of TF-Ranking to columns."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError
from indexer.options import check_threads, suggests_options
from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord._columns.decoding import as_payloads, decode_batch
from tfrecord._kernels.codes import REASONS, RecordClass
from tfrecord._kernels.record_type import classify
from tfrecord._kernels.wire_reference import WireError, fields
from tfrecord.features import FeaturePlan, compile_features

__all__ = ["parse_example_list"]

_EXAMPLES, _CONTEXT = 1, 2
_LENGTH_PREFIXED = 2
_MESSAGES = (RecordClass.EXAMPLE, RecordClass.SEQUENCE)


@suggests_options
def parse_example_list(
    payloads: Any, context_features: Any = None, example_features: Any = None, *, num_threads: int = 1
) -> SequenceBatch:
    """Decode a batch of serialized `ExampleListWithContext` messages, as TF-Ranking writes them, to columns.

    Such a message holds any number of `tf.train.Example` messages (field 1, for instance the documents that
    a search found) and one more that they share, the context (field 2, for instance the query).

    Args:
        payloads: a sequence of n bytes-likes, or a `BytesColumn`, such as a reader of these records gives.
            Bytes columns of the result point into it.
        context_features: features of the context, as `parse_example` takes them; None takes every feature
            that the batch has.
        example_features: the same, for the Examples of the lists.
        num_threads: threads to decode with, at least 1; the result is the same.

    Returns:
        A `SequenceBatch` of n rows. `context` has the columns of the contexts; a message without a context
        counts as one with an empty context. `feature_lists` has the columns of the Examples: each is a
        `Ragged` whose row i has one entry for each Example of list i, in the order of the list (a row of a
        dense array, or a row of a `Ragged`). There, `present` says which lists have any Example with the
        feature.

    Raises:
        DecodeError: a payload is not a valid message, or one of its Examples or its context is not.
        MissingFeatureError, FeatureKindError: as `parse_example`.
            Each has ``record``, the row within the batch (the first bad one), and says which Example of the
            list is meant.

    >>> records = [b"\\n\\x13\\n\\x11\\n\\x0f\\n\\x05score\\x12\\x06\\x1a\\x04\\n\\x02\\x03\\x07"]
    >>> parse_example_list(records, {}, {"score": "int"}).feature_lists["score"].to_list()
    [[[3, 7]]]
    """
    context_plan, example_plan = compile_features(context_features), compile_features(example_features)
    threads = check_threads(num_threads)
    parts = _Parts(as_payloads(payloads))
    found: list[ColumnBatch] = []
    failures: list[Any] = [] if parts.failure is None else [parts.failure]
    for plan, of_context in ((context_plan, True), (example_plan, False)):
        try:
            found.append(_decoded(parts, plan, of_context, threads))
        except (DecodeError, FeatureKindError, MissingFeatureError) as error:
            failures.append(error)
    if failures:
        raise min(failures, key=attrgetter("record"))
    context, examples = found
    splits = parts.row_splits
    columns = {name: Ragged(column, splits) for name, column in examples.items()}
    return SequenceBatch(
        context, ColumnBatch(columns, _any_of_each(examples.present, splits), context.num_rows)
    )


class _Parts:
    """Where the Examples and the contexts of a batch lie, as far as the messages are valid.

    ``failure`` is the error of the first message that is not.
    """

    def __init__(self, payloads: Any) -> None:
        self.failure: DecodeError | None = None
        self.payloads = _views(payloads)
        self.buffers: list[Any] = []
        self._examples: list[tuple[int, int, int]] = []  # buffer, start, length
        self._contexts: list[tuple[int, int, int]] = []
        counts: list[int] = []
        for row, payload in enumerate(self.payloads):
            try:
                counts.append(self._add(payload))
            except WireError as error:
                reason = f"is not a valid ExampleListWithContext: {REASONS[error.args[0]]}"
                self.failure = DecodeError(reason, record=row)
                break
        self.row_splits = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))

    def _add(self, payload: memoryview) -> int:
        """The number of Examples in a message, all of which is read before any of it is kept."""
        number = len(self.buffers)
        examples, contexts = [], []
        for field, wire, start, end in fields(cast("bytes", payload), 0, len(payload), 0):
            if wire == _LENGTH_PREFIXED and field == _EXAMPLES:
                examples.append((number, start, end - start))
            elif wire == _LENGTH_PREFIXED and field == _CONTEXT:
                contexts.append((number, start, end - start))
        self.buffers.append(payload)
        self._examples += examples
        if len(contexts) > 1:  # one message in several pieces, which together are its bytes
            whole = b"".join(payload[start : start + length] for _, start, length in contexts)
            contexts = [(len(self.buffers), 0, len(whole))]
            self.buffers.append(whole)
        self._contexts += contexts or [(number, 0, 0)]
        return len(examples)

    def column(self, of_context: bool) -> BytesColumn:
        """The contexts, one for each message, or the Examples of all messages."""
        places = np.array(self._contexts if of_context else self._examples, np.int64).reshape(-1, 3)
        ids, starts, lengths = np.ascontiguousarray(places.T)
        return BytesColumn._trusted(tuple(self.buffers), starts, lengths, ids.astype(np.int32))


def _views(payloads: Any) -> list[memoryview]:
    if isinstance(payloads, BytesColumn):
        return [payloads.view(row) for row in range(payloads.size)]
    views = []
    for row, payload in enumerate(payloads.buffers):
        try:
            views.append(memoryview(payload).cast("B"))
        except TypeError:
            kind = type(payload).__name__
            raise TypeError(f"item {row} of the batch is not a bytes-like but {kind}") from None
    return views


def _decoded(parts: _Parts, plan: FeaturePlan, of_context: bool, num_threads: int) -> ColumnBatch:
    try:
        return cast("ColumnBatch", decode_batch(parts.column(of_context), plan, num_threads=num_threads))
    except (DecodeError, FeatureKindError, MissingFeatureError) as error:
        number = cast("int", error.record)
        if of_context:
            row, place = number, "the context"
        else:
            row = int(np.searchsorted(parts.row_splits, number, "right")) - 1
            place = f"Example {number - int(parts.row_splits[row])} of the list"
        hint = ""
        if isinstance(error, DecodeError) and classify(parts.payloads[row]) in _MESSAGES:
            hint = "; the record is a tf.train.Example or SequenceExample, not a list of Examples"
        raise type(error)(f"{error.reason} ({place}){hint}", key=error.key, record=row) from None


def _any_of_each(present: Any, splits: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.bool_]]:
    """For each list, whether any of its Examples has the feature."""
    flags = {}
    for name, has in present.items():
        counts = np.concatenate(([0], np.cumsum(has, dtype=np.int64)))
        flags[name] = counts[splits[1:]] > counts[splits[:-1]]
    return flags
