"""Records decoded to dicts some at a time are those that are decoded one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_decode_property import SETTINGS, Messages, alike

from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError
from tfrecord._columns.decoding import decode_record, decode_records
from tfrecord._kernels.engine import engine
from tfrecord.features import FeaturePlan, FixedLenFeature, VarLenFeature, compile_features


def plans(keys: list[str], choices: random.Random) -> list[FeaturePlan]:
    """Some of these features in every form, and all that a record has."""
    names = {1: ["bytes", "bytes"], 2: ["float32", "float64"], 3: ["int64", "int32"]}
    specs: dict[str, Any] = {}
    for key in choices.sample(keys, choices.randrange(1, len(keys) + 1)):
        name = names[1 + len(key) % 3][choices.randrange(4) == 0]
        default = choices.choice([None, b"x" if name == "bytes" else 1])
        shape = choices.choice([(), (), (1,), (2, 1), (0,)])
        specs[key] = choices.choice([None, name, FixedLenFeature(shape, name, default), VarLenFeature(name)])
    return [compile_features(specs), compile_features(None)]


@given(seed=st.integers(0, 2**64))
@settings(SETTINGS, max_examples=100)
def test_records_together_are_those_one_by_one(seed: int) -> None:
    choices = random.Random(seed)
    messages = Messages(choices)
    keys, batch = alike(messages)
    for _ in range(choices.randrange(3)):
        batch.insert(choices.randrange(len(batch) + 1), messages.mutated(messages.message(False)))
    for plan in plans(keys, choices):
        found = decode_records(tuple(map(memoryview, batch)), plan)
        for data, record in zip(batch, found, strict=False):
            expected = decode_record(data, plan)
            assert isinstance(expected, dict) and list(record) == list(expected)
            for key, value in record.items():
                assert type(value) is type(expected[key])
                if isinstance(value, np.ndarray):
                    assert value.dtype == expected[key].dtype and value.shape == expected[key].shape
                    assert (
                        value.tolist() == expected[key].tolist() or value.tobytes() == expected[key].tobytes()
                    )
                else:
                    assert value == expected[key]
        if engine == "native" and len(found) < len(batch) and not plan.hollow:
            with pytest.raises((DecodeError, FeatureKindError, MissingFeatureError)):
                decode_record(batch[len(found)], plan)
