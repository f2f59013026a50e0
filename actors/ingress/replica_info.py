"""What this replica knows about itself and its leader, and the envelope of what ingress sends.

Owns the newest Identity, LeaderChanged and MembersChanged; decides nothing. `leader` is a hint
where clients should ask. Whether this replica may take appends is decided by admission alone (E3).
"""

from __future__ import annotations

import msgspec

from actors.messages import Identity
from logstore.format.configuration_body import NO_UUID, Member, MemberRole
from logstore.format.message import encode_message
from logstore.model import NO_INDEX, NO_NODE, NO_TERM, Index, NodeId
from logstore.raft.configuration import present, present_roles
from logstore.raft.effects import LeaderChanged, MembersChanged

ZERO_ID = bytes(16)
_NOBODY = Identity(ZERO_ID, ZERO_ID, 0, 0)


class ReplicaInfo:
    """`identity` is all zero until raft has sent the replica's own."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.identity = _NOBODY
        self.leader = NO_NODE
        self.term = NO_TERM
        self.members: MembersChanged | None = None  # None: the configuration file's nodes
        self.committed: MembersChanged | None = None  # the newest that is known to be; None: none

    @property
    def is_identified(self) -> bool:
        return self.identity is not _NOBODY

    @property
    def is_leading(self) -> bool:
        return self.leader == self.node

    @property
    def present_members(self) -> list[tuple[Member, MemberRole]] | None:
        """The members of the configuration in force that are replicas; None: the log has no
        configuration, the file's nodes count."""
        if self.members is None or not self.members.configuration.id:
            return None
        return present_roles(self.members.configuration)

    def on_members_changed(self, news: MembersChanged) -> None:
        self.members = news
        if news.is_committed and news.configuration.id:
            self.committed = news

    def removed_at(self, number: NodeId, uuid: bytes, config_index: Index) -> Index:
        """The index of a committed CONFIG, at or above `config_index`, that names the replica in no
        role (SAFETY C10); NO_INDEX: none is known. A voter without a uuid may be that replica, a
        place that is reserved is not."""
        known = self.committed
        if known is None or known.index < config_index:
            return NO_INDEX
        names = any(
            each.uuid == uuid or (each.number == number and each.uuid == NO_UUID)
            for each in present(known.configuration)
        )
        return NO_INDEX if names else known.index

    def on_leader_changed(self, news: LeaderChanged) -> None:
        self.term, self.leader = news.term, news.leader

    def encode(
        self, message: msgspec.Struct, *, target: NodeId = NO_NODE, correlation: int = 0
    ) -> bytes:
        """`message` in our envelope; target 0: a client."""
        return encode_message(
            message,
            cluster_id=self.identity.cluster_id,
            sender_uuid=self.identity.replica_uuid,
            sender=self.node,
            target=target,
            correlation=correlation,
        )
