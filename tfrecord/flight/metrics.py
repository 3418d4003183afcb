"""Counters, health and readiness by plain HTTP, for Prometheus and for probes."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tfrecord.flight.counters import Counters

__all__ = ["MetricsServer"]

_SECONDS = 5.0


class MetricsServer:
    """``/metrics``, ``/health`` and ``/ready`` on a port of its own, which it holds from the beginning."""

    def __init__(self, counters: Counters, host: str, port: int) -> None:
        self.ready = False

        class Handler(BaseHTTPRequestHandler):
            timeout = _SECONDS  # of reading a request

            def do_GET(handler) -> None:
                path = handler.path.partition("?")[0]
                if path == "/metrics":
                    handler._answer(200, counters.prometheus(), "text/plain; version=0.0.4")
                elif path == "/health":
                    handler._answer(200, "healthy\n")
                elif path == "/ready":
                    handler._answer(*((200, "ready\n") if self.ready else (503, "not ready\n")))
                else:
                    handler._answer(404, "not found\n")

            def _answer(handler, status: int, text: str, kind: str = "text/plain") -> None:
                body = text.encode()
                handler.send_response(status)
                handler.send_header("Content-Type", f"{kind}; charset=utf-8")
                handler.send_header("Content-Length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)

            def log_message(handler, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(server, request: Any, address: Any) -> None:
                pass  # a client that went away

        self._server = Server((host.strip("[]"), port), Handler)
        self.port = int(self._server.server_address[1])

    def start(self) -> None:
        """Answer, from a thread, and say that the server is ready."""
        self.ready = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Give the port back in this process."""
        self._server.socket.close()
