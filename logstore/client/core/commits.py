"""What a named session has committed, for callers other than its producer.

Owns no state. Unlike opening the session, it fences no producer.
"""

from __future__ import annotations

import msgspec

from logstore.client.core.leader import LeaderRequest
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps
from logstore.errors import ErrorCode, InvalidRequest
from logstore.format.client_messages import ACK_ROW, SessionLookupRequest, SessionStateReply
from logstore.limits import SESSION_NAME_MAX_BYTES


class Commit(msgspec.Struct, frozen=True):
    """A batch of a session: its sequence and the LSNs it got, both ends included."""

    sequence: int
    first_lsn: int
    last_lsn: int

    def __len__(self) -> int:
        return self.last_lsn - self.first_lsn + 1


class SessionCommits(msgspec.Struct, frozen=True):
    """A session as a majority has it.

    Attributes:
      next_sequence: the lowest that is new; of a monotone session, one above the last used.
      commits: the committed batches of its window, by sequence; older ones are not remembered.
    """

    producer_id: int
    next_sequence: int
    commits: tuple[Commit, ...]


def look_up(
    host: Host, routing: Routing, name: str, *, timeout_s: float
) -> Steps[SessionCommits | None]:
    """What the session of this name has committed; None: there is no such session.

    Raises:
      InvalidRequest: no session can have this name.
      Unreachable, NoQuorum: no replica, or no leader, answered in time.
    """
    # Bytes of a command line that are not UTF-8 come as surrogates; no session has such a name.
    encoded = name.encode(errors="surrogateescape")
    if not 0 < len(encoded) <= SESSION_NAME_MAX_BYTES:
        raise InvalidRequest(f"a producer's name has 1..{SESSION_NAME_MAX_BYTES} bytes")
    leader = LeaderRequest(host, routing, timeout_s=timeout_s)
    reply = yield from leader.ask(SessionLookupRequest(encoded), SessionStateReply)
    if not reply.producer_id:
        return None
    commits = tuple(
        Commit(sequence, first_lsn, first_lsn + count - 1)
        for sequence, first_lsn, count, code, _ in ACK_ROW.iter_unpack(reply.rows)
        if code == ErrorCode.OK
    )
    return SessionCommits(reply.producer_id, reply.next_sequence, commits)
