"""Asks for the first CONFIG, once the log's format level has such entries (SAFETY C5a).

Owns what is known of the founders' uuids. They come with what each founder reports of its start: a
replica that has no place yet reports none, so one whose disk was lost is not taken for what it was.
Must not know what the core makes of the request: it asks again until the log has a CONFIG.
"""

from __future__ import annotations

import logging

from actors.messages import LogRecovered, StartReceived
from actors.station import Station
from logstore.errors import ErrorCode
from logstore.format.configuration_body import Member
from logstore.format.level import CONFIG_LEVEL
from logstore.model import NodeId, ReplicaState, Role
from logstore.raft.core import RaftCore
from logstore.raft.effects import ChangeAnswered, MembersChanged
from logstore.raft.events import ChangeKind, ChangeRequested

log = logging.getLogger("logstore.raft")


class FirstConfiguration:
    """Of one incarnation of a founder. Others ask for nothing."""

    def __init__(self, station: Station, recovered: LogRecovered, *, request_id: int) -> None:
        self._founders = tuple(station.config.nodes)
        self._uuids: dict[NodeId, bytes] = {station.node: recovered.replica_uuid}
        self._request_id = request_id
        self._interval_ns = station.config.raft.election_timeout_ns
        self._due_ns = 0
        self._is_founder = recovered.state == ReplicaState.VOTER and not recovered.has_config
        self._is_needed = self._is_founder
        self._refused = ""

    def on_heard(self, received: StartReceived) -> None:
        """A founder's report of its start, or its answer to ours: ingress and replicators pass on
        one uuid of each number (L3)."""
        self._uuids[received.sender] = received.sender_uuid

    def on_members(self, changed: MembersChanged) -> None:
        """A CONFIG that is truncated leaves none: then the next leader asks."""
        self._is_needed = self._is_founder and changed.configuration.id == 0

    def on_tick(self, now_ns: int, core: RaftCore) -> ChangeRequested | None:
        """The request, while this replica leads a log that may have a CONFIG and has none. A leader
        is called once a heartbeat interval at least."""
        if not self._is_needed or core.role != Role.LEADER or core.level < CONFIG_LEVEL:
            return None
        if now_ns < self._due_ns:
            return None
        self._due_ns = now_ns + self._interval_ns
        unknown = [each.node for each in self._founders if NodeId(each.node) not in self._uuids]
        if unknown:
            self._refuse(f"nodes {unknown} were not heard since this replica started")
            return None
        members = tuple(
            Member(NodeId(each.node), self._uuids[NodeId(each.node)], each.host, each.port)
            for each in self._founders
        )
        return ChangeRequested(self._request_id, ChangeKind.FOUND, members=members)

    def on_answered(self, answered: ChangeAnswered) -> None:
        """The core's answer. What passes by itself is asked again and not logged."""
        if answered.code not in (ErrorCode.OK, ErrorCode.NOT_LEADER, ErrorCode.NOT_READY):
            self._refuse(answered.reason)

    def _refuse(self, reason: str) -> None:
        if reason != self._refused:
            self._refused = reason
            log.warning("the log has no configuration of its members yet: %s", reason)
