"""Histories of the cluster's members: which CONFIG follows which, who counts in one, and who
campaigns."""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers import client_facts, facts
from logstore.format.configuration_body import (
    NO_UUID,
    Configuration,
    Member,
    encode_configuration,
)
from logstore.format.entry import Row
from logstore.format.level import CONFIG_LEVEL
from logstore.format.peer_messages import AppendAccepted, PreVoteRequest
from logstore.model import EntryKind, Index, NodeId, Role, Term
from logstore.raft.effects import Lead, MembersChanged, Send, StopLeading
from logstore.raft.events import ControlReceived, MetaPersisted, StreamAnswer, Tick
from tests.simulation.histories import level_histories
from tests.simulation.histories.case import Collection
from tests.simulation.histories.log_start_histories import snapshot, start_at, trim
from tests.simulation.histories.session_histories import open_session
from tests.simulation.histories.stage import ELECTION_NS, Stage, batch_of
from tests.simulation.histories.term_histories import FIRST, replied, reply

CONFIGURATIONS = Collection()
breaks = CONFIGURATIONS.breaks


def member(node: int, uuid: bytes | None = None) -> Member:
    return Member(NodeId(node), bytes([node] * 16) if uuid is None else uuid, f"n{node}", 7000)


FOUNDED = Configuration(1, tuple(map(member, (1, 2, 3))))
JOINT = Configuration(2, FOUNDED.voters, tuple(map(member, (1, 2))))
LEFT = Configuration(3, JOINT.incoming)


def raise_log(stage: Stage, *, newest: int = CONFIG_LEVEL) -> None:
    level_histories.begin(stage, newest=newest)
    stage.tell(client_facts.LevelAsked(CONFIG_LEVEL))
    for level in range(2, CONFIG_LEVEL + 1):
        level_histories.raised(stage, level)


def begin(stage: Stage) -> None:
    """The log is at the level of CONFIG entries, and has the first one at entry 5."""
    raise_log(stage)
    stage.spread(1, appended(stage, FOUNDED))


def appended(stage: Stage, configuration: Configuration) -> Row:
    return stage.propose(1, EntryKind.CONFIG, encode_configuration(configuration))


def changed(stage: Stage, **parts: Any) -> None:
    """The next CONFIG differs in these parts, and is committed."""
    stage.spread(1, appended(stage, msgspec.structs.replace(FOUNDED, id=2, **parts)))


def commit_at(stage: Stage, row: Row) -> None:
    """Without node 3."""
    index = int(row.header.index)
    stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, index)
    stage.commit(1, index)


@breaks("I21", says="all it heard of node 3 in this term is that its boot 1 reads 4")
def a_level_is_raised_that_a_replica_in_the_place_of_a_lost_one_does_not_read(
    stage: Stage, is_broken: bool
) -> None:
    """The last answer of the lost one came late, of a higher boot."""
    raise_log(stage, newest=CONFIG_LEVEL + 1)
    commit_at(stage, appended(stage, FOUNDED))
    stage.tell(facts.DiskLost(3))
    lead = Lead(NodeId(3), FIRST, 1 << 33, Index(2), Index(1), 0, Index(1))
    stage.step(1, StreamAnswer(NodeId(3), 5, AppendAccepted(FIRST, 1, Index(1))), lead)
    joined = member(3, b"\7" * 16)
    for configuration in (
        JOINT,
        LEFT,
        Configuration(4, LEFT.voters, learners=(joined,)),
        Configuration(5, LEFT.voters, (*LEFT.voters, joined)),
    ):
        row = appended(stage, configuration)
        commit_at(stage, row)
        stage.idle(1, MembersChanged(row.header.index, True, configuration))
    level_histories.hear(stage, 3, CONFIG_LEVEL + (not is_broken))
    stage.tell(client_facts.LevelAsked(CONFIG_LEVEL + 1))
    level_histories.appended(stage, CONFIG_LEVEL + 1)


@breaks("I18", says="has other voters than CONFIG 1 led to")
def voters_change_in_one_step(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.spread(1, appended(stage, msgspec.structs.replace(LEFT, id=2) if is_broken else JOINT))
    if not is_broken:
        stage.spread(1, appended(stage, LEFT))


@breaks("I18", says="changes the voters, and so does the one before it")
def a_joint_configuration_follows_a_joint_one(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.spread(1, appended(stage, JOINT))
    back = Configuration(3, JOINT.incoming, FOUNDED.voters)
    stage.spread(1, appended(stage, back if is_broken else LEFT))


@breaks("I18", says="CONFIG 3 at entry 6 follows CONFIG 1")
def a_configuration_is_left_out(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.spread(1, appended(stage, msgspec.structs.replace(FOUNDED, id=3 if is_broken else 2)))


@breaks("I18", says="has other voters than the configuration file")
def the_first_configuration_leaves_a_founder_out(stage: Stage, is_broken: bool) -> None:
    raise_log(stage)
    voters = FOUNDED.voters[:2] if is_broken else FOUNDED.voters
    stage.spread(1, appended(stage, Configuration(1, voters)))


@breaks("I18", says="has two replicas of one number")
def a_replica_gets_the_number_of_another_one(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    place = Member(NodeId(3), b"\7" * 16 if is_broken else NO_UUID, "n9", 7000)
    changed(stage, learners=(place,))


@breaks("I10", says="which only nodes [1, 3] have flushed")
def a_learner_is_counted_for_a_commit(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.spread(1, appended(stage, JOINT))
    stage.spread(1, appended(stage, msgspec.structs.replace(LEFT, learners=(member(3),))))
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2, 3)
    stage.flush(*((1, 3) if is_broken else (1, 2)))
    stage.commit(1, row.header.index)


@breaks("I10", says="which only nodes [1] have flushed")
def a_commit_counts_half_of_the_new_voters(stage: Stage, is_broken: bool) -> None:
    """A majority of the old ones is not enough."""
    begin(stage)
    joint = Configuration(2, FOUNDED.voters, (member(1), member(2)))
    row = appended(stage, joint)
    stage.replicate(row, 1, 2, 3)
    stage.flush(*((1,) if is_broken else (1, 2)))
    stage.commit(1, row.header.index)


@breaks("I9", says="leads term 2, for which nodes [2, 3] have voted")
def a_replica_on_a_new_disk_is_counted_as_the_lost_one(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    if is_broken:
        stage.tell(facts.DiskLost(3))
        stage.nodes[3].uuid = b"\7" * 16
        stage.nodes[3].disk, stage.nodes[3].meta = [], (0, 0)
        stage.boot(3)
        stage.tell(facts.VersionStarted(3, CONFIG_LEVEL))
    stage.elect(2, 2, [3])


@breaks("I13", says="node 2 leads, and does not order replicator-1 to lead")
def a_new_leader_orders_no_replicator_of_one_that_leaves(stage: Stage, is_broken: bool) -> None:
    """It leads with a CONFIG in its log that nothing says to be committed yet."""
    begin(stage)
    stage.spread(1, appended(stage, JOINT))
    stage.replicate(appended(stage, LEFT), 1, 2)
    stage.elect(2, 2, [1])
    stage.tell(facts.ProcessDied(2, "replicator-1" if is_broken else "replicator-3", 1))
    stage.idle(2)
    stage.now_ns += 20_000_000
    for _ in range(4):
        stage.idle(2)


@breaks("I12", says="hears node 3 from a new start, boot 2")
def a_replica_that_left_restarts_and_is_heard_once_more(stage: Stage, is_broken: bool) -> None:
    """Its answer was on the way while its leader let it go."""
    begin(stage)
    stage.spread(1, appended(stage, JOINT))
    stage.spread(1, appended(stage, LEFT))
    reply(stage, 1, 3, 1)
    if not is_broken:
        stage.idle(1, StopLeading(FIRST, NodeId(3)))
    stage.step(1, ControlReceived(NodeId(3), 2, replied(3, 2).message))


@breaks("I18", says="no configuration that it knows has it as a voter")
def a_replica_campaigns_that_was_removed(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.spread(1, appended(stage, JOINT))
    stage.spread(1, appended(stage, LEFT))
    node = 3 if is_broken else 2
    stage.nodes[node].core.role = Role.PRE_CANDIDATE
    stage.idle(node, Send(NodeId(1), PreVoteRequest(Term(2), Index(7), Term(1))))


@breaks("I18", says="no configuration that it knows has it as a voter")
def a_pre_vote_that_waited_for_meta_is_of_a_replica_that_has_left_since(
    stage: Stage, is_broken: bool
) -> None:
    """The vote before it was long on its way to the disk, and its term had a leader meanwhile."""
    begin(stage)
    stage.spread(1, appended(stage, JOINT))
    stage.spread(1, appended(stage, LEFT))
    asked = Send(NodeId(1), PreVoteRequest(Term(2), Index(5), Term(1)))
    stage.step(3, Tick(stage.now_ns) if is_broken else MetaPersisted(1), asked)


@breaks("I18", says="its log has Configuration(id=1")
def a_core_says_what_its_log_does_not(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    told = Configuration(1, FOUNDED.voters[:2]) if is_broken else FOUNDED
    stage.idle(1, MembersChanged(Index(5), True, told))


@breaks("I18", says="begins after entry 5, and the newest committed CONFIG is entry 5")
def a_log_start_passes_the_newest_configuration(stage: Stage, is_broken: bool) -> None:
    """Nothing but the log says who votes."""
    begin(stage)
    open_session(stage)
    stage.write(1, 0)
    snapshot(stage)
    trim(stage, start_at(stage, 5 if is_broken else 4), level=CONFIG_LEVEL)


@breaks("I13", says="leads term 1 and has heard no majority for")
def a_leader_leads_on_whose_new_majority_is_silent(stage: Stage, is_broken: bool) -> None:
    """An operator forced the change. It steps down when it checks its quorum next, and not before
    the CONFIG is in force."""
    begin(stage)
    in_office_ns = stage.now_ns
    for half in range(1, 6):
        stage.step(1, Tick(in_office_ns + half * (ELECTION_NS // 2)))
        reply(stage, 1, 2, half)
    forced = Configuration(2, FOUNDED.voters, tuple(map(member, (1, 3))))
    stage.replicate(appended(stage, forced), 1, 2)
    changed_ns = in_office_ns + 5 * (ELECTION_NS // 2)
    stage.step(1, Tick(changed_ns + ELECTION_NS // 5))
    if not is_broken:
        stage.nodes[1].core.role = Role.FOLLOWER
        stage.idle(1, StopLeading(FIRST))
    for half in range(1, 5):
        stage.step(1, Tick(changed_ns + half * (ELECTION_NS // 2)))
        if is_broken:
            reply(stage, 1, 2, 5 + half)


@breaks("I13", says="gives term 1 up, and full are the disks of 2, 3")
def a_leader_that_leaves_gives_up_beside_full_disks(stage: Stage, is_broken: bool) -> None:
    """It may once the configuration without it is committed, and no other takes over (seed 641)."""
    begin(stage)
    others = FOUNDED.voters[1:]
    stage.spread(1, appended(stage, Configuration(2, FOUNDED.voters, others)))
    row = appended(stage, Configuration(3, others))
    if not is_broken:
        stage.spread(1, row)
    last = int(row.header.index)
    for half in range(1, 4):
        stage.step(1, Tick(stage.now_ns + half * (ELECTION_NS // 2)))
        for node in (2, 3):
            stage.step(1, replied(node, half, last=last - is_broken, is_full=True))
    stage.nodes[1].role = Role.FOLLOWER
    stage.step(1, Tick(stage.now_ns + 2 * ELECTION_NS), StopLeading(FIRST))
