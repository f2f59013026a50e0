"""What the kernel knows of a TCP connection whose descriptor belongs to libzmq.

Owns the layout of `struct tcp_info` (Linux 4.6 and newer) and the care that a borrowed descriptor
needs: libzmq closes it in its own thread at any time, and the number may then be another
connection's, or a file's. So each connection is known by its inode, which is looked at before
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
    """Bytes since the connection was made, ZMTP's own included."""

    acknowledged: int  # of what was sent: the other side's kernel has them
    received: int  # the kernel here has had them
    is_sending: bool  # the kernel here has some that are not acknowledged


def inode_of(fd: int) -> int:
    """What a descriptor stands for, 0 if it is closed."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return 0


def tcp_state(fd: int, inode: int) -> TcpState | None:
    """None: the connection is gone."""
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
    """Of what the kernel has received, what nobody has read yet; 0 for a connection that is
    gone."""
    found = array.array("i", [0])
    try:
        fcntl.ioctl(fd, termios.FIONREAD, found)
    except OSError:
        return 0
    return found[0]


def end_connection(fd: int, inode: int) -> None:
    """Shut the connection down both ways: libzmq sees its end, closes the descriptor and frees what
    it had of it. Without lingering, so that a sender in mid-send learns of it at once."""
    connection = _borrow(fd, inode)
    if connection is None:
        return
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended by itself
    finally:
        connection.detach()


def _borrow(fd: int, inode: int) -> socket.socket | None:
    """The connection as a socket of Python's, to be detached from it at once; None: it is gone."""
    if not inode or inode_of(fd) != inode:
        return None
    try:
        # with the protocol said, nothing is asked for: this is done for each of 4,096 connections
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd)
    except OSError:
        return None
