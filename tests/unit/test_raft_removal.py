"""A replica that was removed while it heard nothing asks the others, and believes what its own log
proves (SAFETY C10)."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from actors import topology
from actors.messages import JoinReceived, PeerIs, PeerTaken, TellJoin
from actors.topology import Counter
from logstore.format.configuration_body import NO_UUID, Configuration, Member
from logstore.format.entry import EntryHeader, Row
from logstore.format.peer_messages import JoinRequest, Removed, RemovedQuestion
from logstore.model import EntryKind, ReplicaState
from logstore.raft.effects import MembersChanged
from logstore.raft.joins import LOST_AFTER_TIMEOUTS
from tests.unit.actor_stage import CLUSTER, OUR_UUID
from tests.unit.raft_stage import START_CHAIN, RaftStage, recovered

OTHERS = tuple(Member(node, bytes([node]) * 16, f"node-{node}", 7100) for node in (2, 3))
US = Member(1, OUR_UUID, "node-1", 7100)
ALL = Configuration(1, (US, *OTHERS))
LEARNER = Configuration(2, OTHERS, learners=(US,))
WITHOUT_US = Configuration(3, OTHERS)


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


def last_row(index):
    header = EntryHeader(
        kind=EntryKind.NOOP, count=0, term=1, index=index, prev_term=1, first_lsn=1, timestamp_ns=1,
        cumulative_bytes=0, prev_chain=START_CHAIN, body_size=0, body_crc=0,
    )  # fmt: skip
    return Row.of(header)


def start(
    raft, configuration, *, state=ReplicaState.VOTER, commit=5, was_named=False, configurations=()
):
    """A log that ends at entry 5, a CONFIG."""
    report = msgspec.structs.replace(
        recovered(state), cluster_id=CLUSTER, last_row=last_row(5), term_runs=((1, 1),),
        persisted=5, commit_floor=commit, term=1, level=4, has_config=True,
        configurations=configurations or ((5, configuration),), was_named=was_named,
    )  # fmt: skip
    raft.say(topology.WRITER, report)
    for peer in (2, 3):
        for each in raft.heard(topology.replicator(peer)):
            if isinstance(each, PeerIs):
                raft.say(topology.replicator(peer), PeerTaken(each.seq))


def asked(raft, kind=RemovedQuestion):
    """What each peer was asked since."""
    return {
        peer: [
            each.message
            for each in raft.heard(topology.replicator(peer))
            if isinstance(each, TellJoin) and isinstance(each.message, kind)
        ]
        for peer in (2, 3)
    }


def tell(raft, index, peer=2):
    raft.say(topology.replicator(peer), JoinReceived(peer, bytes([peer]) * 16, Removed(index)))


def timeout_ns(raft):
    return raft.stage.station(topology.RAFT).config.raft.election_timeout_ns


def pass_silence(raft):
    """So much that it asks."""
    for _ in range(LOST_AFTER_TIMEOUTS + 2):
        raft.pass_time(timeout_ns(raft))


@pytest.mark.parametrize(
    ("configuration", "state"), [(ALL, ReplicaState.VOTER), (LEARNER, ReplicaState.LEARNER)]
)
def test_a_member_that_hears_no_leader_asks_every_other_one(raft, configuration, state):
    """SAFETY C10: a learner, too, which asks for no votes."""
    start(raft, configuration, state=state, was_named=True)
    raft.pass_time(timeout_ns(raft))
    assert asked(raft) == {2: [], 3: []}
    pass_silence(raft)
    assert asked(raft) == {2: [RemovedQuestion(5)], 3: [RemovedQuestion(5)]}


def test_it_asks_no_more_once_a_leader_is_heard(raft):
    start(raft, ALL)
    pass_silence(raft)
    term = raft.slots[Counter.TERM] + 1
    raft.hear_heartbeat(2, term=term)
    asked(raft)
    for _ in range(4 * LOST_AFTER_TIMEOUTS):
        raft.pass_time(timeout_ns(raft) // 4)
        raft.hear_heartbeat(2, term=term)
    assert asked(raft) == {2: [], 3: []}


def test_it_asks_again_after_twice_the_wait_each_time_and_once_a_minute_in_the_end(raft):
    start(raft, LEARNER, state=ReplicaState.LEARNER, was_named=True)
    times = []
    for _ in range(4_000):
        raft.pass_time(timeout_ns(raft) // 4)
        if asked(raft)[2]:
            times.append(raft.stage.now_ns)
    waits = [after - before for before, after in pairwise(times)]
    first_ns = LOST_AFTER_TIMEOUTS * timeout_ns(raft)
    assert waits[:2] == [pytest.approx(2 * first_ns, rel=0.1), pytest.approx(4 * first_ns, rel=0.1)]
    assert max(waits) <= 62_000_000_000


def test_one_that_is_told_serves_its_status_only_and_asks_no_more(raft):
    start(raft, ALL)
    raft.hear_heartbeat(2, term=1, commit=5)
    raft.pass_time(1_000_000_000)
    assert raft.slots[Counter.VISIBLE] > 0
    pass_silence(raft)
    tell(raft, 9)
    assert raft.slots[Counter.VISIBLE] == 0, "at once"
    refusal = raft.status()["refusal"]
    assert "the configuration at entry 9 of the cluster has removed it" in refusal
    assert "logstore reset --node 1" in refusal
    asked(raft)
    pass_silence(raft)
    assert asked(raft) == {2: [], 3: []}


def test_a_late_answer_is_about_an_earlier_configuration_than_the_newest_one_here(raft):
    """SAFETY C10: this replica may have its place by an entry above that one."""
    start(raft, ALL)
    tell(raft, 4)
    assert raft.status()["refusal"] == ""
    tell(raft, 5)
    assert raft.status()["refusal"] != ""


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_configuration_that_never_was_committed_does_not_hide_an_earlier_one(raft, is_restarted):
    """SAFETY C10: a leader that was cut off has one at entry 5. The others' log went another way,
    and the CONFIG at its entry 4 removes it: it heard of no removal, whatever it asked."""
    if is_restarted:
        committed, newest = (2, ALL), (5, msgspec.structs.replace(ALL, id=2))
        start(raft, ALL, commit=3, configurations=(committed, newest))
    else:
        start(raft, ALL, commit=3, configurations=((2, ALL),))
        raft.raft._membership.on_members(MembersChanged(5, False, ALL))
    pass_silence(raft)
    assert asked(raft)[2] == [RemovedQuestion(2)]
    tell(raft, 4)
    assert "entry 4" in raft.status()["refusal"]


def test_one_that_no_committed_configuration_here_names_believes_nobody(raft):
    """SAFETY C10: the other may be behind the entry that gives this one its place."""
    start(raft, WITHOUT_US, state=ReplicaState.LEARNER)
    tell(raft, 9)
    assert "removed" not in raft.status()["refusal"]
    raft.raft._membership.on_members(MembersChanged(6, False, LEARNER))
    tell(raft, 9)
    assert raft.status()["refusal"] == "", "nor does one that is not committed prove a place"
    raft.raft._membership.on_members(MembersChanged(6, True, LEARNER))
    tell(raft, 9)
    assert "entry 9" in raft.status()["refusal"]


def test_what_the_log_says_later_counts_more(raft):
    start(raft, ALL)
    tell(raft, 9)
    members = raft.raft._membership
    members.on_members(MembersChanged(7, True, msgspec.structs.replace(LEARNER, id=2)))
    assert "entry 9" in raft.status()["refusal"], "an entry below the one that was told"
    members.on_members(MembersChanged(9, False, WITHOUT_US))
    members.on_members(MembersChanged(12, True, WITHOUT_US))
    assert "configuration 3" in raft.status()["refusal"]


def test_a_learner_that_was_removed_and_starts_again_asks_for_no_place(raft):
    """SAFETY C6: a uuid that left never returns."""
    start(raft, WITHOUT_US, state=ReplicaState.LEARNER, was_named=True)
    pass_silence(raft)
    assert asked(raft, JoinRequest) == {2: [], 3: []}
    assert "configuration 3 of the cluster has removed it" in raft.status()["refusal"]


def test_one_that_has_not_caught_up_since_it_joined_asks_as_before(raft):
    start(raft, WITHOUT_US, state=ReplicaState.LEARNER)
    raft.pass_time(timeout_ns(raft))
    assert asked(raft, JoinRequest)[2]
    assert "removed" not in raft.status()["refusal"]


def test_a_founder_that_was_not_heard_is_a_member_by_its_number(raft):
    unheard = Configuration(1, (Member(1, NO_UUID, "node-1", 7100), *OTHERS))
    start(raft, unheard)
    assert raft.status()["refusal"] == ""
