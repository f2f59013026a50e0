"""Asks a replica how far it shows the log, now or when there is more, without reading the log.

Owns one fetch link. The replica does the waiting: it answers when there is more.
"""

from __future__ import annotations

from logstore.client.core.operating import Watermarks
from logstore.client.core.replica_reader import ReplicaReader
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps
from logstore.errors import NotReady, Unreachable
from logstore.format.client_messages import WatermarksReply, WatermarksRequest
from logstore.limits import FETCH_WAIT_MAX_MS
from logstore.model import Lsn

# How late an answer may be after the replica has waited.
GRACE_S = 1.0


class WatermarksWatch:
    """One request at a time."""

    def __init__(
        self, host: Host, routing: Routing, *, replica: int | None, timeout_s: float
    ) -> None:
        self._host = host
        self._timeout_s = timeout_s
        self._replica = ReplicaReader(host, routing, replica=replica, timeout_s=timeout_s)

    def close(self) -> None:
        self._replica.close()

    def now(self) -> Steps[Watermarks]:
        """The bounds that a replica serves now.

        Raises:
          Unreachable, NotReady: no replica answered in time.
        """
        reply, _ = yield from self._replica.request(
            WatermarksRequest(Lsn(0), 0, False), WatermarksReply, timeout_s=self._timeout_s
        )
        return self._marks(reply)

    def wait_beyond(self, lsn: int, wait_s: float) -> Steps[Watermarks]:
        """The bounds once the replica shows more than `lsn`, or after `wait_s` seconds.

        Raises: as `now`.
        """
        wait_ms = int(min(max(0.0, wait_s * 1_000), FETCH_WAIT_MAX_MS))
        request = WatermarksRequest(Lsn(lsn + 1), wait_ms, False)
        try:
            port = yield from self._replica.port()
            deadline_ns = self._host.deadline_ns(wait_s + GRACE_S)
            reply, _ = yield from port.request(request, WatermarksReply, deadline_ns=deadline_ns)
        except (NotReady, Unreachable):
            # nothing new in time; or the replica is gone, and another one answers
            return (yield from self.now())
        return self._marks(reply)

    def _marks(self, reply: WatermarksReply) -> Watermarks:
        return Watermarks(self._replica.node, reply.log_start_lsn, reply.visible_lsn)
