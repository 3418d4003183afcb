"""A file object whose bytes become one object in a store, whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from typing import Any

from indexer.stores import Url, open_store

__all__ = ["Upload", "check_writable"]


def check_writable(url: str, hint: str = "write to a bucket or a local file") -> None:
    """`ValueError` for a URL that can only be read: web servers have no writes with conditions."""
    if url.lower().startswith(("http://", "https://")):
        raise ValueError(f"{url}: http and https URLs are read only; {hint}")


class Upload:
    """Writes an object forward. It exists after `close` (``made`` is true), not after `abort`.

    The bytes wait in a temporary file (in ``TMPDIR``), so a writer that fails has begun nothing in the store.
    """

    def __init__(self, url: str, *, new: bool = False) -> None:
        self.name = str(url)
        check_writable(self.name)
        self.closed = self.made = False
        self._store, self._key = open_store(url if isinstance(url, Url) else Url(url))
        if new and self._store.exists(self._key):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.name)
        self._pid = os.getpid()
        self._file = tempfile.TemporaryFile()

    def write(self, data: Any) -> int:
        """Take the bytes; `OSError` if there is no temporary space for them."""
        if self.closed:
            raise ValueError(f"{self.name} is closed")
        return self._file.write(data)

    def flush(self) -> None:
        """Does nothing: the object appears only when it is complete."""

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Create the object. Raises what kept it from being written; then there is none."""
        if self.closed:
            return
        self.closed = True
        with self._file as file:
            if self._pid == os.getpid():  # in a forked copy the upload is the parent's
                self._store.upload(self._key, file)
                self.made = True

    def abort(self) -> None:
        """Create no object."""
        self.closed = True
        self._file.close()
