from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tfrecord import encode_example, parse_single_example
from tfrecord.features import (
    DTYPES,
    FeaturePlan,
    FixedLenFeature,
    RaggedFeature,
    VarLenFeature,
    check_cast,
    compile_features,
    resolve_dtype,
)

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("byte", ("bytes", None)),
        (" bytes ", ("bytes", None)),
        ("int ", ("int64", "int64")),
        ("\tint64", ("int64", "int64")),
        ("float", ("float", "float32")),
        ("float32", ("float", "float32")),
        ("uint8", ("int64", "uint8")),
        ("bool", ("int64", "bool")),
        ("float64", ("float", "float64")),
        (bytes, ("bytes", None)),
        (int, ("int64", "int64")),
        (float, ("float", "float32")),
        (bool, ("int64", "bool")),
        (np.float32, ("float", "float32")),
        (np.dtype("int16"), ("int64", "int16")),
        (np.bytes_, ("bytes", None)),
    ],
)
def test_names_of_types(name: Any, expected: tuple[str, str | None]) -> None:
    assert resolve_dtype(name) == expected


def test_types_of_torch() -> None:
    torch = pytest.importorskip("torch")
    assert resolve_dtype(torch.int64) == ("int64", "int64") and resolve_dtype(torch.bool) == ("int64", "bool")
    assert parse_single_example(
        encode_example({"a": (3, "int")}), {"a": FixedLenFeature((), torch.uint8)}
    ) == {"a": np.uint8(3)}
    with pytest.raises(ValueError, match="unknown type torch.bfloat16"):
        resolve_dtype(torch.bfloat16)


@pytest.mark.parametrize(
    "name", ["flaot", "", "strign", "Float", 3, None, str, np.complex64, ["int"], object]
)
def test_unknown_types_list_the_valid_ones(name: Any) -> None:
    with pytest.raises(ValueError, match="unknown type") as caught:
        resolve_dtype(name)
    assert all(repr(valid) in str(caught.value) for valid in DTYPES)


def test_unknown_type_names_its_feature() -> None:
    with pytest.raises(ValueError, match="feature 'x'.*'float16'.*FixedLenFeature"):
        compile_features({"ok": "int", "x": "flaot"})


@pytest.mark.parametrize("everything", [None, [], {}, ()])
def test_every_feature(everything: Any) -> None:
    assert compile_features(everything).columns is None


def test_forms_of_features() -> None:
    plan = compile_features(["a", "b"])
    assert plan.names == ("a", "b")
    assert plan.columns is not None and [column.kind for column in plan.columns] == [None, None]
    plan = compile_features(
        {"a": None, "b": VarLenFeature("int"), "c": RaggedFeature("bytes"), "d": "float "}
    )
    assert plan.columns is not None and [column.kind for column in plan.columns] == [
        None,
        "int64",
        "bytes",
        "float",
    ]
    assert compile_features(plan) is plan


@pytest.mark.parametrize(
    ("features", "error", "match"),
    [
        ({1: "int"}, TypeError, "must be a str, not 1"),
        ([b"a"], TypeError, "must be a str, not b'a'"),
        (["a", "b", "a"], ValueError, "'a' is named twice"),
        ({"\ud800": "int"}, ValueError, "not valid Unicode"),
        ("abc", TypeError, "not str"),
        (3, TypeError, "not int"),
        ({"a": ["int"]}, ValueError, "feature 'a': unknown type"),
    ],
)
def test_bad_features(features: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        compile_features(features)


@pytest.mark.parametrize(
    ("shape", "raw", "expected"),
    [
        ((), False, ()),
        ([], False, ()),
        (3, False, (3,)),
        ([2, np.int32(3)], False, (2, 3)),
        ((-1, 4), True, (-1, 4)),
    ],
)
def test_shapes(shape: Any, raw: bool, expected: tuple[int, ...]) -> None:
    assert FixedLenFeature(shape, "uint8", raw=raw).shape == expected


@pytest.mark.parametrize(
    ("shape", "raw"),
    [
        ((-1,), False),
        ((-2,), True),
        ((-1, -1), True),
        ((-1, 0), True),
        ("3", False),
        ((1.5,), False),
        ((2**20, 2**20), False),
    ],
)
def test_bad_shapes(shape: Any, raw: bool) -> None:
    with pytest.raises(ValueError, match="shape"):
        FixedLenFeature(shape, "uint8", raw=raw)


def test_raw_needs_a_dtype_in_little_endian() -> None:
    with pytest.raises(ValueError, match="raw=True needs the dtype"):
        FixedLenFeature((2,), "bytes", raw=True)
    with pytest.raises(ValueError, match="little-endian"):
        FixedLenFeature((2,), np.dtype(">u2"), raw=True)


@pytest.mark.parametrize(
    ("shape", "dtype", "default", "row"),
    [
        ((), "int64", -1, np.array(-1, np.int64).tobytes()),
        ((3,), "float32", 0.5, np.full(3, 0.5, np.float32).tobytes()),
        ((2, 2), "int64", [[1, 2], [3, 4]], np.arange(1, 5).tobytes()),
        ((), "uint64", 2**63, np.array(2**63, np.uint64).tobytes()),
        ((), "float32", float("nan"), np.array(np.nan, np.float32).tobytes()),
        ((), "bool", True, b"\1"),
        ((), "bytes", "é", ("é".encode(),)),
        ((2,), "bytes", b"x", (b"x", b"x")),
        ((2,), "bytes", [b"x", "y"], (b"x", b"y")),
    ],
)
def test_defaults(shape: Any, dtype: str, default: Any, row: Any) -> None:
    assert FixedLenFeature(shape, dtype, default).column("k").default == row


@pytest.mark.parametrize(
    ("shape", "dtype", "default"),
    [
        ((3,), "int64", [1, 2]),
        ((), "int64", 1.5),
        ((), "int64", 2**63),
        ((), "uint8", 256),
        ((), "uint8", -1),
        ((), "float16", 1e6),
        ((), "float32", "x"),
        ((), "bytes", 3),
        ((2,), "bytes", [b"a", b"b", b"c"]),
    ],
)
def test_defaults_that_do_not_fit(shape: Any, dtype: str, default: Any) -> None:
    with pytest.raises(ValueError, match="default_value"):
        FixedLenFeature(shape, dtype, default)


@pytest.mark.parametrize(
    "default", [[b"ab"], bytearray(b"ab"), memoryview(bytearray(b"ab")), np.array([b"ab"])], ids=type
)
def test_defaults_are_copies(default: Any) -> None:
    specs = [FixedLenFeature([1], "bytes", default), FixedLenFeature([1, 1], "bytes", [[default]])]
    default[0] = 120 if isinstance(default, bytearray | memoryview) else b"x"
    for spec in specs:
        again = FixedLenFeature(spec.shape, "bytes", spec.default_value)
        assert again == spec and parse_single_example(b"", {"a": again})["a"].ravel().tolist() == [b"ab"]


def test_specs_are_values() -> None:
    specs = [
        FixedLenFeature((2,), "int", [1, 2]),
        FixedLenFeature((), "float16"),
        FixedLenFeature((-1,), "uint16", raw=True),
        VarLenFeature("bytes"),
        RaggedFeature(np.float32),
    ]
    for spec in specs:
        copy = pickle.loads(pickle.dumps(spec))
        assert copy == spec and hash(copy) == hash(spec) and repr(copy) == repr(spec)
        with pytest.raises(AttributeError, match="cannot be changed"):
            spec.dtype = "int"  # type: ignore[misc]
    assert len({*specs, *specs}) == len(specs)
    assert VarLenFeature("int") != RaggedFeature("int")
    plan = compile_features({f"k{i}": spec for i, spec in enumerate(specs)})
    copy_of_plan = pickle.loads(pickle.dumps(plan))
    assert copy_of_plan == plan and hash(copy_of_plan) == hash(plan)


def test_selecting_of_a_plan() -> None:
    plan = compile_features({"a": "int", "b": "float", "c": "bytes"})
    assert plan.select(["c", "a", "c"]).names == ("c", "a")
    assert plan.select("b").names == ("b",)
    assert plan.select([]).columns == ()
    assert compile_features(None).select(["x", "y", "x"]).names == ("x", "y")
    with pytest.raises(KeyError, match="no feature 'z'; there are 'a', 'b', 'c'"):
        plan.select(["a", "z"])
    assert FeaturePlan(()).names == ()


@pytest.mark.parametrize(
    ("values", "dtype", "bad"),
    [
        (np.array([0, 255]), "uint8", -1),
        (np.array([0, 256]), "uint8", 1),
        (np.array([-1]), "uint8", 0),
        (np.array([1, 2**31 - 1, -(2**31)]), "int32", -1),
        (np.array([2**31]), "int32", 0),
        (np.array([2**63 - 1]), "uint64", -1),
        (np.array([5, -5]), "uint64", 1),
        (np.array([0, 1]), "bool", -1),
        (np.array([0, 1, 2]), "bool", 2),
        (np.array([65504.0, np.inf, np.nan], np.float32), "float16", -1),
        (np.array([1.0, 70000.0], np.float32), "float16", 1),
        (np.array([0.1], np.float32), "float64", -1),
    ],
)
def test_casts(values: Any, dtype: str, bad: int) -> None:
    cast, found = check_cast(values, dtype)
    assert found == bad
    assert cast.dtype == dtype
    if bad < 0 and dtype != "float16":
        assert (cast == values).all()
