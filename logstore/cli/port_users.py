"""Which process listens on a port of a node? Two clusters on one machine may want the same.

Owns how that is found (the kernel's table of sockets) and the words for it. A process of another
user has no name here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

import msgspec
import psutil

from logstore.config import Config, PortOffset

EVERYWHERE = ("0.0.0.0", "::")
# A message names so many ports; the others are counted.
NAMED_MAX = 3
TITLE_CHARACTERS = 60


class PortUser(msgspec.Struct, frozen=True):
    """A port that is taken. `pid` 0: a process of another user."""

    node: int
    port: int
    pid: int
    title: str

    def __str__(self) -> str:
        who = f"process {self.pid} ({self.title})" if self.pid else "a process of another user"
        return f"port {self.port} of node {self.node} is in use by {who}"


def port_users(
    config: Config, nodes: Iterable[int], *, except_sessions: Iterable[int] = ()
) -> list[PortUser]:
    """Who listens on the ports of these node ids on this machine.

    Args:
      except_sessions: session ids whose processes may: a replica has one of its own.
    """
    own = frozenset(except_sessions)
    listeners = _listeners()
    return [
        PortUser(node, port, pid, _title(pid))
        for node in nodes
        for port in _ports(config, node)
        for pid in _pids(listeners, _address(config.node(node).host), port)
        if not _is_in(own, pid)
    ]


def _ports(config: Config, node: int) -> list[int]:
    ports = [config.port(node, offset) for offset in PortOffset]
    return [port for port in (*ports, config.node(node).raw_port) if port]


def _listeners() -> dict[tuple[str, int], int]:
    """Address and port to the process that listens there; 0: one of another user."""
    found = {}
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr:
            found[each.laddr.ip, each.laddr.port] = each.pid or 0
    return found


def _pids(listeners: dict[tuple[str, int], int], address: str, port: int) -> list[int]:
    """Who listens there: one process, or none."""
    keys = [(each, port) for each in (address, *EVERYWHERE)]
    return [listeners[key] for key in keys if key in listeners][:1]


def describe(users: list[PortUser]) -> str:
    """A line for people."""
    more = f", and {len(users) - NAMED_MAX} ports more" if len(users) > NAMED_MAX else ""
    return "; ".join(map(str, users[:NAMED_MAX])) + more


def _address(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def _is_in(sessions: frozenset[int], pid: int) -> bool:
    try:
        return bool(pid) and os.getsid(pid) in sessions
    except ProcessLookupError:
        return False


def _title(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline()).strip()[:TITLE_CHARACTERS] if pid else ""
    except psutil.Error:
        return "it has ended"
