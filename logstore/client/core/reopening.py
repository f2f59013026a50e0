"""Opens a session of level `leader` or `none` again: what the log has of its epoch, then the next
one (SAFETY E10).

Owns what is known of attempts without an answer, and whether a node has said that the session is
over: a leader that was deposed and has not noticed says so, too, so the next one must be confirmed
by a majority. A session that such a leader does not know was ended, or was idle for too long: that
ends the producer, whose name may belong to a newer one by then. Must not know batches.

An attempt without an answer may become an entry long after a later one did, and raises the epoch
then. So attempts in doubt outlive the epoch, until as many epochs appeared that were not answered.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from logstore.client.core.connection import Session, confirm_leader, session_of, state_request
from logstore.client.core.requests import Port
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps, Wait
from logstore.client.endpoint import Endpoint
from logstore.errors import (
    ErrorCode,
    Fenced,
    FormatError,
    LogStoreError,
    OutcomeUnknown,
    Unreachable,
)
from logstore.format.client_messages import (
    ACK_ROW,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
)

STEP_TIMEOUT_S = 1.0
# How long a leader may take to commit what it has of an epoch, before the rest counts as lost.
_COMMIT_WAIT_S = 1.0
_PAUSE_S = 0.01  # between two questions of those
# Attempts in doubt that are remembered. Each may hide another producer's OPEN once.
IN_DOUBT_MAX = 16


class Reopening:
    """`opening`: the request that opened the first epoch; `in_doubt`: how many of it had no answer
    before the one that had. `on_state` takes what a ready leader
    says of the epoch. `is_denied`: a node says that the session is over."""

    def __init__(
        self,
        host: Host,
        routing: Routing,
        opening: OpenSessionRequest,
        *,
        in_doubt: int,
        on_state: Callable[[SessionStateReply], object],
    ) -> None:
        self.is_denied = False
        self._host = host
        self._routing = routing
        self._opening = opening
        self._on_state = on_state
        # OPENs without an answer that may have raised the epoch since this one's, or may yet.
        self._in_doubt = min(in_doubt, IN_DOUBT_MAX)

    def next_epoch(self, session: Session, endpoint: Endpoint) -> Steps[Session]:
        """Ask the node what the log has of the epoch, then open the next one there.

        An epoch alone does not say whose OPEN began it. One that an attempt in doubt explains is
        taken for one's own, so another producer's OPEN may hide behind it: that producer is fenced
        then, and this one goes on.

        Raises:
          Fenced: another producer has opened the session; or it had, and is fenced now, too.
          UnknownProducer: the session was ended, or was idle for too long.
          LogStoreError: this node does not know, or did not say.
        """
        yield from self._confirm(endpoint)
        port = Port(self._host, endpoint.control, cluster_id=self._routing.cluster_id)
        try:
            yield from self._learn_stored(port, session)
            opened = yield from self._open(port, session)
        finally:
            port.close()
        unanswered = max(0, opened.producer_epoch - session.producer_epoch - 1)  # epochs between
        if unanswered > self._in_doubt:
            self.is_denied = True  # by what a leader has committed
            raise Fenced("another producer opened this session at the same time: open a new one")
        self._in_doubt -= unanswered
        self.is_denied = False
        return opened

    def confirm_denial(self, session: Session, endpoint: Endpoint) -> Steps[None]:
        """Ask the node what the log has of the epoch, and open nothing. Errors as `next_epoch`."""
        yield from self._confirm(endpoint)
        port = Port(self._host, endpoint.control, cluster_id=self._routing.cluster_id)
        try:
            yield from self._learn_stored(port, session)
        finally:
            port.close()

    def _confirm(self, endpoint: Endpoint) -> Steps[None]:
        """After a denial: only a leader that a majority confirms may repeat it."""
        if self.is_denied:
            yield from confirm_leader(
                self._host,
                endpoint,
                cluster_id=self._routing.cluster_id,
                deadline_ns=self._host.deadline_ns(STEP_TIMEOUT_S),
            )

    def _learn_stored(self, port: Port, session: Session) -> Steps[None]:
        """What the log has of the epoch: all of it once it is committed, else what is committed
        after a while.

        Raises:
          Fenced: by another producer's OPEN. One's own may be without an answer: then how much is
            stored cannot be asked, and the next OPEN shows whether one's own explain the epoch.
          UnknownProducer: the log knows the session no more.
          LogStoreError: this node does not lead, or is not ready.
        """
        deadline_ns = self._host.deadline_ns(_COMMIT_WAIT_S)
        while True:
            step_ns = self._host.deadline_ns(STEP_TIMEOUT_S)
            try:
                state, _ = yield from port.request(
                    state_request(session, 0), SessionStateReply, deadline_ns=step_ns
                )
            except LogStoreError as error:
                if error.code == ErrorCode.FENCED and self._in_doubt:
                    return
                raise
            self._on_state(state)
            is_late = self._host.clock.monotonic_ns() >= deadline_ns
            if is_late or uncommitted_rows(state) == 0:
                return
            yield Wait(self._host.deadline_ns(_PAUSE_S))

    def _open(self, port: Port, session: Session) -> Steps[Session]:
        """By its id, never by its name, which a newer producer may have."""
        opening = msgspec.structs.replace(self._opening, producer_id=session.producer_id, name=b"")
        try:
            reply, _ = yield from port.request(
                opening, OpenSessionReply, deadline_ns=self._host.deadline_ns(STEP_TIMEOUT_S)
            )
        except LogStoreError as error:
            if isinstance(error, Unreachable | OutcomeUnknown | FormatError):
                self._in_doubt = min(self._in_doubt + 1, IN_DOUBT_MAX)
            raise
        return session_of(reply)


def uncommitted_rows(state: SessionStateReply) -> int:
    """How many of the newest batches a leader has in its log, but not committed."""
    return sum(row[3] != ErrorCode.OK for row in ACK_ROW.iter_unpack(state.rows))
