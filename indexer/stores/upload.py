"""A file object whose bytes become one object in a store, whole or not at all."""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

from indexer.stores import Url, open_store

__all__ = ["Upload", "check_writable"]

_CHUNK = 1 << 20
_CHUNKS_AHEAD = 16


def check_writable(url: str) -> None:
    """`ValueError` for a URL that can only be read."""
    if url.startswith(("http://", "https://")):
        raise ValueError(f"{url}: http and https URLs are read only; write to a bucket or a local file")


class _Aborted(Exception):
    """The writer aborted the upload."""


class Upload:
    """Writes an object forward, in constant memory. It exists after `close`, not after `abort`."""

    def __init__(self, url: str, *, new: bool = False) -> None:
        self.name = str(url)
        check_writable(self.name)
        self.closed = False
        self._store, self._key = open_store(url if isinstance(url, Url) else Url(url))
        if new and self._store.exists(self._key):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.name)
        self._pid = os.getpid()
        self._chunks: queue.Queue[bytes | None | _Aborted] = queue.Queue(_CHUNKS_AHEAD)
        self._error: BaseException | None = None
        self._pending = bytearray()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfrecord-upload", daemon=True)
        self._thread.start()

    def write(self, data: Any) -> int:
        """Take the bytes; raises the error of earlier ones, if any."""
        if self.closed:
            raise ValueError(f"{self.name} is closed")
        self._pending += data
        if len(self._pending) >= _CHUNK:
            self._send(bytes(self._pending))
            self._pending.clear()
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Does nothing: the object appears only when it is complete."""

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Finish the object. If writing it failed, raises the error, and no object exists."""
        if self.closed:
            return
        if self._pid != os.getpid():  # a forked copy: the upload belongs to the parent
            self.closed = True
            return
        try:
            if self._pending:
                self._send(bytes(self._pending))
            self._send(None)
        finally:
            self.closed = True
        self._thread.join()
        if self._error is not None:
            raise self._error

    def abort(self) -> None:
        """Abort the upload: no new object is created."""
        if not self.closed and self._pid == os.getpid():
            self.closed = True
            if not self._done.is_set():
                self._put(_Aborted())
            self._thread.join()

    discard = abort

    def _send(self, chunk: bytes | None) -> None:
        if not self._put(chunk):
            self.closed = True
            raise self._error or RuntimeError("the upload ended early")

    def _put(self, chunk: bytes | None | _Aborted) -> bool:
        while not self._done.is_set():
            try:
                self._chunks.put(chunk, timeout=0.1)
                return True
            except queue.Full:
                continue
        return chunk is None and self._error is None

    def _run(self) -> None:
        try:
            self._store.upload(self._key, self._feed())
        except _Aborted:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def _feed(self) -> Iterator[bytes]:
        while (chunk := self._chunks.get()) is not None:
            if isinstance(chunk, _Aborted):
                raise chunk
            yield chunk
