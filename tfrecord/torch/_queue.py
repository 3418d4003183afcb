"""Streams of payloads: a shuffle queue bounded in records and bytes, and one item of lookahead for the
end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["chunks_before_errors", "shuffle_payloads", "with_last"]

T = TypeVar("T")


def shuffle_payloads(
    payloads: Iterator[tuple[Any, int, Any]], size: int, most_bytes: int | None, rng: random.Random
) -> Iterator[tuple[Any, int, Any]]:
    """Payloads drawn at random from a queue.

    The queue holds at most `size` payloads and at most `most_bytes` bytes (but always room for one payload).
    Payloads are copied, so that the buffers they were read into are not kept.
    """
    held: list[tuple[Any, int, Any]] = []
    total = 0
    for path, record, view in payloads:
        payload = bytes(view)
        while held and (len(held) >= size or (most_bytes is not None and total + len(payload) > most_bytes)):
            drawn = rng.randrange(len(held))
            held[drawn], held[-1] = held[-1], held[drawn]
            item = held.pop()
            total -= len(item[2])
            yield item
        held.append((path, record, payload))
        total += len(payload)
    rng.shuffle(held)
    while held:
        yield held.pop()


def chunks_before_errors(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """The items, up to `size` at a time; an error comes after the items before it."""
    failure: Exception | None = None
    while failure is None:
        chunk: list[T] = []
        try:
            for item in itertools.islice(items, size):
                chunk.append(item)
        except Exception as error:
            failure = error
        if chunk:
            yield chunk
        elif failure is None:
            return
    try:
        raise failure
    finally:
        del failure  # as in `Prefetched`


def with_last(items: Iterator[T]) -> Iterator[tuple[T, bool]]:
    """Each item, and whether it is the last; an error comes only after the items before it."""
    failure: BaseException | None = None
    try:
        waiting = next(items)
    except StopIteration:
        return
    while True:
        try:
            following = next(items)
        except StopIteration:
            yield waiting, True
            return
        except Exception as error:
            failure = error
        yield waiting, False
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # as in `Prefetched`
        waiting = following
