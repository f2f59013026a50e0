"""Histories of what leaders give up by themselves: no more than their configuration says, by what
is committed, and nothing for its age while a clock was set (SAFETY G1, G2).
"""

from __future__ import annotations

from actors.simulation.checkers.world_view import Kept
from logstore.format.peer_messages import AppendPersisted
from logstore.format.trim_entry import TrimReason
from logstore.model import NodeId
from logstore.raft.events import StreamAnswer
from tests.simulation.histories.case import Collection
from tests.simulation.histories.log_start_histories import begin, start_at, trim
from tests.simulation.histories.stage import ELECTION_NS, Stage

RETENTION = Collection()
breaks = RETENTION.breaks
SECOND_NS = 1_000_000_000


def begin_with(stage: Stage, **kept: int) -> None:
    stage.record.kept = Kept(**{"age_ns": 0, "size_bytes": 0, "payloads": 0} | kept)
    begin(stage)


@breaks("I19", says="for PAYLOADS, and keeps 1 of what is committed, at least 2 is kept")
def a_leader_keeps_too_few_payloads(stage: Stage, is_broken: bool) -> None:
    begin_with(stage, payloads=2)
    trim(stage, start_at(stage, 4 if is_broken else 3), reason=TrimReason.PAYLOADS)


@breaks("I19", says="for BYTES, and keeps")
def a_leader_keeps_too_few_bytes(stage: Stage, is_broken: bool) -> None:
    begin_with(stage)
    rows = stage.nodes[1].rows
    left = rows[-1].header.cumulative_bytes - rows[3].header.cumulative_bytes
    stage.record.kept = Kept(0, left + is_broken, 0)
    trim(stage, start_at(stage, 4), reason=TrimReason.BYTES)


@breaks("I19", says="for AGE, and keeps")
def a_leader_gives_up_what_is_too_young(stage: Stage, is_broken: bool) -> None:
    begin_with(stage)
    rows = stage.nodes[1].rows
    age_ns = rows[-1].header.timestamp_ns - rows[3].header.timestamp_ns
    stage.record.kept = Kept(age_ns - (not is_broken), 0, 0)
    trim(stage, start_at(stage, 4), reason=TrimReason.AGE)


@breaks("I19", says="for PAYLOADS, and keeps 1 of what is committed, at least 0 is kept")
def a_leader_gives_up_for_what_nobody_bounds(stage: Stage, is_broken: bool) -> None:
    begin_with(stage, payloads=0 if is_broken else 1)
    trim(stage, start_at(stage, 4), reason=TrimReason.PAYLOADS)


@breaks("I19", says="for AGE, while its clock was set")
def a_leader_gives_up_by_a_clock_that_was_set(stage: Stage, is_broken: bool) -> None:
    stage.clocks = [0, 0, 0]
    begin_with(stage, age_ns=1)
    stage.clocks = [(70 if is_broken else 50) * SECOND_NS] * 3
    for sequence in range(3, 9):
        row = stage.write(1, sequence)
        claim = AppendPersisted(row.header.term, row.header.index)
        stage.step(1, StreamAnswer(NodeId(2), 1, claim))
        stage.now_ns += ELECTION_NS // 2
    trim(stage, start_at(stage, 4), reason=TrimReason.AGE)
