"""How large a batch the leader takes now, which a restart of the replicas may have changed.

Owns the limit of one producer, by which its queue packs. A batch that was never sent and is too
large by now fails alone: to send it would end the producer.
"""

from __future__ import annotations

from logstore.client.core.packs import Pack, PackSource
from logstore.client.core.routing import Routing
from logstore.client.refusal import error_of
from logstore.errors import ErrorCode


class BatchLimit:
    """Of one producer; `most_bytes`: what its session was opened with."""

    def __init__(self, routing: Routing, queue: PackSource, most_bytes: int) -> None:
        self._routing = routing
        self._queue = queue
        self._most_bytes = most_bytes

    def learn(self) -> None:
        """Take over the limit of the leader that was just found."""
        most_bytes = self._routing.batch_max_bytes
        if most_bytes and most_bytes != self._most_bytes:
            self._most_bytes = most_bytes
            self._queue.limit_batches(most_bytes)

    def refuses(self, pack: Pack) -> bool:
        """Whether the pack is too large; its appends have failed then. Hot: once a batch."""
        if pack.size_bytes <= self._most_bytes:
            return False
        pack.fail(error_of(ErrorCode.BATCH_TOO_LARGE))
        return True
