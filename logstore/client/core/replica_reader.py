"""Sends requests to one replica at a time, and moves to another when it does not answer.

Owns the fetch link and the choice of the replica. Range reads, time lookups, watermarks and the
consumer's catching up all go through here. A pinned reader never moves: it waits for its replica.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from logstore.client.core.backoff import Backoff
from logstore.client.core.requests import Port
from logstore.client.core.routing import NoReplicaAnswers, Routing
from logstore.client.core.steps import Frame, Host, Steps
from logstore.client.endpoint import Endpoint
from logstore.client.refusal import TRANSIENT
from logstore.errors import CorruptData, FormatError, LogStoreError, Unreachable
from logstore.limits import FETCH_WAIT_MAX_MS

ANSWER_TIMEOUT_S = 3.0
_T = TypeVar("_T", bound=msgspec.Struct)


def replica_wait_ms(timeout_s: float) -> int:
    """How long a replica may wait before it answers: less than we wait, so that its answer arrives
    in time. 100 ms less were too few on a machine busy with tests (2026-11-21)."""
    return int(min(timeout_s * 800, FETCH_WAIT_MAX_MS))


class ReplicaReader:
    """A fetch link to the replica that is read now. For one request at a time."""

    def __init__(
        self, host: Host, routing: Routing, *, replica: int | None, timeout_s: float
    ) -> None:
        self._host = host
        self._routing = routing
        self._pinned = replica
        self._timeout_s = timeout_s
        self._order: list[int] = []
        self._port: Port | None = None
        self._generation = 0
        # A request that was sent before it is due: message, number, generation of its connection.
        self._ahead: tuple[msgspec.Struct, int, int] | None = None
        self.node = replica or 0

    @property
    def generation(self) -> int:
        """Rises with every new connection, on which answers to older requests do not come."""
        return self._generation

    def close(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def endpoint(self) -> Steps[Endpoint]:
        """Address of the replica that is read now; chooses one if there is none.

        Raises:
          Unreachable: no replica answers with the nodes.
          InvalidRequest: the pinned replica is not part of the cluster.
        """
        if not self.node or (self._pinned is None and self._routing.has_left(self.node)):
            self.node = yield from self._next_node()
        return (yield from self._routing.node(self.node, timeout_s=self._timeout_s))

    def port(self) -> Steps[Port]:
        """The fetch link, connected anew if there is none.

        Raises:
          WrongCluster: the client's endpoints belong to more than one cluster.
        """
        deadline_ns = self._host.deadline_ns(self._timeout_s)
        yield from self._routing.check_endpoints(deadline_ns=deadline_ns)
        if self._port is None:
            endpoint = yield from self.endpoint()
            self._port = Port(self._host, endpoint.fetch, cluster_id=self._routing.cluster_id)
            self._generation += 1
        return self._port

    def move(self) -> Steps[None]:
        """Move to another replica; a pinned one gets a new connection."""
        self.close()
        if self._pinned is None:
            self.node = yield from self._next_node()

    def move_to(self, node: int) -> None:
        """Read this replica from now on."""
        self.close()
        self.node = node

    def send_ahead(self, message: msgspec.Struct) -> None:
        """Send a request now that is likely to be made next."""
        if self._port is not None:
            number = self._port.try_send(message)
            self._ahead = (message, number, self._generation) if number else None

    def forget_ahead(self) -> None:
        """Do not use the answer to a request that was sent ahead."""
        self._ahead = None

    def _sent_ahead(self, message: msgspec.Struct) -> int:
        """The number under which this request was sent on this connection; 0: it was not."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != message or ahead[2] != self._generation:
            return 0
        return ahead[1] if self._port is not None else 0

    def request(
        self,
        message: msgspec.Struct,
        reply_type: type[_T],
        *,
        timeout_s: float,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Steps[tuple[_T, Frame]]:
        """Repeat the request until a replica answers, moving to another one when it cannot now.

        Args:
          message: the request; safe to repeat, as all reads are.
          reply_type: what answers it.
          timeout_s: in all.
          answer_timeout_s: for one replica, above what the request itself may wait there.

        Raises:
          Unreachable, NotReady, …: the last refusal, when the time is over.
          CorruptData: the pinned replica's disk, or every replica's, is damaged there; or that of
            each one that has answered when the time is over.
          LogStoreError: the request would be refused every time.
        """
        deadline_ns = self._host.deadline_ns(timeout_s)
        refusal: LogStoreError | None = None
        damaged: set[int] = set()
        pauses = Backoff(self._host)
        while True:
            try:
                step_ns = min(deadline_ns, self._host.deadline_ns(answer_timeout_s))
                number = self._sent_ahead(message)
                port = yield from self.port()
                return (
                    yield from port.request(message, reply_type, deadline_ns=step_ns, number=number)
                )
            except FormatError:
                self.close()
                raise
            except CorruptData as error:
                damaged.add(self.node)
                # One that does not answer now may have it whole.
                is_left = yield from self._is_another_left(damaged)
                if not is_left or self._host.clock.monotonic_ns() >= deadline_ns:
                    raise
                refusal = error
            except LogStoreError as error:
                if error.code not in TRANSIENT:
                    raise
                if not isinstance(error, Unreachable):
                    refusal = error
                if self._host.clock.monotonic_ns() >= deadline_ns:
                    # A refusal says more than that the last attempt ran out of time.
                    if refusal is None and self._pinned and not isinstance(error, NoReplicaAnswers):
                        raise Unreachable(f"node {self._pinned} does not answer: {error}") from None
                    raise refusal or error from None
            yield from self.move()
            yield pauses.wait(deadline_ns=deadline_ns)

    def _is_another_left(self, tried: set[int]) -> Steps[bool]:
        """Whether there is a replica to ask that is none of these."""
        if self._pinned is not None:
            return False
        nodes = yield from self._routing.replicas(timeout_s=self._timeout_s)
        return not tried.issuperset(nodes)

    def _next_node(self) -> Steps[int]:
        """Each node in turn; once all were tried, those that the cluster has then."""
        self._order = [each for each in self._order if not self._routing.has_left(each)]
        if not self._order:
            if self.node:
                yield from self._routing.refresh(timeout_s=self._timeout_s)
            self._order = yield from self._routing.replicas(
                timeout_s=self._timeout_s, avoid=self.node
            )
        return self._order.pop(0)
