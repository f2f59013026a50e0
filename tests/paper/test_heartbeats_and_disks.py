"""No heartbeat waits for a disk (SAFETY F9, W8; FAULTS D32): a leader's stand apart from the rows
in files."""

from __future__ import annotations

from logstore.format.peer_messages import Heartbeat
from logstore.model import Index
from logstore.raft.effects import Send
from tests.paper.one_node import OneNode, of_type, rows_of


def beats(node: OneNode) -> dict[int, int]:
    """Peer → index of the prev tuple of the heartbeat it is sent next."""
    sends = of_type(node.tick(60), Send)
    return {
        each.peer: each.message.prev_index for each in sends if isinstance(each.message, Heartbeat)
    }


def test_a_heartbeat_to_a_peer_far_behind_reads_no_row_from_the_files() -> None:
    """The leader was started again, so only its newest row is in memory."""
    node = OneNode(rows=rows_of([1] * 10), term=1)
    node.lead()
    node.flush()
    read: list[Index] = []
    row = node.files.row

    def slow_row(index: Index):  # type: ignore[no-untyped-def]
        read.append(index)
        return row(index)

    node.files.row = slow_row  # type: ignore[method-assign]
    node.hear_match(2, 5)
    node.hear_match(3, 11)
    assert beats(node) == {2: 0, 3: 11}
    node.hear_match(2, 11)
    assert beats(node) == {2: 11, 3: 11}
    assert read == []
