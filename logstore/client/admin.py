"""An operator's requests, for threads.

Owns no state: each method runs the core's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from logstore.client.core import member_admin, operating, upgrade
from logstore.client.core.commits import SessionCommits, look_up
from logstore.client.core.cursor_admin import Cursor, Cursors, check_position, deletion_of
from logstore.client.core.importing import Window, import_batches
from logstore.client.core.member_admin import Members
from logstore.client.core.operating import Cluster, Watermarks
from logstore.client.core.routing import Routing
from logstore.client.core.session_admin import SessionAdmin, SessionInfo
from logstore.client.core.spans import Spans
from logstore.client.core.start import AtTime
from logstore.client.core.steps import Host
from logstore.client.core.trimming import TrimPlan, plan_trim
from logstore.client.core.upgrade import FormatLevels
from logstore.client.core.verification import Verification, verify_replicas
from logstore.client.cursor_arguments import check_cursor
from logstore.client.endpoint import Endpoint
from logstore.client.replica_trace import ReplicaTrace
from logstore.client.threads import run
from logstore.limits import POSITION_MAX
from logstore.model import FIRST_LSN


class Admin:
    """Operator's requests. Every method is safe to call from any thread."""

    def __init__(self, host: Host, routing: Routing, *, timeout_s: float) -> None:
        self._host = host
        self._routing = routing
        self._timeout_s = timeout_s
        self._cursors = Cursors(host, routing, timeout_s=timeout_s)
        self._sessions = SessionAdmin(host, routing, timeout_s=timeout_s)

    def status(self) -> dict[str, Any]:
        """The cluster as JSON-ready data.

        commit_lsn, log_start_lsn, leader, term, cluster_id and nodes: for each configured node at
        least node, host, port, role ("unreachable" if it does not answer), pid, processes, faulty
        and lag_payloads, how many payloads of what the leader shows it lacks (None: not known). The
        leader has `lag`, too, as `logstore lag --json`: what each follower and each cursor lacks.

        Raises:
          Unreachable: no replica answered in time.
          FormatError: a replica's answer cannot be read; the message names it.
        """
        return run(operating.status(self._cluster()))

    def traces(self) -> dict[int, ReplicaTrace | str]:
        """What each configured node has measured of itself; a text: why it told nothing.

        The times of one node are of its own monotonic clock; those of two must not be subtracted.

        Raises:
          Unreachable: no replica answered in time.
          FormatError: a replica's answer cannot be read; the message names it.
        """
        return run(operating.traces(self._cluster()))

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
        return run(
            operating.watermarks(
                self._cluster(), replica=replica, min_lsn=min_lsn, is_linearizable=linearizable
            )
        )

    def commit_lsn(self, *, timeout: float | None = None) -> int:
        """The last committed LSN, confirmed by a majority; 0: the log is empty.

        Args:
          timeout: seconds to wait for a leader; None: the client's.

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        return run(operating.commit_lsn(self._cluster(timeout)))

    def lsn_at(self, time: AtTime, *, replica: int | None = None) -> int:
        """The first LSN whose group is not older than the time, as one replica has it; the next one
        to come there if none is.

        Args:
          time: of the group.
          replica: its node id. One that lags may name the LSN after its own last one, which is too
            early: give the leader's. None: any.
        """
        return run(operating.lsn_at(self._cluster(), time, replica=replica))

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
        return run(
            operating.spans(
                self._cluster(),
                first_lsn,
                last_lsn,
                step_bytes=step_bytes,
                limit=limit,
                replica=replica,
            )
        )

    def cursors(self) -> list[Cursor]:
        """Every named cursor, by name, with all changes before this call (linearizable).

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        return run(self._cursors.list())

    def set_cursor(
        self, name: str, lsn: int, *, hold: bool = False, expected_lsn: int | None = None
    ) -> int:
        """Set the cursor `name` before `lsn`; where it stood until now, 0: nowhere.

        Returns once a majority has it on disk. An attempt without an answer is repeated, so it may
        take effect twice. That matters only if several set the cursor without `expected_lsn`.

        Args:
          name: 1 to 255 bytes of UTF-8. The log keeps up to 256 cursors.
          lsn: the next LSN to read, at least 1.
          hold: keep the payloads from `lsn` on until the cursor moves, or is set without.
          expected_lsn: only if it stands there now, 0: only if there is none. None: in any case.

        Raises:
          CursorMoved: it does not stand at `expected_lsn`; `.lsn` says where it does.
          OutOfRange: it is to hold what lies below the log start, which is `.first`.
          TooManyCursors: delete one first.
          OutcomeUnknown: the cursor may be set or not; list the cursors, or ask again.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
          InvalidRequest: the name or the LSN is out of bounds.
        """
        check_cursor(name, expected_lsn, lsn)
        check_position(lsn)
        return run(self._cursors.change(Cursor(name, lsn, hold), expected_lsn))

    def delete_cursor(self, name: str, *, expected_lsn: int | None = None) -> int:
        """Delete the cursor; where it stood, 0: nowhere, or an attempt without answer deleted it.

        Args and errors as `set_cursor`.
        """
        check_cursor(name, expected_lsn)
        return run(self._cursors.change(deletion_of(name), expected_lsn))

    def session_commits(self, name: str) -> SessionCommits | None:
        """What the producer session of this name has committed; None: there is none.

        Linearizable. Unlike opening the session, it fences no producer.

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        return run(look_up(self._host, self._routing, name, timeout_s=self._timeout_s))

    def sessions(self) -> Iterator[SessionInfo]:
        """Every producer session, by producer id, a page at a time; each page is linearizable. A
        session that exists all the time comes once; one that is opened or ended meanwhile may.

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        after = 0
        while True:
            page = run(self._sessions.page(after))
            yield from page.rows
            after = page.next_after
            if not after:
                return

    def end_session(self, session: str | int) -> int:
        """End the session of this name, or of this producer id; its producer id. Returns once a
        majority has it on disk.

        From then on its producer gets `UnknownProducer`. Opening the name again begins a new
        session: the log has forgotten its sequences, also those of a monotone session.

        Raises:
          UnknownProducer: there is no such session.
          Overloaded: it had batches under way all the time: stop its producer first.
          OutcomeUnknown: it may be ended or not; ask again.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        return run(self._sessions.end(session))

    def leader(self, *, timeout: float | None = None) -> int:
        """Node id of the leader; waits for one, `timeout` seconds instead of the client's.

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        node, _ = run(operating.leader(self._cluster(timeout)))
        return node

    def transfer(self, target: int = 0) -> int:
        """Transfer leadership to a node (0: the most up to date one); who leads afterwards.

        Raises:
          TransferFailed: it did not happen as far as the replica knows: look who leads.
          InvalidRequest: there is no such node.
        """
        return run(operating.transfer(self._cluster(), target))

    def format_levels(self) -> FormatLevels:
        """The log's format level, and the newest one that each node's version reads.

        Raises:
          Unreachable: no replica answered in time.
        """
        return run(upgrade.format_levels(self._cluster()))

    def raise_level(self, level: int) -> int:
        """Raise the log's format level by one, to `level`; the log's level then. It returns once a
        majority has it on disk, at once if the log has it. Asking again is safe. Versions that do
        not read the level refuse the log from then on, and it never falls.

        Raises:
          LevelRefused: a replica does not read it, which the message names, or a level before it
            comes first.
          NotReady: it cannot be raised yet; the message says why, such as which replica is silent.
          OutcomeUnknown: it may be raised or not; ask again.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        return run(upgrade.raise_level(self._cluster(), level))

    def members(self) -> Members:
        """Who the members of the cluster are, and how each is doing, as the leader says.

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
          FormatError: the leader's answer cannot be read.
        """
        return run(member_admin.members(self._cluster()))

    def add_member(
        self,
        number: int,
        host: str,
        port: int,
        *,
        labels: Iterable[str] = (),
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Reserve a place for one more replica, which joins as a learner once it is started there;
        returns once that is committed. Asking again for what is there already is safe.

        Args:
          number: its node id, 1 to 65535, which no other member has.
          host: where it will be.
          port: the first of its ports.
          labels: "key=value", at most 8, each key once.
          timeout: seconds, instead of the client's.
          on_wait: called with the reason each time the leader says that it must wait; then it is
            asked again, until the time is over.

        Raises:
          LevelRefused: the log is below format level 4: run `logstore upgrade`.
          InvalidRequest: number or address are taken, or there are too many.
          NotReady: it cannot be now; the message says why.
          OutcomeUnknown: the change may be done or not; ask again.
          Unreachable, NoQuorum: no replica, or no leader, answered in time; ask again.
        """
        cluster = self._cluster(timeout)
        run(member_admin.add_member(cluster, number, host, port, labels, on_wait))

    def promote_member(
        self,
        number: int,
        *,
        force: bool = False,
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Make a learner a voter, once it has caught up; returns once that is committed.

        Args:
          number: its node id. It may be a voter already.
          force: also where no majority of the new voters answers, or one of them is damaged. It may
            leave the cluster without a leader, or without the only whole copy of an entry.
          timeout, on_wait: as `add_member`.

        Raises:
          NotReady: it has not caught up, or another change is under way; the message says more.
          Others as `add_member`.
        """
        run(member_admin.promote_member(self._cluster(timeout), number, force, on_wait))

    def remove_member(
        self,
        number: int,
        *,
        force: bool = False,
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Remove a voter, a learner or a reserved place; returns once that is committed. One that
        is no member is removed already. Args and errors as `promote_member`."""
        run(member_admin.remove_member(self._cluster(timeout), number, force, on_wait))

    def replace_member(
        self,
        number: int,
        by: int | str | Endpoint | None = None,
        *,
        force: bool = False,
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Let another replica take the place of a voter.

        Returns once the change that begins it is committed: a learner is a voter in its place, or a
        place is reserved for a replica that is to be started; `members` shows when that has joined
        and votes.

        Args:
          number: node id of the voter that is to leave.
          by: a learner's node id; or where a new replica will be, "HOST:PORT", which gets the next
            free number, and takes the place once it has caught up; None: the same node at the same
            address, with an empty folder: its disk is lost, and it leaves first.
          force, timeout, on_wait: as `promote_member`.

        Raises: as `promote_member`.
        """
        run(member_admin.replace_member(self._cluster(timeout), number, by, force, on_wait))

    def plan_trim(self, to: int | AtTime) -> TrimPlan:
        """What a trim to this LSN, or to the first one that is not older than a time, would give
        up, as the leader shows it now, and which cursors hold some of it. It changes nothing;
        `trim(plan.lsn)` does it, unless the log's format level or a follower that catches up is in
        the way, which a plan does not know.

        Raises:
          OutOfRange: every payload is older than the time: no time gives up the whole log.
          CorruptData: the leader cannot read its log there.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        return run(plan_trim(self._cluster(), self._cursors, to))

    def trim(self, lsn: int) -> int:
        """Give up what lies below `lsn`; the first LSN kept, once a majority has it on disk.

        Batches that were committed together are kept or given up together, so the log may begin
        somewhat below `lsn`. Replicas remove files within moments, each by itself. To trim below
        the log start changes nothing.

        Raises:
          LevelRefused: the log is at format level 1, run `logstore upgrade`.
          OutOfRange: `.last` is how far the log may be trimmed now; the message says what keeps the
            rest: a held cursor, a follower that catches up, or that no more is committed.
          CorruptData: the leader cannot read its log there.
          NotReady: a trim beyond it is under way for longer than the client's timeout; ask again.
          Unreachable, NoQuorum: no replica, or no leader, answered in time; ask again.
        """
        return run(operating.trim(self._cluster(), lsn))

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
        run(operating.initialize(self._cluster(timeout_s), first_lsn=first_lsn))

    def import_batches(self, first_lsn: int, batches: Iterable[bytes | memoryview]) -> int:
        """Append whole batches of another log, byte for byte, from `first_lsn` on; the LSN after
        the last, once all of it is committed.

        For restoring a log, into a cluster formed for it (`initialize(first_lsn=)`): the log takes
        imports as long as it has no session, and only at its end. Batches that are there already
        are compared and skipped, so an interrupted import can be started again from any batch. The
        producers of these batches have no sessions here; they open new ones.

        Args:
          first_lsn: of the first payload of the first batch.
          batches: in the order of their LSNs, without gaps, as `read_batches` gives them; taken as
            they are needed, about 8 MiB at a time.

        Raises:
          ImportRefused: the log has sessions, or holds other batches at these LSNs.
          OutOfRange: `first_lsn` is above the end of the log, or below its start.
          InvalidBatch, BatchTooLarge, FormatError: the source gave something else than a batch.
          Unreachable, NoQuorum: no progress for the client's timeout; start again.
          Exception: what `batches` raises.
        """
        window = Window(first_lsn, batches)
        return run(import_batches(self._cluster(), window))

    def verify(self, *, max_bytes: int = 4 << 20) -> Verification:
        """Recompute the chain from every batch on every replica, and compare (SAFETY S3)."""
        return run(
            verify_replicas(
                self._host, self._routing, max_bytes=max_bytes, timeout_s=self._timeout_s
            )
        )

    def _cluster(self, timeout_s: float | None = None) -> Cluster:
        """Which cluster to ask; `timeout_s` instead of the client's."""
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        return Cluster(self._host, self._routing, wait_s)
