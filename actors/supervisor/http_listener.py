"""A listener for `GET /metrics` that runs in its owner's poll loop: no thread, nothing blocks.

Knows enough HTTP for a scraper: one request a connection, answered and closed. Connections, request
size and the time a connection may take are bounded.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable
from contextlib import suppress

from logstore.errors import InvalidRequest

CONNECTIONS_MAX = 16
REQUEST_BYTES_MAX = 8_192
CONNECTION_NS = 2_000_000_000
_RECEIVE_BYTES = 4_096

_log = logging.getLogger(__name__)


class _Connection:
    """One scrape: request bytes in until the blank line, then answer bytes out."""

    def __init__(self, peer: socket.socket, *, deadline_ns: int) -> None:
        self.peer = peer
        self.deadline_ns = deadline_ns
        self.request = b""
        self.answer = b""


class HttpListener:
    """Serves what `render` returns as (content type, body) under /metrics; 500 while it fails, for
    the owner's loop must go on."""

    def __init__(self, host: str, port: int, render: Callable[[], tuple[str, bytes]]) -> None:
        """
        Raises:
          InvalidRequest: the address cannot be listened on; says which and why.
        """
        self._render = render
        self._logged_text = ""
        self._connections: dict[int, _Connection] = {}
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((host, port))
            self._listener.listen(CONNECTIONS_MAX)
        except OSError as error:
            self._listener.close()
            raise InvalidRequest(
                f"metrics cannot listen on {host}:{port}: {error.strerror}; "
                "stop what uses the port, or choose another for this node"
            ) from error

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def sources(self) -> list[tuple[int, int]]:
        """Descriptors and poll events to wait for. At the bound no further
        connection is accepted."""
        sources = [
            (number, select.POLLOUT if connection.answer else select.POLLIN)
            for number, connection in self._connections.items()
        ]
        if len(self._connections) < CONNECTIONS_MAX:
            sources.append((self._listener.fileno(), select.POLLIN))
        return sources

    def on_ready(self, ready: set[int], *, now_ns: int) -> None:
        """Advance the connections in `ready`; drop those whose time is up."""
        for number, connection in list(self._connections.items()):
            if number in ready:
                self._advance(number, connection)
            elif now_ns > connection.deadline_ns:
                self._drop(number)
        if self._listener.fileno() in ready:
            self._accept(now_ns)

    def close(self) -> None:
        for number in list(self._connections):
            self._drop(number)
        self._listener.close()

    def _accept(self, now_ns: int) -> None:
        # the client may be gone already
        with suppress(OSError):
            peer, _ = self._listener.accept()
            peer.setblocking(False)
            deadline_ns = now_ns + CONNECTION_NS
            self._connections[peer.fileno()] = _Connection(peer, deadline_ns=deadline_ns)

    def _advance(self, number: int, connection: _Connection) -> None:
        try:
            is_open = self._send(connection) if connection.answer else self._receive(connection)
        except BlockingIOError:
            return
        except OSError:
            is_open = False
        if not is_open:
            self._drop(number)

    def _receive(self, connection: _Connection) -> bool:
        piece = connection.peer.recv(_RECEIVE_BYTES)
        connection.request += piece
        if b"\r\n\r\n" in connection.request:
            connection.answer = self._answer(connection.request)
            return True
        return bool(piece) and len(connection.request) < REQUEST_BYTES_MAX

    def _send(self, connection: _Connection) -> bool:
        sent = connection.peer.send(connection.answer)
        connection.answer = connection.answer[sent:]
        return bool(connection.answer)

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            return _http("400 Bad Request", "text/plain", b"this is an HTTP port\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _http("405 Method Not Allowed", "text/plain", b"GET /metrics\n")
        if words[1].split(b"?")[0] != b"/metrics":
            return _http("404 Not Found", "text/plain", b"there is /metrics\n")
        try:
            content_type, body = self._render()
        except Exception as error:
            self._log_once(repr(error))
            text = b"the replica's log says why\n"
            return _http("500 Internal Server Error", "text/plain", text)
        return _http("200 OK", content_type, body if words[0] == b"GET" else b"")

    def _log_once(self, text: str) -> None:
        if text != self._logged_text:
            self._logged_text = text
            _log.error("/metrics cannot be shown: %s", text)

    def _drop(self, number: int) -> None:
        self._connections.pop(number).peer.close()


def _http(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.0 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
