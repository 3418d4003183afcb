"""States of a StatefulDataLoader at the end of an epoch that was read ahead; and the memory of workers."""

from __future__ import annotations

from typing import Any

import pytest
from simulation import ids
from torchdata.stateful_dataloader import StatefulDataLoader

from tfrecord.torch import TFRecordDataset
from tfrecord.torch._workers import blocks

pytestmark = [
    pytest.mark.one_run,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]


@pytest.mark.parametrize(
    ("method", "persistent", "prefetch", "inside"),
    [("fork", True, 3, False), ("fork", True, 4, True), ("fork", False, 4, True), ("spawn", True, 4, True)],
)
def test_no_epoch_is_skipped(make: Any, method: str, persistent: bool, prefetch: int, inside: bool) -> None:
    """The workers prefetch as much as they have, so that nothing they do tells of the loop."""
    paths = make([24])

    def fresh(method: str = method) -> Any:
        dataset = TFRecordDataset(paths, None, {"id": "int"}, shuffle=True, batch_size=5 if inside else None)
        return StatefulDataLoader(
            dataset,
            batch_size=None if inside else 5,
            num_workers=2,
            persistent_workers=persistent,
            prefetch_factor=prefetch,
            multiprocessing_context=method,
        )

    data = fresh("fork")
    expected = [ids(data) for _ in range(3)]
    steps = len(list(fresh("fork")))
    data = fresh()
    iterator = iter(data)
    for _ in range(steps):
        next(iterator)
    last = data.state_dict()  # the loop has the last item, and has not asked for more
    assert list(iterator) == []
    finished = data.state_dict()  # the loop has seen the end
    data = fresh()
    data.load_state_dict(finished)
    assert [ids(data), ids(data)] == expected[1:]
    data = fresh()
    data.load_state_dict(last)
    assert sorted(ids(data)) == list(range(24))
    assert ids(data) == expected[2]


@pytest.mark.skipif(not hasattr(blocks.os, "memfd_create"), reason="no memfd on this system")
class TestBlocks:
    def test_a_reused_descriptor_is_another_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The main process has the map of a block whose descriptor a later block got."""
        worker = blocks._Blocks()
        seen: list[bytes] = []
        for text in (b"first", b"later"):
            block = worker.take(100)
            assert block is not None
            worker.maps[block][64:69] = text
            seen.append(bytes(blocks.view(block)[:5]))
            blocks.release(block)
            assert not worker.maps[block][0]
            number = block.descriptor
            worker._drop(block)
        assert seen == [b"first", b"later"]
        assert worker.take(100).descriptor == number  # type: ignore[union-attr]

    def test_a_block_that_is_gone_is_not_another(self) -> None:
        worker = blocks._Blocks()
        old = worker.take(100)
        assert old is not None
        worker._drop(old)
        new = worker.take(100)
        assert new is not None and new.path == old.path
        with pytest.raises(OSError, match="another block"):
            blocks.view(old)


def numbers_of(items: list[Any]) -> list[int]:
    return [int(item["id"][0]) for item in items]


def test_stateful_loader_that_batches_restored_at_an_epochs_end(make: Any) -> None:
    """The next epoch has the same batches, in an order of the loader's: it goes on behind its last worker."""
    paths = make([11], index=True)

    def loader() -> Any:
        return StatefulDataLoader(
            TFRecordDataset(paths, None, {"id": "int"}, shuffle=True),
            batch_size=3,
            num_workers=2,
            collate_fn=numbers_of,
        )

    whole = loader()
    epochs = [list(whole) for _ in range(3)]
    interrupted = loader()
    batches = iter(interrupted)
    assert [next(batches) for _ in range(4)] == epochs[0]
    restored = loader()
    restored.load_state_dict(interrupted.state_dict())
    assert sorted(restored) == sorted(epochs[1])
    assert list(restored) == epochs[2]
