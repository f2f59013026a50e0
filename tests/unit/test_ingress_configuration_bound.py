"""No trim takes the newest CONFIG of the log: the same members are committed once more first."""

from __future__ import annotations

import pytest

from actors import messages
from actors.ingress.configuration_bound import (
    ASK_AGAIN_NS,
    NEVER_NS,
    RENEWAL_ID,
    ConfigurationBound,
)
from actors.topology import Counter
from logstore.format.client_messages import DoneReply
from logstore.format.configuration_body import Configuration, Member
from logstore.limits import REQUEST_TIMEOUT_NS
from logstore.model import EntryKind
from logstore.raft.effects import Committed, MembersChanged
from logstore.raft.events import ChangeKind, ChangeRequested
from tests.unit import test_ingress_retention as retained
from tests.unit.test_ingress_trims import (
    leader_with_entries,
    proposed,
    settle,
    snapshot,
    trim,
)

RENEWAL = ChangeRequested(RENEWAL_ID, ChangeKind.RENEW)
SETTLED = Configuration(1, (Member(1, b"1" * 16, "node-1", 7100),))


@pytest.fixture
def stage():
    return leader_with_entries()


@pytest.fixture
def client(stage):
    return stage.client()


def has_config(stage, index, *, is_committed=True):
    stage.tell(MembersChanged(index, is_committed, SETTLED))


def renewals(stage):
    return stage.heard().count(RENEWAL)


class Asked:
    """A ring to raft that keeps what is sent, and a replica's counters."""

    def __init__(self):
        self.slots = [0] * (Counter.VISIBLE_INDEX + 1)
        self.sent = []
        self.bound = ConfigurationBound(self, self.slots)

    def send(self, message):
        self.sent.append(message)

    def learn(self, index, *, is_committed=True, visible=99):
        self.slots[Counter.VISIBLE_INDEX] = visible
        self.bound.on_members(MembersChanged(index, is_committed, SETTLED))

    def work(self, now_ns, *, is_leading=True):
        """How often it has asked by then."""
        self.bound.do_work(now_ns, is_leading=is_leading)
        return len(self.sent)


def test_a_log_without_a_config_bounds_nothing():
    asked = Asked()
    assert asked.bound.index == 0
    asked.learn(0)
    assert asked.bound.index == 0


def test_the_newest_committed_one_in_this_replicas_files_counts():
    asked = Asked()
    asked.learn(7, is_committed=False)
    assert asked.bound.index == 1, "there is one, and which is committed is not known yet"
    asked.learn(7)
    assert asked.bound.index == 7
    asked.learn(9, is_committed=False)
    assert asked.bound.index == 7
    asked.learn(9, visible=8)
    assert asked.bound.index == 7, "a leader may commit what its own disk does not have yet"
    asked.slots[Counter.VISIBLE_INDEX] = 9
    assert asked.bound.index == 9


def test_it_is_asked_for_again_and_again_until_there_is_a_newer_one():
    """While the members change raft refuses."""
    asked = Asked()
    asked.learn(7)
    assert (asked.work(0), asked.bound.next_timer_ns) == (0, NEVER_NS)
    asked.bound.want()
    assert [asked.work(ns) for ns in (1, 2, ASK_AGAIN_NS, ASK_AGAIN_NS + 1)] == [1, 1, 1, 2]
    asked.bound.want()
    assert asked.work(ASK_AGAIN_NS + 2) == 2
    assert asked.bound.next_timer_ns == 2 * ASK_AGAIN_NS + 1
    asked.learn(9, visible=8)
    assert asked.work(9 * ASK_AGAIN_NS) == 2, "it is committed"
    asked.slots[Counter.VISIBLE_INDEX] = 9
    asked.work(10 * ASK_AGAIN_NS)
    assert (asked.sent, asked.bound.next_timer_ns) == ([RENEWAL] * 2, NEVER_NS)


def test_a_replica_that_does_not_lead_any_more_forgets_it():
    asked = Asked()
    asked.learn(7)
    asked.bound.want()
    assert asked.work(1, is_leading=False) == 0
    assert asked.bound.next_timer_ns == NEVER_NS


def test_a_trim_waits_for_another_one_and_then_reaches_no_higher(stage, client):
    snapshot(stage)
    has_config(stage, 2)
    stage.heard()
    assert trim(client, 5) is None
    assert stage.take_proposals() == []
    assert renewals(stage) == 1
    has_config(stage, 4, is_committed=False)
    stage.work()
    assert stage.take_proposals() == []
    has_config(stage, 4)  # of an earlier leader, too low still
    stage.work()
    assert stage.take_proposals() == []
    assert renewals(stage) == 1
    has_config(stage, 6)
    stage.work()
    entry = proposed(stage)
    assert (entry.start.index, entry.start.next_lsn) == (4, 5)


def test_a_trim_that_needs_no_other_one_does_not_wait_for_it(stage, client):
    """Both waited for a snapshot. The files are read for one of them at a time, and what the first
    one still lacked, it is while the members change, kept the second one until it had timed out."""
    has_config(stage, 4)
    low = stage.client()
    assert (trim(client, 7), trim(low, 3)) == (None, None)
    assert settle(stage) == [EntryKind.SESSION, EntryKind.TRIM]
    assert (client.answer(), low.answer()) == (None, DoneReply(3))
    has_config(stage, 8)
    stage.work()
    assert proposed(stage).start.next_lsn == 7


def test_a_request_that_comes_with_the_news_does_not_hide_it(stage, client):
    """It waits for what comes after the snapshot, and others for the snapshot."""
    has_config(stage, 4)
    assert trim(client, 3) is None
    (header,) = stage.accept()
    stage.show(header.index)
    news = messages.encode(Committed(stage.term, header.index, stage.level))
    assert stage.raft_ring.offer(news)
    assert trim(stage.client(), 7) is None  # read in the same turn
    assert proposed(stage).start.next_lsn == 3


def test_a_trim_up_to_the_newest_one_keeps_it(stage, client):
    """It stands at the LSN of the entry after it, as all entries without LSNs do."""
    snapshot(stage)
    has_config(stage, 5)
    stage.heard()
    assert trim(client, 5) is None
    assert proposed(stage).start.index == 4
    assert renewals(stage) == 0


def test_a_trim_that_needs_a_snapshot_and_a_config_waits_for_both(stage, client):
    has_config(stage, 2)
    stage.heard()
    assert trim(client, 5) is None
    stage.work()
    settle(stage)
    stage.work()
    assert renewals(stage) == 1
    has_config(stage, 6)
    stage.work()
    assert proposed(stage).start.index == 4


def test_a_trim_that_waited_too_long_for_one_is_forgotten(stage, client):
    snapshot(stage)
    has_config(stage, 2)
    assert trim(client, 5) is None
    stage.clock.now_ns += REQUEST_TIMEOUT_NS
    stage.work()
    has_config(stage, 6)
    stage.work()
    assert stage.take_proposals() == []


def test_retention_gives_up_what_lies_below_it_and_asks_for_another():
    """Entry 9 would be the log start without it."""
    stage = retained.make_stage("payloads = 6")
    retained.snapshot(stage)
    has_config(stage, 7)
    stage.heard()
    assert retained.trimmed(stage).start.index == 5
    stage.work()
    assert renewals(stage) == 1
    has_config(stage, 12)
    assert retained.trimmed(stage).start.index == 9
    stage.work()
    assert renewals(stage) == 0
