"""What a simulated client runs on: sockets, the addresses of nodes, chance, and the ledger.

A protocol and one record. Times in facts are the world's; a client's own clock is the `now_ns` of
its do_work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import msgspec

from actors.simulation.checkers.facts import Fact
from logstore.model import FIRST_LSN, Lsn
from logstore.settings import PortOffset
from transport.link import Lane

MS_NS = 1_000_000
NEVER_NS = 1 << 62
_TIMEOUT_NS = (500 * MS_NS, 3_000 * MS_NS)  # a step without an answer is given up in between


class ClientLinks(Protocol):
    """How sockets are opened; each method as the function of `transport.link` of that name."""

    def dealer_connect(self, endpoint: str, *, lane: Lane, message_size_max: int) -> Any: ...

    def push_connect(self, endpoint: str, *, message_size_max: int) -> Any: ...

    def sub_connect(
        self,
        endpoint: str,
        *,
        topics: Sequence[bytes],
        message_size_max: int,
        high_water_mark: int = ...,
    ) -> Any: ...


class ClientHost(msgspec.Struct, frozen=True):
    """One client's view of the world. `number` and `name` are unique among its clients.

    `tell` takes facts of what it asks and what it is answered. `first_lsn`: where the log begins.
    """

    number: int
    name: str
    links: ClientLinks
    endpoint: Callable[[int, PortOffset], str]
    nodes: tuple[int, ...]
    random: Random
    tell: Callable[[Fact], None]
    world_now: Callable[[], int]
    first_lsn: Lsn = FIRST_LSN
    joiners: tuple[int, ...] = ()  # nodes that may become members, while others leave
    has_lost_disks: bool = False  # a lost founder's place may be reserved for a while
    duplicated: Callable[[], int] = lambda: 0  # how many messages have been delivered twice so far

    @property
    def may_members_leave(self) -> bool:
        return bool(self.joiners) or self.has_lost_disks

    def draw_seeds(self) -> list[int]:
        """The nodes that a client knows, in any order: all of them where some may leave."""
        seeds = self.random.sample(self.nodes, self.random.randint(1, len(self.nodes)))
        if not self.joiners:
            return seeds
        return [*seeds, *(each for each in (*self.nodes, *self.joiners) if each not in seeds)]

    def draw_timeout_ns(self) -> int:
        """How long to wait for one answer, drawn anew."""
        return self.random.randrange(*_TIMEOUT_NS)

    def any_node(self, *, but: int = 0) -> int:
        """One of the nodes, another one than `but` if there is one."""
        others = [node for node in self.nodes if node != but]
        return self.random.choice(others or self.nodes)
