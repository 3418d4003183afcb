"""ExampleListWithContext messages as columns, against what protobuf parses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from messages import example, ints, sequence, strings

import tfrecord
from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError
from tfrecord import BytesColumn, FixedLenFeature, Ragged, TFRecordReader, VarLenFeature, parse_example_list
from tfrecord.example_pb2 import Example


def message_class() -> Any:
    """ExampleListWithContext whose Examples are bytes."""
    file = descriptor_pb2.FileDescriptorProto(name="lists.proto", package="lists", syntax="proto2")
    message = file.message_type.add(name="ExampleListWithContext")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="examples", number=1, type=field.TYPE_BYTES, label=field.LABEL_REPEATED)
    message.field.add(name="context", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("lists.ExampleListWithContext")  # type: ignore[no-untyped-call]
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    factory: Any = message_factory.MessageFactory(pool)  # of protobuf before 4.22
    return factory.GetPrototype(found)


LISTS = message_class()


def make(examples: list[bytes], context: bytes | None = None) -> bytes:
    message = LISTS(examples=examples)
    if context is not None:
        message.context = context
    return bytes(message.SerializeToString())


def values(payload: bytes, key: str) -> list[Any]:
    feature = Example.FromString(payload).features.feature[key]
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


@pytest.mark.parametrize("name", ["min_elwc.tfrecord", "ranking_eval_elwc.tfrecord"])
def test_files_of_tensorflow_ranking(shared: Path, name: str) -> None:
    with TFRecordReader(shared / "data2" / name, record_type="bytes") as reader:
        payloads = reader.read_raw(range(len(reader)))
        records = [bytes(payload) for payload in payloads]
        batch = parse_example_list(payloads)
    messages = [LISTS.FromString(record) for record in records]
    assert len(batch) == len(messages) > 0
    keys = {
        key
        for message in messages
        for one in message.examples
        for key in Example.FromString(one).features.feature
    }
    assert set(batch.feature_lists) == keys
    assert batch.context["query_tokens"].to_list() == [values(m.context, "query_tokens") for m in messages]
    for key in keys:
        expected = [[values(one, key) for one in message.examples] for message in messages]
        assert batch.feature_lists[key].to_list() == expected
    assert parse_example_list(records) == batch


features = st.dictionaries(
    st.sampled_from("ab"), st.lists(st.integers(-5, 5), max_size=3).map(lambda x: ("int64", x))
)
examples = features.map(lambda held: example(**held))


@given(
    st.lists(st.tuples(st.lists(examples, max_size=4), st.none() | examples), max_size=6), st.integers(1, 2)
)
def test_every_list_is_what_protobuf_says(
    lists: list[tuple[list[bytes], bytes | None]], threads: int
) -> None:
    asked = {"a": VarLenFeature("int"), "b": VarLenFeature("int")}
    payloads = [make(*one) for one in lists]
    batch = parse_example_list(payloads, asked, asked, num_threads=threads)
    assert len(batch) == len(lists)
    for key in "ab":
        assert batch.context[key].to_list() == [values(context or b"", key) for _, context in lists]
        assert batch.feature_lists[key].to_list() == [[values(one, key) for one in held] for held, _ in lists]
        has = [any(key in Example.FromString(one).features.feature for one in held) for held, _ in lists]
        assert batch.feature_lists.present[key].tolist() == has


def test_specs_decide_the_columns() -> None:
    payloads = [
        make(
            [example(x=ints(1, 2), w=strings(b"a")), example(x=ints(3, 4), w=strings())], example(q=ints(7))
        ),
        make([], example(q=ints(8))),
        make([example(x=ints(5, 6), w=strings(b"b", b"c"))], example()),
    ]
    specs = {"x": FixedLenFeature((2,), "int"), "w": VarLenFeature(bytes)}
    batch = parse_example_list(payloads, {"q": FixedLenFeature((), "int", 0)}, specs)
    assert batch.context["q"].tolist() == [7, 8, 0]
    x = batch.feature_lists["x"]
    assert isinstance(x, Ragged) and x.row_splits.tolist() == [0, 2, 2, 3]
    assert x.values.dtype == np.int64 and x.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert batch.feature_lists["w"].to_list() == [[[b"a"], []], [], [[b"b", b"c"]]]
    assert [len(part) for part in batch[1:]] == [2, 2]


def test_empty_batches_and_empty_messages() -> None:
    assert len(parse_example_list([])) == 0
    assert parse_example_list([], {"q": "int"}, {"x": "int"}).feature_lists["x"].to_list() == []
    batch = parse_example_list([b"", b"\x0a\x00"], {"q": "int"}, {"x": "int"})
    assert batch.feature_lists["x"].to_list() == [[], [[]]] and batch.context["q"].to_list() == [[], []]


def test_a_context_in_pieces_and_unknown_fields() -> None:
    """As protobuf has it: pieces of a message are merged, and fields that are not known are left alone."""
    pieces = b"".join(make([], example(**{key: ints(number)})) for number, key in enumerate("qr"))
    payloads = [
        b"\x18\x05" + pieces + b"\x0d\0\0\0\0" + make([example(x=ints(1))]),
        make([example(x=ints(2))]),
    ]
    batch = parse_example_list(BytesColumn.from_list(payloads), {"q": "int", "r": "int"}, {"x": "int"})
    assert batch.row(0)[0]["q"].tolist() == [0] and batch.row(0)[0]["r"].tolist() == [1]
    assert batch.feature_lists["x"].to_list() == [[[1]], [[2]]]


GOOD = make([example(x=ints(1))], example(q=ints(1)))


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (b"\x0a\x05ab", "not a valid ExampleListWithContext: the message is cut short"),
        (b"\x0a\xff\xff\xff\xff\x0f", "not a valid ExampleListWithContext: a length of more"),
        (b"\x0a\xff\xff\xff\xff\x07", "not a valid ExampleListWithContext: the message is cut short"),
        (b"\x12\x80", "not a valid ExampleListWithContext: the message is cut short"),
        (b"\x07", "not a valid ExampleListWithContext: bad field tag"),
        (b"\x0e\x00", "not a valid ExampleListWithContext: bad wire type"),
        (b"\x0b" * 200, "not a valid ExampleListWithContext: groups are nested too deep"),
        (make([example(x=ints(1)), b"\x0a\x05ab"]), r"Example 1 of the list"),
        (make([example(x=ints(1))], b"\x0a\x05ab"), r"\(the context\)"),
        (example(x=ints(1)), "is a tf.train.Example or SequenceExample, not a list of Examples"),
        (sequence({}, {"x": [ints(1)]}), "is a tf.train.Example or SequenceExample, not a list of Examples"),
    ],
)
def test_malformed_messages_name_their_row(bad: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text) as caught:
        parse_example_list([GOOD, GOOD, bad, b"\x07"])
    assert caught.value.record == 2 and "record 2" in str(caught.value)


def test_the_first_bad_record_is_reported_whichever_part_is_bad() -> None:
    bad_context, bad_list, bad_frame = make([], b"\x07"), make([b"\x07"]), b"\x07"
    for payloads in (
        [bad_context, bad_list, bad_frame],
        [bad_list, bad_frame, bad_context],
        [bad_frame, bad_list],
    ):
        with pytest.raises(DecodeError) as caught:
            parse_example_list([GOOD, *payloads])
        assert caught.value.record == 1


def test_missing_features_and_other_kinds() -> None:
    payloads = [GOOD, make([example(x=ints(1)), example(xx=ints(1))], example(q=ints(1)))]
    with pytest.raises(
        MissingFeatureError, match=r"did you mean 'xx'\? \(Example 1 of the list\)"
    ) as missing:
        parse_example_list(payloads, None, {"x": FixedLenFeature((), "int")})
    assert (missing.value.record, missing.value.key) == (1, "x")
    with pytest.raises(FeatureKindError, match=r"\(the context\)") as kind:
        parse_example_list(payloads, {"q": "float"}, {})
    assert (kind.value.record, kind.value.key) == (0, "q")


@pytest.mark.parametrize("wrong", [b"abc", "text", ["text"], [1], [None]])
def test_what_is_not_a_batch(wrong: Any) -> None:
    with pytest.raises(TypeError):
        parse_example_list(wrong)


def test_bytes_are_not_copied() -> None:
    column = parse_example_list([make([example(w=strings(b"a" * 100))])]).feature_lists["w"]
    assert column.values.values.view(0).obj is not None
    assert "parse_example_list" in tfrecord.__all__
