"""Bytes that no honest peer sends, by every way a port can be reached.

Each sender returns when its bytes have left or the other side has hung up; none waits for an answer
that need not come.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from random import Random

import zmq

PORTS = range(9)
HTTP_PORT = 7
# What a ROUTER, PULL or XPUB talks to, by port offset.
PARTNERS = {
    0: zmq.DEALER, 1: zmq.PUSH, 2: zmq.XSUB, 3: zmq.XSUB, 4: zmq.DEALER, 5: zmq.DEALER,
    6: zmq.DEALER, 8: zmq.DEALER,
}  # fmt: skip
SEND_TIMEOUT_MS = 5_000
LINGER_MS = 1_000
TCP_TIMEOUT_S = 5.0
# ZMTP 3.0: signature, version 3.0, mechanism in 20 bytes, not a server, filler.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
FOREIGN_MECHANISM = GREETING.replace(b"NULL", b"EVIL")
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"


def send_tcp(address: tuple[str, int], data: bytes) -> None:
    """Connect, send, hang up; a refusal half way is what the other side may do."""
    with (
        suppress(ConnectionError, TimeoutError),
        socket.create_connection(address, TCP_TIMEOUT_S) as connection,
    ):
        connection.sendall(data)


def tcp_garbage(random: Random) -> list[bytes]:
    """Noise, other protocols, and ZMTP that breaks off or lies about its lengths."""
    return [
        b"",
        random.randbytes(1 << 16),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 4_096,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(200),
        GREETING[:30],
        FOREIGN_MECHANISM,
        GREETING + random.randbytes(1 << 14),
        GREETING + READY + b"\x02" + (1 << 62).to_bytes(8, "big") + b"x" * 1_000,
        GREETING + READY + b"\x00\xff" + b"x" * 10,
        GREETING + b"\x06" + (1 << 40).to_bytes(8, "big"),
        b"\xff" * 64 + bytes(4_096),
    ]


def frames_garbage(random: Random) -> list[list[bytes]]:
    """Whole ZeroMQ messages of wrong shapes and sizes."""
    noise = [random.randbytes(size) for size in (0, 1, 7, 8, 63, 64, 65, 1_000, 4_000)]
    return [
        *([each] for each in noise),
        [b"", b"", b""],
        [b"LA", b"LBAT"],
        [b"x"] * 40,
        [bytes(64)],
        [b"LMSG" + bytes(60)],
        [b"LMSG\x01\x00\x40\x00" + random.randbytes(56)],
        [b"LA\x01\x00" + random.randbytes(80)],
        [b"LA\x01\x00\x00\x00\x00\x00LBAT\x01\x00" + random.randbytes(90)],
        [b"\x01" + random.randbytes(300)],
        [b"\x00" + random.randbytes(20)],
    ]


def send_frames(address: tuple[str, int], offset: int, messages: list[list[bytes]]) -> None:
    """Valid ZMTP to the socket at this offset, whatever is in the frames."""
    with zmq.Context() as context:
        partner = context.socket(PARTNERS[offset])
        partner.immediate = 1 if PARTNERS[offset] != zmq.XSUB else 0
        partner.sndtimeo = SEND_TIMEOUT_MS
        partner.linger = LINGER_MS
        partner.connect(f"tcp://{address[0]}:{address[1] + offset}")
        for message in messages:
            partner.send_multipart(message)
        partner.close()


def send_zmtp(address: tuple[str, int], socket_type: bytes, frames: list[bytes]) -> None:
    """Short single-frame messages by hand, which a ZeroMQ socket of this type would not send.

    Waits for the other side's greeting and READY, so that it has seen a whole peer.
    """
    ready = b"\x05READY\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    with socket.create_connection(address, TCP_TIMEOUT_S) as connection:
        connection.sendall(GREETING + b"\x04" + bytes((len(ready),)) + ready)
        received = b""
        while b"READY" not in received:
            received += connection.recv(4_096)
        connection.sendall(b"".join(b"\0" + bytes((len(each),)) + each for each in frames))
