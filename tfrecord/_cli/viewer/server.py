"""The local web server of `tfrecord view`.

It answers only on 127.0.0.1, only under a path that starts with a secret, and only if the Host header of the
request is this address, so that no other web page can reach it by DNS rebinding. Requests never name files.
Record contents are sent as JSON, or as an image or sound of a known type. The page's security policy allows
only the page's own script.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click

from indexer.errors import TFRecordError
from tfrecord._cli.common import jsonable
from tfrecord._cli.terminal import safe
from tfrecord._cli.viewer.data import NotFound, ViewData

_MEDIA = frozenset(
    "image/jpeg image/png image/gif image/webp image/bmp audio/wav audio/flac audio/ogg audio/mpeg".split()
)
_NOTHING = "default-src 'none'; sandbox"


def _page() -> tuple[bytes, str]:
    """The page, and the policy that allows its own script and style and nothing else."""
    text = (files("tfrecord._cli.viewer") / "page.html").read_text(encoding="utf-8")
    hashes = {}
    for tag in ("script", "style"):
        match = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = hashlib.sha256(match[1].encode() if match else b"").digest()
        hashes[tag] = f"'sha256-{base64.b64encode(digest).decode()}'"
    policy = (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; img-src 'self'; "
        "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


class ViewServer(ThreadingHTTPServer):
    """Serves `data` on 127.0.0.1; `url` is where the page is."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, data: ViewData, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.data = data
        self.token = secrets.token_urlsafe(16)
        self.page, self.policy = _page()
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a browser that disconnects."""


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    server_version = "tfrecord"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30

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
                key: values[-1] for key, values in parse_qs(address.query, keep_blank_values=True).items()
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
        except (TFRecordError, ValueError) as error:
            self._problem(str(error), HTTPStatus.UNPROCESSABLE_ENTITY)
        except ConnectionError:
            raise
        except Exception as error:  # show the error on the page instead of leaving it waiting
            self._problem(f"{type(error).__name__}: {error}", HTTPStatus.INTERNAL_SERVER_ERROR)

    do_HEAD = do_GET

    def _answer(self, place: str, query: dict[str, str]) -> None:
        data = self.server.data
        if place == "":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page, self.server.policy)
        elif place == "info":
            self._json(data.info())
        elif place == "page":
            where = query.get("where", "")
            self._json(data.page(_number(query, "start"), _number(query, "count", 20), where))
        elif place == "record":
            self._json(data.record(_number(query, "position"), full=True))
        elif place == "histogram":
            self._json(data.histogram(query.get("name", ""), query.get("where", "")))
        elif place == "media":
            at = _number(query, "position"), query.get("where", ""), query.get("name", "")
            content, value = data.media(*at, _number(query, "index"))
            shown = content.mime in _MEDIA
            kind = content.mime if shown else "application/octet-stream"
            self._send(HTTPStatus.OK, kind, value, _NOTHING, attachment=not shown)
        else:
            raise NotFound("there is no such page")

    def _problem(self, text: str, status: HTTPStatus) -> None:
        self._json({"error": safe(text)}, status)

    def _json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = json.dumps(jsonable(value), ensure_ascii=True, allow_nan=False).encode()
        self._send(status, "application/json", body, _NOTHING)

    def _send(
        self, status: HTTPStatus, kind: str, body: bytes, policy: str, attachment: bool = False
    ) -> None:
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
            headers["Content-Disposition"] = "attachment; filename=value.bin"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _number(query: dict[str, str], name: str, default: int = 0) -> int:
    text = query.get(name, str(default))
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) is None:
        raise NotFound(f"{name} is a number")
    return int(text)
