"""How batches get from worker processes to the loop, and the memory that this takes."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from simulation import ids
from torch.utils.data import DataLoader

from tfrecord.torch import TFRecordDataset
from tfrecord.torch._workers import packing
from tfrecord.torch._workers.packing import TensorDict

# What torch and torchdata say of this machine and of each other.
pytestmark = [
    pytest.mark.one_run,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
DESCRIPTION = {"id": "int", "x": "float", "name": "byte"}


def loader(dataset: Any, workers: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=True, **options)


class TestBatchesAcrossProcesses:
    def test_a_batch_arrives_as_it_was(self, make: Any) -> None:
        """Small batches by the pipe, large ones by memory used again; all writable and of their own."""
        for size, count in ((4, 8), (2000, 6000)):
            dataset = TFRecordDataset(make([count]), None, DESCRIPTION, batch_size=size)
            here, there = list(dataset), list(loader(dataset, 1))
            assert len(here) == len(there) == count // size
            for ours, theirs in zip(here, there, strict=True):
                assert type(theirs) is TensorDict and isinstance(theirs, dict)
                assert list(ours) == list(theirs)
                assert ours["name"] == theirs["name"] and isinstance(theirs["name"], list)
                for name in ("id", "x"):
                    assert ours[name].equals(theirs[name])
                    assert theirs[name].values.dtype == ours[name].values.dtype
                theirs["id"].values.add_(1)
            assert torch.equal(there[0]["id"].values, here[0]["id"].values + 1)

    def test_memory_is_free_again_after_a_break(self, make: Any) -> None:
        dataset = TFRecordDataset(make([6000]), None, DESCRIPTION, batch_size=500)
        data = loader(dataset, 1, prefetch_factor=8)
        for _ in range(5):
            next(iter(data))
        assert sorted(ids(data)) == list(range(6000))

    def test_other_values_pass_too(self) -> None:
        batch = TensorDict(a=torch.arange(3), n=None, s="text", e=[], b=[b"", b"x\0"], z=torch.empty(0, 2))
        back = pickle.loads(pickle.dumps(batch))
        assert type(back) is TensorDict and back.copy().keys() == batch.keys()
        assert (back["n"], back["s"], back["e"], back["b"]) == (None, "text", [], [b"", b"x\0"])


def test_tensors_of_any_layout_pass() -> None:
    one = torch.arange(1.0)
    batch = {
        "expanded": one.expand(3),
        "single": one.as_strided((1,), (0,)),
        "wide": torch.arange(6).reshape(2, 3).T,
        "step": torch.arange(9, dtype=torch.uint8)[::4],
        "none": torch.zeros(0, 2),
        "scalar": torch.tensor(7),
    }
    back = packing._unpack(*packing._pack(batch))
    assert all(torch.equal(back[name], value) for name, value in batch.items()) and len(back) == len(batch)


@pytest.mark.parametrize("size", [3, 300])
def test_lists_of_tensors_pass_in_one_piece(size: int) -> None:
    """Images of different sizes: by the pipe, or in a block of shared memory."""
    images = [torch.arange(i * size * 3, dtype=torch.uint8).reshape(i, size, 3) for i in range(20)]
    packed = packing._pack({"image": images, "label": torch.arange(20), "mixed": [torch.arange(2), None]})
    back = packing._unpack(*packed)
    assert type(back["image"]) is list and all(map(torch.equal, back["image"], images))
    assert torch.equal(back["label"], torch.arange(20)) and back["mixed"][1] is None
    back["image"][2].add_(1)
    assert not torch.equal(back["image"][2], images[2])


def _private(pid: int | None) -> int:
    """Anonymous and shared memory of a process in bytes, whoever else maps its pages.

    (Private or proportional sizes of a forked process grow when its parent lets go of pages they share.)
    """
    sizes = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(1024 * int(sizes[name].split()[0]) for name in ("RssAnon", "RssShmem"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells these sizes")
class TestMemory:
    def test_workers_stay_flat_over_ten_epochs(self, make: Any) -> None:
        paths = make([4000, 4000])
        dataset = TFRecordDataset(paths, None, DESCRIPTION, shuffle=True, batch_size=64)
        data = loader(dataset, 2)
        used = []
        for _ in range(12):
            assert sum(len(batch["name"]) for batch in data) == 8000
            used.append(sum(_private(worker.pid) for worker in multiprocessing.active_children()))
        assert used[-1] < used[1] + (2 << 20), used

    def test_a_queue_is_bounded_in_bytes(self, tmp_path: Any) -> None:
        """400 records of 100 kB through a queue of 1,000 records or 2 MB: never much more than 2 MB."""
        import tracemalloc

        from tfrecord.writer import TFRecordWriter

        path = tmp_path / "large.tfrecord.gz"
        with TFRecordWriter(path, compression_type="GZIP") as writer:
            for i in range(400):
                writer.write({"id": (i, "int"), "x": (bytes(100_000), "byte")})
        dataset = TFRecordDataset(
            path, None, {"id": "int"}, shuffle_queue_size=1000, shuffle_queue_bytes=2_000_000
        )
        tracemalloc.start()
        got = ids(dataset)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sorted(got) == list(range(400)) and got != list(range(400))
        assert peak < 12 << 20
        assert max(abs(place - number) for place, number in enumerate(got[:300])) > 5
