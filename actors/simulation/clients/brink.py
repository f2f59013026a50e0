"""A monotone producer at the end of all sequences: the last ones are stored, what is beyond is not
(SAFETY E1).

Owns one name and its sessions. Must not know how a batch gets its answer.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.clients.append import draw_payloads
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.session import ProducerSession
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wish import Wish, session_name
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import SequenceMode

_SEQUENCE_LAST = (1 << 63) - 2
_FROM_THE_END = 6  # how far before the last one it begins, at most
_BEYOND = (1, 1, 1, 2, 1 << 62)
_ACT_EVERY_NS = (200 * MS_NS, 900 * MS_NS)
_REFUSED_MAX = 24  # it knows by then


class Brink:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.wire = Wire(host)
        self._wish = Wish(SequenceMode.MONOTONE, SESSION_WINDOW_MIN, session_name(host.name))
        self._session: ProducerSession | None = None
        self._act_ns = 0
        self._beyond = 0
        self._is_stopped = False

    @property
    def is_asking(self) -> bool:
        """An append waits for its outcome; that of a session that is over stays unknown."""
        session = self._session
        return session is not None and not session.is_over and bool(session.unresolved.waiting)

    def stop(self) -> None:
        """Nothing new. Wake its process."""
        self._is_stopped = True

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        session = self._session
        if session is None or session.is_over:
            if now_ns >= self._act_ns and not self._is_stopped:
                self._session = ProducerSession(self.wire, self._wish, now_ns)
                self._wait(now_ns)
            return 0
        session.do_work(now_ns)
        if session.is_serving and now_ns >= self._act_ns and not self._is_stopped:
            self._wait(now_ns)
            self._act(session, now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        return self._session.sockets() if self._session is not None else []

    def next_timer_ns(self) -> int:
        session = self._session
        if session is None or session.is_over:
            return self._act_ns if not self._is_stopped else 1 << 62
        if self._is_stopped or not session.is_serving:
            return session.next_timer_ns()
        return min(session.next_timer_ns(), self._act_ns)

    def on_close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _wait(self, now_ns: int) -> None:
        self._act_ns = now_ns + self.host.random.randrange(*_ACT_EVERY_NS)

    def _act(self, session: ProducerSession, now_ns: int) -> None:
        random = self.host.random
        if session.unresolved.waiting:
            return
        if session.next_sequence <= _SEQUENCE_LAST:
            first = _SEQUENCE_LAST - random.randrange(_FROM_THE_END)
            sequence = max(session.next_sequence, first)
            session.append(self._payloads(session, sequence), sequence, now_ns)
            session.flush(now_ns)
        elif self._beyond < _REFUSED_MAX:
            self._beyond += 1
            sequence = _SEQUENCE_LAST + random.choice(_BEYOND)
            append = session.make(self._payloads(session, sequence), sequence, now_ns)
            session.amiss.bad[sequence] = append
            session.push_batch(append.batch)
            self.wire.count("beyond")

    def _payloads(self, session: ProducerSession, sequence: int) -> list[bytes]:
        return draw_payloads(
            self.host.random,
            client=self.host.number,
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch,
            sequence=sequence,
            count_max=2,
            payload_max_bytes=16,
            batch_max_bytes=session.batch_max_bytes,
        )
