"""The watch, for a thread: how far a replica shows the log, without reading it.

Owns the guard of its calls. `core.watermarks_watch` sends the requests.
"""

from __future__ import annotations

from logstore.client.call_guard import CallGuard
from logstore.client.core.operating import Watermarks
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host
from logstore.client.core.watermarks_watch import WatermarksWatch
from logstore.client.threads import run


class Watch:
    """Used by one thread; close it, from any thread, or use it as a context manager."""

    def __init__(
        self, host: Host, routing: Routing, *, replica: int | None, timeout_s: float
    ) -> None:
        self._machine = WatermarksWatch(host, routing, replica=replica, timeout_s=timeout_s)
        self._guard = CallGuard("watch", self._machine.close)

    @property
    def is_closed(self) -> bool:
        return self._guard.is_closed

    def close(self) -> None:
        """Close it. During another thread's call, the socket closes when that ends."""
        self._guard.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> Watermarks:
        """The bounds that a replica serves now.

        Raises:
          Unreachable, NotReady: no replica answered in time.
          Closed: the watch or its client was closed, maybe while this call waited.
        """
        with self._guard:
            return run(self._machine.now(), check=self._guard.check)

    def wait_beyond(self, lsn: int, wait_s: float) -> Watermarks:
        """The bounds once the replica shows more than `lsn`, or after `wait_s` seconds.

        Raises: as `now`.
        """
        with self._guard:
            return run(self._machine.wait_beyond(lsn, wait_s), check=self._guard.check)
