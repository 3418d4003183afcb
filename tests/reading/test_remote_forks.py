"""A reader of a URL that was used before a fork works in the child, and goes on in the parent."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from recorded import example, ids, write

from tfrecord.reader import TFRecordReader, build_index

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")


class Ranges(SimpleHTTPRequestHandler):
    """Serves files, and ranges of them."""

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        path = Path(self.translate_path(self.path))
        if not asked or not path.is_file():
            super().do_GET()
            return
        first, last = asked.removeprefix("bytes=").split("-")
        data = path.read_bytes()
        part = data[int(first) : int(last or len(data) - 1) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(20)])
    build_index(path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/a.tfrecord"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_reader_of_a_url_in_a_forked_child(url: str) -> None:
    reader = TFRecordReader(url)
    assert ids(reader.read([3])) == [3]
    child = os.fork()
    if not child:
        try:
            assert ids(reader.read([5, 19])) == [5, 19]
            assert ids([reader[7]]) == [7]
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ids(reader.read([0, 4])) == [0, 4]
