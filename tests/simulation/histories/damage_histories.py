"""Histories of media that rot: what a replica reports, and what it must not drop."""

from __future__ import annotations

from actors.simulation.checkers import client_facts, facts
from logstore.format.peer_messages import HeartbeatReply
from logstore.model import Index, NodeId, Term
from logstore.raft.effects import Answer
from logstore.raft.events import EntryRotted
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import Stage, batch_of

DAMAGE = Collection()
breaks = DAMAGE.breaks
Range = tuple[Index, Index]
ENTRY_2 = ((Index(2), Index(2)),)
NOTHING = (Index(0), Index(0))


def four_entries(stage: Stage) -> None:
    stage.elect_first()
    for sequence in range(3):
        stage.write(1, sequence)


def answer_a_beat(stage: Stage, node: int, told: Range) -> None:
    reply = HeartbeatReply(Term(1), 0, Index(len(stage.nodes[node].rows)), *told)
    stage.beat(node, 1, 1, Answer(NodeId(1), reply))


@breaks("I12", says="does not name entry 4, which is damaged")
def a_start_does_not_look_at_the_newest_frames(stage: Stage, is_broken: bool) -> None:
    four_entries(stage)
    stage.rot(2, "frame")
    stage.nodes[2].faulty = () if is_broken else ((Index(4), Index(4)),)
    stage.boot(2)


@breaks("I12", says="does not name entry 3, which is damaged")
def an_entry_without_either_half_is_called_whole(stage: Stage, is_broken: bool) -> None:
    """Of a sealed segment a start reads the records alone; a bad one makes it read the frame."""
    four_entries(stage)
    stage.rot(2, "frame", "both", "nothing", is_sealed=True)
    stage.nodes[2].faulty = () if is_broken else ((Index(3), Index(3)),)
    stage.boot(2)


@breaks("I12", says="recovers only 2, its record of entry 4 is whole")
def a_log_is_cut_at_damage_with_good_records_after_it(stage: Stage, is_broken: bool) -> None:
    four_entries(stage)
    stage.rot(2, "both", "nothing")
    node = stage.nodes[2]
    if is_broken:
        del node.disk[2:]
    else:
        node.faulty = ((Index(3), Index(3)),)
    stage.boot(2)


@breaks("I12", says="recovers only 3, its frame of entry 4 is whole")
def a_whole_frame_without_its_record_is_dropped(stage: Stage, is_broken: bool) -> None:
    """An entry that lost both halves, with none after it, may be dropped."""
    four_entries(stage)
    stage.rot(2, "record" if is_broken else "both")
    stage.nodes[2].disk.pop()
    stage.boot(2)


@breaks("I12", says="calls entry 4 damaged, its frame is whole")
def a_whole_frame_without_its_record_is_called_damaged(stage: Stage, is_broken: bool) -> None:
    """After an entry that is damaged itself it cannot be known."""
    four_entries(stage)
    stage.rot(2, "nothing" if is_broken else "both", "record")
    stage.nodes[2].faulty = ((Index(4 if is_broken else 3), Index(4)),)
    stage.boot(2)


@breaks("I12", says="calls entry 2 damaged, its disk is whole")
def recovery_finds_damage_on_a_whole_disk(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.nodes[2].faulty = ENTRY_2 if is_broken else ()
    stage.boot(2)


@breaks("I12", says="a reader of node 2 calls entry 2 damaged, its disk is whole")
def a_reader_finds_damage_on_a_whole_disk(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    if not is_broken:
        stage.rot(2, "frame")
    stage.step(2, EntryRotted(Index(2)))


@breaks("I12", says="tells of damage 0-0, it is 2-3")
def a_follower_does_not_report_its_damage(stage: Stage, is_broken: bool) -> None:
    four_entries(stage)
    stage.rot(2, "frame", "frame", "nothing")
    for index in (3, 2):
        stage.step(2, EntryRotted(Index(index)))
    answer_a_beat(stage, 2, NOTHING if is_broken else (Index(2), Index(3)))


@breaks("I12", says="tells of damage 2-2, it is 0-0")
def damage_outlives_the_truncation_of_its_entry(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(2)
    stage.rot(2, "frame")
    stage.step(2, EntryRotted(Index(2)))
    stage.idle(2, stage.truncate(stage.nodes[2], 2))
    answer_a_beat(stage, 2, ENTRY_2[0] if is_broken else NOTHING)


@breaks("I12", says="leaves segment 3 under one header")
def a_half_opened_pair_is_left_as_it_is(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.nodes[2].segments_with_one_header = [3] if is_broken else []
    stage.boot(2)


@breaks("I12", says="node 2 writes /node-2/1.data at byte 8200, in a sector with flushed frames")
def a_group_shares_a_sector_with_the_one_before(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    if is_broken:
        how = "writes /node-2/1.data at byte 8200, in a sector with flushed frames"
        stage.tell(facts.ForbiddenWrite(2, how))


@breaks("I12", says="node 2 writes /node-2/1.data at byte 8192, over other bytes")
def frames_are_written_over_frames(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    if is_broken:
        how = "writes /node-2/1.data at byte 8192, over other bytes"
        stage.tell(facts.ForbiddenWrite(2, how))


@breaks("I12", says="node 2 writes the header of /node-2/2.raft while /node-2/1.raft is being fl")
def a_segment_is_opened_during_a_flush(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    if is_broken:
        how = "writes the header of /node-2/2.raft while /node-2/1.raft is being flushed"
        stage.tell(facts.ForbiddenWrite(2, how))


# --- readers ---


def verify_all(stage: Stage, node: int, *named: int, chain: int = 0) -> None:
    last = len(stage.nodes[node].rows)
    stage.tell(client_facts.LogVerified(node, (1, last), chain, named))


@breaks("I12", says="damaged is []: entry 3 is not whole")
def a_verification_passes_over_damage(stage: Stage, is_broken: bool) -> None:
    four_entries(stage)
    stage.rot(2, "frame", "nothing")
    verify_all(stage, 2, *([] if is_broken else [3]))


@breaks("I12", says="damaged is [3, 4]: entry 4 is whole")
def a_verification_finds_damage_where_there_is_none(stage: Stage, is_broken: bool) -> None:
    four_entries(stage)
    stage.rot(2, "frame", "nothing")
    verify_all(stage, 2, *([3, 4] if is_broken else [3]))


@breaks("I3", says="verifies [1, 4] and has another chain there")
def a_verification_of_another_log(stage: Stage, is_broken: bool) -> None:
    four_entries(stage)
    verify_all(stage, 2, chain=stage.nodes[2].rows[2 if is_broken else 3].chain)


@breaks("I12", says="calls LSNs [2, 3] damaged, entry 4 is whole")
def a_fetch_is_refused_for_more_than_is_damaged(stage: Stage, is_broken: bool) -> None:
    four_entries(stage)
    stage.rot(2, "frame", "nothing")
    stage.tell(client_facts.DamageNamed(2, (2, 3 if is_broken else 2), stage.now_ns))


@breaks("I12", says="calls LSNs [2, 2] damaged, its disk is whole")
def damage_is_named_and_the_disk_is_lost_meanwhile(stage: Stage, is_broken: bool) -> None:
    """The new one has none."""
    four_entries(stage)
    stage.rot(2, "frame", "nothing")
    asked_ns = stage.tick()
    stage.nodes[2].is_excused = False
    stage.tell(facts.DiskLost(2))
    told_ns = stage.now_ns if is_broken else asked_ns
    stage.tell(client_facts.DamageNamed(2, (2, 2), told_ns))


@breaks("I12", says="calls [2] damaged, it was told of [3]")
def a_core_forgets_damage_that_readers_reported(stage: Stage, is_broken: bool) -> None:
    four_entries(stage)
    stage.rot(2, "frame", "nothing")
    stage.step(2, EntryRotted(Index(3)))
    stage.tell(facts.DamageListed(2, [(2, 2) if is_broken else (3, 3)]))
