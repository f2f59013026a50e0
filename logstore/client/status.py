"""Reads what the replicas say about themselves, and merges it into one status of the cluster.

Pure: documents in, one document out. The shape is `logstore status --json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from logstore.errors import FormatError

Document = dict[str, Any]
UNREACHABLE = "unreachable"


class _Follower(msgspec.Struct):
    node: int
    payloads: int | None


class _Lag(msgspec.Struct):
    followers: list[_Follower]


class _Merged(msgspec.Struct):
    """What is merged: it must be of these types."""

    role: str = ""
    term: int = 0
    visible_lsn: int = 0
    log_start_lsn: int = 0
    lag: _Lag | None = None


def parse_status(document: bytes, *, node: int) -> Document:
    """The document in a StatusReply of this node.

    Raises:
      FormatError: it is not valid.
    """
    try:
        found = msgspec.json.decode(document, type=dict[str, Any])
        msgspec.convert(found, _Merged)
    except ValueError as error:
        raise FormatError(
            f"the status of node {node} cannot be read ({error}): does it run another version? Ask "
            "with the `logstore` that it runs"
        ) from error
    return found


def merge_status(documents: Mapping[int, Document | None]) -> Document:
    """The cluster's status from each node's document; None: the node did not answer.

    The leader is the node that says of itself that it leads, in the newest term; its visible LSN is
    the commit LSN. Without a leader, the highest LSN that a replica shows is a lower bound of it.

    `member` of a row: its role in the leader's configuration, or, without a leader, in the newest
    one that a replica names; None: the log has none, or it is not named there. `reserved`: the
    places in it of replicas that have not joined.
    """
    answers = {node: document for node, document in documents.items() if document}
    leaders = [
        (int(document.get("term", 0)), node)
        for node, document in answers.items()
        if document.get("role") == "leader"
    ]
    term, leader = max(leaders, default=(0, 0))
    term = max([term, *(int(document.get("term", 0)) for document in answers.values())])
    shown = {node: int(document.get("visible_lsn", 0)) for node, document in answers.items()}
    commit_lsn = shown[leader] if leader else max(shown.values(), default=0)
    measured = (answers[leader].get("lag") or {}).get("followers", ()) if leader else ()
    lags = {row["node"]: row["payloads"] for row in measured} | {leader: 0}
    leading = answers.get(leader, {})
    named = leading.get("members") or _newest_members(answers.values())
    members = {int(each["number"]): each for each in named.get("members", ()) if named.get("id")}
    starts = [int(document.get("log_start_lsn", 0)) for document in answers.values()]
    return {
        "commit_lsn": commit_lsn,
        "log_start_lsn": max(starts, default=0),
        "leader": leader,
        "term": term,
        "nodes": [
            _node_row(node, documents[node], commit_lsn, lags.get(node))
            | {
                "install": _install(node, documents[node] or {}, leading),
                "member": members[node]["role"] if node in members else None,
            }
            for node in sorted(documents)
        ],
        "reserved": [
            {"node": node, "host": each["host"], "port": each["port"]}
            for node, each in sorted(members.items())
            if each["role"] == "reserved"
        ],
    }


def _newest_members(answers: Iterable[Document]) -> Document:
    """The configuration with the highest id that a replica names; it may not last."""
    named = [document["members"] for document in answers if document.get("members")]
    return max(named, key=lambda each: int(each.get("id", 0)), default={})


def voter_rows(nodes: Iterable[Document]) -> list[Document]:
    """Those of a status' rows that count in a majority; all where no configuration says so."""
    rows = list(nodes)
    return [row for row in rows if row.get("member") == "voter"] or rows


def _node_row(node: int, document: Document | None, commit_lsn: int, lag: int | None) -> Document:
    """A node's own document with what every row has, whether the node answered or not. `lag`: the
    payloads that it lacks, by the leader; None: the leader does not know, or there is none. Then it
    is what the node does not show yet."""
    if not document:
        row: Document = {"role": UNREACHABLE, "pid": None, "processes": {}, "faulty": []}
        return {"node": node, **row, "lag_payloads": lag}
    base: Document = {"node": node, "role": "none", "pid": None, "processes": {}, "faulty": []}
    if lag is None:
        lag = max(0, commit_lsn - int(document.get("visible_lsn", 0)))
    return base | document | {"node": node, "lag_payloads": lag}


def _install(node: int, document: Document, leading: Document) -> Document | None:
    """How far a replica is that starts over at the leader's log start; None: it does not, or has
    what the leader had then. `bytes_left` None: the leader or the replica did not answer."""
    if not document.get("is_installing") and node not in leading.get("catching_up", ()):
        return None
    has, end = document.get("last_bytes"), leading.get("last_bytes")
    return {
        "next_lsn": int(document["visible_lsn"]) + 1 if "visible_lsn" in document else None,
        "bytes_left": None if has is None or end is None else max(0, int(end) - int(has)),
    }
