"""Connections that cost a replica as much as they can: raw ZMTP, as fast as the socket takes it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.garbage import GREETING, TCP_TIMEOUT_S

# What a ROUTER, PULL or XPUB talks to, by port offset.
PARTNERS = {
    0: b"DEALER", 1: b"PUSH", 2: b"SUB", 3: b"SUB", 4: b"DEALER", 5: b"DEALER", 6: b"DEALER",
    8: b"DEALER",
}  # fmt: skip
MORE, LAST = 1, 0


@contextmanager
def zmtp_connection(address: tuple[str, int], offset: int) -> Iterator[socket.socket]:
    """A whole peer of the port at `offset`."""
    kind = PARTNERS[offset]
    ready = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    host, port = address
    with socket.create_connection((host, port + offset), TCP_TIMEOUT_S) as connection:
        connection.sendall(GREETING + b"\x04" + bytes((len(ready),)) + ready)
        received = b""
        while b"READY" not in received:
            piece = connection.recv(4_096)
            if not piece:
                raise ConnectionResetError("no handshake")
            received += piece
        yield connection


def frame(flags: int, body: bytes) -> bytes:
    if len(body) <= 255:
        return bytes((flags, len(body))) + body
    return bytes((flags | 2,)) + len(body).to_bytes(8, "big") + body


def send_endless_message(address: tuple[str, int], offset: int, *, bytes_max: int) -> int:
    """Frames of one message without an end; how many bytes left before the other side hung up, at
    most `bytes_max`."""
    many = frame(MORE, b"x" * 200) * 2_000
    sent = 0
    try:
        with zmtp_connection(address, offset) as connection:
            while sent < bytes_max:
                connection.sendall(many)
                sent += len(many)
    except (ConnectionError, TimeoutError):
        pass
    return sent


def send_subscriptions(address: tuple[str, int], offset: int, topics: list[bytes]) -> int:
    """Subscribe to all of them; how many left before the other side hung up."""
    step = 100
    sent = 0
    try:
        with zmtp_connection(address, offset) as connection:
            for start in range(0, len(topics), step):
                some = topics[start : start + step]
                connection.sendall(b"".join(frame(LAST, b"\1" + each) for each in some))
                sent += len(some)
            while connection.recv(1 << 16):  # until it is closed on us
                pass
    except (ConnectionError, TimeoutError):
        return sent
    return sent
