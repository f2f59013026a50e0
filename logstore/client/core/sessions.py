"""Opens a producer session at the leader (SAFETY E8).

Owns no state.
"""

from __future__ import annotations

import msgspec

from logstore.client.core.connection import Session, session_of
from logstore.client.core.leader import LeaderRequest
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps
from logstore.client.refusal import LEVEL_PATIENCE_S
from logstore.format.client_messages import OpenSessionReply, OpenSessionRequest


def open_session(
    host: Host, routing: Routing, request: OpenSessionRequest, *, timeout_s: float
) -> Steps[Session]:
    """The session that the leader grants; repeats the request until there is one or the time is
    over.

    A level of acknowledgement for which the log's format level is too low is asked for again for
    LEVEL_PATIENCE_S: a new log is raised by itself. A lost answer may leave an unused session
    behind, which expires by itself.

    Raises:
      Unreachable, NoQuorum: no replica, or no leader, answered in time.
      LogStoreError: the leader refuses, and would again.
    """
    leader = LeaderRequest(host, routing, timeout_s=timeout_s, level_patience_s=LEVEL_PATIENCE_S)
    reply = yield from leader.ask(request, OpenSessionReply)
    in_doubt = leader.in_doubt if request.name else 0  # without a name each opens another session
    return msgspec.structs.replace(session_of(reply), opens_in_doubt=in_doubt)
