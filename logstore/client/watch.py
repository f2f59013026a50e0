"""How far a replica shows the log: asked, or waited for, without reading it.

Owns one fetch socket. Waiting is the replica's work: it answers when there is more.
"""

from __future__ import annotations

from logstore.client.admin import Watermarks
from logstore.client.clock import seconds_from_now
from logstore.client.link import Context
from logstore.client.replica_reader import ReplicaReader
from logstore.client.routing import Routing
from logstore.client.turn import Turn
from logstore.errors import NotReady, Unreachable
from logstore.format.client_messages import WatermarksReply, WatermarksRequest
from logstore.limits import FETCH_WAIT_MAX_MS
from logstore.model import Lsn

# What an answer may be late by after the replica has waited.
GRACE_S = 1.0


class Watch:
    """Used by one thread; close it, from any thread, or use it as a context manager."""

    def __init__(
        self, context: Context, routing: Routing, *, replica: int | None, timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._turn = Turn("watch", self._close_sockets)
        self._replica = ReplicaReader(context, routing, replica=replica, timeout_s=timeout_s)

    @property
    def is_closed(self) -> bool:
        return self._turn.is_closed

    def close(self) -> None:
        """Close it. Where another thread is amid a call, the socket goes with its end."""
        self._turn.close()

    def _close_sockets(self) -> None:
        self._replica.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> Watermarks:
        """The bounds that a replica serves now.

        Raises:
          Unreachable, NotReady: no replica could tell in time.
          Closed: the watch or its client was closed, maybe while this call waited.
        """
        with self._turn:
            return self._ask()

    def _ask(self) -> Watermarks:
        reply, _ = self._replica.request(
            WatermarksRequest(Lsn(0), 0, False), WatermarksReply, timeout_s=self._timeout_s
        )
        return Watermarks(self._replica.node, reply.log_start_lsn, reply.visible_lsn)

    def wait_beyond(self, lsn: int, wait_s: float) -> Watermarks:
        """The bounds once the replica shows more than `lsn`, or after `wait_s` seconds.

        Raises: as `now`.
        """
        wait_ms = min(int(wait_s * 1_000), FETCH_WAIT_MAX_MS)
        request = WatermarksRequest(Lsn(lsn + 1), wait_ms, False)
        with self._turn:
            try:
                reply, _ = self._replica.port().request(
                    request, WatermarksReply, deadline_ns=seconds_from_now(wait_s + GRACE_S)
                )
            except (NotReady, Unreachable):
                return self._ask()  # nothing new in time; or it is gone, and another replica tells
            return Watermarks(self._replica.node, reply.log_start_lsn, reply.visible_lsn)
