"""CPU tensors are values like arrays, and the writer never imports torch for them."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest

from tfrecord import example_pb2
from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.writer import TFRecordWriter

torch = pytest.importorskip("torch")


def stored(value: Any, kind: str) -> list[Any]:
    feature = example_pb2.Example.FromString(encode_example({"x": (value, kind)})).features.feature["x"]
    return list(getattr(feature, feature.WhichOneof("kind")).value)


@pytest.mark.parametrize(
    ("make", "kind", "expected"),
    [
        (lambda: torch.tensor(3), "int", [3]),
        (lambda: torch.arange(6).reshape(2, 3).T, "int", [0, 3, 1, 4, 2, 5]),
        (lambda: torch.tensor([1, 2], dtype=torch.uint8), "int", [1, 2]),
        (lambda: torch.tensor([True, False]), "int", [1, 0]),
        (lambda: torch.tensor([]), "int", []),
        (lambda: torch.tensor([1.5, 2.5], requires_grad=True), "float", [1.5, 2.5]),
        (lambda: torch.nn.Parameter(torch.tensor([1.5])), "float", [1.5]),
        (lambda: torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "float", [1.5, -2.0]),
        (lambda: torch.tensor([1.5], dtype=torch.float16), "float", [1.5]),
        (lambda: torch.tensor([1.5], dtype=torch.float64), "float", [1.5]),
        (lambda: torch.tensor([1, 2]), "float", [1.0, 2.0]),
        (lambda: torch.arange(4.0)[::2], "float", [0.0, 2.0]),
        (lambda: torch.tensor([1.0 + 2j]).conj().imag, "float", [-2.0]),
        (lambda: [torch.tensor(1), 2, torch.tensor(3)], "int", [1, 2, 3]),
        (lambda: [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])], "float", [1.0, 2.0, 3.0, 4.0]),
    ],
)
def test_tensors(make: Any, kind: str, expected: list[Any]) -> None:
    assert stored(make(), kind) == expected


@pytest.mark.parametrize(
    ("make", "kind", "error", "text"),
    [
        (lambda: torch.zeros(2, device="meta"), "float", TypeError, r"it is on device meta.*tensor\.cpu\(\)"),
        (lambda: torch.zeros(2), "int", TypeError, "an array of float32"),
        (lambda: torch.tensor(1.5), "int", TypeError, r"an array of float32, shape \(\)"),
        (lambda: torch.zeros(2, dtype=torch.uint8), "byte", TypeError, "an array of uint8"),
        (
            lambda: torch.tensor([1e39], dtype=torch.float64),
            "float",
            ValueError,
            r"float 1e\+39 at position 0",
        ),
        (lambda: torch.zeros(2, dtype=torch.complex64), "float", TypeError, "an array of complex64"),
        (lambda: torch.zeros(2, 2).to_sparse(), "float", TypeError, "torch Tensor that gives no array"),
        (lambda: [torch.zeros(1), torch.zeros(2)], "float", ValueError, "a ragged nested list"),
    ],
)
def test_tensors_that_are_refused(make: Any, kind: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^feature 'x': got .*{text}"):
        stored(make(), kind)


def test_steps_of_tensors() -> None:
    steps = {
        "a": (torch.arange(4).reshape(2, 2), "int"),
        "b": ([torch.tensor([1.5]), torch.zeros(0)], "float"),
    }
    message = example_pb2.SequenceExample.FromString(encode_sequence_example({}, steps))
    lists = message.feature_lists.feature_list
    assert [list(step.int64_list.value) for step in lists["a"].feature] == [[0, 1], [2, 3]]
    assert [list(step.float_list.value) for step in lists["b"].feature] == [[1.5], []]


def test_columns_of_tensors() -> None:
    one, two = io.BytesIO(), io.BytesIO()
    with TFRecordWriter(one) as writer:
        writer.write_batch({"i": torch.arange(3), "f": torch.zeros(3, 2, dtype=torch.bfloat16)})
    with TFRecordWriter(two) as writer:
        for i in range(3):
            writer.write({"i": (i, "int"), "f": ([0.0, 0.0], "float")})
    assert one.getvalue() == two.getvalue()


def test_writing_imports_no_torch() -> None:
    script = (
        "import io, sys, tfrecord.writer as w, numpy as np\n"
        "w.TFRecordWriter(io.BytesIO()).write({'x': ([np.zeros(2), np.zeros(2)], 'float')})\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_list_of_tensors_is_a_column() -> None:
    grad = torch.tensor([1.0, 2.0], requires_grad=True)
    brain = torch.tensor([3.0, 4.0], dtype=torch.bfloat16)
    file = io.BytesIO()
    with TFRecordWriter(file) as writer:
        writer.write_batch({"x": [grad, brain]})
    for values in ([1.0, 2.0], [3.0, 4.0]):
        assert encode_example({"x": (values, "float")}) in file.getvalue()
    with pytest.raises(TypeError, match="'x': got torch Tensor that gives no array"):
        writer = TFRecordWriter(io.BytesIO())
        writer.write_batch({"x": [torch.eye(2).to_sparse()]})
