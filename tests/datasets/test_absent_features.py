"""What datasets do about features that a record, or every record, lacks."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from messages import example, ints

from indexer.errors import MissingFeatureError
from tfrecord import FixedLenFeature, VarLenFeature, build_index
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset
from tfrecord.torch._workers.epochs import EpochCounter

ROOT = Path(__file__).resolve().parents[2]
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


LATE = [*[example(a=ints(i)) for i in range(9)], example(label=ints(9))]
SHORT: dict[str, Callable[[TFRecordDataset], Any]] = {
    "take": lambda dataset: list(dataset.take(2)),
    "skip": lambda dataset: list(dataset.skip(3)),
    "bucket": lambda dataset: list(dataset.bucket_by_length("a", [1], [4, 4], drop_last=True)),
    "resumed": lambda dataset: [dataset.load_state_dict(dataset.state_at(0, 5)), list(dataset)],
    "broken off": lambda dataset: next(iter(dataset)),
    "a rank": lambda dataset: list(TFRecordDataset(dataset.reader, rank=1, world_size=2)),
    "a selection": lambda dataset: list(TFRecordDataset(dataset.reader.select([0, 1]))),
    "dropped": lambda dataset: list(TFRecordDataset(dataset.reader, batch_size=3, drop_last=True)),
    "batches": lambda dataset: list(dataset.reader.batches(3, drop_last=True)),
    "shuffled batches": lambda dataset: list(dataset.reader.batches(6, drop_last=True, shuffle=True, seed=0)),
    "a selection of a reader": lambda dataset: list(dataset.reader.select([0, 1])),
}


@pytest.mark.parametrize("read", SHORT.values(), ids=SHORT)
@pytest.mark.parametrize("name", ["label", "lable"])
def test_less_than_all_records_says_nothing(make_file: MakeFile, read: Any, name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(TFRecordDataset(make_file(LATE), features={name: VarLenFeature("int"), "a": "int"}))
    assert not caught


def test_all_records_in_other_ways(make_file: MakeFile) -> None:
    def dataset() -> TFRecordDataset:
        return TFRecordDataset(make_file(RECORDS), features={"lable": VarLenFeature("int"), "label": "int"})

    for read in (
        lambda: list(dataset().repeat(2)),
        lambda: list(dataset().take(10)),
        lambda: list(dataset().filter(lambda record: record["label"] == 3)),
        lambda: list(dataset().bucket_by_length("label", [1], [4, 4])),
        lambda: list(MultiTFRecordDataset.from_datasets([dataset()], [1], infinite=False)),
        lambda: list(dataset().reader.select(range(9, -1, -1))),
        lambda: list(dataset().reader.batches(5, drop_last=True, shuffle=True)),
    ):
        with pytest.warns(UserWarning, match="'lable'; did you mean 'label'"):
            read()


WORKERS = """
import sys
from tfrecord import VarLenFeature
from tfrecord.torch import TFRecordDataset
from torch.utils.data import DataLoader

if __name__ == "__main__":
    path, context, persistent = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
    features = {"label": VarLenFeature("int"), "a": VarLenFeature("int"), "lable": VarLenFeature("int")}
    dataset = TFRecordDataset(path, features=features, batch_size=2)
    loader = DataLoader(dataset, None, num_workers=2, multiprocessing_context=context,
                        persistent_workers=persistent)
    next(iter(loader))
    print("a whole pass", file=sys.stderr, flush=True)
    for epoch in range(2):
        list(loader)
"""


@pytest.mark.parametrize(
    ("compression", "context", "persistent"),
    [("", "fork", True), ("gzip", "fork", False), ("", "spawn", False)],
)
def test_workers_put_together_what_they_saw(
    make_file: MakeFile, tmp_path: Path, compression: str, context: str, persistent: bool
) -> None:
    """Worker 0 never sees a `label`, and worker 1 never an `a`."""
    records = [example(label=ints(i)) if i % 4 > 1 else example(a=ints(i)) for i in range(12)]
    path = make_file(records, compression=compression)
    script = tmp_path / "script.py"
    script.write_text(WORKERS)
    command = [sys.executable, str(script), str(path), context, str(persistent)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    first, _, whole = done.stderr.partition("a whole pass")
    assert "no record" not in first
    assert whole.count("no record that was read has") == 1 and "a feature 'lable'" in whole, whole


def test_what_workers_saw_belongs_to_one_epoch() -> None:
    counter = EpochCounter()
    no, yes = [True, False], [True, True]
    assert counter.end_share(0, 0, 2, no) is None
    assert counter.end_share(1, 1, 2, no) is None  # another epoch has other shares
    assert counter.end_share(1, 1, 2, no) is None
    assert counter.end_share(1, 0, 3, no) is None
    assert counter.end_share(1, 1, 2, no) is None
    assert counter.end_share(1, 0, 2, no) == no
    assert counter.end_share(2, 0, 2, yes) is None
    assert counter.end_share(2, 1, 2, no) == yes
    many = [place % 5 == 0 for place in range(300)]
    assert counter.end_share(3, 0, 1, many) == [
        flag or place >= 252 or place == 1 for place, flag in enumerate(many)
    ]


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
