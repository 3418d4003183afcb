"""What datasets do about features that a record, or every record, lacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from messages import example, ints

from indexer.errors import MissingFeatureError
from tfrecord import FixedLenFeature, VarLenFeature, build_index
from tfrecord.torch import TFRecordDataset

MakeFile = Callable[..., Path]
RECORDS = [example(label=ints(i)) for i in range(10)]
SPECS: dict[str, Any] = {
    "short": "int",
    "var": VarLenFeature("int"),
    "default": FixedLenFeature((), "int", 0),
}
SIZES = pytest.mark.parametrize("batch_size", [None, 4])


@SIZES
@pytest.mark.parametrize("options", [{}, {"shuffle": True}], ids=["stored", "shuffled"])
@pytest.mark.parametrize("compression", ["", "gzip"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.filterwarnings("ignore:.*(compressed|queue):UserWarning")
def test_a_whole_pass_says_which_feature_no_record_has(
    make_file: MakeFile, spec: Any, compression: str, options: dict[str, Any], batch_size: int | None
) -> None:
    path = make_file(RECORDS, compression=compression)
    dataset = TFRecordDataset(path, features={"lable": spec}, batch_size=batch_size, **options)
    with pytest.warns(
        UserWarning, match="no record that was read has a feature 'lable'; did you mean 'label'"
    ):
        assert len(list(dataset)) == (10 if batch_size is None else 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(dataset)  # once is enough
        list(TFRecordDataset(path, features={"lable": spec}, batch_size=batch_size, allow_missing=True))


@SIZES
def test_an_index_says_it_at_once(make_file: MakeFile, batch_size: int | None) -> None:
    path = make_file(RECORDS)
    build_index(path)
    with pytest.raises(MissingFeatureError, match="did you mean 'label'"):
        next(iter(TFRecordDataset(path, features={"lable": "int"}, batch_size=batch_size)))
    with pytest.warns(UserWarning, match="did you mean 'label'"):
        next(iter(TFRecordDataset(path, features={"lable": VarLenFeature("int")}, batch_size=batch_size)))


@SIZES
def test_a_description_requires_what_it_names(make_file: MakeFile, batch_size: int | None) -> None:
    path = make_file([*RECORDS, example(x=ints(1))])
    with pytest.raises(MissingFeatureError, match="'label'") as caught:
        list(TFRecordDataset(path, None, {"label": "int"}, batch_size=batch_size))
    assert caught.value.record == 10
    list(TFRecordDataset(path, None, {"label": VarLenFeature("int")}, batch_size=batch_size))
