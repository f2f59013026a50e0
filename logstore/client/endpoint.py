"""A node's address: its host and its base port, from which its other ports follow.

Knows no sockets. libzmq accepts every address that `parse_endpoint` does; whether the host exists
shows only in a lookup (`names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from logstore.errors import InvalidRequest
from logstore.limits import NODES_MAX
from logstore.settings import PORTS_PER_NODE, PortOffset

# The first of eight ports in a row (`PORTS_PER_NODE`), as in the configuration.
PORT_MAX = 65_535 - PORTS_PER_NODE + 1
SCHEME = "tcp://"
# An IPv4 address or a host name; libzmq wants a letter or a digit first.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_PORT = re.compile(r"[0-9]{1,5}")
# How much of an invalid text a message shows.
SHOWN_CHARACTERS = 60


class Endpoint(msgspec.Struct, frozen=True, order=True):
    """A node's address; `port` is the base port, which is the control port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def control(self) -> str:
        return self._address(PortOffset.CONTROL)

    @property
    def appends(self) -> str:
        return self._address(PortOffset.APPEND)

    @property
    def acks(self) -> str:
        return self._address(PortOffset.ACKS)

    @property
    def tail(self) -> str:
        return self._address(PortOffset.TAIL)

    @property
    def fetch(self) -> str:
        return self._address(PortOffset.FETCH)

    def _address(self, offset: int) -> str:
        return f"tcp://{self.host}:{self.port + offset}"


def parse_endpoint(text: str) -> Endpoint:
    """The endpoint in `HOST:PORT` or `tcp://HOST:PORT`.

    Raises:
      InvalidRequest: anything else; the message shows what was given, in one line.
    """
    host, colon, port = text.strip().removeprefix(SCHEME).rpartition(":")
    if not colon or not host or not port:
        raise _refuse(text, "give HOST:PORT, like 127.0.0.1:7100")
    if "://" in host:
        raise _refuse(text, "replicas speak ZeroMQ over tcp: give HOST:PORT or tcp://HOST:PORT")
    if ":" in host or "[" in host:
        raise _refuse(text, "nodes have no IPv6 addresses: give an IPv4 address or a host name")
    if not _HOST.fullmatch(host):
        raise _refuse(text, f"{_shown(host)} is neither an IPv4 address nor a host name")
    if not _PORT.fullmatch(port) or not 0 < int(port) <= PORT_MAX:
        raise _refuse(text, f"the port is a number from 1 to {PORT_MAX}")
    return Endpoint(host, int(port))


def _refuse(text: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"endpoint {_shown(text)}: {reason}")


def _shown(text: str) -> str:
    """Quoted, on one line, and no longer than a line."""
    return ascii(text[:SHOWN_CHARACTERS]) + ("…" if len(text) > SHOWN_CHARACTERS else "")


def parse_endpoints(endpoints: str | Iterable[str | Endpoint]) -> tuple[Endpoint, ...]:
    """Endpoints from `HOST:PORT[,HOST:PORT…]` or a sequence of such, in order, without repeats.

    `tcp://` may stand before each.

    Raises:
      InvalidRequest: none at all, more than NODES_MAX, or one that is no HOST:PORT.
    """
    if not isinstance(endpoints, Iterable):
        raise InvalidRequest(
            f"endpoints {endpoints!r}: give HOST:PORT[,HOST:PORT…] or a list of them"
        )
    items = endpoints.split(",") if isinstance(endpoints, str) else endpoints
    found = dict.fromkeys(
        item if isinstance(item, Endpoint) else parse_endpoint(item) for item in items if item
    )
    if not found:
        raise InvalidRequest("no endpoint: give at least one HOST:PORT of a replica")
    if len(found) > NODES_MAX:
        raise InvalidRequest(f"{len(found)} endpoints; a cluster has at most {NODES_MAX} nodes")
    return tuple(found)
