from __future__ import annotations

import pickle

import pytest

from indexer import errors
from indexer.errors import (
    ChecksumError,
    CompressionError,
    CorruptRecordError,
    DecodeError,
    FeatureKindError,
    ImageError,
    IndexFileError,
    MissingFeatureError,
    RemoteError,
    StaleIndexError,
    TFRecordError,
    TruncatedRecordError,
    UnsupportedCompressionError,
)

EXAMPLES = [
    TFRecordError("plain words"),
    CorruptRecordError("a.tfrecord", 3, 70, "index_mismatch"),
    TruncatedRecordError("a.tfrecord", 1, 21, "truncated_record", detail="cut", hint="Fetch it again."),
    ChecksumError("a.tfrecord", 0, 0, "bad_length_crc", hint="It looks like JSON."),
    CompressionError("a.gz", 2, 37, "truncated_stream"),
    UnsupportedCompressionError(None, None, None, "unsupported_compression", "'LZ4'"),
    IndexFileError("a.tfrecord", "a.tfrecord.tfindex", "its header is cut"),
    StaleIndexError("a.tfrecord", None, "it has another size"),
    RemoteError("s3://bucket/a.tfrecord", "reading bytes 3 to 9 failed 6 times"),
    DecodeError("a varint has no end", key="label", path="a.tfrecord", record=4),
    ImageError("is truncated", key="image", path="a.tfrecord", record=2),
    MissingFeatureError(key="label"),
    FeatureKindError("is bytes, not int64", key="label", record=9),
]


def test_every_class_of_the_family_has_an_example() -> None:
    assert {type(error).__name__ for error in EXAMPLES} == set(errors.__all__)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_pickle_with_their_attributes(error: TFRecordError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert back.__dict__ == error.__dict__
    assert str(back) == str(error)
    assert isinstance(back, RuntimeError)


def test_a_subclass_with_another_constructor_pickles() -> None:
    class Odd(ChecksumError):
        def __init__(self) -> None:
            super().__init__("p", 1, 2, "bad_payload_crc")

    globals()["Odd"] = Odd
    Odd.__qualname__ = "Odd"
    back = pickle.loads(pickle.dumps(Odd()))
    assert (back.path, back.record, back.offset, back.reason) == ("p", 1, 2, "bad_payload_crc")


def test_text_of_a_corrupt_record() -> None:
    error = TruncatedRecordError("d/a.tfrecord", 12, 340, "truncated_header", hint="Fetch it again.")
    assert str(error) == (
        "d/a.tfrecord: record 12 at offset 340: the file ends inside a record's header (truncated_header). "
        "Fetch it again."
    )
    assert (error.path, error.record, error.offset) == ("d/a.tfrecord", 12, 340)


def test_text_of_an_index_error_says_how_to_rebuild() -> None:
    error = StaleIndexError("a.tfrecord", "i.tfindex", "the data has 3 bytes")
    assert "a.tfrecord" in str(error)
    assert str(error).endswith(
        "the data has 3 bytes. Rebuild it: tfrecord.build_index('a.tfrecord', 'i.tfindex')"
    )


def test_the_hint_of_an_index_beside_its_data_is_a_command() -> None:
    error = StaleIndexError("a b.tfrecord", "a b.tfrecord.tfindex", "the data has 3 bytes")
    assert str(error).endswith("Rebuild it: tfrecord index 'a b.tfrecord'")


def test_a_data_file_given_as_its_own_index() -> None:
    error = IndexFileError("a.tfrecord", "a.tfrecord", "line 1 is not 'offset size'")
    assert str(error).endswith("This is the data file, not its index") and "build" not in str(error)


def test_kinds_that_python_knows() -> None:
    assert isinstance(DecodeError(), ValueError)
    assert isinstance(MissingFeatureError(), KeyError)
    assert isinstance(FeatureKindError(), TypeError)
    assert isinstance(UnsupportedCompressionError(None, None, None, "unsupported_compression"), ValueError)


@pytest.mark.parametrize("cls", [DecodeError, MissingFeatureError, FeatureKindError])
def test_the_place_is_filled_in_later(cls: type[DecodeError]) -> None:
    bare = cls("went wrong", key="k")
    assert str(bare) == "feature 'k': went wrong"
    placed = bare.at("f.tfrecord", 7)
    assert type(placed) is cls
    assert (placed.path, placed.record, placed.key, placed.reason) == ("f.tfrecord", 7, "k", "went wrong")
    assert str(placed) == "f.tfrecord: record 7: feature 'k': went wrong"
    assert bare.path is None
