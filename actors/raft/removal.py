"""Whether this replica was removed from its cluster (SAFETY C9, C10).

Owns what is known of that: from the log, which is right whatever others say, and from a replica
that knows a committed CONFIG above all that this log has. Asks the others while no leader is heard.
Decides nothing in the core, which votes and campaigns as its log says. A replica that was removed
serves its status only.

Why an answer is true: a uuid that left never returns, so a replica that one committed CONFIG names,
and a later one does not, has left for good. The first is in this replica's own log, the second is
the one that the answer names. It is later, since its index is at or above that of the newest CONFIG
here that is known to be committed: of one above that, others may never hear. A replica that no
committed CONFIG of its log names yet has no such proof: the one that answers may be behind that
which gives it a place. Late copies and older copies of a folder change none of this.
"""

from __future__ import annotations

import logging

from actors.messages import LogRecovered, TellJoin
from actors.raft.routes import Routes
from actors.station import NEVER_NS, Station
from logstore.format.configuration_body import NO_UUID
from logstore.format.peer_messages import Removed, RemovedQuestion
from logstore.model import NO_INDEX, NO_NODE, ReplicaState
from logstore.raft.configuration import present
from logstore.raft.core import RaftCore
from logstore.raft.effects import MembersChanged
from logstore.raft.joins import LOST_AFTER_TIMEOUTS

ASK_AGAIN_MAX_NS = 60_000_000_000

log = logging.getLogger("logstore.raft")


class Removal:
    """Of one incarnation of a replica of a cluster that is formed."""

    def __init__(self, station: Station, routes: Routes, recovered: LogRecovered) -> None:
        self._node = station.node
        self._routes = routes
        is_founder = recovered.state == ReplicaState.VOTER
        # As configurations name it: a founder that was not heard is named without its uuid (C5a).
        self._uuids = {recovered.replica_uuid, *((NO_UUID,) if is_founder else ())}
        # A committed configuration has named it; the founders are named by the first one.
        self.was_member = is_founder or recovered.was_named
        # Of the newest CONFIG here that is known to be committed.
        self._committed_index = max(
            (index for index, _ in recovered.configurations if index <= recovered.commit_floor),
            default=NO_INDEX,
        )
        self._told_index = NO_INDEX  # of the one that another replica says has removed it
        self._by = ""  # what has removed it; empty: nothing has
        self._first_wait_ns = self._wait_ns = (
            LOST_AFTER_TIMEOUTS * station.config.raft.election_timeout_ns
        )
        self.deadline_ns = NEVER_NS

    @property
    def is_removed(self) -> bool:
        return self._by != ""

    @property
    def refusal(self) -> str:
        """What to do; empty: it was not removed."""
        if not self._by:
            return ""
        return (
            f"{self._by} of the cluster has removed it: stop it; "
            f"`logstore reset --node {self._node}` moves its folder aside, should another "
            "replica join in its place"
        )

    def on_tick(self, now_ns: int, core: RaftCore) -> None:
        """Ask the others while no leader is heard, each time after twice the wait: a replica that
        is cut off, and one of a cluster without a leader, hear nothing either."""
        if core.leader != NO_NODE or self.is_removed or not self.was_member:
            self.deadline_ns, self._wait_ns = NEVER_NS, self._first_wait_ns
        elif self.deadline_ns == NEVER_NS:
            self.deadline_ns = now_ns + self._wait_ns
        elif now_ns >= self.deadline_ns:
            self._wait_ns = min(2 * self._wait_ns, max(ASK_AGAIN_MAX_NS, self._first_wait_ns))
            self.deadline_ns = now_ns + self._wait_ns
            for peer in self._routes.members:
                self._routes.to_peer(TellJoin(peer, RemovedQuestion(self._committed_index)))

    def on_members(self, changed: MembersChanged) -> bool:
        """The configuration in force in this replica's own log, or that it is committed; whether
        that names this replica."""
        found = changed.configuration
        is_named = any(
            each.number == self._node and each.uuid in self._uuids for each in present(found)
        )
        if changed.is_committed:
            self._committed_index = max(self._committed_index, changed.index)
        if self._told_index >= changed.index and self.is_removed:
            return is_named  # the log has not come to what this replica was told
        if changed.is_committed and found.id:
            self.was_member = self.was_member or is_named
            self._be_removed("" if is_named else f"configuration {found.id}")
        return is_named

    def on_told(self, told: Removed) -> None:
        """A replica says so. A log of which a newer CONFIG is committed by now says more, and one
        that has named this replica in none yet says too little."""
        if self.was_member and not self.is_removed and told.index >= self._committed_index:
            self._told_index = told.index
            self._be_removed(f"the configuration at entry {told.index}")

    def _be_removed(self, by: str) -> None:
        by = by if self.was_member else ""
        if by and not self._by:
            log.warning("node %d is no member any more, by %s", self._node, by)
        self._by = by
