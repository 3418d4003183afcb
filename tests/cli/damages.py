"""Files damaged at random, the same for the same seed.

Run as a script it salvages 10,000 of them: `python tests/cli/damages.py [COUNT]`.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from indexer.framing import frame_record, scan  # noqa: E402
from tfrecord.repair import salvage  # noqa: E402

_PAGE = 4096


def make_payloads(chance: random.Random) -> list[bytes]:
    """Records of one of several habits: mixed, small, large, all of one size; some of them all zeros."""
    habit = chance.randrange(4)
    made = []
    for _ in range(chance.randrange(1, 40)):
        most = chance.choice([0, 5, 40, 300, 5000]) if habit == 0 else [60, 0, 2000, 8][habit]
        size = most if habit == 3 else chance.randrange(most + 1)
        made.append(bytes(size) if chance.random() < 0.3 else chance.randbytes(size))
    return made


def damaged_file(seed: int) -> tuple[bytes, list[bytes], list[bytes]]:
    """The damaged bytes, the payloads of the records no byte of which was touched, and what else may be
    found."""
    chance = random.Random(seed)
    payloads = make_payloads(chance)
    frames = [frame_record(payload) for payload in payloads]
    data = bytearray(b"".join(frames))
    origin = list(range(len(data)))  # of each byte, where it was; -1 where it is new
    for _ in range(chance.choice([1, 1, 1, 2, 3, 6])):
        if data:
            _damage(chance, data, origin)
    place = {at: i for i, at in enumerate(origin) if at >= 0}
    good, start = [], 0
    for payload, frame in zip(payloads, frames, strict=True):
        at = place.get(start)
        if at is not None and origin[at : at + len(frame)] == list(range(start, start + len(frame))):
            good.append(payload)
        start += len(frame)
    return bytes(data), good, payloads


def _damage(chance: random.Random, data: bytearray, origin: list[int]) -> None:
    """One bit flip, cut, hole, wiped run or page, or insertion."""
    kind = chance.choice(["flip", "cut", "hole", "wipe", "insert"])
    at = chance.randrange(len(data))
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
        origin[at] = -1
    elif kind == "cut":
        del data[at:], origin[at:]
    elif kind == "hole":
        size = chance.randrange(1, chance.choice([1, 3, 16, 100, 4000]) + 1)
        del data[at : at + size], origin[at : at + size]
    elif kind == "wipe":
        size = chance.choice([1, 16, 512, _PAGE])
        at = at // _PAGE * _PAGE if size == _PAGE else at
        for i in range(at, min(at + size, len(data))):
            if data[i]:
                data[i], origin[i] = 0, -1
    else:
        size = chance.randrange(1, chance.choice([1, 3, 12, 16, 100, 4000]) + 1)
        data[at:at] = chance.choice([bytes(size), chance.randbytes(size)])
        origin[at:at] = [-1] * size


def run(count: int) -> int:
    """Salvage so many files; how many went wrong."""
    wrong = records = damages = 0
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "in"), Path(folder, "out")
        for seed in range(count):
            data, good, known = damaged_file(seed)
            source.write_bytes(data)
            report = salvage(source, output)
            written = output.read_bytes()
            found = scan(written)
            payloads = [
                written[at + 12 : at + 12 + size]
                for at, size in zip(found.offsets.tolist(), found.lengths.tolist(), strict=True)
            ]
            lost = Counter(good) - Counter(payloads)
            if found.reason or lost or not set(payloads) <= set(known):
                wrong += 1
                print(f"seed {seed}: {sum(lost.values())} lost, {set(payloads) - set(known)!r:.80} foreign")
            records += len(good)
            damages += report.num_damages
    print(
        f"{count} damaged files, {records} undamaged records, {damages} damaged stretches: {wrong} went wrong"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(1 if run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000) else 0)
