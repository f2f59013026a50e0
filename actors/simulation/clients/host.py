"""What a simulated client stands on: sockets, the nodes' addresses, chance, and the ledger.

Protocols and one record. Times that the ledger is told are the world's; the clock a client lives by
is the `now_ns` of its do_work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import msgspec

from actors.simulation.checkers.invariant import Violation
from logstore.format.client_messages import SessionStateReply, SpansReply, SpansRequest
from logstore.format.cursor_entries import Cursor
from logstore.format.session_list import ListedSession
from logstore.model import FIRST_LSN, Lsn, SequenceMode
from logstore.settings import PortOffset
from transport.link import Lane

MS_NS = 1_000_000
NEVER_NS = 1 << 62
PATIENCE_NS = (500 * MS_NS, 3_000 * MS_NS)  # a step without an answer is given up in between
MESSAGES_PER_WORK = 256


class ClientLinks(Protocol):
    """How sockets are opened; each method as the function of `transport.link` of that name."""

    def dealer_connect(self, endpoint: str, *, lane: Lane, message_size_max: int) -> Any: ...

    def push_connect(self, endpoint: str, *, message_size_max: int) -> Any: ...

    def sub_connect(
        self, endpoint: str, *, topics: Sequence[bytes], message_size_max: int
    ) -> Any: ...


class ListsLedger(Protocol):
    """The client side of `actors.simulation.checkers.session_lists.SessionLists`."""

    def asked(
        self, number: int, page: tuple[int, int] | None, producer_id: int, at_ns: int
    ) -> None: ...

    def ended(self, number: int, at_ns: int) -> None: ...

    def unknown(self, number: int, at_ns: int, *, node: int) -> None: ...

    def listed(
        self,
        number: int,
        rows: Sequence[ListedSession],
        next_after: int,
        at_ns: int,
        *,
        node: int,
    ) -> None: ...


class ClientLedger(Protocol):
    """The client side of `actors.simulation.oracle.ledger.Ledger`."""

    @property
    def violations(self) -> list[Violation]: ...

    def session_opened(
        self, producer_id: int, producer_epoch: int, mode: SequenceMode, at_ns: int
    ) -> None: ...

    def invoked(
        self,
        operation: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        payloads: Sequence[bytes],
        at_ns: int,
    ) -> None: ...

    def acknowledged(self, operation: int, first_lsn: int, count: int, at_ns: int) -> None: ...

    def refused(self, operation: int, code: int, at_ns: int) -> None: ...

    def subscribed(self, consumer: str, next_lsn: int) -> None: ...

    def delivered(
        self,
        consumer: str,
        node: int,
        first_lsn: int,
        batch: bytes,
        at_ns: int,
        *,
        handed: tuple[int, int] | None = None,
        is_whole: bool = True,
    ) -> None: ...

    def tail_read(
        self,
        invoked_ns: int,
        returned_ns: int,
        end_lsn: int,
        *,
        node: int | None,
        is_linearizable: bool,
    ) -> None: ...

    def cursor_asked(
        self, number: int, change: Cursor | None, expected_lsn: int, at_ns: int
    ) -> None: ...

    def cursor_changed(self, number: int, previous_lsn: int, at_ns: int) -> None: ...

    def cursor_moved(self, number: int, lsn: int, at_ns: int, *, node: int) -> None: ...

    def cursors_listed(
        self, number: int, cursors: Sequence[Cursor], at_ns: int, *, node: int
    ) -> None: ...

    def session_asked(self, number: int, name: bytes, at_ns: int) -> None: ...

    def session_told(
        self, number: int, reply: SessionStateReply, at_ns: int, *, node: int
    ) -> None: ...

    @property
    def session_lists(self) -> ListsLedger: ...

    def survey_asked(self) -> None: ...

    def time_told(self, node: int, timestamp_ns: int, lsn: int, at_ns: int) -> None: ...

    def spans_told(
        self, node: int, request: SpansRequest, reply: SpansReply, at_ns: int
    ) -> None: ...

    def verified(
        self, node: int, span: tuple[int, int], chain: int, named: Sequence[int], at_ns: int
    ) -> None: ...

    def damage_named(self, node: int, lsns: tuple[int, int], at_ns: int) -> None: ...


def _nobody(_code: int) -> None:
    """Nobody counts refusals."""


def _nothing() -> None:
    """Nobody counts imports."""


class ClientHost(msgspec.Struct, frozen=True):
    """One client's view of the world. `number` and `name` are unique among its clients.

    `on_refused` hears the ErrorCode of every refused batch, `on_import_moved` of an import that
    went on at another leader. `first_lsn`: where the log begins.
    """

    number: int
    name: str
    links: ClientLinks
    endpoint: Callable[[int, PortOffset], str]
    nodes: tuple[int, ...]
    random: Random
    ledger: ClientLedger
    world_now: Callable[[], int]
    on_refused: Callable[[int], None] = _nobody
    on_import_moved: Callable[[], None] = _nothing
    first_lsn: Lsn = FIRST_LSN

    def patience_ns(self) -> int:
        """How long to wait for one answer, drawn anew."""
        return self.random.randrange(*PATIENCE_NS)

    def any_node(self, *, but: int = 0) -> int:
        """One of the nodes, another one than `but` if there is one."""
        others = [node for node in self.nodes if node != but]
        return self.random.choice(others or self.nodes)
