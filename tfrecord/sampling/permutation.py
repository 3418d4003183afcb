"""A keyed permutation of 0 .. count - 1 in constant memory, and the hash that it uses."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

# Up to this count a permutation is a sorted table of hashes, uniform over all n! orders; beyond it a network.
_TABLE_UP_TO = 1 << 14
_ROUNDS = 8
_MAX_COUNT = 1 << 62
_CHUNK = 1 << 14
_U64 = np.uint64
_MUL1, _MUL2 = _U64(0xBF58476D1CE4E5B9), _U64(0x94D049BB133111EB)
_GOLDEN = _U64(0x9E3779B97F4A7C15)


def derive_key(*parts: int | str) -> int:
    """A 64-bit key from these parts, the same on every machine and in every release."""
    digest = blake2b(repr(parts).encode(), digest_size=8, person=b"tfrecord-order").digest()
    return int.from_bytes(digest, "little")


def hash_places(places: npt.NDArray[Any], key: int) -> UInt64Array:
    """64 random-looking bits for each place, a function of place and key alone (splitmix64's finaliser)."""
    x: UInt64Array = places.astype(_U64) * _GOLDEN  # a copy; integer arrays wrap around
    x += _U64(key)
    for shift, factor in ((30, _MUL1), (27, _MUL2)):
        x ^= x >> _U64(shift)
        x *= factor
    x ^= x >> _U64(31)
    return x


def as_count(count: Any, what: str = "count") -> int:
    """`count` as an int in 0 .. 2**62; anything else is a TypeError or ValueError."""
    number = operator.index(count)
    if not 0 <= number <= _MAX_COUNT:
        raise ValueError(f"{what} must be from 0 to 2**62, got {number}")
    return number


class Permutation(Sequence[int]):
    """The positions 0 .. count - 1, each once, in an order that depends only on `seed` and `epoch`.

    A sequence of ints: `len`, `[place]`, slices, arrays of places (int64 arrays), iteration, `in`, `index`.
    It takes O(1) memory at any count (tried at 10**10): a keyed bijection over the next power of two, walked
    until it lands below `count`; up to 16,384 positions it is a sorted table, exactly uniform.

    >>> order = Permutation(5, seed=1)
    >>> sorted(order)
    [0, 1, 2, 3, 4]
    >>> order.index(order[3])
    3

    Raises ValueError for a count below 0 or above 2**62.
    """

    __slots__ = ("_count", "_inverse", "_keys", "_left_bits", "_right_bits", "_table", "epoch", "seed")

    def __init__(self, count: int, *, seed: int = 0, epoch: int = 0) -> None:
        self._count = as_count(count)
        self.seed = operator.index(seed)
        self.epoch = operator.index(epoch)
        bits = max(self._count - 1, 1).bit_length()
        self._left_bits = bits // 2
        self._right_bits = bits - self._left_bits
        self._keys = [derive_key("round", self.seed, self.epoch, i) for i in range(_ROUNDS)]
        self._table: Int64Array | None = None
        self._inverse: Int64Array | None = None
        if self._count <= _TABLE_UP_TO:
            hashes = hash_places(np.arange(self._count), self._keys[0])
            # A second hash, keyed apart, decides among equal ones and keeps the sort the same everywhere.
            ties = hash_places(np.arange(self._count), self._keys[1])
            self._table = np.lexsort((ties, hashes)).astype(np.int64)

    def __len__(self) -> int:
        return self._count

    def positions(self, places: npt.NDArray[Any]) -> Int64Array:
        """The positions at these places (any shape, 0 .. count - 1): int64 of the same shape."""
        places = np.asarray(places)
        if self._table is not None:
            chosen: Int64Array = self._table[places]
            return chosen
        return self._walk(places, self._forward)

    def places(self, positions: npt.NDArray[Any]) -> Int64Array:
        """The inverse: at which places these positions are."""
        positions = np.asarray(positions)
        if self._table is not None:
            if self._inverse is None:
                self._inverse = np.empty(self._count, np.int64)
                self._inverse[self._table] = np.arange(self._count)
            chosen: Int64Array = self._inverse[positions]
            return chosen
        return self._walk(positions, self._backward)

    def _walk(self, start: npt.NDArray[Any], step: Any) -> Int64Array:
        # The network permutes a power of two below 2 * count, so fewer than two steps a value on average.
        flat = start.astype(_U64).ravel()
        out = np.empty(len(flat), _U64)
        for at in range(0, len(flat), _CHUNK):  # small enough to stay in the cache
            value = step(flat[at : at + _CHUNK])
            outside = np.flatnonzero(value >= _U64(self._count))
            while len(outside):
                walked = step(value[outside])
                value[outside] = walked
                outside = outside[walked >= _U64(self._count)]
            out[at : at + _CHUNK] = value
        return out.astype(np.int64).reshape(start.shape)

    def _half(self, value: UInt64Array, key: int, bits: int) -> UInt64Array:
        """One round's function: `bits` bits that depend on all of `value` and the key."""
        x: UInt64Array = value + _U64(key)
        x *= _MUL1
        x ^= x >> _U64(32)
        x *= _MUL2
        x >>= _U64(64 - bits)
        return x

    def _halves(self, value: UInt64Array) -> tuple[UInt64Array, UInt64Array]:
        return value >> _U64(self._right_bits), value & _U64((1 << self._right_bits) - 1)

    def _joined(self, left: UInt64Array, right: UInt64Array) -> UInt64Array:
        left <<= _U64(self._right_bits)
        left |= right
        return left

    def _forward(self, value: UInt64Array) -> UInt64Array:
        left, right = self._halves(value)
        for i in range(0, _ROUNDS, 2):
            left ^= self._half(right, self._keys[i], self._left_bits)
            right ^= self._half(left, self._keys[i + 1], self._right_bits)
        return self._joined(left, right)

    def _backward(self, value: UInt64Array) -> UInt64Array:
        left, right = self._halves(value)
        for i in range(_ROUNDS - 2, -1, -2):
            right ^= self._half(left, self._keys[i + 1], self._right_bits)
            left ^= self._half(right, self._keys[i], self._left_bits)
        return self._joined(left, right)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice | list[int] | npt.NDArray[Any]) -> Any: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self.positions(np.arange(*place.indices(self._count), dtype=np.int64))
        if isinstance(place, (list, np.ndarray)):
            asked = np.asarray(place, np.int64 if isinstance(place, list) else None)
            if asked.dtype.kind not in "iu":
                raise TypeError(f"places must be integers, got dtype {asked.dtype}")
            asked = np.where(asked < 0, asked + self._count, asked)
            if asked.size and not (0 <= int(asked.min()) and int(asked.max()) < self._count):
                raise IndexError(f"a place is out of range: there are {self._count}")
            return self.positions(asked)
        wanted = operator.index(place)
        if not -self._count <= wanted < self._count:
            raise IndexError(f"place {wanted} is out of range: there are {self._count}")
        return int(self.positions(np.array([wanted % self._count]))[0])

    def __iter__(self) -> Iterator[int]:
        for start in range(0, self._count, _CHUNK):
            yield from self.positions(np.arange(start, min(start + _CHUNK, self._count))).tolist()

    def __contains__(self, position: object) -> bool:
        return isinstance(position, (int, np.integer)) and 0 <= int(position) < self._count

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The place of a position; ValueError if there is none (in `[start, stop)`)."""
        if value in self:
            place = int(self.places(np.array([int(value)]))[0])
            if place in range(*slice(start, stop).indices(self._count)):
                return place
        raise ValueError(f"{value!r} is not in the permutation")

    def count(self, value: Any) -> int:
        """1 for a position, 0 for anything else."""
        return int(value in self)

    def __repr__(self) -> str:
        return f"Permutation({self._count}, seed={self.seed}, epoch={self.epoch})"
