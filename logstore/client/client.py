"""The client: one connection to a cluster, from which producers, consumers and readers are made.

Owns the ZeroMQ context and the map of the cluster, which all of them share, and closes what was
made from it when it is closed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator

from logstore.client.admin import Admin
from logstore.client.clock import seconds_from_now
from logstore.client.consumer import Consumer
from logstore.client.core.range_machine import READ_BYTES
from logstore.client.core.routing import Routing
from logstore.client.core.start import Start
from logstore.client.digest import BatchDigest
from logstore.client.endpoint import Endpoint, parse_endpoints
from logstore.client.members_thread import MembersThread
from logstore.client.producer import Producer
from logstore.client.producer_options import ProducerOptions, options_or_default
from logstore.client.reader import RangeReader
from logstore.client.records import RawBatch, RecordBatch
from logstore.client.threads import closed, host_on, new_context, run
from logstore.client.watch import Watch
from logstore.errors import InvalidRequest
from logstore.limits import BATCH_MAX_BYTES, CLIENT_TIMEOUT_S


def connect(
    endpoints: str | Iterable[str | Endpoint], *, timeout: float = CLIENT_TIMEOUT_S
) -> LogClient:
    """A client of the cluster that answers at `endpoints`.

    A single endpoint gets no request yet: an unreachable cluster shows at the first use. Several
    endpoints are asked for their cluster; those that are down are asked once they can be reached.

    Args:
      endpoints: "HOST:PORT[,HOST:PORT…]" or a sequence of such; one is enough to find the others.
      timeout: seconds that a request may take, including the search for a leader or a replica.

    Raises:
      InvalidRequest: an endpoint is not valid, or the timeout is not above 0.
      WrongCluster: the endpoints belong to more than one cluster.
    """
    if not timeout > 0:
        raise InvalidRequest(f"timeout {timeout}: give seconds above 0")
    return LogClient(parse_endpoints(endpoints), timeout_s=timeout)


class LogClient:
    """A client of one cluster, for any thread. Producers, consumers and readers each say which
    threads may use them."""

    def __init__(self, endpoints: tuple[Endpoint, ...], *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._context = new_context()
        self._host = host_on(self._context)
        self._routing = Routing(self._host, endpoints)
        self._lock = threading.Lock()
        self._opened: list[Producer | Consumer | RangeReader | Watch] = []
        self._is_closed = False
        self._members: MembersThread | None = None
        self.admin: Admin = Admin(self._host, self._routing, timeout_s=timeout_s)
        try:
            run(self._routing.check_endpoints(deadline_ns=seconds_from_now(timeout_s)))
            self._members = MembersThread(self._routing)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LogClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cluster_id(self) -> bytes:
        """16 bytes; zeros until a replica has answered."""
        return self._routing.cluster_id

    def nodes(self) -> dict[int, Endpoint]:
        """The members by node id, as a replica says now.

        Raises:
          Unreachable: no replica answered in time.
        """
        return run(self._routing.current_nodes(timeout_s=self._timeout_s))

    def batch_max_bytes(self) -> int:
        """The largest batch that a replica takes, its header included, as it is configured now.

        Raises:
          Unreachable: no replica answered in time.
        """
        limits = run(self._routing.limits(timeout_s=self._timeout_s))
        return limits.get("batch_max_bytes", BATCH_MAX_BYTES)

    def producer(self, options: ProducerOptions | None = None) -> Producer:
        """Open a producer session.

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
          InvalidRequest: an option is out of bounds.
          LogStoreError: the leader refuses.
        """
        chosen = options_or_default(options)
        producer = Producer(self._host, self._routing, chosen, timeout_s=self._timeout_s)
        self._remember(producer)
        return producer

    def consumer(
        self,
        start: Start = "earliest",
        *,
        end_lsn: int | None = None,
        replica: int | None = None,
        on_out_of_range: str = "error",
    ) -> Consumer:
        """A consumer of every committed payload from `start` on.

        Args:
          start: an LSN, "earliest", "latest" (what comes after now), a datetime with a time zone,
            AtTime(ns), or AtCursor(name).
          end_lsn: the last LSN to hand on; None: follow for ever.
          replica: read this node only, and wait for it while it is down. None: any, moving on.
          on_out_of_range: what happens when the position lies below the log start, because what
            was there is trimmed: "error" raises `OutOfRange`; "earliest" goes on at the log start,
            "latest" after the end, and `skipped_payloads` counts what was left out. (Kafka:
            auto.offset.reset.)

        Raises:
          Unreachable: no replica answered in time.
          InvalidRequest: there is no such start, or no such node.
        """
        consumer = Consumer(
            self._host,
            self._routing,
            start,
            end_lsn=end_lsn,
            replica=replica,
            on_out_of_range=on_out_of_range,
            timeout_s=self._timeout_s,
        )
        self._remember(consumer)
        return consumer

    def reader(
        self,
        *,
        replica: int | None = None,
        max_bytes: int = READ_BYTES,
        timeout: float | None = None,
        reads_ahead: bool = False,
    ) -> RangeReader:
        """A reader of LSN ranges from one replica, or from any.

        Args:
          replica: read this node only. None: any, moving on.
          max_bytes: of one reply, about; a reader holds one.
          timeout: seconds that one fetch may take; None: the client's.
          reads_ahead: ask for the next reply before the last one is handed on, and hold two.
        """
        reader = RangeReader(
            self._host,
            self._routing,
            replica=replica,
            timeout_s=self._timeout_s if timeout is None else timeout,
            max_bytes=max_bytes,
            reads_ahead=reads_ahead,
        )
        self._remember(reader)
        return reader

    def watch(self, *, replica: int | None = None) -> Watch:
        """A watch of how far one replica, or any, shows the log, without reading it."""
        watch = Watch(self._host, self._routing, replica=replica, timeout_s=self._timeout_s)
        self._remember(watch)
        return watch

    def read(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        replica: int | None = None,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> Iterator[RecordBatch]:
        """The committed payloads [first_lsn, last_lsn]; see `RangeReader.read`."""
        if linearizable and replica is None:
            replica = self.admin.leader()
        with self.reader(replica=replica) as reader:
            yield from reader.read(first_lsn, last_lsn, min_lsn=min_lsn, linearizable=linearizable)

    def read_batches(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        replica: int | None = None,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> Iterator[RawBatch]:
        """The whole batches that hold [first_lsn, last_lsn]; see `RangeReader.read_batches`."""
        if linearizable and replica is None:
            replica = self.admin.leader()
        with self.reader(replica=replica) as reader:
            yield from reader.read_batches(
                first_lsn, last_lsn, min_lsn=min_lsn, linearizable=linearizable
            )

    def digest(
        self, first_lsn: int, last_lsn: int, *, replica: int | None = None, min_lsn: int = 0
    ) -> BatchDigest:
        """The digest of the whole batches that hold [first_lsn, last_lsn]: equal to another log's
        if it has the same batches at the same LSNs.

        Errors as `RangeReader.read`.
        """
        digest = BatchDigest()
        for batch in self.read_batches(first_lsn, last_lsn, replica=replica, min_lsn=min_lsn):
            digest.add(batch.first_lsn, batch.count, batch.data)
        return digest

    def close(self) -> None:
        """Close every producer (flushing it), consumer and reader, then the sockets.

        A thread during a call, of a consumer for example, gets `Closed` there. If a producer's
        network thread does not return from a callback in time, its appends without an outcome fail
        with `OutcomeUnknown`, and its sockets close when the callback returns.
        """
        if self._context.is_of_parent:  # and so are its locks, which a thread may hold
            self._is_closed = True
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            opened, self._opened = self._opened, []
        if self._members is not None:
            self._members.close()
        with contextlib.ExitStack() as stack:
            stack.callback(self._context.close)
            stack.callback(self._routing.close)
            for each in opened:
                stack.callback(each.close)

    def _remember(self, opened: Producer | Consumer | RangeReader | Watch) -> None:
        with self._lock:
            if not self._is_closed:
                self._opened = [each for each in self._opened if not each.is_closed]
                self._opened.append(opened)
                return
        opened.close()
        raise closed()
