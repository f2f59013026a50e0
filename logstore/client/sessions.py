"""Opening a producer session at whichever node leads (SAFETY E8).

Blocking, in the caller's thread, so that what is wrong is known before the first append. Owns no
state.
"""

from __future__ import annotations

from logstore.client.clock import milliseconds_until, seconds_from_now
from logstore.client.connection import Session
from logstore.client.link import Context, Waiter
from logstore.client.refusal import TRANSIENT
from logstore.client.requests import Port
from logstore.client.routing import Routing
from logstore.errors import FormatError, LogStoreError, Unreachable
from logstore.format.client_messages import OpenSessionReply, OpenSessionRequest

ANSWER_TIMEOUT_S = 2.0
PAUSE_MS = 25


def open_session(
    context: Context, routing: Routing, request: OpenSessionRequest, *, timeout_s: float
) -> Session:
    """The session that the leader grants; tries until it has one or the time is over.

    A lost answer may leave an unused session behind, which expires by itself.

    Raises:
      Unreachable, NoQuorum: no replica, or no leader, answered in time.
      LogStoreError: the leader refuses for good.
    """
    deadline_ns = seconds_from_now(timeout_s)
    refusal: LogStoreError | None = None
    while True:
        try:
            return _open_once(context, routing, request, deadline_ns=deadline_ns)
        except FormatError:
            raise
        except LogStoreError as error:
            if error.code not in TRANSIENT:
                raise
            if not isinstance(error, Unreachable):
                refusal = error
            if not milliseconds_until(deadline_ns):
                # What a leader said tells more than that the last try had no time left.
                raise refusal or error from None
            Waiter().wait(min(PAUSE_MS, milliseconds_until(deadline_ns)))


def _open_once(
    context: Context, routing: Routing, request: OpenSessionRequest, *, deadline_ns: int
) -> Session:
    _, endpoint = routing.find_leader(deadline_ns=deadline_ns)
    port = Port(context, endpoint.control, cluster_id=routing.cluster_id)
    try:
        reply, _ = port.request(
            request,
            OpenSessionReply,
            deadline_ns=min(deadline_ns, seconds_from_now(ANSWER_TIMEOUT_S)),
        )
    finally:
        port.close()
    return Session(
        reply.producer_id,
        reply.producer_epoch,
        reply.window,
        reply.window_bytes,
        reply.batch_max_bytes,
        reply.next_sequence,
    )
