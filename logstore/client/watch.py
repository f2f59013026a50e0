"""How far a replica shows the log: asked, or waited for, without reading it.

Owns one fetch socket. Waiting is the replica's work: it answers when there is more.
"""

from __future__ import annotations

from logstore.client.admin import Watermarks
from logstore.client.clock import seconds_from_now
from logstore.client.link import Context
from logstore.client.replica import ReplicaReader
from logstore.client.routing import Routing
from logstore.errors import NotReady, Unreachable
from logstore.format.client_messages import WatermarksReply, WatermarksRequest
from logstore.limits import FETCH_WAIT_MAX_MS
from logstore.model import Lsn

# What an answer may be late by after the replica has waited.
GRACE_S = 1.0


class Watch:
    """Used by one thread; close it, or use it as a context manager."""

    def __init__(
        self, context: Context, routing: Routing, *, replica: int | None, timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._is_closed = False
        self._replica = ReplicaReader(context, routing, replica=replica, timeout_s=timeout_s)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._replica.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> Watermarks:
        """The bounds that a replica serves now.

        Raises:
          Unreachable, NotReady: no replica could tell in time.
        """
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
        try:
            reply, _ = self._replica.port().request(
                request, WatermarksReply, deadline_ns=seconds_from_now(wait_s + GRACE_S)
            )
        except (NotReady, Unreachable):
            return self.now()  # nothing new in time; or the replica is gone, and another one tells
        return Watermarks(self._replica.node, reply.log_start_lsn, reply.visible_lsn)
