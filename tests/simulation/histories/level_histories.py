"""Histories of the log's format level: who raises it, takes it, refuses it, and is told of it."""

from __future__ import annotations

import msgspec

from actors.simulation.checkers import client_facts, facts
from actors.simulation.clients.codec import StandIn
from logstore.format.batch import encode_batch
from logstore.format.entry import Row
from logstore.format.level import level_kind
from logstore.format.peer_messages import AppendAccepted, HeartbeatReply
from logstore.model import Codec, Index, NodeId, Term
from logstore.raft.effects import Lead, SaveLevel
from logstore.raft.events import (
    ControlReceived,
    Event,
    LevelRequested,
    MetaPersisted,
    Proposed,
    StreamAnswer,
    Tick,
)
from tests.simulation.histories.case import Collection
from tests.simulation.histories.session_histories import open_session
from tests.simulation.histories.stage import PRODUCER, Stage, header_after

LEVELS = Collection()
breaks = LEVELS.breaks

TERM = Term(1)


def begin(stage: Stage, *, newest: int = 3) -> None:
    """Node 1 leads replicas that read levels up to `newest`, and has heard so; somebody asks for
    each level."""
    lead(stage, newest=newest)
    for level in (2, 3):
        stage.tell(client_facts.LevelAsked(level))
    for peer in (2, 3):
        hear(stage, peer, newest)


def lead(stage: Stage, *, newest: int) -> None:
    """Node 1 leads replicas that read levels up to `newest`, and has heard from none."""
    stage.elect_first()
    for node in stage.nodes:
        stage.tell(facts.VersionStarted(node, newest))


def hear(stage: Stage, peer: int, newest: int, *, boot: int = 1, term: int = TERM) -> None:
    none = Index(0)
    reply = HeartbeatReply(Term(term), 1, Index(1), none, none, newest_level=newest)
    stage.step(1, ControlReceived(NodeId(peer), boot, reply))


def appended(stage: Stage, level: int, event: Event | None = None) -> Row:
    """The leader appends the entry that raises the log to `level`, because it is asked."""
    each = stage.nodes[1]
    kind = level_kind(level)
    row = Row.of(header_after(each.rows, term=each.core.term, kind=kind, count=0, body=b""))
    stage.bodies[row.chain] = b""
    stage.step(1, event or LevelRequested(7, level), stage.persist(each, row, 0, 0))
    return row


def raised(stage: Stage, level: int) -> None:
    """Everybody has the entry, and knows that it is committed."""
    stage.spread(1, appended(stage, level))


@breaks("I21", says="all it heard of node 3 in this term is that its boot 1 reads 1")
def a_level_is_raised_that_a_peer_does_not_read(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    if is_broken:
        hear(stage, 3, 1)
    raised(stage, 2)


@breaks("I21", says="its boot 2 reads 0")
def a_level_is_raised_by_what_was_said_before_a_restart(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    lead = Lead(NodeId(2), TERM, 1 << 33, Index(2), Index(1), 0, Index(1))
    stage.step(1, StreamAnswer(NodeId(2), 2, AppendAccepted(TERM, 1, Index(1))), lead)
    hear(stage, 2, 3, boot=1 if is_broken else 2)
    raised(stage, 2)


@breaks("I21", says="its boot 1 reads 1")
def the_boots_of_a_replica_on_another_disk_count_from_1_again(
    stage: Stage, is_broken: bool
) -> None:
    """Seed 3088 at 87cab42: the checker took the answer of the new replica for an old one."""
    begin(stage)
    lead = Lead(NodeId(3), TERM, 1 << 33, Index(2), Index(1), 0, Index(1))
    stage.step(1, StreamAnswer(NodeId(3), 5, AppendAccepted(TERM, 1, Index(1))), lead)
    stage.tell(facts.DiskLost(3))
    hear(stage, 3, 1 if is_broken else 3)
    appended(stage, 2)


@breaks("I21", says="raises the log from level 1 to 3")
def a_level_is_left_out(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    if not is_broken:
        raised(stage, 2)
    raised(stage, 3)


@breaks("I21", says="nobody asked it")
def a_level_is_raised_by_a_leader_alone(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    appended(stage, 2, Proposed(TERM, 1, 0, level_kind(2), 0, 0, 0, 0, 0) if is_broken else None)


@breaks("I21", says="nobody asked it")
def a_log_that_is_not_new_is_raised_by_a_leader_alone(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    if is_broken:
        open_session(stage)
    stage.spread(1, stage.elect(1, 2))
    for peer in (2, 3):
        hear(stage, peer, 3, term=2)
    appended(stage, 2, Tick(1, 1))


@breaks("I21", says="all it heard of node 2 in this term is that its boot 0 reads 0")
def a_new_log_is_raised_before_everybody_was_heard(stage: Stage, is_broken: bool) -> None:
    lead(stage, newest=2)
    for peer in (3,) if is_broken else (2, 3):
        hear(stage, peer, 2)
    appended(stage, 2, Tick(1, 1))


@breaks("I21", says="no client asked")
def a_level_is_raised_that_no_client_wants(stage: Stage, is_broken: bool) -> None:
    begin(stage, newest=4)
    raised(stage, 2)
    raised(stage, 3)
    if not is_broken:
        stage.tell(client_facts.LevelAsked(4))
    raised(stage, 4)


@breaks("I21", says="node 3 reads levels up to 1, and takes entry 2, which raises to 2")
def a_level_is_taken_by_a_version_that_does_not_read_it(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    row = appended(stage, 2)
    if is_broken:
        stage.tell(facts.VersionStarted(3, 1))
    stage.replicate(row, 1, 2, 3)


@breaks("I21", says="node 2 goes to level 2, the committed log is at 1")
def a_level_counts_before_its_commit(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    row = appended(stage, 2)
    if is_broken:
        stage.replicate(row, 1, 2)
        stage.idle(2, SaveLevel(2))
    else:
        stage.spread(1, row)


@breaks("I21", says="goes from level 3 back to 2")
def a_replica_s_level_falls(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    raised(stage, 3)
    stage.idle(2, SaveLevel(2 if is_broken else 3))


@breaks("I21", says="the log falls from level 3 to 2")
def the_log_s_level_falls(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    raised(stage, 3)
    stage.spread(1, appended(stage, 2 if is_broken else 3))


@breaks("I21", says="and runs on a log at level 2")
def a_version_runs_on_a_log_that_is_too_new_for_it(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    stage.tell(facts.VersionStarted(3, 1 if is_broken else 2))
    stage.nodes[3].boots += 1
    stage.tell(facts.CoreMade(3, stage.recovered(stage.nodes[3])))


@breaks("I21", says="no entry is above 1")
def a_log_is_refused_without_a_reason(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    if not is_broken:
        raised(stage, 2)
    stage.tell(facts.VersionStarted(3, 1))
    stage.tell(facts.LevelRefused(3))


@breaks("I21", says="node 3 believes in level 1 at commit index 2, entry 2 raised the log to 2")
def a_replica_passes_over_an_entry_that_raises_the_level(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.unaware = {3} if is_broken else set()
    raised(stage, 2)


@breaks("I21", says="node 3 believes in level 1 at commit index 2")
def a_start_forgets_the_level(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    stage.tell(facts.VersionStarted(3, 2))
    stage.nodes[3].boots += 1
    found = msgspec.structs.replace(stage.recovered(stage.nodes[3]), commit_floor=Index(2))
    stage.tell(facts.CoreMade(3, msgspec.structs.replace(found, levels=()) if is_broken else found))


@breaks("I21", says="node 3 believes in level 1 in the end")
def a_level_that_damage_hides_is_never_learned(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    stage.rot(3, "both")
    stage.tell(facts.VersionStarted(3, 2))
    stage.nodes[3].boots += 1
    stage.nodes[3].faulty = ((Index(2), Index(2)),)
    found = msgspec.structs.replace(stage.recovered(stage.nodes[3]), commit_floor=Index(2))
    stage.tell(facts.CoreMade(3, msgspec.structs.replace(found, levels=())))
    if not is_broken:
        stage.idle(3, SaveLevel(2))
    stage.end()


@breaks("I21", says="META of node 3 has level 1, a save after level 2 was answered")
def a_level_is_not_saved(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    stage.save_meta(3, 2, 0)
    stage.step(3, MetaPersisted(1))
    stage.tell(facts.VersionStarted(3, 2))
    stage.nodes[3].boots += 1
    found = stage.recovered(stage.nodes[3])
    stage.tell(facts.CoreMade(3, msgspec.structs.replace(found, level=1 if is_broken else 2)))


@breaks("I21", says="node 3 believes in level 1 in the end")
def a_replica_never_learns_the_level(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    row = appended(stage, 2)
    stage.replicate(row, 1, 2, 3)
    stage.flush()
    stage.claim(2, 1, 2)
    stage.commit(1, 2)
    stage.follow(2, *((2,) if is_broken else (2, 3)))
    stage.end()


@breaks("I10", says="level 2 is told as raised, the committed log is at 1")
def a_level_is_told_as_raised_before_its_commit(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    row = appended(stage, 2)
    if not is_broken:
        stage.spread(1, row)
    stage.tell(client_facts.LevelTold(2, 2))


@breaks("I21", says="level 2 is answered as raised, with level 1")
def a_level_is_told_as_raised_that_is_not(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.tell(client_facts.LevelTold(2 if is_broken else 1, 1))


def compressed(payload: bytes) -> bytes:
    batch = encode_batch(
        [payload], producer_id=PRODUCER, producer_epoch=1, sequence=0, timestamp_ns=5,
        compressor=StandIn(Codec.ZSTD),
    )  # fmt: skip
    assert batch[6] == Codec.ZSTD
    return batch


@breaks("I21", says="is compressed, with codec 2, the committed log is at level 2")
def a_compressed_batch_is_stored_below_its_level(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    if not is_broken:
        raised(stage, 3)
    open_session(stage)
    batch = compressed(bytes(80))
    number = stage.invoke(0, bytes(80), batch=batch)
    stage.spread(1, stage.data(1, batch))
    stage.acknowledge(number, 1)


@breaks("I11", says="nobody appended these bytes under these numbers")
def a_compressed_batch_is_stored_with_another_block(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    raised(stage, 3)
    open_session(stage)
    number = stage.invoke(0, bytes(80), batch=compressed(bytes(80)))
    stage.spread(1, stage.data(1, compressed(b"x" * 80 if is_broken else bytes(80))))
    stage.acknowledge(number, 1)
    stage.end()


@breaks("I21", says="was opened at level 3, and refused compression at level 2")
def a_producer_is_refused_compression_at_a_level_that_has_it(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    raised(stage, 2)
    if is_broken:
        raised(stage, 3)
    open_session(stage)
    stage.tell(client_facts.CompressionRefused(PRODUCER, 1, 2))
