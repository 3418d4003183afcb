"""The local web server of the viewer.

It answers only on 127.0.0.1, only under a path that starts with a secret, and only if the Host header of the
request is this address, so that no other web page can reach it by DNS rebinding. Requests name records by
position and files by number, never by path. Record contents are sent as escaped text, or as an image or sound
of a known type. The pages' security policy allows only their own script.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click

from indexer.errors import TFRecordError
from tfrecord._cli.sniffing import sniff_bytes
from tfrecord._cli.viewer.data import NotFound, ViewData
from tfrecord._cli.viewer.frame import Frame, number
from tfrecord._cli.viewer.hints import Hints
from tfrecord._cli.viewer.listing import Listing
from tfrecord._cli.viewer.overview import Overview
from tfrecord._cli.viewer.parts import Parts
from tfrecord._cli.viewer.pictures import SHOWN, Pictures
from tfrecord._cli.viewer.search import Searches
from tfrecord._cli.viewer.single import Single
from tfrecord._cli.viewer.vocab import Vocabulary

_MEDIA = SHOWN | frozenset("audio/wav audio/flac audio/ogg audio/mpeg".split())
_NOTHING = "default-src 'none'; sandbox"
_HTML = "text/html; charset=utf-8"
_WIDEST = 2000


class ViewServer(ThreadingHTTPServer):
    """Serves `data` on 127.0.0.1; `url` is where the pages are. ``hints`` and ``vocabularies`` say what
    values mean."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        data: ViewData,
        port: int = 0,
        hints: Hints | None = None,
        vocabularies: Sequence[Vocabulary] = (),
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.data = data
        self.token = secrets.token_urlsafe(16)
        self.frame = Frame(data)
        hints = hints or Hints()
        self.pictures = Pictures(data, hints)
        searches = Searches(data)
        self.parts = Parts(data, hints, vocabularies, self.pictures)
        self.listing = Listing(self.parts, searches, self.frame)
        self.single = Single(self.parts, searches, self.frame)
        self.overview = Overview(self.parts, searches, self.frame)
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def server_close(self) -> None:
        """Close the socket, and drop the work that was still to be done."""
        super().server_close()
        self.pictures.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a browser that disconnects."""


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    server_version = "tfrecord"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30
    wbufsize = -1  # an answer leaves in one piece: in two, the second would wait for the first's receipt
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests contain the secret."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request; the answer has a status line even if the request had no version."""
        if self.request_version == "HTTP/0.9":
            self.request_version = "HTTP/1.0"
        self.close_connection = True
        status = HTTPStatus(code)
        self._send(status, "text/plain", f"{status.phrase.lower()}\n".encode(), _NOTHING)

    def do_GET(self) -> None:
        try:
            address = urlsplit(self.path)
            query = {
                key: values[-1]
                for key, values in parse_qs(
                    address.query, keep_blank_values=True, errors="surrogateescape", max_num_fields=50
                ).items()
            }
        except ValueError:  # as for http://[/
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        parts = address.path.split("/", 2)
        given = parts[1] if len(parts) == 3 else ""
        known = hmac.compare_digest(given.encode(), self.server.token.encode())
        if self.headers.get("Host", "") not in self.server.hosts or not known:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"no access\n", _NOTHING)
            return
        try:
            self._answer(parts[2], query)
        except (NotFound, click.UsageError) as error:
            self._problem(getattr(error, "message", str(error)), HTTPStatus.NOT_FOUND)
        except TFRecordError as error:
            self._problem(self.server.data.text_of(error), HTTPStatus.UNPROCESSABLE_ENTITY)
        except ConnectionError:
            raise
        except Exception as error:  # show the error on the page instead of leaving it waiting
            self._problem(f"{type(error).__name__}: {error}", HTTPStatus.INTERNAL_SERVER_ERROR)

    do_HEAD = do_GET

    def _answer(self, place: str, query: dict[str, str]) -> None:
        single, pictures = self.server.single, self.server.pictures
        if place in ("", "records"):
            self._page(self.server.listing.page(query))
        elif place == "record":
            self._page(single.page(query))
        elif place == "overview":
            self._page(self.server.overview.page(self.server.parts.state(query), query))
        elif place == "bytes":
            self._page(single.bytes_page(query))
        elif place == "thumb":
            self._media(*pictures.thumb(single.place(query), _width(query)))
        elif place == "mask":
            self._media(*pictures.mask(number(query, "position"), _width(query)))
        elif place == "media":
            value = bytes(self.server.data.bytes_at(single.place(query)))
            content = sniff_bytes(value)
            self._media(content.mime, value, "save" in query, content.extension, number(query, "position"))
        elif place in ("json", "frame"):
            position = number(query, "position")
            body = single.json(position) if place == "json" else single.tfrecord(position)
            self._media("", body, True, "json" if place == "json" else "tfrecord", position)
        else:
            raise NotFound("there is no such page")

    def _page(self, body: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, _HTML, body, self.server.frame.policy)

    def _media(
        self, mime: str, body: bytes, save: bool = False, extension: str = "bin", position: int = 0
    ) -> None:
        """What a browser may show by itself as its type, all else as a file to keep."""
        is_shown = mime in _MEDIA
        kind = mime if is_shown else "application/octet-stream"
        name = f"record-{position}.{extension}" if save or not is_shown else ""
        self._send(HTTPStatus.OK, kind, body, _NOTHING, name)

    def _problem(self, text: str, status: HTTPStatus) -> None:
        self._page(self.server.frame.problem(text), status)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, policy: str, attachment: str = "") -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        if attachment:
            headers["Content-Disposition"] = f"attachment; filename={attachment}"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _width(query: dict[str, str]) -> int:
    return max(16, min(number(query, "width", 200), _WIDEST))
