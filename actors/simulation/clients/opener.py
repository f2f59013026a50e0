"""Opens the same name again and again, a new epoch each time (E8), and nothing more. Without a name
it is somebody new each time, who takes a place in the table and leaves it.

With it an OPEN is under way whenever a leader ends. It never appends.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.client_facts import SessionOpened
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.core_client import CoreClient
from actors.simulation.clients.host import MS_NS, NEVER_NS, ClientHost
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wire_checker import Heard, Judge, WireChecker
from actors.simulation.clients.wish import Wish
from logstore.client.core.connection import Session
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Steps
from logstore.client.refusal import TRANSIENT
from logstore.errors import LogStoreError
from logstore.format.client_messages import ErrorReply, OpenSessionReply, OpenSessionRequest
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import SequenceMode

_ASK_EVERY_NS = (250 * MS_NS, 1_200 * MS_NS)  # the mean, drawn once
_TIMEOUT_S = 3.0


class Opener:
    """`client` is its process."""

    def __init__(self, host: ClientHost, name: bytes) -> None:
        self.host = host
        self.wire = Wire(host)
        self.is_asking = False
        judges: dict[type[Any], Judge] = {
            OpenSessionReply: self._on_reply,
            ErrorReply: self._on_refusal,
        }
        self.client = CoreClient(host, self._live, WireChecker(self.wire, judges))
        self._every_ns = host.random.randrange(*_ASK_EVERY_NS)
        mode = host.random.choice((SequenceMode.DENSE, SequenceMode.MONOTONE))
        self._wish = Wish(mode, SESSION_WINDOW_MIN, name)
        self._producer_id = self._epoch = 0
        self._is_stopped = False

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

    def stop(self) -> None:
        """Open nothing after what is under way. Wake its process."""
        self._is_stopped = True

    def _live(self, client: CoreClient) -> Steps[None]:
        routing = client.connect()
        while True:
            ask_ns = client.clock.now_ns + int(self.host.random.expovariate(1.0) * self._every_ns)
            self.is_asking = True
            try:
                session = yield from open_session(
                    client.core, routing, self._wish.request(), timeout_s=_TIMEOUT_S
                )
                self._opened(session)
            except LogStoreError as error:
                self.wire.count(f"refused-{error.code.name.lower()}")
            self.is_asking = False
            while client.clock.now_ns < ask_ns or self._is_stopped:
                yield client.sleep(NEVER_NS if self._is_stopped else ask_ns)

    def _opened(self, session: Session) -> None:
        wire = self.wire
        wire.count("opened")
        # Somebody new each time; or the session of the name was ended meanwhile.
        if not self._wish.name or session.producer_id != self._producer_id:
            self._producer_id, self._epoch = session.producer_id, 0
        if session.producer_epoch <= self._epoch:
            text = f"epoch {session.producer_epoch} is told as new after epoch {self._epoch}"
            wire.violated(Invariant.I7, text)
        self._epoch = session.producer_epoch
        self.host.tell(SessionOpened(session.producer_id, self._epoch, self._wish.mode))

    def _on_reply(self, heard: Heard) -> None:
        if not self._wish.is_granted_by(heard.message):
            text = f"{self._wish} was answered by node {heard.node}: {heard.message}"
            self.wire.violated(Invariant.I17, text)

    def _on_refusal(self, heard: Heard) -> None:
        is_open = isinstance(heard.request, OpenSessionRequest)
        if is_open and heard.message.code not in TRANSIENT:
            text = f"{self._wish}: refused with {heard.message} by node {heard.node}"
            self.wire.violated(Invariant.I17, text)
