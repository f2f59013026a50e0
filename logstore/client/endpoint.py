"""Where a node is: one base port, from which every other port of it follows.

Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from logstore.errors import InvalidRequest
from logstore.limits import NODES_MAX
from logstore.settings import PORTS_PER_NODE, PortOffset

PORT_MAX = 65_535


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
    """The endpoint in `HOST:PORT`.

    Raises:
      InvalidRequest: anything else; the message shows what was given.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise InvalidRequest(f"endpoint {text!r}: give HOST:PORT, like 127.0.0.1:7100")
    if not 0 < int(port) <= PORT_MAX - PORTS_PER_NODE:
        raise InvalidRequest(
            f"endpoint {text!r}: the port is outside 1..{PORT_MAX - PORTS_PER_NODE}"
        )
    return Endpoint(host, int(port))


def parse_endpoints(endpoints: str | Iterable[str | Endpoint]) -> tuple[Endpoint, ...]:
    """Endpoints from `HOST:PORT[,HOST:PORT…]` or a sequence of such, in order, without repeats.

    Raises:
      InvalidRequest: none at all, more than NODES_MAX, or one that is no HOST:PORT.
    """
    items = endpoints.split(",") if isinstance(endpoints, str) else endpoints
    found = dict.fromkeys(
        item if isinstance(item, Endpoint) else parse_endpoint(item) for item in items if item
    )
    if not found:
        raise InvalidRequest("no endpoint: give at least one HOST:PORT of a replica")
    if len(found) > NODES_MAX:
        raise InvalidRequest(f"{len(found)} endpoints; a cluster has at most {NODES_MAX} nodes")
    return tuple(found)
