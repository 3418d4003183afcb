"""A reader's records in the browser."""

from __future__ import annotations

import os
import threading
import webbrowser
from collections.abc import Sequence
from html import escape
from typing import Any

from indexer.options import suggests_options
from tfrecord._optional import optional

__all__ = ["ReaderPage", "Viewer"]


class Viewer:
    """The page of a reader, served by a thread until `close`. It is also a context manager.

    Attributes: ``url``, the secret address, which works on this machine only.
    """

    def __init__(self, server: Any) -> None:
        self.url: str = server.url
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="tfrecord-viewer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving. Closing twice is fine."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Viewer at {self.url}>"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank" rel="noreferrer">{escape(self.url)}</a>'


class ReaderPage:
    """The page of a reader; a part of `TFRecordReader`."""

    @suggests_options
    def view(
        self,
        *,
        port: int = 0,
        open_browser: bool = True,
        vocab: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    ) -> Viewer:
        """Open the page of ``tfrecord view`` for the records of this reader. Needs ``tfrecord[cli]``.

        The page is served on 127.0.0.1, until the result's `close` or the end of the process, and shows
        errors once the reader is closed. For windows of steps it shows the episode of each.

        Args:
            port: 0 means any free port.
            open_browser: False only serves the page; its address is the result's ``url``.
            vocab: vocabularies that show token ids as text, each as ``FILE`` or ``FEATURE=FILE``.

        Raises:
            ImportError: a package is missing; the message says how to install it.
            OSError: the port is taken, or a vocabulary cannot be read.
            ValueError: a vocabulary is not valid, the reader is closed, or its records come from a server.
        """
        for name in ("click", "rich"):
            optional(name)
        files = [vocab] if isinstance(vocab, (str, os.PathLike)) else vocab
        # The page builds on the reader, so this room is above it and found only here.
        server = optional("tfrecord._cli.viewer.opened").server_of(self, port, [os.fspath(f) for f in files])
        made = Viewer(server)
        if open_browser:
            webbrowser.open(made.url)
        return made
