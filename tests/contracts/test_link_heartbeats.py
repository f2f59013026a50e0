"""What PROTOCOL.md says of heartbeats, seen by a peer that speaks ZMTP by hand.

Who does not answer takes as long to be parted as a heartbeat and its timeout: 2.5 s.
"""

from __future__ import annotations

import re
import socket as tcp
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from transport import link
from transport.link import Lane, bound_endpoint

TEXT = (Path(__file__).parents[2] / "PROTOCOL.md").read_text()
PATIENCE_S = 60.0
COMMAND = 4  # ZMTP's flag of a short command frame
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


def greeting(minor: int) -> bytes:
    return b"\xff" + bytes(8) + b"\x7f\x03" + bytes((minor,)) + b"NULL".ljust(20, b"\0") + bytes(32)


def frame(command: bytes) -> bytes:
    return bytes((COMMAND, len(command))) + command


@contextmanager
def peer_of(lane: Lane, *, minor: int = 1) -> Iterator[tcp.socket]:
    """A DEALER by hand, its handshake done, connected to a ROUTER of this lane."""
    router = link.router_bind("tcp://127.0.0.1:*", lane=lane, message_size_max=4_096)
    port = int(bound_endpoint(router).rpartition(":")[2])
    try:
        with tcp.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
            connection.sendall(greeting(minor) + frame(READY))
            received(connection, b"Identity\0\0\0\0")  # the end of its READY
            yield connection
    finally:
        router.close(linger=0)


def received(connection: tcp.socket, ending: bytes) -> bytes:
    """Everything up to these bytes."""
    data = b""
    while not data.endswith(ending):
        data += connection.recv(1)
    return data


@pytest.mark.parametrize("minor", [0, 1])
def test_a_control_lane_sends_the_ping_of_the_document_and_parts_from_who_is_silent(
    minor: int,
) -> None:
    """FAULTS N9, Z9."""
    (said,) = re.findall(r"PING every second \(`([0-9a-f ]+)`", TEXT)
    ping = bytes.fromhex(said)
    with peer_of(Lane.CONTROL, minor=minor) as connection:
        data = b""
        while more := connection.recv(4_096):  # ends: it hangs up
            data += more
    assert data
    assert data == ping * (len(data) // len(ping))


@pytest.mark.parametrize("lane", Lane)
def test_a_port_that_is_read_answers_a_ping_with_its_context(lane: Lane) -> None:
    with peer_of(lane) as connection:
        connection.sendall(frame(b"\x04PING\x00\x00context"))
        data = received(connection, b"PONGcontext")
        assert data.endswith(frame(b"\x04PONGcontext"))
        assert (b"PING" in data) <= (lane is Lane.CONTROL)
