"""Lists and ends the sessions of the log, at the leader.

Owns no state. A list comes in pages, each linearizable. Ending a session is repeated without an
answer, which is safe: a producer id is never given twice.
"""

from __future__ import annotations

import msgspec

from logstore.client.core.commits import look_up
from logstore.client.core.leader import LeaderRequest
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps
from logstore.client.refusal import TRANSIENT
from logstore.errors import (
    FormatError,
    InvalidRequest,
    LogStoreError,
    OutcomeUnknown,
    UnknownProducer,
)
from logstore.format.client_messages import (
    DoneReply,
    EndSessionRequest,
    SessionsReply,
    SessionsRequest,
)
from logstore.format.session_list import ListedSession, SessionState, decode_sessions
from logstore.model import AckLevel, SequenceMode

_ID_MAX = (1 << 64) - 1


class SessionInfo(msgspec.Struct, frozen=True):
    """A producer session as a majority has it.

    Attributes:
      name: "" for a session without one.
      mode: "dense" or "monotone".
      acks: "quorum", "leader" or "none".
      next_sequence: the lowest that is new.
      window, window_bytes: what its producer may have under way.
      last_used_ns: when the log last took a batch or an opening of it, ns since the Unix epoch; 0:
        not known.
      is_kept: it was idle for too long, and only its name and its numbers are left, so that the
        name does not start over unnoticed.
    """

    producer_id: int
    producer_epoch: int
    name: str
    mode: str
    next_sequence: int
    window: int
    window_bytes: int
    last_used_ns: int
    is_kept: bool
    acks: str = "quorum"


class SessionPage(msgspec.Struct, frozen=True):
    """A part of the list. `next_after`: what the next page comes after; 0: this is the last one."""

    rows: tuple[SessionInfo, ...]
    next_after: int


class SessionAdmin:
    """The sessions of one cluster."""

    def __init__(self, host: Host, routing: Routing, *, timeout_s: float) -> None:
        self._host = host
        self._routing = routing
        self._timeout_s = timeout_s

    def page(self, after: int) -> Steps[SessionPage]:
        """Some of the sessions with a producer id above `after`, by producer id."""
        reply = yield from self._leader().ask(SessionsRequest(after, 0), SessionsReply)
        if reply.next_after and reply.next_after <= after:
            raise FormatError(f"the page after {after} leads to {reply.next_after}")
        rows = tuple(_info(row) for row in decode_sessions(reply.sessions))
        return SessionPage(rows, reply.next_after)

    def end(self, session: str | int) -> Steps[int]:
        """End the session of this name or producer id; its producer id.

        Raises:
          UnknownProducer: there is none.
          Overloaded: it had batches under way all the time.
          OutcomeUnknown: no answer in time; it may be ended, or be ended yet.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        producer_id = session if isinstance(session, int) else (yield from self._id_of(session))
        if not 0 < producer_id <= _ID_MAX:
            raise InvalidRequest(f"a producer id is 1 to {_ID_MAX}, not {producer_id}")
        leader = self._leader()
        try:
            yield from leader.ask(EndSessionRequest(producer_id), DoneReply)
        except UnknownProducer:
            if not leader.is_in_doubt:
                raise  # else an attempt without an answer has ended it
        except LogStoreError as error:
            # A refusal of one attempt says nothing about another one that was not answered.
            if not leader.is_in_doubt or error.code not in TRANSIENT:
                raise
            raise OutcomeUnknown(
                f"the session of producer {producer_id} may be ended, or be ended yet: no answer in"
                " time; ask again"
            ) from error
        return producer_id

    def _id_of(self, name: str) -> Steps[int]:
        found = yield from look_up(self._host, self._routing, name, timeout_s=self._timeout_s)
        if found is None:
            raise UnknownProducer(f"no session is named {name!r}: list the sessions")
        return found.producer_id

    def _leader(self) -> LeaderRequest:
        return LeaderRequest(self._host, self._routing, timeout_s=self._timeout_s)


def _info(row: ListedSession) -> SessionInfo:
    return SessionInfo(
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        name=row.name.decode(),
        mode=SequenceMode(row.mode).name.lower(),
        next_sequence=row.next_sequence,
        window=row.window,
        window_bytes=row.window_bytes,
        last_used_ns=row.last_used_ns,
        is_kept=row.state == SessionState.KEPT,
        acks=AckLevel(row.ack_level).name.lower(),
    )
