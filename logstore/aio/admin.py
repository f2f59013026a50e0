"""An operator's requests, for asyncio.

Owns no state: each method runs the core's steps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from logstore.aio.driver import Driver
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
from logstore.client.core.steps import Host, Steps
from logstore.client.core.trimming import TrimPlan, plan_trim
from logstore.client.core.upgrade import FormatLevels
from logstore.client.core.verification import Verification, verify_replicas
from logstore.client.cursor_arguments import check_cursor
from logstore.client.endpoint import Endpoint
from logstore.client.replica_trace import ReplicaTrace
from logstore.limits import POSITION_MAX
from logstore.model import FIRST_LSN

_T = TypeVar("_T")


class Admin:
    """Operator's requests. What each takes, returns and raises is said at the method of
    `logstore.Admin` with its name; here it is awaited."""

    def __init__(self, driver: Driver, host: Host, routing: Routing, *, timeout_s: float) -> None:
        self._driver = driver
        self._host = host
        self._routing = routing
        self._timeout_s = timeout_s
        self._cursors = Cursors(host, routing, timeout_s=timeout_s)
        self._sessions = SessionAdmin(host, routing, timeout_s=timeout_s)

    async def status(self) -> dict[str, Any]:
        """The cluster as JSON-ready data."""
        return await self._run(operating.status(self._cluster()))

    async def traces(self) -> dict[int, ReplicaTrace | str]:
        """What each configured node has measured of itself; a text: why it told nothing."""
        return await self._run(operating.traces(self._cluster()))

    async def watermarks(
        self, *, replica: int | None = None, min_lsn: int = 0, linearizable: bool = False
    ) -> Watermarks:
        """The bounds that one replica serves."""
        return await self._run(
            operating.watermarks(
                self._cluster(), replica=replica, min_lsn=min_lsn, is_linearizable=linearizable
            )
        )

    async def commit_lsn(self, *, timeout: float | None = None) -> int:
        """The last committed LSN, confirmed by a majority; 0: the log is empty."""
        return await self._run(operating.commit_lsn(self._cluster(timeout)))

    async def lsn_at(self, time: AtTime, *, replica: int | None = None) -> int:
        """As `logstore.Admin.lsn_at`: of a replica that lags too early, so give the leader's."""
        return await self._run(operating.lsn_at(self._cluster(), time, replica=replica))

    async def spans(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        step_bytes: int = POSITION_MAX,
        limit: int | None = None,
        replica: int | None = None,
    ) -> Spans:
        """How the bytes of a range are spread, without reading them."""
        return await self._run(
            operating.spans(
                self._cluster(),
                first_lsn,
                last_lsn,
                step_bytes=step_bytes,
                limit=limit,
                replica=replica,
            )
        )

    async def cursors(self) -> list[Cursor]:
        """Every named cursor, by name, with all changes before this call (linearizable)."""
        return await self._run(self._cursors.list())

    async def set_cursor(
        self, name: str, lsn: int, *, hold: bool = False, expected_lsn: int | None = None
    ) -> int:
        """Set the cursor `name` before `lsn`; where it stood until now, 0: nowhere."""
        check_cursor(name, expected_lsn, lsn)
        check_position(lsn)
        return await self._run(self._cursors.change(Cursor(name, lsn, hold), expected_lsn))

    async def delete_cursor(self, name: str, *, expected_lsn: int | None = None) -> int:
        """Delete the cursor; where it stood, 0: nowhere, or an attempt without answer deleted
        it."""
        check_cursor(name, expected_lsn)
        return await self._run(self._cursors.change(deletion_of(name), expected_lsn))

    async def session_commits(self, name: str) -> SessionCommits | None:
        """What the producer session of this name has committed; None: there is none."""
        return await self._run(look_up(self._host, self._routing, name, timeout_s=self._timeout_s))

    async def sessions(self) -> AsyncIterator[SessionInfo]:
        """Every producer session, by producer id, a page at a time; each page is linearizable."""
        after = 0
        while True:
            page = await self._run(self._sessions.page(after))
            for row in page.rows:
                yield row
            after = page.next_after
            if not after:
                return

    async def end_session(self, session: str | int) -> int:
        """End the session of this name, or of this producer id; its producer id."""
        return await self._run(self._sessions.end(session))

    async def leader(self, *, timeout: float | None = None) -> int:
        """Node id of the leader; waits for one, `timeout` seconds instead of the client's."""
        node, _ = await self._run(operating.leader(self._cluster(timeout)))
        return node

    async def transfer(self, target: int = 0) -> int:
        """Transfer leadership to a node (0: the most up to date one); who leads afterwards."""
        return await self._run(operating.transfer(self._cluster(), target))

    async def format_levels(self) -> FormatLevels:
        """The log's format level, and the newest one that each node's version reads."""
        return await self._run(upgrade.format_levels(self._cluster()))

    async def raise_level(self, level: int) -> int:
        """Raise the log's format level by one, to `level`; the log's level then."""
        return await self._run(upgrade.raise_level(self._cluster(), level))

    async def members(self) -> Members:
        """Who the members of the cluster are, and how each is doing, as the leader says."""
        return await self._run(member_admin.members(self._cluster()))

    async def add_member(
        self,
        number: int,
        host: str,
        port: int,
        *,
        labels: Iterable[str] = (),
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Reserve a place for one more replica, which joins as a learner once it is started
        there."""
        cluster = self._cluster(timeout)
        await self._run(member_admin.add_member(cluster, number, host, port, labels, on_wait))

    async def promote_member(
        self,
        number: int,
        *,
        force: bool = False,
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Make a learner a voter, once it has caught up."""
        cluster = self._cluster(timeout)
        await self._run(member_admin.promote_member(cluster, number, force, on_wait))

    async def remove_member(
        self,
        number: int,
        *,
        force: bool = False,
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Remove a voter, a learner or a reserved place."""
        cluster = self._cluster(timeout)
        await self._run(member_admin.remove_member(cluster, number, force, on_wait))

    async def replace_member(
        self,
        number: int,
        by: int | str | Endpoint | None = None,
        *,
        force: bool = False,
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Let another replica take the place of a voter."""
        cluster = self._cluster(timeout)
        await self._run(member_admin.replace_member(cluster, number, by, force, on_wait))

    async def plan_trim(self, to: int | AtTime) -> TrimPlan:
        """What a trim to this LSN, or to the first one that is not older than a time, would give
        up, and which cursors hold some of it."""
        return await self._run(plan_trim(self._cluster(), self._cursors, to))

    async def trim(self, lsn: int) -> int:
        """Give up what lies below `lsn`; the first LSN kept, once a majority has it on disk."""
        return await self._run(operating.trim(self._cluster(), lsn))

    async def initialize(
        self, *, first_lsn: int = FIRST_LSN, timeout_s: float | None = None
    ) -> None:
        """Form the cluster; needed once, where `auto_init` is off."""
        await self._run(operating.initialize(self._cluster(timeout_s), first_lsn=first_lsn))

    async def import_batches(self, first_lsn: int, batches: Iterable[bytes | memoryview]) -> int:
        """Append whole batches of another log, byte for byte, from `first_lsn` on; the LSN after
        the last. `batches` is taken from in the event loop: it should not wait."""
        return await self._run(import_batches(self._cluster(), Window(first_lsn, batches)))

    async def verify(self, *, max_bytes: int = 4 << 20) -> Verification:
        """Recompute the chain from every batch on every replica, and compare (SAFETY S3)."""
        return await self._run(
            verify_replicas(
                self._host, self._routing, max_bytes=max_bytes, timeout_s=self._timeout_s
            )
        )

    async def _run(self, steps: Steps[_T]) -> _T:
        try:
            self._driver.check()
        except BaseException:
            steps.close()
            raise
        return await self._driver.run(steps)

    def _cluster(self, timeout_s: float | None = None) -> Cluster:
        """Which cluster to ask; `timeout_s` instead of the client's."""
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        return Cluster(self._host, self._routing, wait_s)
