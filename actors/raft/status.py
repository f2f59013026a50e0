"""This replica's raft facts for `logstore status`, as a JSON document."""

from __future__ import annotations

from typing import Any

import msgspec

from actors.messages import LogRecovered, StatusReported, StatusRequested
from actors.station import Station
from actors.topology import Counter
from logstore.model import Index, ReplicaState
from logstore.raft.core import RaftCore


def status_document(
    request: StatusRequested,
    station: Station,
    core: RaftCore | None,
    recovered: LogRecovered | None,
    refusal: str,
) -> StatusReported:
    """Role, term, leader, positions, faulty ranges; before the core runs, the bootstrap's state.
    `refusal`: why the bootstrap keeps this replica out, empty when nothing speaks against it.
    """
    slots = station.slots
    visible = slots[Counter.VISIBLE]
    facts: dict[str, Any] = {
        "node": station.node,
        "state": ReplicaState(recovered.state).name.lower() if recovered else "recovering",
        "damage": recovered.damage if recovered else "",
        "refusal": refusal,
        "is_ready": visible > 0,
        "visible_lsn": max(0, visible - 1),
        "log_start_lsn": slots[Counter.LOG_START_LSN],
        "is_disk_full": bool(slots[Counter.DISK_FULL]),
    }
    if core is None:
        facts |= {"role": "none", "term": 0, "leader": 0, "faulty": []}
    else:
        facts |= {
            "role": core.role.name.lower(),
            "term": core.term,
            "leader": core.leader,
            "commit_index": core.commit,
            "commit_lsn": core.commit_lsn,
            "last_index": core.last_index,
            "persisted_index": core.persisted,
            "is_admitting": core.open_gen is not None,
            "match": {str(peer): match for peer, match in core.match.items()},
            "faulty": [_faulty_row(core, first, last) for first, last in core.faulty],
        }
    return StatusReported(request.request_id, msgspec.json.encode(facts))


def _faulty_row(core: RaftCore, first: Index, last: Index) -> dict[str, int | None]:
    """A faulty range as indexes and, where its records can be read, LSNs."""
    return {
        "first_index": first,
        "last_index": last,
        "first_lsn": _lsn(core, first, is_last=False),
        "last_lsn": _lsn(core, last, is_last=True),
    }


def _lsn(core: RaftCore, index: Index, *, is_last: bool) -> int | None:
    row = core.row(index)
    if row is None:
        return None
    return row.header.next_lsn - 1 if is_last else row.header.first_lsn
