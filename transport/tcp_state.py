"""What the kernel knows of a TCP connection whose descriptor belongs to libzmq.

Owns the layout of `struct tcp_info` (Linux 4.6 and newer) and the care that a borrowed descriptor
needs. libzmq may close it in its own thread at any time, and the number may then be another
connection's or a file's. So each connection is identified by its inode, which is checked before
anything is done to it, and nothing here raises for a descriptor that is gone.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import termios
from typing import NamedTuple

# tcpi_unacked u32 at 24, tcpi_bytes_acked u64 at 120, tcpi_bytes_received u64 at 128,
# tcpi_notsent_bytes u32 at 144
_INFO = struct.Struct("<24xI92xQQ8xI")


class TcpState(NamedTuple):
    """Counts of bytes since the connection was made, ZMTP's own included."""

    acknowledged: int  # sent and acknowledged by the peer's kernel
    received: int  # received by our kernel
    is_sending: bool  # our kernel has bytes that are not acknowledged


def inode_of(fd: int) -> int:
    """The inode of a descriptor; 0 if it is closed."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return 0


def tcp_state(fd: int, inode: int) -> TcpState | None:
    """The connection's counts; None: it is gone."""
    connection = _borrow(fd, inode)
    if connection is None:
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    except OSError:
        return None
    finally:
        connection.detach()
    if len(info) < _INFO.size:
        return None
    in_flight, acknowledged, received, unsent = _INFO.unpack(info)
    return TcpState(acknowledged, received, bool(in_flight or unsent))


def kernel_bytes(fd: int) -> int:
    """What the kernel has received and libzmq has not read; 0 if the connection is gone."""
    found = array.array("i", [0])
    try:
        fcntl.ioctl(fd, termios.FIONREAD, found)
    except OSError:
        return 0
    return found[0]


def end_connection(fd: int, inode: int) -> None:
    """Shut the connection down both ways: libzmq sees its end, closes the descriptor and frees its
    memory. Without lingering, so that a client that is sending learns of it at once."""
    connection = _borrow(fd, inode)
    if connection is None:
        return
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended already
    finally:
        connection.detach()


def _borrow(fd: int, inode: int) -> socket.socket | None:
    """The connection as a Python socket, to be detached at once; None: it is gone."""
    if not inode or inode_of(fd) != inode:
        return None
    try:
        # with the protocol given, Python makes no system call: this runs for
        # each of 4,096 connections
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd)
    except OSError:
        return None
