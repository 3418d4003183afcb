"""Every message of ``cases/wire-cases.json``, through every entry point that decodes messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.errors import DecodeError, FeatureKindError
from tfrecord import parse
from tfrecord._kernels.codes import RecordClass
from tfrecord._kernels.record_type import classify
from tfrecord.columns import BytesColumn, Ragged
from tfrecord.features import compile_features
from tfrecord.parse import (
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
)

pytestmark = pytest.mark.kernels

Case = dict[str, Any]


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[Case]:
    found: list[Case] = json.loads((shared / "cases" / "wire-cases.json").read_text())["cases"]
    assert len(found) > 100
    return found


def plain(values: Any) -> Any:
    """Values as the case file writes them: floats as bits, bytes as hex."""
    if isinstance(values, bytes):
        return [values.hex()]
    if isinstance(values, BytesColumn):
        return [item.hex() for item in values.to_list()]
    if values.dtype == object:
        return [item.hex() for item in values]
    if values.dtype == np.float32:
        return [f"{bits:08x}" for bits in values.view(np.uint32).tolist()]
    assert values.dtype == np.int64
    return values.tolist()


def kind_of(values: Any) -> str | None:
    if isinstance(values, bytes | BytesColumn) or (values.dtype == object and len(values)):
        return "bytes"
    return {"float32": "float", "int64": "int64", "object": None}[values.dtype.name]


def requests(case: Case) -> list[dict[str, str]] | None:
    """The request of a case as features of the context and of the lists; None where a key cannot be asked
    for."""
    wanted = (
        [case["request"]]
        if case["kind"] == "example"
        else [case["request"][p] for p in ("context", "feature_lists")]
    )
    return None if any(key.startswith("hex:") for part in wanted for key in part) else wanted


def batch_rows(payload: bytes, wanted: list[Any], lists: bool) -> list[Any]:
    """Decode the payload as the middle row of a batch of good ones, on one thread and on three."""
    batches: list[Any] = []
    for threads in (1, 3):
        if lists:
            batches.append(parse_sequence_example([b"", payload, b""], *wanted, num_threads=threads))
        else:
            batches.append(parse_example([b"", payload, b""], *wanted, num_threads=threads))
    assert batches[0].equals(batches[1]), "threads change the result"
    parts = list(batches[0]) if lists else [batches[0]]
    for part in parts:
        for flags in part.present.values():
            assert not flags[0] and not flags[2]
    return [{name: (bool(part.present[name][1]), part[name][1]) for name in part} for part in parts]


def check(cases: list[Case], run: Callable[[Case], str | None]) -> None:
    wrong = []
    for case in cases:
        try:
            message = run(case)
        except AssertionError as error:
            message = str(error)
        if message:
            wrong.append(f"{case['name']}: {message}")
    assert not wrong, "\n".join(wrong)


def same(got: Any, expected: Any) -> None:
    assert got == expected, f"{got} is not {expected}"


def rejected(
    run: Callable[[], Any], error: type[Exception] | tuple[type[Exception], ...], row: int
) -> str | None:
    try:
        result = run()
    except error as raised:
        assert raised.record == row, f"error names row {raised.record}"  # type: ignore[union-attr]
        return None
    return f"accepted: {result}"


def test_batch_of_requested_features(cases: list[Case]) -> None:
    def run(case: Case) -> str | None:
        wanted = requests(case)
        if wanted is None:
            return None
        lists = case["kind"] != "example"
        payload = bytes.fromhex(case["hex"])
        typed = case.get("expected_projection", case["expected_typed"])
        if "error" in typed and isinstance(typed["error"], str):
            return rejected(lambda: batch_rows(payload, wanted, lists), DecodeError, 1)
        parts = [typed] if not lists else [typed["context"], typed["feature_lists"]]
        if any(item.get("error") == "kind_mismatch" for part in parts for item in part.values()):
            return rejected(lambda: batch_rows(payload, wanted, lists), FeatureKindError, 1)
        for part, got in zip(parts, batch_rows(payload, wanted, lists), strict=True):
            assert part.keys() == got.keys()
            for key, item in part.items():
                present, values = got[key]
                same(present, item["present"])
                if isinstance(values, Ragged):
                    same([plain(step) for step in values], [step or [] for step in item.get("steps", [])])
                else:
                    same(plain(values), item.get("values", []))
        return None

    check(cases, run)


def test_batch_of_all_features(cases: list[Case]) -> None:
    def run(case: Case) -> str | None:
        payload = bytes.fromhex(case["hex"])
        lists = case["kind"] != "example"
        wanted = [None, None] if lists else [None]
        if "error" in case["expected"]:
            return rejected(lambda: batch_rows(payload, wanted, lists), DecodeError, 1)
        expected = case["expected"]["ok"]
        parts = [expected["context"], expected["feature_lists"]] if lists else [expected]
        for index, (part, got) in enumerate(zip(parts, batch_rows(payload, wanted, lists), strict=True)):
            assert part.keys() == got.keys()
            for key, item in part.items():
                present, values = got[key]
                if index == 0:
                    same(present, item["kind"] is not None)
                    same(plain(values), item["values"])
                    same(kind_of(values), item["kind"])
                else:
                    same(present, True)
                    same([plain(step) for step in values], [step["values"] for step in item])
        return None

    check(cases, run)


def test_one_record_of_all_features(cases: list[Case]) -> None:
    def run(case: Case) -> str | None:
        payload = memoryview(bytearray(bytes.fromhex(case["hex"])))
        lists = case["kind"] != "example"
        if "error" in case["expected"]:
            single: Any = parse_single_sequence_example if lists else parse_single_example
            return rejected(lambda: single(payload), DecodeError, 0)
        expected = case["expected"]["ok"]
        if not lists:
            got: Any = [parse_single_example(payload)]
            parts = [expected]
        else:
            got = parse_single_sequence_example(payload)
            parts = [expected["context"], expected["feature_lists"]]
        assert parts[0].keys() == got[0].keys()
        for key, item in parts[0].items():
            value = got[0][key]
            if item["kind"] is None:
                assert value is None
            else:
                same(plain(value), item["values"])
        for key, steps in parts[1].items() if lists else ():
            same(
                [[] if step is None else plain(step) for step in got[1][key]],
                [step["values"] for step in steps],
            )
        return None

    check(cases, run)


def test_one_record_of_requested_features(cases: list[Case]) -> None:
    def run(case: Case) -> str | None:
        wanted = requests(case)
        if wanted is None:
            return None
        payload = bytes.fromhex(case["hex"])
        lists = case["kind"] != "example"
        single: Any = parse_single_sequence_example if lists else parse_single_example
        typed = case.get("expected_projection", case["expected_typed"])
        if "error" in typed and isinstance(typed["error"], str):
            return rejected(lambda: single(payload, *wanted), DecodeError, 0)
        parts = [typed] if not lists else [typed["context"], typed["feature_lists"]]
        if any(item.get("error") == "kind_mismatch" for part in parts for item in part.values()):
            return rejected(lambda: single(payload, *wanted), FeatureKindError, 0)
        got = single(payload, *wanted)
        for part, record in zip(parts, got if lists else [got], strict=True):
            assert part.keys() == record.keys()
            for key, item in part.items():
                if "steps" in item:
                    same([plain(step) for step in record[key]], [step or [] for step in item["steps"]])
                elif item["present"] or not lists:
                    same(
                        plain(record[key]) if len(record[key]) or item["present"] else [],
                        item.get("values", []),
                    )
        return None

    check(cases, run)


def test_class_of_a_record(cases: list[Case]) -> None:
    def run(case: Case) -> str | None:
        found = classify(bytes.fromhex(case["hex"]))
        return None if (found is RecordClass.INVALID) == ("error" in case["expected"]) else found.name

    check(cases, run)


def test_lineage_rule_for_missing_keys(cases: list[Case]) -> None:
    seen = 0
    for case in cases:
        wanted = requests(case)
        if wanted is None or case["kind"] != "example" or "error" in case["expected"]:
            continue
        plan = compile_features(list(case["request"]), required=True)
        missing = [key for key in case["request"] if key not in case["expected"]["ok"]]
        seen += bool(missing)
        if missing:
            with pytest.raises(KeyError) as caught:
                parse.decode_record(bytes.fromhex(case["hex"]), plan)
            assert caught.value.key == missing[0] and caught.value.record == 0  # type: ignore[attr-defined]
        else:
            parse.decode_record(bytes.fromhex(case["hex"]), plan)
    assert seen
