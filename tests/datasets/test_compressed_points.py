"""Datasets over compressed files that are entered at points."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from compressed import framed, text  # noqa: E402

import tfrecord  # noqa: E402
from indexer import inflaters  # noqa: E402
from indexer.formats import load_index  # noqa: E402
from indexer.inputstream import InputStream  # noqa: E402
from tfrecord.torch import TFRecordDataset, TFRecordMapDataset  # noqa: E402

pytestmark = pytest.mark.skipif(not inflaters.finds_blocks(), reason="there is no zlib library here")
COUNT = 2000


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(1)
    content = text(rng, 4 << 20)
    records = []
    for number in range(COUNT):
        start = rng.randrange(len(content) - 4000)
        value = content[start : start + rng.randrange(4000)]
        records.append(tfrecord.encode_example({"id": (number, "int"), "text": (value, "bytes")}))
    path = tmp_path_factory.mktemp("points") / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(framed(records)))
    index = tfrecord.build_index(path)
    assert index.points is not None and len(index.points) > 2
    return path


@pytest.fixture(autouse=True)
def no_spool(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("it was spooled")

    monkeypatch.setattr("tfrecord._reading.spool.Spool._add", refuse)


def ids(items: Any) -> list[int]:
    return [number for item in items for number in torch.as_tensor(item["id"]).reshape(-1).tolist()]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("shuffle", [False, "block"])
def test_each_record_comes_once_in_the_same_order_for_any_number_of_workers(
    packed: Path, shuffle: Any
) -> None:
    orders = []
    for workers in (0, 1, 2, 3, 8):
        dataset = TFRecordDataset(
            packed, features={"id": "int"}, batch_size=200, shuffle=shuffle, seed=3, access="points"
        )
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
        orders.append(ids(loader))
    assert sorted(orders[0]) == list(range(COUNT))
    assert all(order == orders[0] for order in orders)
    assert (orders[0] == sorted(orders[0])) is (not shuffle)


def test_records_one_by_one(packed: Path) -> None:
    for workers in (0, 2):
        dataset = TFRecordDataset(packed, features={"id": "int"}, access="points")
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
        assert ids(loader) == list(range(COUNT))


def test_a_true_shuffle(packed: Path) -> None:
    dataset = TFRecordDataset(packed, features={"id": "int"}, shuffle=True, batch_size=500, access="points")
    first = ids(dataset)
    assert sorted(first) == list(range(COUNT)) != first


def test_ranks_share_one_file(packed: Path) -> None:
    found = []
    for rank in range(4):
        found += ids(TFRecordDataset(packed, features={"id": "int"}, rank=rank, world_size=4, batch_size=20))
    assert sorted(found) == list(range(COUNT))


def test_an_epoch_is_resumed_in_the_middle(packed: Path) -> None:
    def make() -> Any:
        return TFRecordDataset(
            packed, features={"id": "int"}, batch_size=200, shuffle="block", access="points"
        )

    first = make()
    items = iter(first)
    seen = [next(items) for _ in range(3)]
    again = make()
    again.load_state_dict(first.state_dict())
    assert sorted(ids(seen) + ids(again)) == list(range(COUNT))
    assert ids(seen) + ids(items) == ids(make())


def test_a_map_style_dataset(packed: Path) -> None:
    dataset = TFRecordMapDataset(packed, features={"id": "int"}, access="points")
    assert len(dataset) == COUNT
    assert ids(dataset.__getitems__([1999, 5, 1000])) == [1999, 5, 1000]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.filterwarnings(
    "ignore:.*compressed file.*without an index", "ignore:This DataLoader will create"
)
def test_streams_deal_an_indexed_file_by_points(packed: Path, workers: int, tmp_path: Path) -> None:
    """A file without an index makes the dataset a stream."""
    other = tmp_path / "b.tfrecord.gz"
    records = [tfrecord.encode_example({"id": (COUNT + number, "int")}) for number in range(100)]
    other.write_bytes(gzip.compress(framed(records)))
    dataset = TFRecordDataset([str(packed), str(other)], features={"id": "int"})
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
    assert sorted(ids(loader)) == list(range(COUNT + 100))


def test_a_stream_decompresses_only_its_part(packed: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.tfrecord.gz"
    other.write_bytes(gzip.compress(b""))
    passed = []
    read = InputStream.read_some

    def count(self: Any, size: int) -> bytes:
        piece = read(self, size)
        passed.append(len(piece))
        return piece

    found = []
    sizes = []
    source = TFRecordDataset([str(packed), str(other)], features={"id": "int"}).source
    with mock.patch.object(InputStream, "read_some", count):
        for consumer in range(3):
            passed.clear()
            found += [record for _, record, _ in source.stream(consumer, 3, None)]
            sizes.append(sum(passed))
    assert found == list(range(COUNT))
    assert max(sizes) < load_index(f"{packed}.tfindex").stream_size * 7 // 8
