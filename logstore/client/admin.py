"""What an operator asks of a cluster: status, watermarks, cursors, sessions, transfer and more.

Owns no state. Answers come from whoever has them; a replica that does not answer is part of the
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from logstore.client.clock import milliseconds_until, seconds_from_now
from logstore.client.commits import SessionCommits, look_up
from logstore.client.consumer import AtTime
from logstore.client.cursor_admin import Cursor, Cursors, deletion_of
from logstore.client.endpoint import Endpoint
from logstore.client.importing import Importer, Window
from logstore.client.link import Context, Waiter
from logstore.client.reader import RangeReader
from logstore.client.refusal import TRANSIENT
from logstore.client.replica_reader import PAUSE_MS, ReplicaReader, replica_wait_ms
from logstore.client.requests import Port, Survey
from logstore.client.routing import Routing
from logstore.client.session_admin import SessionAdmin, SessionInfo
from logstore.client.spans import Spans, read_spans
from logstore.client.status import merge_status
from logstore.client.verification import Verification, verify_replicas
from logstore.errors import InvalidRequest, LogStoreError, TransferFailed, Unreachable
from logstore.format.client_messages import (
    DoneReply,
    InitializeRequest,
    StatusReply,
    StatusRequest,
    TimeLookupReply,
    TransferRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.format.first_lsn import pack_first_lsn
from logstore.limits import FIRST_LSN_MAX, POSITION_MAX
from logstore.model import FIRST_LSN, Lsn

# Status asks every replica: how long the slower ones may take after the first has answered.
STATUS_SETTLE_S = 1.0
TRANSFER_TIMEOUT_S = 10.0
TRANSFER_ANSWER_S = 5.0
# A leader that a majority does not follow any more cannot confirm: look for the next one after
# this.
COMMIT_TIMEOUT_S = 2.0


class Watermarks(msgspec.Struct, frozen=True):
    """What a replica serves: LSNs [log_start_lsn, visible_lsn]; visible below start: nothing."""

    node: int
    log_start_lsn: int
    visible_lsn: int


class Admin:
    """Operator's requests. Every method is safe to call from any thread."""

    def __init__(self, context: Context, routing: Routing, *, timeout_s: float) -> None:
        self._context = context
        self._routing = routing
        self._timeout_s = timeout_s
        self._cursors = Cursors(context, routing, timeout_s=timeout_s)
        self._sessions = SessionAdmin(context, routing, timeout_s=timeout_s)

    def status(self) -> dict[str, Any]:
        """The cluster as JSON-ready data.

        commit_lsn, log_start_lsn, leader, term, cluster_id and nodes: for each configured node at
        least node, host, port, role ("unreachable" if it does not answer), pid, processes, lag_lsn,
        faulty.

        Raises:
          Unreachable: no replica answered in time.
        """
        nodes = self._routing.nodes(timeout_s=self._timeout_s)
        by_endpoint: dict[Endpoint, dict[str, Any]] = {}
        with Survey(self._context, nodes.values(), cluster_id=self._routing.cluster_id) as survey:
            answers = survey.gather(
                StatusRequest(), StatusReply, timeout_s=self._timeout_s, settle_s=STATUS_SETTLE_S
            )
            for endpoint, answer in answers:
                by_endpoint[endpoint] = msgspec.json.decode(answer.document)
        if not by_endpoint:
            raise Unreachable("no replica answers: is the cluster up?")
        documents = {node: by_endpoint.get(endpoint) for node, endpoint in nodes.items()}
        merged = merge_status(documents)
        for row in merged["nodes"]:
            row["host"], row["port"] = nodes[row["node"]].host, nodes[row["node"]].port
        merged["cluster_id"] = self._routing.cluster_id.hex()
        return merged

    def watermarks(
        self, *, replica: int | None = None, min_lsn: int = 0, linearizable: bool = False
    ) -> Watermarks:
        """The bounds that one replica serves.

        Args:
          replica: its node id. None: the leader if linearizable, else any.
          min_lsn: wait until it shows this LSN.
          linearizable: the leader confirms with a majority first that it leads.

        Raises:
          Unreachable: no answer, or `min_lsn` was not shown in time.
        """
        if linearizable and replica is None:
            replica = self.leader()
        reader = ReplicaReader(
            self._context, self._routing, replica=replica, timeout_s=self._timeout_s
        )
        wait_ms = replica_wait_ms(self._timeout_s)
        try:
            reply, _ = reader.request(
                WatermarksRequest(Lsn(min_lsn), wait_ms, linearizable),
                WatermarksReply,
                timeout_s=self._timeout_s,
                answer_timeout_s=self._timeout_s,
            )
            return Watermarks(reader.node, reply.log_start_lsn, reply.visible_lsn)
        finally:
            reader.close()

    def commit_lsn(self, *, timeout: float | None = None) -> int:
        """The last committed LSN, confirmed by a majority; 0: the log is empty.

        Args:
          timeout: seconds to wait for a leader; None: the client's.

        Raises:
          Unreachable, NoQuorum: nobody answered, or nobody led, in time.
        """
        deadline_ns = seconds_from_now(self._timeout_s if timeout is None else timeout)
        while True:
            _, endpoint = self._routing.find_leader(deadline_ns=deadline_ns)
            port = Port(self._context, endpoint.fetch, cluster_id=self._routing.cluster_id)
            try:
                reply, _ = port.request(
                    WatermarksRequest(Lsn(0), 0, True),
                    WatermarksReply,
                    deadline_ns=min(deadline_ns, seconds_from_now(COMMIT_TIMEOUT_S)),
                )
                return int(reply.visible_lsn)
            except LogStoreError as error:
                left_ms = milliseconds_until(deadline_ns)
                if error.code not in TRANSIENT or not left_ms:
                    raise
                Waiter().wait(min(PAUSE_MS, left_ms))
            finally:
                port.close()

    def lsn_at(self, time: AtTime, *, replica: int | None = None) -> int:
        """The first LSN whose group is not older than the time; the next one to come if none is."""
        reader = ReplicaReader(
            self._context, self._routing, replica=replica, timeout_s=self._timeout_s
        )
        try:
            reply, _ = reader.request(time.request(), TimeLookupReply, timeout_s=self._timeout_s)
            return int(reply.lsn)
        finally:
            reader.close()

    def spans(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        step_bytes: int = POSITION_MAX,
        limit: int | None = None,
        replica: int | None = None,
    ) -> Spans:
        """How the bytes of a range are spread, without reading them; see `read_spans`."""
        reader = ReplicaReader(
            self._context, self._routing, replica=replica, timeout_s=self._timeout_s
        )
        try:
            return read_spans(
                reader,
                first_lsn,
                last_lsn,
                step_bytes=step_bytes,
                limit=limit,
                timeout_s=self._timeout_s,
            )
        finally:
            reader.close()

    def cursors(self) -> list[Cursor]:
        """Every named cursor, by name, with all that was set before this call (linearizable).

        Raises:
          Unreachable, NoQuorum: nobody answered, or nobody led, in time.
        """
        return self._cursors.list()

    def set_cursor(
        self, name: str, lsn: int, *, hold: bool = False, expected_lsn: int | None = None
    ) -> int:
        """Let the cursor `name` stand before `lsn`; where it stood until now, 0: nowhere.

        Returns once a majority has it on disk. A try without an answer is repeated: it may take
        effect twice, which matters only to who shares the cursor without `expected_lsn`.

        Args:
          name: 1 to 255 bytes of UTF-8. The log keeps up to 256 cursors.
          lsn: the next LSN to read, at least 1.
          hold: keep the payloads from `lsn` on until the cursor moves, or is set without.
          expected_lsn: only if it stands there now, 0: only if there is none. None: in any case.

        Raises:
          CursorMoved: it does not stand at `expected_lsn`; `.lsn` says where it does.
          TooManyCursors: delete one first.
          OutcomeUnknown: the cursor may be set or not; list the cursors, or ask again.
          Unreachable, NoQuorum: nobody answered, or nobody led, in time.
          InvalidRequest: no such name or LSN can be.
        """
        if lsn == 0:
            raise InvalidRequest("LSN 0 is where no cursor stands: use delete_cursor")
        return self._cursors.change(Cursor(name, lsn, hold), expected_lsn)

    def delete_cursor(self, name: str, *, expected_lsn: int | None = None) -> int:
        """Forget the cursor; where it stood, 0: nowhere (or a try without an answer deleted it).

        Args and errors as `set_cursor`.
        """
        return self._cursors.change(deletion_of(name), expected_lsn)

    def session_commits(self, name: str) -> SessionCommits | None:
        """What the producer session of this name has committed; None: there is none. Linearizable,
        and unlike opening the session it fences nobody.

        Raises:
          Unreachable, NoQuorum: nobody answered, or nobody led, in time.
        """
        return look_up(self._context, self._routing, name, timeout_s=self._timeout_s)

    def sessions(self) -> Iterator[SessionInfo]:
        """Every producer session, by producer id, a page at a time: each page is linearizable. A
        session that is there all the time comes once; one that comes or goes meanwhile may.

        Raises:
          Unreachable, NoQuorum: nobody answered, or nobody led, in time.
        """
        return self._sessions.list()

    def end_session(self, session: str | int) -> int:
        """End the session of this name, or of this producer id; its producer id. Returns once a
        majority has it on disk.

        Its producer is told `UnknownProducer` from then on. Whoever opens the name again begins a
        new session: what the log knew of its sequences is forgotten, those of a monotone one, too.

        Raises:
          UnknownProducer: there is no such session.
          Overloaded: it had batches under way all the time: stop its producer first.
          OutcomeUnknown: it may be ended or not; ask again.
          Unreachable, NoQuorum: nobody answered, or nobody led, in time.
        """
        return self._sessions.end(session)

    def leader(self, *, timeout: float | None = None) -> int:
        """Node id of the leader; waits for one, `timeout` seconds instead of the client's.

        Raises:
          Unreachable, NoQuorum: nobody answered, or nobody led, in time.
        """
        wait_s = self._timeout_s if timeout is None else timeout
        return self._routing.find_leader(deadline_ns=seconds_from_now(wait_s))[0]

    def transfer(self, target: int = 0) -> int:
        """Hand leadership to a node (0: whichever is most up to date); who leads afterwards.

        Raises:
          TransferFailed: it did not happen as far as the replica knows: look who leads.
          InvalidRequest: there is no such node.
        """
        if target and target not in self._routing.nodes(timeout_s=self._timeout_s):
            raise InvalidRequest(f"no node {target} to transfer to")
        deadline_ns = seconds_from_now(self._timeout_s)
        node, endpoint = self._routing.find_leader(deadline_ns=deadline_ns)
        if target == node:
            return node
        deadline_ns = max(deadline_ns, seconds_from_now(TRANSFER_TIMEOUT_S))
        try:
            answer_ns = min(deadline_ns, seconds_from_now(TRANSFER_ANSWER_S))
            self._ask(endpoint, TransferRequest(target), answer_ns)
        except Unreachable:
            pass  # its answer is lost, or it died of it: who leads tells what happened
        while True:
            leader, _ = self._routing.find_leader(deadline_ns=deadline_ns)
            if leader != node:
                return leader
            if not milliseconds_until(deadline_ns):
                raise TransferFailed(f"node {node} still leads")
            Waiter().wait(PAUSE_MS)

    def initialize(self, *, first_lsn: int = FIRST_LSN, timeout_s: float | None = None) -> None:
        """Form the cluster; needed once, where `auto_init` is off. Asking again changes nothing.

        Args:
          first_lsn: the LSN of the first payload to come, 1 to FIRST_LSN_MAX; above 1 for a log
            whose beginning is kept elsewhere (`import_batches`).
          timeout_s: how long the configured nodes may take to answer each other; None: the
            client's timeout.

        Raises:
          InvalidRequest: no log begins there, or this cluster's began elsewhere; or a node must
            not take part, the message says why.
          Unreachable, NotReady: not all nodes were there in time.
        """
        deadline_ns = seconds_from_now(self._timeout_s if timeout_s is None else timeout_s)
        if not FIRST_LSN <= first_lsn <= FIRST_LSN_MAX:
            raise InvalidRequest(f"first LSN {first_lsn}: give {FIRST_LSN} to {FIRST_LSN_MAX}")
        request = InitializeRequest(pack_first_lsn(Lsn(first_lsn)))
        while True:
            left_s = milliseconds_until(deadline_ns) / 1_000
            try:
                nodes = self._routing.nodes(timeout_s=left_s)
                self._ask(nodes[min(nodes)], request, deadline_ns)
                return
            except LogStoreError as error:
                left_ms = milliseconds_until(deadline_ns)
                if error.code not in TRANSIENT or not left_ms:
                    raise
                Waiter().wait(min(PAUSE_MS, left_ms))

    def import_batches(self, first_lsn: int, batches: Iterable[bytes | memoryview]) -> int:
        """Append whole batches of another log, byte for byte, from `first_lsn` on; the LSN after
        the last, once all of it is committed.

        For restoring a log, into a cluster formed for it (`initialize(first_lsn=)`): the log takes
        imports as long as it has no session, and only where it ends. Batches that are there already
        are compared and skipped, so an import that was broken off is begun again from anywhere.
        The producers of these batches have no sessions here; theirs begin anew.

        Args:
          first_lsn: of the first payload of the first batch.
          batches: in the order of their LSNs, without gaps, as `read_batches` gives them; taken as
            they are needed, about 8 MiB at a time.

        Raises:
          ImportRefused: the log has sessions, or holds other batches at these LSNs.
          OutOfRange: `first_lsn` is above the end of the log, or below its start.
          InvalidBatch, BatchTooLarge, FormatError: the source gave no whole batch.
          Unreachable, NoQuorum: nothing went on for the client's timeout; begin again.
        """
        reader = RangeReader(self._context, self._routing, replica=None, timeout_s=self._timeout_s)
        with reader:
            importer = Importer(
                self._context, self._routing, reader, self._timeout_s, self.commit_lsn
            )
            return importer.run(Window(first_lsn, batches))

    def verify(self, *, max_bytes: int = 4 << 20) -> Verification:
        """Recompute the chain from every batch on every replica, and compare (SAFETY S3)."""
        return verify_replicas(
            self._context, self._routing, max_bytes=max_bytes, timeout_s=self._timeout_s
        )

    def _ask(self, endpoint: Endpoint, message: msgspec.Struct, deadline_ns: int) -> int:
        port = Port(self._context, endpoint.control, cluster_id=self._routing.cluster_id)
        try:
            reply, _ = port.request(message, DoneReply, deadline_ns=deadline_ns)
            return reply.value
        finally:
            port.close()
