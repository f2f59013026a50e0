"""This replica's part of `logstore status`, as a JSON document."""

from __future__ import annotations

from typing import Any

import msgspec

from actors.messages import NO_LSN, LogRecovered, StatusReported, StatusRequested
from actors.station import Station
from actors.topology import Counter
from logstore.format.configuration_body import NO_UUID, Member, MemberRole, roles
from logstore.limits import FAULTY_LSNS_KEPT, STATUS_FAULTY_MAX
from logstore.model import Index, Lsn, ReplicaState
from logstore.raft.core import RaftCore

NS_PER_MS = 1_000_000


class FaultyLsns:
    """The LSNs of damaged entries, as reported. A status takes them from here, because reading them
    from the damaged disk would delay heartbeats. The oldest are forgotten."""

    def __init__(self) -> None:
        self._lsns: dict[Index, tuple[Lsn, Lsn]] = {}

    def take_recovered(self, recovered: LogRecovered) -> None:
        """Take the ranges that recovery found, as their first and last entries."""
        for each in recovered.faulty[:STATUS_FAULTY_MAX]:
            if each.first_index == each.last_index:
                self.take(each.first_index, each.first_lsn, each.last_lsn)
            else:
                self.take(each.first_index, each.first_lsn, NO_LSN)
                self.take(each.last_index, NO_LSN, each.last_lsn)

    def take(self, index: Index, first_lsn: Lsn, last_lsn: Lsn) -> None:
        """The entry at `index` has these first and last LSNs; 0: unknown."""
        if len(self._lsns) >= FAULTY_LSNS_KEPT:
            del self._lsns[next(iter(self._lsns))]
        self._lsns[index] = (first_lsn, last_lsn)

    def move_start(self, start: Index) -> None:
        """Entries at or below `start` are no longer in the log."""
        self._lsns = {index: lsns for index, lsns in self._lsns.items() if index > start}

    def row(self, first: Index, last: Index) -> dict[str, int | None]:
        """A faulty range as indexes and, where known, LSNs."""
        unknown = (NO_LSN, NO_LSN)
        return {
            "first_index": first,
            "last_index": last,
            "first_lsn": self._lsns.get(first, unknown)[0] or None,
            "last_lsn": self._lsns.get(last, unknown)[1] or None,
        }


def status_document(
    request: StatusRequested,
    station: Station,
    core: RaftCore | None,
    recovered: LogRecovered | None,
    *,
    refusal: str,
    faulty_lsns: FaultyLsns,
    placement: bytes,
) -> StatusReported:
    """Role, term, leader, positions, faulty ranges; before the core runs, the bootstrap's state.
    Lists only the first faulty ranges, and their number. Reads no disk.

    `refusal`: why the bootstrap keeps this replica out; empty if it does not. `placement`: what the
    supervisor last said of it, JSON.
    """
    slots = station.slots
    visible = slots[Counter.VISIBLE]
    document: dict[str, Any] = {
        "node": station.node,
        "state": ReplicaState(recovered.state).name.lower() if recovered else "recovering",
        "damage": recovered.damage if recovered else "",
        "refusal": refusal,
        "is_ready": visible > 0,
        "visible_lsn": max(0, visible - 1),
        "log_start_lsn": slots[Counter.LOG_START_LSN],
        "is_disk_full": bool(slots[Counter.DISK_FULL]),
        "newest_level": station.newest_level,
        "placement": msgspec.Raw(placement),
    }
    if core is None:
        document |= {"role": "none", "term": 0, "leader": 0, "faulty": [], "faulty_count": 0}
    else:
        document |= {
            "role": core.role.name.lower(),
            "term": core.term,
            "leader": core.leader,
            "commit_index": core.commit,
            "commit_lsn": core.commit_lsn,
            "last_index": core.last_index,
            "persisted_index": core.persisted,
            "is_admitting": core.is_admitting,
            "match": {str(peer): match for peer, match in core.match.items()},
            "faulty_peers": sorted(core.peers_faulty),
            "silent_ms": {
                str(peer): silent_ns // NS_PER_MS for peer, silent_ns in core.silences_ns.items()
            },
            "clock_skew_ms": {
                str(node): skew_ns // NS_PER_MS for node, skew_ns in core.clock_skews_ns.items()
            },
            "other_limits": core.other_limits,
            "level": core.level,
            "members": _members(core),
            "newest_levels": {str(node): level for node, level in core.newest_levels.items()},
            "refused_level": core.refused_level,
            "last_bytes": core.last_bytes,
            "is_installing": core.is_installing,
            "catching_up": core.catching_up,
            "faulty": [faulty_lsns.row(*each) for each in core.faulty[:STATUS_FAULTY_MAX]],
            "faulty_count": len(core.faulty),
        }
    return StatusReported(request.request_id, msgspec.json.encode(document))


def _members(core: RaftCore) -> dict[str, Any]:
    """The configuration in force. `id` 0: of the file, of whose nodes only the numbers are known
    here. The roles are those of a configuration's body; a place for a replica that is yet to join
    is `reserved`. `waits_for`: what full disks hold up, on a leader."""
    known = core.configuration
    configuration = known.configuration
    return {
        "id": configuration.id,
        "index": known.index,
        "is_committed": known.is_committed,
        "is_joint": bool(configuration.incoming),
        "waits_for": known.waits_for,
        "members": [
            {
                "number": member.number,
                "role": _role_word(member, role),
                "host": member.host,
                "port": member.port,
                "uuid": "" if member.uuid == NO_UUID else member.uuid.hex(),
                "labels": member.labels,
            }
            for member, role in roles(configuration)
        ],
    }


def _role_word(member: Member, role: MemberRole) -> str:
    is_reserved = role is MemberRole.LEARNER and member.uuid == NO_UUID
    return "reserved" if is_reserved else role.name.lower()
