"""Reads what the replicas say about themselves, and merges it into one status of the cluster.

Pure: documents in, one document out. The shape is `logstore status --json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from logstore.errors import FormatError

Document = dict[str, Any]
UNREACHABLE = "unreachable"


class _Merged(msgspec.Struct):
    """What is merged: it must be of these types."""

    role: str = ""
    term: int = 0
    visible_lsn: int = 0
    log_start_lsn: int = 0


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
    starts = [int(document.get("log_start_lsn", 0)) for document in answers.values()]
    return {
        "commit_lsn": commit_lsn,
        "log_start_lsn": max(starts, default=0),
        "leader": leader,
        "term": term,
        "nodes": [_node_row(node, documents[node], commit_lsn) for node in sorted(documents)],
    }


def _node_row(node: int, document: Document | None, commit_lsn: int) -> Document:
    """A node's own document with what every row has, whether the node answered or not."""
    if not document:
        row: Document = {"role": UNREACHABLE, "pid": None, "processes": {}, "faulty": []}
        return {"node": node, **row, "lag_lsn": None}
    base: Document = {"node": node, "role": "none", "pid": None, "processes": {}, "faulty": []}
    lag_lsn = max(0, commit_lsn - int(document.get("visible_lsn", 0)))
    return base | document | {"node": node, "lag_lsn": lag_lsn}
