"""Serialized `tf.train.Example` and `SequenceExample` messages to columns and to dicts."""

from __future__ import annotations

from itertools import chain
from typing import Any

from indexer.options import check_threads, suggests_options
from tfrecord._columns.batch import ColumnBatch, SequenceBatch
from tfrecord._columns.decoding import as_payloads, decode_batch, decode_record
from tfrecord._kernels.engine import decode_kernel as kernel
from tfrecord.features import FeaturePlan, compile_features

__all__ = [
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
]

# The last requests that were dicts: their keys and values in turn, and the plan.
_plans: dict[int, tuple[tuple[Any, ...], FeaturePlan]] = {}
_MOST_PLANS = 64
_NO_ITEMS: tuple[tuple[Any, ...], FeaturePlan] = ((), compile_features(None))


@suggests_options
def parse_example(serialized: Any, features: Any = None, *, num_threads: int = 1) -> ColumnBatch:
    """Decode a batch of serialized `tf.train.Example` messages to columns.

    Args:
        serialized: a sequence of n bytes-likes, or a `BytesColumn`. Bytes columns of the result point into
            it.
        features: see `tfrecord.features.compile_features`; None takes every feature found in the batch,
            ragged.
        num_threads: threads to decode with, at least 1; the result is the same.

    Returns:
        A `ColumnBatch` of n rows. It owns its numeric arrays, which are writable. If neither the request nor
        any record says what type a column has, its values are an empty array of dtype object.

    Raises:
        DecodeError: a payload is not a valid message, has the wrong number of values, or has a value that
            does not fit.
        MissingFeatureError: a FixedLenFeature without a default is missing or empty.
        FeatureKindError: a feature has another type than requested, or its type differs between records.

    Each error has ``record``, the row within the batch (the first bad one), and ``key`` if it is known.

    >>> batch = parse_example([b"\\n\\x0c\\n\\n\\n\\x01a\\x12\\x05\\x1a\\x03\\n\\x01\\x07"], {"a": "int"})
    >>> batch["a"].to_list()
    [[7]]
    """
    return decode_batch(  # type: ignore[return-value]
        as_payloads(serialized), _plan(features), num_threads=check_threads(num_threads)
    )


@suggests_options
def parse_single_example(serialized: Any, features: Any = None) -> dict[str, Any]:
    """Decode one serialized Example to a dict.

    One bytes value is `bytes`, several are an object array; numbers are owned arrays. An absent feature is an
    empty array of the declared type, or None if no type is known; a FixedLenFeature follows its own rule.

    The errors are those of `parse_example`.
    """
    return decode_record(_payload(serialized), _plan(features))  # type: ignore[return-value]


@suggests_options
def parse_sequence_example(
    serialized: Any, context_features: Any = None, sequence_features: Any = None, *, num_threads: int = 1
) -> SequenceBatch:
    """Decode a batch of serialized `tf.train.SequenceExample` messages; arguments and errors are those of
    `parse_example`.

    A column of a feature list is a Ragged over steps, which holds a Ragged, or the dense steps of a
    FixedLenFeature. A step without a type is an empty step.
    """
    return decode_batch(  # type: ignore[return-value]
        as_payloads(serialized),
        _plan(context_features),
        sequence_plan=_plan(sequence_features),
        num_threads=check_threads(num_threads),
    )


@suggests_options
def parse_single_sequence_example(
    serialized: Any, context_features: Any = None, sequence_features: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decode one serialized SequenceExample to the pair of dicts (context, feature lists).

    A feature list is a list with one item per step, each as `parse_single_example` returns a feature.
    """
    return decode_record(  # type: ignore[return-value]
        _payload(serialized), _plan(context_features), _plan(sequence_features)
    )


def _payload(serialized: Any) -> Any:
    if isinstance(serialized, str):
        raise TypeError("a serialized message must be bytes, not str")
    return serialized


def _plan(features: Any) -> FeaturePlan:
    """`compile_features`, which remembers the last dicts: hashing 40 specs costs more than decoding a record.

    A dict that was changed since holds other objects, and so does another dict with the same id.
    """
    if type(features) is not dict:
        return compile_features(features)
    items, plan = _plans.get(id(features), _NO_ITEMS)
    if not kernel.same_items(features, items):
        held = features.copy()  # another thread may change it
        plan = compile_features(held)
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[id(features)] = tuple(chain.from_iterable(held.items())), plan
    return plan
