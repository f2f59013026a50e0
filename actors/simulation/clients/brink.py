"""A monotone producer at the end of all sequences: batches with the last ones are stored, those
beyond are not (SAFETY E1).

Owns one name and its sessions. Must not know how a batch is answered.
"""

from __future__ import annotations

from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.clients.open_request import open_request, session_name
from actors.simulation.clients.session import ProducerSession
from actors.simulation.network.core_client import CoreClient
from actors.simulation.world.client_host import MS_NS, NEVER_NS, ClientHost
from logstore.client.core.steps import Steps
from logstore.model import SequenceMode

_SEQUENCE_LAST = (1 << 63) - 2
_FROM_THE_END = 6  # how far before the last one it begins, at most
_BEYOND = (1, 1, 1, 2, 1 << 62)
_ACT_EVERY_NS = (200 * MS_NS, 900 * MS_NS)
_REFUSED_MAX = 24  # it knows by then
_DELIVER_NS = 3_600_000 * MS_NS


class Brink:
    """`client` is its process."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.client = CoreClient(host, self._live)
        self.witness = Witness(host)
        self._opening = open_request(SequenceMode.MONOTONE, session_name(host.name))
        self._session: ProducerSession | None = None
        self._act_ns = 0
        self._beyond = 0
        self._is_stopped = False

    @property
    def is_asking(self) -> bool:
        """Whether an append waits for its outcome. That of a session that is over stays unknown."""
        return self._session is not None and self._session.has_unresolved

    def stop(self) -> None:
        """Append nothing new. Wake its process."""
        self._is_stopped = True

    def _live(self, client: CoreClient) -> Steps[None]:
        while True:
            now_ns = client.clock.now_ns
            if now_ns >= self._act_ns and not self._is_stopped:
                session = self._session
                if session is None or session.is_over:
                    self._wait(now_ns)
                    self._session = ProducerSession(
                        client, self.witness, self._opening, deliver_ns=_DELIVER_NS
                    )
                elif session.is_serving:
                    self._wait(now_ns)
                    self._act(session)
            yield client.sleep(self._act_ns if self._act_ns > now_ns else NEVER_NS)

    def _wait(self, now_ns: int) -> None:
        self._act_ns = now_ns + self.host.random.randrange(*_ACT_EVERY_NS)

    def _act(self, session: ProducerSession) -> None:
        random = self.host.random
        if session.has_unresolved:
            return
        if session.next_sequence <= _SEQUENCE_LAST:
            first = _SEQUENCE_LAST - random.randrange(_FROM_THE_END)
            sequence = max(session.next_sequence, first)
            session.append(self._draw(session, sequence), sequence)
        elif self._beyond < _REFUSED_MAX:
            self._beyond += 1
            sequence = _SEQUENCE_LAST + random.choice(_BEYOND)
            batch = session.make_bad(self._draw(session, sequence), sequence)
            session.push_batch(batch, is_mischief=True)
            self.witness.count("beyond")

    def _draw(self, session: ProducerSession, sequence: int) -> list[bytes]:
        return session.draw_payloads(sequence, count_max=2, payload_max_bytes=16)
