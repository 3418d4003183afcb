"""States of datasets: small JSON-able dicts that say how far an epoch was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfrecord.torch._workers.epochs import Start

__all__ = ["MOST", "Restored", "check_state", "full_state", "start_of", "worker_fields"]

VERSION = 1
# Epochs and positions are below this, so that they and their successors fit into shared words.
MOST = 1 << 62
_KEYS = ("version", "epoch", "position", "rank", "world_size", "options")


class Restored(NamedTuple):
    """How far a worker was when its state was made; its share is the one of worker `worker -
    worker_offset`."""

    start: Start
    items_consumed: int = 0
    done: bool = False
    worker_offset: int = 0


def full_state(
    start: Start, options: Mapping[str, Any], rank: int, world_size: int, **more: Any
) -> dict[str, Any]:
    """A state: the position in the epoch, the description of the dataset, and who made it."""
    return {
        "version": VERSION,
        "epoch": start.epoch,
        "position": start.position,
        "rank": rank,
        "world_size": world_size,
        **more,
        "options": dict(options),
    }


def worker_fields(state: Mapping[str, Any]) -> tuple[int, int] | None:
    """(worker, number of workers) of a state made by a loader's worker; None for other states."""
    if state.get("num_workers") is None:
        return None
    return int(state["worker"]), int(state["num_workers"])


def check_state(state: Any, options: Mapping[str, Any]) -> None:
    """Raise ValueError if this is not a state, or if it belongs to another dataset, naming what differs."""
    if not isinstance(state, Mapping) or not all(key in state for key in _KEYS):
        raise ValueError("this is not a state of a tfrecord dataset (see state_dict)")
    if state["version"] != VERSION:
        raise ValueError(f"the state has version {state['version']}; this release reads version {VERSION}")
    epoch, position = state["epoch"], state["position"]
    if not (_is_count(epoch) and _is_count(position)):
        raise ValueError(
            f"the state's epoch and position must be integers >= 0, got {epoch!r} and {position!r}"
        )
    if not _is_count(state["world_size"]) or not state["world_size"]:
        raise ValueError(f"the state's world_size must be an integer >= 1, got {state['world_size']!r}")
    places = ("worker", "num_workers", "taken", "shift") if state.get("num_workers") is not None else ()
    for name in places:
        if not _is_count(state.get(name)):
            raise ValueError(f"the state's {name} must be an integer >= 0, got {state.get(name)!r}")
    if not _is_count(state.get("layout", 0)):
        raise ValueError(f"the state's layout must be an integer >= 0, got {state['layout']!r}")
    theirs = state["options"]
    if not isinstance(theirs, Mapping):
        raise ValueError(
            "this is not a state of a tfrecord dataset (see state_dict): its options are not a dict"
        )
    differing = [
        f"{name} (state: {theirs.get(name)!r}, dataset: {options.get(name)!r})"
        for name in dict.fromkeys((*theirs, *options))
        if _plain(theirs.get(name)) != _plain(options.get(name))
    ]
    if differing:
        raise ValueError(f"the state belongs to another dataset; it differs in {', '.join(differing)}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def _plain(value: Any) -> Any:
    """Tuples as lists, because JSON turns them into lists."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def start_of(state: Mapping[str, Any], rank: int, world_size: int) -> Start:
    """Where a dataset of this rank resumes."""
    if state.get("rank_done") and (state["rank"], state["world_size"]) == (rank, world_size):
        return Start(state["epoch"] + 1)
    return Start(state["epoch"], state["position"], int(state.get("layout", 0)))
