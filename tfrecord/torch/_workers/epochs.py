"""Which epoch a pass belongs to: a counter that a dataset shares with the worker processes that read it.

A DataLoader never tells a dataset that an epoch begins. Its workers are copies in other processes: new ones
for each pass, or persistent ones. So the count is kept in shared memory. A worker that starts a pass checks
whether another worker of the same pass has started already; if not, it takes the next epoch for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import current_process
from typing import Any, NamedTuple
from zlib import crc32

from tfrecord.torch._workers.shared_words import SLOT_WORDS, SharedWords

__all__ = ["EpochCounter", "PassKey", "Start"]

_MASK_WORDS = 4
_PLACES = 120  # skipped records remembered by position
_RECENT = 7  # passes remembered; a process rarely runs two at once

# Words of a slot: the next pass, then a ring of recent ones.
_EPOCH, _POSITION, _LOADED, _LAYOUT, _CURSOR, _SAID, _BY_WORKERS, _SKIPPED = range(8)
# What the workers have seen; then an epoch, a number of workers, and which of them have read their shares.
_SEEN, _SEEN_WORDS, _SHARED_EPOCH, _SHARERS, _ENDED, _HEAD = 8, 4, 12, 13, 14, 16
# Words of a recent pass; it is in use where its state is not 0.
_STATE, _SEED, _NUMBER, _IDENTITY, _P_EPOCH, _P_POSITION, _P_LAYOUT, _JOINED = range(8)
_DONE = _JOINED + _MASK_WORDS
_PASS_WORDS = 15
_FIRST_PLACE = _HEAD + _RECENT * _PASS_WORDS
assert _DONE + _MASK_WORDS <= _PASS_WORDS and _FIRST_PLACE + _PLACES <= SLOT_WORDS


class Start(NamedTuple):
    """Where a pass begins. `layout` is 0, or the number of workers whose own count `position` is."""

    epoch: int
    position: int = 0
    layout: int = 0


class PassKey(NamedTuple):
    """What the workers of one pass have in common, and which of them this is."""

    seed: int  # the DataLoader draws it anew for each set of workers (but a reseeded generator repeats it)
    number: int  # of the pass, among those of this set of workers
    worker: int
    num_workers: int
    identity: int  # of the process, less `worker`: nearly equal for workers started together

    @classmethod
    def of_worker(cls, info: Any, number: int) -> PassKey:
        identity = current_process()._identity
        return cls(
            info.seed - info.id,
            number,
            info.id,
            info.num_workers,
            (identity[-1] if identity else 0) - info.id,
        )


class EpochCounter:
    """The next epoch of a dataset and the position it starts from.

    A process and its loader's workers share it. A copy made by pickle counts for itself from then on.
    """

    def __init__(self) -> None:
        self._shared = SharedWords()

    @contextmanager
    def _words(self) -> Iterator[Any]:
        with self._shared.locked(inherited=_LAYOUT + 1) as words:
            yield words

    def peek(self, key: PassKey | None = None) -> Start:
        """Where the next pass starts; with a key, that pass if another worker has begun it already."""
        with self._words() as words:
            found = None if key is None else self._find(words, key)
            if found is not None:
                return Start(*map(int, found[_P_EPOCH : _P_LAYOUT + 1]))
            return Start(int(words[_EPOCH]), int(words[_POSITION]), int(words[_LAYOUT]))

    def set(self, start: Start, *, loaded: bool = False) -> None:
        """Set where the next pass starts, here and in all workers."""
        with self._words() as words:
            words[_EPOCH], words[_POSITION], words[_LAYOUT] = start
            words[_LOADED] = loaded
            words[_BY_WORKERS] = 0

    def set_epoch(self, epoch: int) -> None:
        """Start `epoch` next, from its beginning unless it is the epoch of a loaded state."""
        with self._words() as words:
            if not (words[_LOADED] and words[_EPOCH] == epoch):
                words[_EPOCH], words[_POSITION], words[_LAYOUT], words[_LOADED] = epoch, 0, 0, 0
            words[_BY_WORKERS] = 0

    def begin(self, key: PassKey | None = None) -> Start:
        """Start the next pass; with a worker's key, once for all the workers of that pass."""
        with self._words() as words:
            if key is not None:
                found = self._find(words, key)
                if found is not None:
                    _set_bit(found[_JOINED:], key.worker)
                    return Start(*map(int, found[_P_EPOCH : _P_LAYOUT + 1]))
            start = Start(int(words[_EPOCH]), int(words[_POSITION]), int(words[_LAYOUT]))
            words[_EPOCH] += 1
            words[_POSITION] = words[_LAYOUT] = words[_LOADED] = 0
            words[_BY_WORKERS] = key is not None
            if key is not None:
                _set_bit(self._record(words, key, start)[_JOINED:], key.worker)
            return start

    def restore(self, key: PassKey, start: Start, *, done: bool) -> None:
        """A worker resumes within a pass; it records whether its own share was finished."""
        with self._words() as words:
            found = self._find(words, key)
            if found is None:
                found = self._record(words, key, start)
                words[_EPOCH], words[_POSITION], words[_LAYOUT], words[_LOADED] = start.epoch + 1, 0, 0, 0
            _set_bit(found[_JOINED:], key.worker)
            if done:
                _set_bit(found[_DONE:], key.worker)

    def begin_next(self, epoch: int) -> None:
        """Workers restored at the end of an epoch begin `epoch`, the next one; it counts once."""
        with self._words() as words:
            if words[_EPOCH] == epoch and not words[_POSITION]:
                words[_EPOCH] += 1

    def all_done(self, key: PassKey) -> bool:
        """Whether all workers of a restored pass had finished, so that the next epoch begins."""
        with self._words() as words:
            found = self._find(words, key, joined=True)
            return found is not None and all(_bit(found[_DONE:], worker) for worker in range(key.num_workers))

    def read_by_workers(self) -> bool:
        """Whether workers began the last pass, so that only the loop knows its progress."""
        with self._words() as words:
            return bool(words[_BY_WORKERS])

    def first(self, bit: int) -> bool:
        """True once for each bit, over all processes: for warnings that are given once."""
        with self._words() as words:
            said = int(words[_SAID]) >> bit & 1
            words[_SAID] |= 1 << bit
            return not said

    def end_share(self, epoch: int, share: int, num_workers: int, flags: Sequence[bool]) -> list[bool] | None:
        """A worker has read its whole share of an epoch, and has ever seen the things with these flags.

        Returns the flags that any worker has, once all the shares of that epoch were read; else None.
        Flags for which there is no room come back True.
        """
        room = 63 * _SEEN_WORDS
        mask = sum(1 << place for place, flag in enumerate(flags[:room]) if flag)
        with self._words() as words:
            seen = words[_SEEN : _SEEN + _SEEN_WORDS]
            seen |= [mask >> 63 * i & (1 << 63) - 1 for i in range(_SEEN_WORDS)]
            if (words[_SHARED_EPOCH], words[_SHARERS]) != (epoch, num_workers):
                words[_SHARED_EPOCH], words[_SHARERS], words[_ENDED] = epoch, num_workers, 0
            if num_workers > 63:
                return None
            words[_ENDED] |= 1 << share
            if words[_ENDED] != (1 << num_workers) - 1:
                return None
            return [place >= room or _bit(seen, place) for place in range(len(flags))]

    def record_skip(self, path: str | None, record: int) -> None:
        """Count a damaged record that was skipped, once over all processes.

        Only the first ones are remembered. After that, new workers may count a record again.
        """
        place = crc32((path or "").encode("utf-8", "surrogateescape")) << 31 ^ record + 1
        with self._words() as words:
            known = words[_FIRST_PLACE : _FIRST_PLACE + min(int(words[_SKIPPED]), _PLACES)]
            if place in known:
                return
            if len(known) < _PLACES:
                words[_FIRST_PLACE + len(known)] = place
            words[_SKIPPED] += 1

    def num_skipped(self) -> int:
        """How many damaged records were skipped."""
        with self._words() as words:
            return int(words[_SKIPPED])

    def _find(self, words: Any, key: PassKey, *, joined: bool = False) -> Any:
        """The recent pass that a worker belongs to: one of its set of workers, which each worker joins
        once."""
        for i in range(_RECENT):
            found = words[_HEAD + i * _PASS_WORDS : _HEAD + (i + 1) * _PASS_WORDS]
            same = found[_STATE] and found[_SEED] == key.seed and found[_NUMBER] == key.number
            near = abs(int(found[_IDENTITY]) - key.identity) < key.num_workers
            if same and near and bool(_bit(found[_JOINED:], key.worker)) == joined:
                return found
        return None

    def _record(self, words: Any, key: PassKey, start: Start) -> Any:
        at = int(words[_CURSOR]) % _RECENT
        words[_CURSOR] += 1
        found = words[_HEAD + at * _PASS_WORDS : _HEAD + (at + 1) * _PASS_WORDS]
        found[:] = 0
        found[:_JOINED] = (1, key.seed, key.number, key.identity, *start)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"shared": self._shared, "start": tuple(self.peek())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._shared = state["shared"]
        if self._shared.is_new:
            self.set(Start(*state["start"]), loaded=state["start"][1] > 0)


def _bit(mask: Any, worker: int) -> bool:
    return worker < 63 * _MASK_WORDS and bool(int(mask[worker // 63]) >> worker % 63 & 1)


def _set_bit(mask: Any, worker: int) -> None:
    if worker < 63 * _MASK_WORDS:
        mask[worker // 63] |= 1 << worker % 63
