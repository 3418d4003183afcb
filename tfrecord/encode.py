"""Values to the bytes of tf.train.Example and tf.train.SequenceExample, without protobuf.

The bytes are the shortest valid ones and depend only on the values and the order of the dict: the same in both
engines. What values are accepted: `tfrecord._values`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer.framing import frame_record
from tfrecord import _encode_reference
from tfrecord._values import check_datum

__all__ = ["MAX_EXAMPLE_BYTES", "encode_example", "encode_sequence_example"]

Datum = Mapping[str, tuple[Any, str]]

# protobuf, and so every reader of Examples, takes no message of 2 GiB or more.
MAX_EXAMPLE_BYTES = 2**31 - 1


def encode_example(datum: Datum) -> bytes:
    """One record as the bytes of a tf.train.Example.

    Args:
        datum: name to ``(value, typename)``, with typename ``"bytes"``/``"byte"``, ``"float"``/``"float32"`` or
            ``"int"``/``"int64"`` (blanks around it ignored). A value is a scalar, a list, tuple or array of any shape
            (written flat, in C order), a CPU tensor; text is written as UTF-8. An empty list keeps its kind.
            The items of a NumPy ``S`` array are what NumPy gives back, that is without trailing zero bytes: keep
            exact bytes in a list or an object array.

    Raises:
        TypeError: a value of the wrong type (a float for an integer feature, None, numbers for bytes).
        ValueError: a value that does not fit (an integer beyond int64, a finite number beyond float32, a ragged list,
            an unknown type name, an Example of 2 GiB or more). Both name the feature.
    """
    return _encode_reference.encode_record(check_datum(datum, "the datum"), None, MAX_EXAMPLE_BYTES)


def encode_sequence_example(context: Datum, sequence: Datum) -> bytes:
    """One record as the bytes of a tf.train.SequenceExample.

    `context` is as for `encode_example`. In `sequence` a value is a list of steps, each a scalar, list or array (of its
    own length); the first axis of an array counts the steps. Empty steps are kept. Errors as for `encode_example`.
    """
    return _encode_reference.encode_record(
        check_datum(context, "the context"), check_datum(sequence, "the sequence"), MAX_EXAMPLE_BYTES
    )


def encode_frame(datum: Datum, sequence: Datum | None) -> bytes:
    """The whole frame of one record: an Example, or with `sequence` a SequenceExample."""
    if sequence is None:
        return frame_record(encode_example(datum))
    return frame_record(encode_sequence_example(datum, sequence))
