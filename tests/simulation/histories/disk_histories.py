"""Histories of disks and crashes: what was reported as flushed, and what recovery finds."""

from __future__ import annotations

from actors.simulation.checkers import facts
from logstore.format.group import frame_size
from logstore.format.meta import META_SIZE
from logstore.format.pair_summary import SUMMARY_SIZE
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, SEGMENT_IMAGE_SIZE
from logstore.model import Index
from logstore.raft.events import EntryRotted, MetaPersisted
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import ELECTION_NS, SAVE_NS, Stage, batch_of

DISKS = Collection()
breaks = DISKS.breaks


@breaks("I12", says="had flushed entry 2, and recovers only 1")
def a_flushed_entry_is_gone_after_a_crash(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, 2)
    if is_broken:
        stage.nodes[2].disk.pop()
    stage.boot(2)


@breaks("I12", says="recovers another one")
def recovery_counts_what_the_disk_does_not_give(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    if is_broken:
        stage.nodes[2].lost.add(row.chain)
    stage.boot(2)


@breaks("I12", says="whose truncation was durable")
def a_truncated_entry_comes_back(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.flush(2)
    node = stage.nodes[2]
    stage.idle(2, stage.truncate(node, 2))
    stage.flush(2)
    if is_broken:
        node.disk.append(row)
    stage.boot(2)


@breaks("I12", says="sends readers to entry 7, which its files do not have")
def readers_are_sent_to_entries_that_are_not_written(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    rows = [stage.data(1, batch_of(number)) for number in range(6)]
    node = stage.nodes[1]
    node.unwritten = {row.chain for row in rows[4:]}
    stage.tell(facts.WrittenPublished(1, node.seq if is_broken else node.seq - 2))


@breaks("I12", says="sends readers to entry 2, which its files do not have")
def readers_are_sent_past_a_truncation_that_waits(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    node = stage.nodes[2]
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.idle(2, stage.truncate(node, 2))
    stage.replicate(row, 1, 2)
    node.unwritten = {row.chain}
    stage.tell(facts.WrittenPublished(2, node.seq if is_broken else node.seq - 2))


@breaks("I12", says="which leads term 1, reads 1.raft at byte 4096: nothing is written there")
def a_replicator_reads_before_the_writer_has_written(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    if not is_broken:  # it was deposed, and its log is cut below what it still sends
        stage.elect(2, 2)
    stage.tell(facts.ReadAheadOfWriter(1, 1, "1.raft at byte 4096"))


@breaks("I12", says="its log ends at 1")
def a_follower_claims_more_than_its_log_has(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.data(1, batch_of(0))
    stage.claim(2, 1, 2 if is_broken else 1)


@breaks("I12", says="its uncommitted entry 2 is faulty")
def a_follower_claims_past_a_faulty_entry(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(2)
    stage.rot(2, "frame")
    stage.step(2, EntryRotted(Index(2)))
    stage.claim(2, 1, 2 if is_broken else 1)


@breaks("I12", says="its uncommitted entry 2 is faulty")
def a_restarted_follower_claims_past_what_recovery_called_faulty(
    stage: Stage, is_broken: bool
) -> None:
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.flush(2)
    stage.nodes[2].lost.add(row.chain)
    stage.rot(2, "frame")
    stage.nodes[2].faulty = ((Index(2), Index(2)),)
    stage.boot(2)
    stage.beat(2, 1, 2)
    stage.claim(2, 1, 2 if is_broken else 1)


@breaks("I11", says="that nobody ever wrote")
def recovery_adopts_an_entry_that_was_never_ordered(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    other = Stage()
    other.elect_first()
    stranger = other.data(1, batch_of(5))
    stage.nodes[2].disk.append(stranger if is_broken else row)
    stage.boot(2)


@breaks("I10", says="calls entry 2 truncated, its disk still has it")
def a_truncation_is_answered_before_it_is_durable(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(2)
    stage.idle(2, stage.truncate(stage.nodes[2], 2))
    if not is_broken:
        stage.nodes[2].disk.pop()
    stage.tell_flushed(2)


@breaks("I10", says="recovers entry 2, a power cut would lose it")
def recovery_counts_the_page_cache_as_durable(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.nodes[2].disk.append(row)
    if is_broken:
        stage.nodes[2].lost.add(row.chain)
    stage.boot(2)


@breaks("I12", says="has another entry there than its leader")
def a_follower_reports_an_entry_that_its_leader_lacks(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(2)
    stage.elect(3, 2, voters=[1])
    stage.save_meta(2, 2, 0)
    stage.claim(2, 3, 2 if is_broken else 1)


@breaks("I12", says="has another entry there than its leader")
def a_follower_reports_to_a_leader_that_was_deposed_and_has_another_entry_since(
    stage: Stage, is_broken: bool
) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(2)
    stage.replicate(stage.elect(3, 2, voters=[1]), 3, 1)
    if is_broken:
        stage.save_meta(2, 2, 0)
    stage.claim_in(2 if is_broken else 1, 2, 3 if is_broken else 1, 2)


@breaks("I13", says="2.writer takes no part while its disk is full")
def a_full_disk_keeps_a_replica_out(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    if is_broken:
        stage.tell(facts.EndedByFullDisk("2.writer", "no space for the next segment"))
    stage.boot(2)


@breaks("I13", says="its META takes")
def a_vote_waits_for_a_flush_of_the_log(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.save_meta(2, 2, 3)
    if not is_broken:
        stage.tell(facts.SavesExcused(2, stage.now_ns + SAVE_NS))  # its META is slow by itself
    stage.now_ns += SAVE_NS + ELECTION_NS
    stage.step(2, MetaPersisted(1))


# --- what is written ---

IN_FRAMES = ("/node-2/1.data", SEGMENT_HEADER_SIZE)
IN_RECORDS = ("/node-2/1.raft", SEGMENT_HEADER_SIZE)


@breaks("I20", says="bytes to /node-2/1.data at byte 4096, 0 are due there")
def a_frame_is_written_twice(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    frame = frame_size(stage.elect(2, 1).header)
    stage.tell(facts.DiskWritten(2, *IN_FRAMES, frame))
    if not is_broken:
        stage.boot(2)  # the crash lost it, and its leader sends it again
        frame = frame_size(stage.elect(2, 2).header)
    stage.tell(facts.DiskWritten(2, *IN_FRAMES, frame))


@breaks("I20", says="bytes to /node-2/1.raft at byte 4096, 128 are due there")
def a_payload_is_written_into_the_raft_log(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    frame = frame_size(stage.elect(2, 1).header)
    stage.tell(facts.DiskWritten(2, *IN_FRAMES, frame))
    stage.tell(facts.DiskWritten(2, *IN_RECORDS, RECORD_SIZE + (frame if is_broken else 0)))


@breaks("I20", says="writes 256 bytes to /node-2/1.raft at byte 4096, 0 are due there")
def a_recovery_writes_more_than_lost_records(stage: Stage, is_broken: bool) -> None:
    stage.tell(facts.Started(2, 1))
    size = 2 * RECORD_SIZE if is_broken else RECORD_SIZE
    stage.tell(facts.DiskWritten(2, *IN_RECORDS, size))


@breaks("I20", says="writes 640 bytes to /node-2/1.data at byte 0, 512 are due there")
def a_header_has_room_for_a_payload(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.tell(facts.DiskWritten(2, "/node-2/meta.a", 0, META_SIZE))
    size = SEGMENT_IMAGE_SIZE + (RECORD_SIZE if is_broken else 0)
    stage.tell(facts.DiskWritten(2, "/node-2/1.data", 0, size))


@breaks("I20", says="writes 1152 bytes to /node-2/1.raft at byte 0, 1024 are due there")
def a_summary_has_room_for_a_payload(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    size = SEGMENT_IMAGE_SIZE + SUMMARY_SIZE + (RECORD_SIZE if is_broken else 0)
    stage.tell(facts.DiskWritten(2, "/node-2/1.raft", 0, size))


@breaks("I20", says="writes 8 bytes to /node-2/spool at byte 0, 0 are due there")
def a_payload_is_written_into_a_file_of_its_own(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.tell(facts.DiskWritten(2, "/node-2/spool", 0, 8 if is_broken else 0))
