"""States: what they hold, and where they go on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulation import ids, read_with

from tfrecord.torch import TFRecordDataset


class TestStates:
    def test_a_state_names_what_differs(self, make: Any) -> None:
        paths = make([12])
        state = read_with(TFRecordDataset(paths, shuffle=True, batch_size=3), 2)
        assert (state["epoch"], state["position"]) == (0, 2)
        for options, name in (
            ({"batch_size": 3, "seed": 1}, "seed"),
            ({"batch_size": 4}, "batch_size"),
            ({"batch_size": 3, "shuffle": "block"}, "shuffle"),
            ({"batch_size": 3, "drop_last": True}, "drop_last"),
        ):
            with pytest.raises(ValueError, match=rf"differs in .*{name} \(state: "):
                TFRecordDataset(paths, **{"shuffle": True, **options}).load_state_dict(state)
        for other in (make([13]), make([12], first=1)):
            with pytest.raises(ValueError, match="data"):
                TFRecordDataset(other, shuffle=True, batch_size=3).load_state_dict(state)
        moved = make([5, 7])
        TFRecordDataset(moved, shuffle=True, batch_size=3).load_state_dict(state)
        whose = {key: value for key, value in state.items() if key != "world_size"}
        for nothing in ({}, None, {"epoch": 1}, whose, state | {"options": None}):
            with pytest.raises(ValueError, match="not a state"):
                TFRecordDataset(paths).load_state_dict(nothing)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="version 9"):
            TFRecordDataset(paths).load_state_dict(state | {"version": 9})
        with pytest.raises(ValueError, match="epoch and position"):
            TFRecordDataset(paths, shuffle=True, batch_size=3).load_state_dict(state | {"position": -1})

    def test_the_last_epoch_there_is(self, make: Any) -> None:
        dataset = TFRecordDataset(make([5]), shuffle=True)
        for epoch in (2**62 - 1, 2**64, -1):
            with pytest.raises(ValueError, match="an epoch must be an integer of at least 0 and at most"):
                dataset.set_epoch(epoch)
        dataset.set_epoch(2**62 - 2)
        assert sorted(ids(dataset)) == list(range(5))
        dataset.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        assert sorted(ids(dataset)) == list(range(5))

    def test_set_epoch_after_a_state(self, make: Any) -> None:
        paths = make([9])
        epochs = [ids(one) for one in [TFRecordDataset(paths, shuffle=True)] for _ in range(3)]
        dataset = TFRecordDataset(paths, shuffle=True)
        dataset.load_state_dict(dataset.state_at(1, 4))
        dataset.set_epoch(1)
        assert ids(dataset) == epochs[1][4:]
        dataset.set_epoch(1)
        assert ids(dataset) == epochs[1]
        dataset.load_state_dict(dataset.state_at(1, 4))
        dataset.set_epoch(0)
        assert ids(dataset) == epochs[0]
        assert dataset.state_at(1, 9)["epoch"] == 2
        for epoch, position in ((0, 10), (-1, 0), (0, -1)):
            with pytest.raises(ValueError, match=f"9 items.*got epoch {epoch}, position {position}"):
                dataset.state_at(epoch, position)
        with pytest.raises(ValueError, match="at least 0"):
            dataset.set_epoch(-1)

    def test_any_ranks_state_serves_all(self, make: Any) -> None:
        paths = make([11])
        make_rank = lambda rank: TFRecordDataset(paths, shuffle=True, rank=rank, world_size=3)  # noqa: E731
        whole = ids(TFRecordDataset(paths, shuffle=True))
        for step in range(3):
            states = [read_with(make_rank(rank), step) for rank in range(3)]
            for state in states:
                rest = []
                for rank in range(3):
                    dataset = make_rank(rank)
                    dataset.load_state_dict(state)
                    rest += ids(dataset)
                assert sorted(rest) == sorted(whole[3 * step :])

    def test_states_are_small(self, make: Any) -> None:
        dataset = TFRecordDataset(make([1] * 30), shuffle_queue_size=1000)
        assert len(json.dumps(read_with(dataset, 7))) < 500
