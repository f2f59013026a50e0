"""Checks what replicas say of an import, before the core hears it (P1), and sends amiss on purpose.

Owns the batches and how far they are known to be committed. The linearizable end of the log is the
authority, the ack feed only makes it quick. A batch that is there already, or whose turn has not
come, goes out between the core's own, as somebody else's import: nothing may come of it.
"""

from __future__ import annotations

import msgspec

from actors.simulation.checkers.client_facts import AppendAcknowledged
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.answers import judging
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wire_checker import Heard
from actors.simulation.network.core_links import SimulatedLink
from logstore.errors import ErrorCode
from logstore.format.client_messages import ACK_ROW, Acks, ImportRequest, WatermarksReply
from logstore.format.message import decode_message, encode_message
from logstore.limits import POSITION_MAX
from logstore.model import Lsn
from logstore.settings import PortOffset
from transport import link as transport

_MISCHIEF = 0.2
_STRANGER_BITS = 63
# After which the core looks again how far the log is.
REFUSALS = frozenset(
    {
        ErrorCode.GAP,
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.NO_QUORUM,
        ErrorCode.TIMED_OUT,
        ErrorCode.CORRUPT_DATA,
    }
)


class Imported(msgspec.Struct, frozen=True, gc=False):
    """A batch of the other log. `operation`: its number among appends."""

    operation: int
    first_lsn: int
    count: int
    data: bytes

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1


class ImportChecker:
    """The observer of an importer's links. `batches`: all that the core has taken, in order;
    `settled` of them are committed. `leaders`: nodes that acknowledged some."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.batches: list[Imported] = []
        self.settled = 0
        self.leaders: set[int] = set()
        self._messages = judging(wire)
        self._judge_end = self._messages.judges[WatermarksReply]
        self._messages.judges |= {WatermarksReply: self._on_end, Acks: self._on_acks}

    @property
    def next_lsn(self) -> int:
        """Where the next new batch belongs."""
        return self.batches[-1].last_lsn + 1 if self.batches else int(self.wire.host.first_lsn)

    @property
    def due_lsn(self) -> int:
        """Where the log ends, as far as is known."""
        is_due = self.settled < len(self.batches)
        return self.batches[self.settled].first_lsn if is_due else self.next_lsn

    # --- an observer's words ---

    def sent(self, link: SimulatedLink, frame: bytes) -> None:
        self._messages.sent(link, frame)
        if self._messages.place_of(link)[1] is PortOffset.APPEND:
            self._meddle(link, frame)

    def received(self, link: SimulatedLink, frames: list[bytes]) -> None:
        self._messages.received(link, frames)

    def closed(self, link: SimulatedLink) -> None:
        self._messages.closed(link)

    def _meddle(self, link: SimulatedLink, frame: bytes) -> None:
        """The core has sent a batch: it, or one before it, may follow once more. Mostly it: that
        one is still under way."""
        random = self.wire.host.random
        if random.random() >= _MISCHIEF:
            return
        envelope, request = decode_message(frame)
        sent = [each for each in self.batches if each.first_lsn <= request.first_lsn]
        again = random.choice((random.choice(sent), sent[-1]))  # the next one would be taken
        # where it belongs, where it can never be, or in its own midst
        first_lsn = random.choice((again.first_lsn, again.first_lsn, POSITION_MAX, again.last_lsn))
        request = ImportRequest(random.getrandbits(_STRANGER_BITS), Lsn(first_lsn), again.data)
        frame = encode_message(
            request,
            cluster_id=envelope.cluster_id,
            sender_uuid=envelope.sender_uuid,
            sender=envelope.sender,
            target=envelope.target,
            correlation=0,
        )
        if transport.try_send(link.socket, (frame,)):
            self.wire.count("mischief")

    # --- what is committed ---

    def _on_end(self, heard: Heard) -> None:
        """The log ends there, confirmed by a quorum: nobody else writes yet, so it is all ours."""
        self._judge_end(heard)
        end_lsn = heard.message.visible_lsn
        if not heard.request.is_linearizable:
            return
        self._settle(end_lsn)
        if end_lsn != self.due_lsn - 1:
            text = f"the log ends at LSN {end_lsn}, {self.due_lsn - 1} or whole batches more"
            self.wire.violated(Invariant.I6, f"{text} were sent")

    def _on_acks(self, heard: Heard) -> None:
        """The answer to each request, by its first LSN."""
        for asked, first_lsn, count, code, _ in ACK_ROW.iter_unpack(heard.message.rows):
            if code != ErrorCode.OK:
                self.wire.count(f"refused-{ErrorCode(code).name.lower()}")
                if code not in REFUSALS:
                    self.wire.violated(Invariant.I11, f"an import was refused with {code}")
                continue
            batch = next((each for each in self.batches if each.first_lsn == asked), None)
            if batch is None or (first_lsn, count) != (batch.first_lsn, batch.count):
                text = f"the import of {batch} at LSN {asked} was acknowledged as "
                self.wire.violated(Invariant.I4, f"{text}{count} payloads at {first_lsn}")
                continue
            self.leaders.add(heard.node)
            self._settle(batch.last_lsn)

    def _settle(self, last_lsn: int) -> None:
        while self.settled < len(self.batches):
            batch = self.batches[self.settled]
            if batch.last_lsn > last_lsn:
                break
            self.settled += 1
            told = AppendAcknowledged(batch.operation, batch.first_lsn, batch.count)
            self.wire.host.tell(told)
