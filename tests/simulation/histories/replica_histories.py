"""Histories of replicas: logs, commits, and what is shown."""

from __future__ import annotations

from actors.simulation.checkers import client_facts
from logstore.model import EntryKind, Index, Lsn, Term
from logstore.raft.effects import Accepted, Visible
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import Stage, batch_of

REPLICAS = Collection()
breaks = REPLICAS.breaks

# --- I1 ---


@breaks("I1", says="without the committed entry 2")
def a_leader_lacks_what_was_committed_before_its_term(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    number = stage.invoke(0)
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, 2)
    stage.commit(1, 2)
    stage.acknowledge(number, 1)
    stage.elect(3 if is_broken else 2, 2, [1])


@breaks("I1", says="truncates the committed entry 2")
def a_follower_truncates_what_was_committed_elsewhere(stage: Stage, is_broken: bool) -> None:
    """Entry 2 is committed on nodes 1 and 2, and node 2 does not know it yet."""
    stage.elect_first()
    stage.invoke(0)
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, 2)
    stage.commit(1, 2)
    stage.replicate(row, 1, *((2,) if is_broken else (3,)))


@breaks("I1", says="of term 2 by counting in term 4")
def a_leader_counts_an_entry_of_an_older_term(stage: Stage, is_broken: bool) -> None:
    """Figure 8 of the Raft paper: only with an entry of its own term is the older one safe."""
    stage.elect_first()
    old = stage.elect(1, 2)
    stage.flush(1)
    new = stage.elect(1, 4, [2])
    stage.replicate(old, 1, 2)
    stage.replicate(new, 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, 3)
    stage.commit(1, 2 if is_broken else 3)


@breaks("I1", says="there is")
def an_acknowledgement_names_the_lsns_of_another_batch(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.invoke(0, producer=8)
    number = stage.invoke(0)
    stage.spread(1, stage.data(1, batch_of(0, producer=8), batch_of(0)))
    stage.acknowledge(number, 1 if is_broken else 2)


# --- I2, I3 ---


@breaks("I2", says="LSN 2, 1 is next")
def a_no_op_takes_an_lsn(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.elect(1, 1)
    stage.propose(1, EntryKind.DATA, batch_of(0), count=1, skip_lsns=int(is_broken))


@breaks("I2", says="tells")
def ingress_gets_another_lsn_than_was_given(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.data(1, batch_of(0))
    stage.idle(1, Accepted(Term(1), 1, 0, Index(2), Lsn(2 if is_broken else 1)))


@breaks("I3", says="has another entry 2 committed")
def two_replicas_commit_different_entries(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.nodes[3].core.term = 1
    own = stage.elect(3, 2, [2])
    stage.replicate(own, 3, 2)
    stage.flush(2, 3)
    stage.claim(2, 3, 2)
    stage.commit(3, 2)
    other = stage.propose(1, EntryKind.NOOP, b"") if is_broken else own
    if not is_broken:
        stage.replicate(own, 3, 1)
    stage.flush(1)
    stage.nodes[1].core.commit = other.header.index
    stage.idle(1)


@breaks("I3", says="two entries 2 of term 1")
def a_leader_gives_one_index_to_two_entries(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.data(1, batch_of(0))
    if is_broken:
        stage.nodes[1].rows.pop()
        stage.idle(1, stage.truncate(stage.nodes[1], 2))
        stage.data(1, batch_of(1))


@breaks("I3", says="after entry 1")
def a_replica_writes_an_entry_that_does_not_follow(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    first, second = stage.data(1, batch_of(0)), stage.data(1, batch_of(1))
    stage.replicate(second if is_broken else first, 1, 2)


@breaks("I3", says="and knows 2 committed")
def a_replica_truncates_below_its_own_commit_index(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.data(1, batch_of(1))
    stage.idle(1, stage.truncate(stage.nodes[1], 2 if is_broken else 3))


@breaks("I3", says="which it does not have")
def a_replica_calls_an_entry_committed_that_it_lacks(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, 2)
    stage.commit(1, 2)
    if not is_broken:
        stage.replicate(row, 1, 3)
    stage.nodes[3].core.commit = 2
    stage.idle(3)


@breaks("I3", says="in the end lacks entry 2")
def a_committed_entry_is_gone_in_the_end(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    entries = stage.entries(2)
    stage.end(node2=entries[:1] if is_broken else entries)


@breaks("I4", says="not made of whole batches")
def a_torn_batch_is_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.invoke(0)
    body = batch_of(0)
    stage.spread(1, stage.propose(1, EntryKind.DATA, body[: -8 * is_broken or None], count=1))


# --- I5, I8: what is shown ---


@breaks("I5", says="shows")
def the_visible_lsn_goes_back(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.write(1, 1)
    if is_broken:
        stage.idle(2, stage.shown(2, 2))


@breaks("I5", says="takes its commit index back to 1")
def a_commit_index_goes_back(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.nodes[2].core.commit = 1 if is_broken else 2
    stage.idle(2)


@breaks("I8", says="shows entry 2: it is not committed")
def a_replica_shows_what_is_not_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(1, 2)
    if not is_broken:
        stage.claim(2, 1, 2)
        stage.commit(1, 2)
        stage.nodes[2].core.commit = 2
    stage.idle(2, stage.shown(2, 2))


@breaks("I8", says="shows LSN 1 at entry 1")
def a_replica_shows_an_lsn_of_a_later_entry(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    noop = stage.elect(1, 1)
    stage.replicate(noop, 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, 1)
    stage.nodes[1].core.commit = 1
    stage.idle(1, Visible(Lsn(int(is_broken)), Index(1)))


@breaks("I8", says="it is not flushed")
def a_replica_shows_what_its_own_disk_has_not_flushed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2, 3)
    stage.flush(1, 2, *(() if is_broken else (3,)))
    stage.claim(2, 1, 2)
    stage.commit(1, 2)
    stage.follow(2, 3)


@breaks("I8", says="which no leader has committed")
def a_follower_commits_its_stale_suffix(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(1, 2)
    stage.nodes[2].core.commit = 2 if is_broken else 1
    stage.idle(2)


@breaks("I8", says="committed is up to 0")
def a_consumer_gets_what_is_not_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.invoke(0)
    row = stage.data(1, batch_of(0))
    if not is_broken:
        stage.spread(1, row)
    stage.deliver("reader", 1, batch_of(0))


@breaks("I8", says="there is")
def a_consumer_gets_another_batch_than_the_committed_one(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.deliver("reader", 1, batch_of(0, b"other") if is_broken else batch_of(0))


@breaks("I8", says="told of LSN 2")
def a_follower_read_shows_an_uncommitted_end(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.invoke(1)
    stage.data(1, batch_of(1))
    end_lsn = 2 if is_broken else 1
    stage.tell(client_facts.EndTold(stage.tick(), end_lsn, node=None, is_linearizable=False))
