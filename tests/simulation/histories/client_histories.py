"""Histories of producers and consumers: the answers they got, and the logs in the end."""

from __future__ import annotations

from actors.simulation.checkers import client_facts, facts
from logstore.errors import ErrorCode
from logstore.model import SequenceMode
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import Stage, batch_of, log_of

CLIENTS = Collection()
breaks = CLIENTS.breaks
ONE, TWO, THREE = (1, batch_of(0)), (1, batch_of(1)), (1, batch_of(2))


def two_appends(stage: Stage) -> None:
    """Sequences 0 and 1, acknowledged at LSNs 1 and 2."""
    for sequence in (0, 1):
        stage.acknowledge(stage.invoke(sequence), sequence + 1)


# --- I1, I2, I3, I4 ---


@breaks("I1", says="was acknowledged at LSN 2")
def an_acknowledged_batch_is_missing_in_the_end(stage: Stage, is_broken: bool) -> None:
    two_appends(stage)
    stage.end(node1=log_of(ONE) if is_broken else log_of(ONE, TWO))


@breaks("I1", says="was acknowledged at LSN 1")
def an_acknowledged_batch_lies_at_another_lsn(stage: Stage, is_broken: bool) -> None:
    first, other = stage.invoke(0), stage.invoke(0, producer=8)
    stage.acknowledge(first, 1)
    stage.acknowledge(other, 2)
    mine, others = (1, batch_of(0)), (1, batch_of(0, producer=8))
    stage.end(node1=log_of(others, mine) if is_broken else log_of(mine, others))


@breaks("I1", says="was acknowledged at LSN 1")
def an_acknowledged_batch_has_other_bytes(stage: Stage, is_broken: bool) -> None:
    stage.acknowledge(stage.invoke(0, b"right"), 1)
    stage.end(node1=log_of((1, batch_of(0, b"wrong" if is_broken else b"right"))))


@breaks("I1", says="was called committed")
def a_batch_that_was_called_committed_without_lsns_is_missing(
    stage: Stage, is_broken: bool
) -> None:
    stage.tell(client_facts.AppendRefused(stage.invoke(0), ErrorCode.COMMITTED_LSN_UNKNOWN))
    stage.end(node1=[] if is_broken else log_of(ONE))


@breaks("I2", says="LSN 3 follows 1")
def an_lsn_is_left_out(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    stage.invoke(1)
    stage.end(node1=log_of(ONE, TWO, skip_lsns=(1,) if is_broken else ()))


@breaks("I3", says="end with different logs")
def two_replicas_end_with_different_logs(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    stage.invoke(0, producer=8)
    mine, others = (1, batch_of(0)), (1, batch_of(0, producer=8))
    second = log_of(others, mine) if is_broken else log_of(mine, others)
    stage.end(node1=log_of(mine, others), node2=second)


@breaks("I3", says="does not follow")
def an_entry_is_missing_in_the_middle(stage: Stage, is_broken: bool) -> None:
    for sequence in range(3):
        stage.invoke(sequence)
    log = log_of(ONE, TWO, THREE)
    if is_broken:
        strange = log_of(ONE, TWO, THREE, term=2)
        log = [log[0], log[1], strange[2]]
    stage.end(node1=log)


@breaks("I4", says="batch")
def an_entry_holds_half_a_batch(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    body = batch_of(0)
    stage.end(node1=log_of((1, body[:-8] if is_broken else body)))


@breaks("I4", says="its batches have others")
def an_entry_has_more_lsns_than_its_batches(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    stage.end(node1=log_of((2 if is_broken else 1, batch_of(0))))


@breaks("I4", says="it has 3 payloads")
def a_part_of_a_batch_is_acknowledged(stage: Stage, is_broken: bool) -> None:
    payloads = (b"a", b"b", b"c")
    stage.acknowledge(stage.invoke(0, *payloads), 1, 2 if is_broken else 3)
    stage.end(node1=log_of((3, batch_of(0, *payloads))))


@breaks("I4", says="is_whole True")
def a_consumer_takes_a_part_of_a_batch_for_all_of_it(stage: Stage, is_broken: bool) -> None:
    payloads = (b"a", b"b", b"c")
    stage.invoke(0, *payloads)
    batch = batch_of(0, *payloads)
    stage.tell(client_facts.Delivered("reader", 1, 1, batch, handed=(1, 2), is_whole=is_broken))
    stage.end(node1=log_of((3, batch)))


# --- I5, I8, I11: consumers ---


@breaks("I5", says="2 was next")
def a_consumer_gets_a_batch_twice(stage: Stage, is_broken: bool) -> None:
    two_appends(stage)
    stage.deliver("reader", 1, batch_of(0))
    stage.deliver("reader", *((1, batch_of(0)) if is_broken else (2, batch_of(1))))
    stage.end(node1=log_of(ONE, TWO))


@breaks("I5", says="1 was next")
def a_consumer_begins_after_its_position(stage: Stage, is_broken: bool) -> None:
    two_appends(stage)
    stage.tell(client_facts.Subscribed("reader", 1))
    if not is_broken:
        stage.deliver("reader", 1, batch_of(0))
    stage.deliver("reader", 2, batch_of(1))
    stage.end(node1=log_of(ONE, TWO))


@breaks("I8", says="another consumer got")
def two_consumers_get_different_batches_at_one_lsn(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    stage.invoke(0, producer=8)
    stage.deliver("one", 1, batch_of(0))
    stage.deliver("two", 1, batch_of(0, producer=8 if is_broken else 7))
    stage.end(node1=log_of(ONE, (1, batch_of(0, producer=8))))


@breaks("I8", says="a consumer got")
def a_consumer_got_what_the_log_does_not_have(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    stage.invoke(1)
    stage.deliver("reader", 1, batch_of(0))
    stage.deliver("reader", 2, batch_of(1))
    stage.end(node1=log_of(ONE) if is_broken else log_of(ONE, TWO))


@breaks("I11", says="its CRC does not fit")
def a_consumer_gets_damaged_bytes(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0, b"payload")
    batch = bytearray(batch_of(0, b"payload"))
    batch[60] ^= 4 if is_broken else 0
    stage.deliver("reader", 1, bytes(batch))
    stage.end(node1=log_of((1, batch_of(0, b"payload"))))


@breaks("I11", says="nobody appended these bytes")
def the_log_holds_bytes_that_no_client_appended(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    stage.end(node1=log_of((1, batch_of(0, b"?"))) if is_broken else log_of(ONE))


@breaks("I11", says="has other bytes")
def a_log_in_the_end_has_rotten_bytes(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    log = log_of(ONE)
    body = bytearray(log[0][1])
    body[60] ^= 1 if is_broken else 0
    stage.end(node1=[(log[0][0], bytes(body))])


# --- I6 ---


@breaks("I6", says="returned before")
def an_append_gets_a_higher_lsn_than_one_that_began_after_it_ended(
    stage: Stage, is_broken: bool
) -> None:
    early = stage.invoke(0)
    late = 0 if is_broken else stage.invoke(0, producer=8)
    stage.acknowledge(early, 2)
    late = late or stage.invoke(0, producer=8)
    stage.acknowledge(late, 1)
    stage.end(node1=log_of((1, batch_of(0, producer=8)), ONE))


@breaks("I6", says="returned before")
def a_linearizable_tail_read_misses_what_was_acknowledged(stage: Stage, is_broken: bool) -> None:
    two_appends(stage)
    begun_ns = stage.tick()
    end_lsn = 1 if is_broken else 2
    stage.tell(client_facts.EndTold(begun_ns, end_lsn, node=None, is_linearizable=True))
    stage.end(node1=log_of(ONE, TWO))


@breaks("I6", says="returned before")
def a_tail_read_knows_an_append_that_has_not_begun(stage: Stage, is_broken: bool) -> None:
    first = stage.invoke(0)
    begun_ns = stage.tick()
    second = 0 if is_broken else stage.invoke(1)
    stage.tell(client_facts.EndTold(begun_ns, 2, node=None, is_linearizable=True))
    second = second or stage.invoke(1)
    stage.acknowledge(first, 1)
    stage.acknowledge(second, 2)
    stage.end(node1=log_of(ONE, TWO))


@breaks("I6", says="returned before")
def a_second_tail_read_shows_less_than_the_first(stage: Stage, is_broken: bool) -> None:
    two_appends(stage)
    stage.invoke(2)  # never answered
    for end_lsn in (3, 2 if is_broken else 3):
        begun_ns = stage.tick()
        stage.tell(client_facts.EndTold(begun_ns, end_lsn, node=None, is_linearizable=True))
    stage.end(node1=log_of(ONE, TWO, THREE))


@breaks("I6", says="no batch ends there")
def a_tail_read_ends_inside_a_batch(stage: Stage, is_broken: bool) -> None:
    stage.acknowledge(stage.invoke(0, b"a", b"b", b"c"), 1, 3)
    begun_ns = stage.tick()
    end_lsn = 2 if is_broken else 3
    stage.tell(client_facts.EndTold(begun_ns, end_lsn, node=None, is_linearizable=True))
    stage.end(node1=log_of((3, batch_of(0, b"a", b"b", b"c"))))


# --- I7 ---


@breaks("I7", says="twice, or out of order")
def a_retry_is_stored_a_second_time(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    stage.end(node1=log_of(ONE, ONE) if is_broken else log_of(ONE))


@breaks("I7", says="twice, or out of order")
def two_batches_of_one_producer_change_places(stage: Stage, is_broken: bool) -> None:
    stage.invoke(0)
    stage.invoke(1)
    stage.end(node1=log_of(TWO, ONE) if is_broken else log_of(ONE, TWO))


@breaks("I7", says="1 is missing")
def a_dense_sequence_is_left_out(stage: Stage, is_broken: bool) -> None:
    stage.tell(client_facts.SessionOpened(7, 1, SequenceMode.DENSE))
    for sequence in range(3):
        stage.invoke(sequence)
    stage.end(node1=log_of(ONE, THREE) if is_broken else log_of(ONE, TWO, THREE))


@breaks("I7", says="out of order")
def a_monotone_sequence_is_stored_again_in_a_newer_epoch(stage: Stage, is_broken: bool) -> None:
    stage.tell(client_facts.SessionOpened(7, 1, SequenceMode.MONOTONE))
    stage.invoke(5)
    stage.tell(client_facts.SessionOpened(7, 2, SequenceMode.MONOTONE))
    again = 5 if is_broken else 6
    stage.invoke(again, epoch=2)
    stage.end(node1=log_of((1, batch_of(5)), (1, batch_of(again, epoch=2))))


@breaks("I7", says="its epoch had ended")
def an_older_epoch_writes_on_after_a_newer_one(stage: Stage, is_broken: bool) -> None:
    for sequence, epoch in ((0, 1), (0, 2), (1, 1 if is_broken else 2)):
        stage.invoke(sequence, epoch=epoch)
    last = batch_of(1, epoch=1 if is_broken else 2)
    stage.end(node1=log_of(ONE, (1, batch_of(0, epoch=2)), (1, last)))


@breaks("I7", says="was refused for good")
def a_batch_that_was_refused_for_good_is_in_the_log(stage: Stage, is_broken: bool) -> None:
    code = ErrorCode.NOT_COMMITTED if is_broken else ErrorCode.OUTCOME_UNKNOWN
    stage.tell(client_facts.AppendRefused(stage.invoke(0), code))
    stage.end(node1=log_of(ONE))


@breaks("I7", says="before with 1")
def a_retry_is_acknowledged_with_other_lsns(stage: Stage, is_broken: bool) -> None:
    append = stage.invoke(0)
    stage.acknowledge(append, 1)
    stage.acknowledge(append, 2 if is_broken else 1)
    stage.end(node1=log_of(ONE))


@breaks("I7", says="after it was refused for good")
def an_append_is_acknowledged_after_its_final_refusal(stage: Stage, is_broken: bool) -> None:
    append = stage.invoke(0)
    if is_broken:
        stage.tell(client_facts.AppendRefused(append, ErrorCode.NOT_COMMITTED))
    stage.acknowledge(append, 1)
    stage.end(node1=log_of(ONE))


@breaks("I7", says="it was acknowledged")
def an_append_is_refused_after_its_acknowledgement(stage: Stage, is_broken: bool) -> None:
    append = stage.invoke(0)
    stage.acknowledge(append, 1)
    if is_broken:
        stage.tell(client_facts.AppendRefused(append, ErrorCode.FENCED))
    stage.end(node1=log_of(ONE))


@breaks("I7", says="was opened twice")
def two_clients_get_the_same_producer_epoch(stage: Stage, is_broken: bool) -> None:
    stage.tell(client_facts.SessionOpened(7, 1, SequenceMode.DENSE))
    epoch = 1 if is_broken else 2
    stage.tell(client_facts.SessionOpened(7, epoch, SequenceMode.DENSE))


# --- I13, I14 ---


@breaks("I13", says="no append was acknowledged")
def nothing_is_acknowledged_after_the_faults(stage: Stage, is_broken: bool) -> None:
    append = stage.invoke(0)
    if is_broken:
        stage.acknowledge(append, 1)
    stage.tell(facts.FaultsEnded(10_000))
    if not is_broken:
        stage.acknowledge(append, 1)
    stage.end(node1=log_of(ONE))


@breaks("I13", says="an append was acknowledged only at")
def the_first_append_after_the_faults_takes_too_long(stage: Stage, is_broken: bool) -> None:
    append = stage.invoke(0)
    patience_ns = 500 if is_broken else 10_000
    stage.tell(facts.FaultsEnded(patience_ns))
    stage.acknowledge(append, 1)
    stage.end(node1=log_of(ONE))


@breaks("I13", says="did not become equal")
def the_replicas_never_become_equal(stage: Stage, is_broken: bool) -> None:
    stage.tell(facts.FaultsEnded(10_000))
    stage.acknowledge(stage.invoke(0), 1)
    stage.tell(facts.ReplicasReturned(10_000))
    if not is_broken:
        stage.tell(facts.Converged())
    stage.tell(facts.Finished())


@breaks("I14", says="holds 9 of at most 8")
def a_queue_is_longer_than_its_bound(stage: Stage, is_broken: bool) -> None:
    stage.tell(facts.QueueSeen("2.raft/persists", 9 if is_broken else 8, 8))
