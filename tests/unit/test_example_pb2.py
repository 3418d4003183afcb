"""The message classes: the wire format of TensorFlow's, in a pool of their own."""

from __future__ import annotations

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf import descriptor_pool

import tfrecord
from tfrecord import example_pb2


def example() -> Any:
    message = example_pb2.Example()
    message.features.feature["a"].int64_list.value.extend([1, -2])
    message.features.feature["b"].bytes_list.value.append(b"x\0")
    message.features.feature["f"].float_list.value.append(1.5)
    return message


def test_wire_bytes() -> None:
    message = example_pb2.Example()
    message.features.feature["k"].int64_list.value.extend([1, 300])
    assert message.SerializeToString().hex() == "0a0e0a0c0a016b12071a050a0301ac02"
    message = example_pb2.Example()
    message.features.feature["k"].float_list.value.append(1.0)
    assert message.SerializeToString().hex() == "0a0f0a0d0a016b120812060a040000803f"
    message = example_pb2.Example()
    message.features.feature["k"].bytes_list.value.extend([b"a", b""])
    assert message.SerializeToString().hex() == "0a0e0a0c0a016b12070a050a01610a00"
    sequence = example_pb2.SequenceExample()
    sequence.context.feature["c"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["s"].feature.add().int64_list.value.append(2)
    assert sequence.SerializeToString().hex() == (
        "0a0c0a0a0a016312051a030a0101120e0a0c0a017312070a051a030a0102"
    )


def test_parsing() -> None:
    message = example()
    again = example_pb2.Example.FromString(message.SerializeToString())
    assert again == message and list(again.features.feature["a"].int64_list.value) == [1, -2]
    assert again.features.feature["b"].bytes_list.value[0] == b"x\0"
    # Unpacked and split runs are read as one list.
    unpacked = bytes.fromhex("0a100a0e0a016b12091a07") + bytes.fromhex("08010a0102") + bytes.fromhex("0803")
    assert list(example_pb2.Example.FromString(unpacked).features.feature["k"].int64_list.value) == [1, 2, 3]


def test_kinds() -> None:
    assert example_pb2.Feature().WhichOneof("kind") is None
    assert example_pb2.Feature.FromString(b"\x12\x00").WhichOneof("kind") == "float_list"
    made = example_pb2.Feature(int64_list=example_pb2.Int64List(value=[3]))
    assert made.WhichOneof("kind") == "int64_list"
    made.bytes_list.SetInParent()
    assert made.WhichOneof("kind") == "bytes_list" and not made.int64_list.value


@pytest.mark.parametrize("name", example_pb2.__all__)
def test_classes_pickle_and_copy(name: str) -> None:
    made = getattr(example_pb2, name)
    assert made.DESCRIPTOR.full_name == f"tfrecord.{name}"
    assert pickle.loads(pickle.dumps(made)) is made
    assert pickle.loads(pickle.dumps(made())) == made()


def test_messages_pickle_and_copy() -> None:
    message = example()
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message and copy.copy(message) == message
    assert message.features.feature is not None and len(message.features.feature) == 3


def test_nothing_is_registered_in_the_default_pool() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("tfrecord.Example")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("tfrecord/example.proto")


CONFLICT = """
from google.protobuf import descriptor_pb2, descriptor_pool
theirs = descriptor_pb2.FileDescriptorProto(name="other/feature.proto", package="tensorflow", syntax="proto3")
theirs.message_type.add(name="BytesList").field.add(name="other", number=7, label=1, type=3)
same = descriptor_pb2.FileDescriptorProto(name="tfrecord/example.proto", package="tfrecord", syntax="proto3")
same.message_type.add(name="Example").field.add(name="other", number=7, label=1, type=3)
for file in (theirs, same):
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
"""
USE = """
from tfrecord import example_pb2
made = example_pb2.Feature(bytes_list=example_pb2.BytesList(value=[b"x"]))
print(example_pb2.Feature.FromString(made.SerializeToString()) == made)
"""


@pytest.mark.parametrize("code", [CONFLICT + USE + USE, USE + CONFLICT + USE], ids=["before", "after"])
@pytest.mark.parametrize("implementation", ["python", "upb"])
def test_other_messages_of_the_same_names(code: str, implementation: str) -> None:
    assert run_python(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation) == "True\nTrue\n"


@pytest.mark.parametrize(
    "imports",
    [
        "import tensorflow as tf; from tfrecord import example_pb2",
        "from tfrecord import example_pb2; import tensorflow as tf",
    ],
    ids=["before", "after"],
)
def test_tensorflow_in_the_same_process(imports: str) -> None:
    python = os.environ.get("TFRECORD_TF_PYTHON", sys.executable)
    if python == sys.executable and importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed; TFRECORD_TF_PYTHON may name a Python that has it")
    said = run_python(
        imports
        + """
theirs = tf.train.Example()
theirs.features.feature["a"].bytes_list.value.append(b"x")
ours = example_pb2.Example.FromString(theirs.SerializeToString())
print(ours.features.feature["a"].bytes_list.value)
print(tf.train.Example.FromString(ours.SerializeToString()) == theirs)
""",
        python,
        PYTHONPATH=os.path.dirname(os.path.dirname(os.path.abspath(tfrecord.__file__))),
        TFRECORD_ENGINE="reference",
    )
    assert said == "[b'x']\nTrue\n"


def run_python(code: str, python: str = sys.executable, **environment: str) -> str:
    """What a process prints that runs this code and does not fail."""
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
