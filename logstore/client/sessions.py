"""Opening a producer session at whichever node leads (SAFETY E8).

Blocking, in the caller's thread, so that what is wrong is known before the first append. Owns no
state.
"""

from __future__ import annotations

from logstore.client.connection import Session
from logstore.client.leader import LeaderRequest
from logstore.client.link import Context
from logstore.client.routing import Routing
from logstore.format.client_messages import OpenSessionReply, OpenSessionRequest


def open_session(
    context: Context, routing: Routing, request: OpenSessionRequest, *, timeout_s: float
) -> Session:
    """The session that the leader grants; tries until it has one or the time is over.

    A lost answer may leave an unused session behind, which expires by itself.

    Raises:
      Unreachable, NoQuorum: no replica, or no leader, answered in time.
      LogStoreError: the leader refuses for good.
    """
    reply = LeaderRequest(context, routing, timeout_s=timeout_s).ask(request, OpenSessionReply)
    return Session(
        reply.producer_id,
        reply.producer_epoch,
        reply.window,
        reply.window_bytes,
        reply.batch_max_bytes,
        reply.next_sequence,
    )
