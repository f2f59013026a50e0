"""Requests for what a session has committed, by its name, from whoever is not its producer.

A read: raft confirms by a quorum round, begun after the request came, that this replica leads (V5);
then the table has everything that was committed before. It has more than that: what is told waits
until all of it is committed, for whoever asks takes it for done.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from actors.ingress.admission import Admission
from actors.ingress.pending_requests import Caller, Requests
from actors.ingress.sockets_and_rings import ToRaft
from actors.messages import READS_OF_INGRESS
from logstore.errors import ErrorCode
from logstore.format.client_messages import ACK_ROW, SessionLookupRequest, SessionStateReply
from logstore.model import NO_INDEX, Index
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from logstore.session.session import Session


class SessionLookups:
    """What waits is bounded by `Requests`, by raft's bound on reads, and by `Admission`."""

    def __init__(self, requests: Requests, to_raft: ToRaft) -> None:
        self._requests = requests
        self._to_raft = to_raft
        self._names: dict[int, bytes] = {}  # by request, until raft has confirmed

    def ask(
        self, admission: Admission, caller: Caller, request: SessionLookupRequest, now_ns: int
    ) -> None:
        if admission.table is None:
            self._requests.refuse_as_not_leading(caller)
        elif request_id := self._requests.add(caller, now_ns):
            self._names[request_id] = request.name
            self._to_raft.send(ReadIndexRequested(READS_OF_INGRESS + request_id))

    def owns(self, answered: ReadIndexAnswered) -> bool:
        """Whether this is the answer to a lookup."""
        return answered.request_id - READS_OF_INGRESS in self._names

    def on_read_index(self, admission: Admission, answered: ReadIndexAnswered) -> None:
        """This replica led when the request came, or it did not."""
        request_id = answered.request_id - READS_OF_INGRESS
        name = self._names.pop(request_id)
        table = admission.table
        if not answered.is_leader or table is None or not admission.is_ready:
            self._answer(request_id, None, NO_INDEX)
            return
        session = table.named(name)
        if session is not None:
            session = msgspec.structs.replace(session, rows=OrderedDict(session.rows))

        def tell(is_committed: bool) -> None:
            self._answer(request_id, session, table.commit if is_committed else NO_INDEX)

        admission.when_committed(tell)

    def _answer(self, request_id: int, session: Session | None, commit: Index) -> None:
        """`commit` NO_INDEX: somebody else leads, or this one does not know yet."""
        caller = self._requests.take(request_id)
        if caller is None:
            pass  # answered by its timeout
        elif commit == NO_INDEX:
            self._requests.refuse_as_not_leading(caller)
        elif session is None:
            self._requests.reply(caller, SessionStateReply(0, 0, 0, b""))
        else:
            self._requests.reply(caller, state_reply(session, commit))


def state_reply(session: Session, commit: Index) -> SessionStateReply:
    """A session's window, each row committed or not known to be."""
    pack = ACK_ROW.pack
    rows = b"".join(
        pack(row.sequence, row.first_lsn, row.count, ErrorCode.OK, 0)
        if row.is_committed(commit)
        else pack(row.sequence, 0, row.count, ErrorCode.OUTCOME_UNKNOWN, 0)
        for row in session.rows.values()
    )
    return SessionStateReply(
        session.producer_id, session.producer_epoch, session.next_sequence, rows
    )
