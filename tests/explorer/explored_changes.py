"""The changes of members that are explored: the CONFIG with which every log begins, and what an
operator may ask a leader for.

Where members change, replicas are numbered as in the CONFIGs, 1 to 3, not by their place in the
ring: no two of them are alike, but for those two whose exchange leaves every CONFIG as it is. The
first change is of node 3, or of node 2 by node 3, for the numbers do not matter; later ones are any
that the configuration allows. Owns what the bodies of CONFIGs hold, by their `body_crc`. Must not
know which change is under way.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple
from zlib import crc32

from logstore.format.configuration_body import Configuration, Member, encode_configuration
from logstore.format.entry import EntryHeader, Row
from logstore.model import NO_INDEX, NO_TERM, EntryKind, Index, NodeId
from logstore.raft.configuration import is_joint
from logstore.raft.events import ChangeKind
from logstore.raft.log_view import Position
from logstore.raft.raft_config import RaftConfig
from logstore.raft.state import State
from tests.explorer.bound import REPLICAS, Bound, FirstChange
from tests.explorer.events import ChangeAsked, Local, NextProposed

_MEMBERS = tuple(
    Member(NodeId(number), number.to_bytes(16, "big"), f"node-{number}", 7100)
    for number in range(1, REPLICAS + 1)
)
_ONE_LEARNS = Configuration(1, _MEMBERS[:2], learners=_MEMBERS[2:])
_FIRST: dict[FirstChange, tuple[Configuration, ChangeAsked]] = {
    "promote": (_ONE_LEARNS, ChangeAsked(ChangeKind.PROMOTE, NodeId(3))),
    "remove": (Configuration(1, _MEMBERS), ChangeAsked(ChangeKind.REMOVE, NodeId(3))),
    "replace": (_ONE_LEARNS, ChangeAsked(ChangeKind.REPLACE, NodeId(2), NodeId(3))),
}
_contents: dict[int, Configuration] = {}  # a function of its keys, so explorations may share it


class Voting(NamedTuple):
    """Who counts by the CONFIG at index `at`; `incoming` is empty unless it is a joint one."""

    at: int
    id: int
    voters: tuple[int, ...]
    incoming: tuple[int, ...]


def raft_config(bound: Bound, node: NodeId) -> RaftConfig:
    """That of a founder, or of the learner that has joined."""
    founders = tuple(member.number for member in _FIRST[bound.change][0].voters)
    return RaftConfig(
        node=node,
        voters=founders,
        has_joined=node not in founders,
        stream_mode=bound.stream_mode,
    )


def first_rows(bound: Bound, start: Position) -> tuple[Row, ...]:
    """With which every log begins: a CONFIG that all know to be committed, of the term before the
    first; nothing where members do not change."""
    if not bound.changes:
        return ()
    body_crc, size_bytes = body_of(_FIRST[bound.change][0])
    header = EntryHeader(
        kind=int(EntryKind.CONFIG),
        count=0,
        term=NO_TERM,
        index=Index(NO_INDEX + 1),
        prev_term=start.term,
        first_lsn=start.next_lsn,
        timestamp_ns=0,
        cumulative_bytes=size_bytes,
        prev_chain=start.chain,
        body_size=size_bytes,
        body_crc=body_crc,
    )
    return (Row.of(header),)


def body_of(configuration: Configuration) -> tuple[int, int]:
    """The CRC and the size of its body; `content_of` knows it from now on."""
    body = encode_configuration(configuration)
    body_crc = crc32(body)
    if _contents.setdefault(body_crc, configuration) != configuration:
        raise AssertionError(f"the CRC of {configuration} is that of {_contents[body_crc]}")
    return body_crc, len(body)


def content_of(header: EntryHeader) -> Configuration | None:
    """What the entry holds, if it is a CONFIG."""
    return _contents[header.body_crc] if header.kind == EntryKind.CONFIG else None


def configurations_of(rows: list[Row] | tuple[Row, ...]) -> tuple[tuple[Index, Configuration], ...]:
    """Every CONFIG of a log, with its index."""
    return tuple(
        (row.header.index, held) for row in rows if (held := content_of(row.header)) is not None
    )


def votings_of(rows: list[Row]) -> tuple[Voting, ...]:
    """Who counts by each CONFIG of a log, oldest first."""
    return tuple(
        Voting(
            index,
            held.id,
            tuple(each.number for each in held.voters),
            tuple(each.number for each in held.incoming),
        )
        for index, held in configurations_of(rows)
    )


def possible(bound: Bound, state: State) -> list[Local]:
    """What a leader may be asked for, or goes on with. It may well refuse."""
    leading, in_force = state.leading, state.configurations.in_force
    if leading is None or not bound.changes:
        return []
    if leading.change is not None:
        return [] if leading.change.index or not state.gen.is_open else [NextProposed()]
    if is_joint(in_force) or in_force.id >= 1 + 2 * bound.changes:
        return []
    if in_force.id == 1:
        return [_FIRST[bound.change][1]]
    voters = [each.number for each in in_force.voters]
    learners = [each.number for each in in_force.learners]
    return [
        *(ChangeAsked(ChangeKind.PROMOTE, each) for each in learners),
        *(ChangeAsked(ChangeKind.REMOVE, each) for each in voters),
        *(ChangeAsked(ChangeKind.REPLACE, *each) for each in product(voters, learners)),
    ]
