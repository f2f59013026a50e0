"""A replica that joins a cluster, and the leader that is asked for a place."""

from __future__ import annotations

import msgspec
import pytest

from actors import topology
from actors.messages import (
    Identity,
    JoinReceived,
    PeerIs,
    PeerTaken,
    ReplicatorStarted,
    ReplicatorWanted,
    TellJoin,
    TellStart,
)
from actors.raft import joining
from actors.raft.join_requests import JOINS_PENDING_MAX, JoinRequests
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.configuration_body import NO_UUID, Configuration, Member
from logstore.format.entry import EntryHeader, Row
from logstore.format.peer_messages import JoinAnswer, JoinRequest, PreVoteRequest, VoteRequest
from logstore.model import EntryKind, ReplicaState, Role
from logstore.raft.effects import Answer, ChangeAnswered, MembersChanged
from logstore.raft.events import ChangeKind
from tests.unit.actor_stage import CLUSTER, OUR_UUID
from tests.unit.raft_stage import START_CHAIN, RaftStage, recovered

SECOND_NS = 1_000_000_000
OTHER = b"o" * 16
US = (1, OUR_UUID)


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


def of(kind, messages):
    return [message for message in messages if isinstance(message, kind)]


def recover(raft, **changes):
    report = recovered(ReplicaState.LEARNER)
    raft.say(topology.WRITER, msgspec.structs.replace(report, cluster_id=CLUSTER, **changes))


def requests(raft):
    """To each peer."""
    return {
        peer: of(
            JoinRequest,
            [each.message for each in of(TellJoin, raft.heard(topology.replicator(peer)))],
        )
        for peer in (2, 3)
    }


def answer(raft, peer, code, reason="", leader=2):
    told = JoinReceived(peer, bytes([peer]) * 16, JoinAnswer(code, leader, reason.encode()))
    raft.say(topology.replicator(peer), told)


def members_of(*who, number=1):
    voters = tuple(Member(node, bytes([node]) * 16, f"node-{node}", 7100) for node in (2, 3))
    learners = tuple(Member(node, uuid, f"node-{node}", 7100) for node, uuid in who)
    return Configuration(number, voters, learners=learners)


def last_row():
    header = EntryHeader(
        kind=EntryKind.NOOP, count=0, term=1, index=1, prev_term=0, first_lsn=1, timestamp_ns=1,
        cumulative_bytes=0, prev_chain=START_CHAIN, body_size=0, body_crc=0,
    )  # fmt: skip
    return Row.of(header)


# --- the replica that joins ---


def test_a_replica_that_joins_asks_every_peer_again_and_again_every_two_seconds(raft):
    recover(raft)
    own = raft.stage.station(topology.RAFT).config.nodes[0]
    asked = [JoinRequest(own.port, own.host.encode())]
    assert requests(raft) == {2: asked, 3: asked}
    waits = []
    for _ in range(4):
        waits.append(raft.raft.next_timer_ns() - raft.stage.now_ns)
        raft.time_out()
        assert requests(raft) == {2: asked, 3: asked}
    assert raft.stage.station(topology.RAFT).config.raft.election_timeout_ns == SECOND_NS
    assert waits == [SECOND_NS, 2 * SECOND_NS, 2 * SECOND_NS, 2 * SECOND_NS]


def test_before_it_has_a_place_it_neither_votes_nor_answers(raft):
    """SAFETY L1: a cluster without a CONFIG would count it for the founder of its number."""
    recover(raft)
    raft.hear(2, PreVoteRequest(5, 9, 4))
    raft.hear(2, VoteRequest(5, 9, 4, False))
    raft.hear_heartbeat(2, term=5)
    assert of(Answer, raft.heard(topology.INGRESS)) == []
    assert raft.heard(topology.WRITER) == []
    assert not of(TellStart, raft.heard(topology.replicator(2)))
    told = raft.status()
    assert (told["state"], told["role"]) == ("learner", "none")
    assert told["refusal"].startswith("it has no place in the cluster: it asks nodes [2, 3]")


def test_its_identity_has_the_id_of_the_cluster_that_it_joins(raft):
    recover(raft)
    identities = of(Identity, raft.heard(topology.INGRESS))
    assert identities == [Identity(CLUSTER, OUR_UUID, 1, ReplicaState.LEARNER)]


def test_once_it_has_a_place_it_follows_and_never_campaigns(raft):
    recover(raft)
    answer(raft, 2, ErrorCode.OK)
    assert raft.status()["refusal"] == ""
    raft.hear(2, VoteRequest(5, 9, 4, False))
    raft.flush()
    assert len(of(Answer, raft.heard(topology.INGRESS))) == 1
    raft.pass_time(60 * SECOND_NS)
    assert raft.status()["role"] == Role.FOLLOWER.name.lower()
    assert raft.status()["term"] == 5


def test_it_goes_on_asking_until_its_own_log_names_it(raft):
    """The leader that gave it the place may have lost its office before the log came here."""
    recover(raft)
    answer(raft, 2, ErrorCode.OK)
    requests(raft)
    raft.time_out()
    raft.pass_time(10 * SECOND_NS)
    assert requests(raft)[2]


@pytest.mark.parametrize("state", [ReplicaState.VOTER, ReplicaState.LEARNER])
def test_a_replica_that_left_says_so(raft, state):
    """An operator may have added its number again, and waits for it to join."""
    fields = {"last_row": last_row(), "term_runs": ((1, 1),), "persisted": 1, "has_config": True}
    raft.say(
        topology.WRITER,
        msgspec.structs.replace(recovered(state), cluster_id=CLUSTER, level=4, **fields),
    )
    driver = raft.raft._membership
    driver.on_members(MembersChanged(1, True, members_of(US)))
    assert raft.status()["refusal"] == ""
    driver.on_members(MembersChanged(2, False, members_of(number=2)))
    assert raft.status()["refusal"] == ""
    driver.on_members(MembersChanged(2, True, members_of((1, OTHER), number=2)))
    assert "configuration 2 of the cluster has removed it" in raft.status()["refusal"]
    assert "logstore reset --node 1" in raft.status()["refusal"]


def test_a_log_with_entries_or_a_config_proves_that_it_had_a_place(raft, tmp_path):
    rows = {"last_row": last_row(), "term_runs": ((1, 1),), "persisted": 1}
    recover(raft, **rows)
    assert raft.status()["role"] == "follower"
    (tmp_path / "second").mkdir()
    second = RaftStage(tmp_path / "second")
    recover(second, has_config=True)
    assert second.status()["role"] == "follower"


def test_a_config_in_its_log_that_names_it_ends_the_asking(raft):
    configurations = ((1, members_of(US)),)
    rows = {"last_row": last_row(), "term_runs": ((1, 1),), "persisted": 1, "commit_floor": 1}
    recover(raft, configurations=configurations, **rows)
    raft.pass_time(60 * SECOND_NS)
    assert requests(raft) == {2: [], 3: []}
    [told] = of(MembersChanged, raft.heard(topology.INGRESS))
    assert told.configuration == members_of(US)


def test_the_newest_refusal_is_in_the_status_and_logged_once(raft, caplog):
    recover(raft)
    answer(raft, 3, ErrorCode.NOT_LEADER, "node 2 leads")
    assert "has not answered" in raft.status()["refusal"]
    for _ in range(3):
        answer(raft, 2, ErrorCode.INVALID_REQUEST, "no place is reserved for node 1")
    answer(raft, 3, ErrorCode.NOT_LEADER, "node 2 leads")
    words = "it has no place in the cluster: node 2: no place is reserved for node 1"
    assert raft.status()["refusal"] == words
    assert [each.getMessage() for each in caplog.records].count(words) == 1


def test_what_a_peer_says_is_shown_in_one_bounded_line(raft):
    recover(raft)
    answer(raft, 2, ErrorCode.INVALID_REQUEST, "no\n\x1b[2J" + "x" * 5_000)
    words = raft.status()["refusal"]
    assert "node 2: no??[2Jxxx" in words
    assert len(words) < 1_200


def test_one_that_must_wait_asks_again_soon(raft):
    recover(raft)
    for _ in range(6):
        raft.time_out()
    timeout_ns = raft.stage.station(topology.RAFT).config.raft.election_timeout_ns
    answer(raft, 2, ErrorCode.NOT_READY, "another change of the members is under way")
    assert raft.raft.next_timer_ns() - raft.stage.now_ns == timeout_ns, "it waited for two"
    raft.time_out()
    assert raft.raft.next_timer_ns() - raft.stage.now_ns == timeout_ns


def test_one_that_has_a_place_does_not_lose_it_to_a_busy_leader(raft):
    """It copies the log, which ends with its CONFIG, while the leader goes on with a change."""
    recover(raft)
    answer(raft, 2, ErrorCode.OK)
    raft.time_out()
    raft.time_out()
    due_ns = raft.raft._membership.deadline_ns
    answer(raft, 2, ErrorCode.NOT_READY, "another change of the members is under way")
    assert raft.status()["refusal"] == ""
    assert raft.raft._membership.deadline_ns == due_ns
    answer(raft, 2, ErrorCode.INVALID_REQUEST, "another replica answers as node 1")
    assert "another replica answers as node 1" in raft.status()["refusal"]


def test_a_founder_that_was_removed_serves_its_status_only(raft):
    founders = Configuration(1, (Member(*US, "node-1", 7100), *members_of().voters))
    report = msgspec.structs.replace(
        recovered(ReplicaState.VOTER), last_row=last_row(), term_runs=((1, 1),), persisted=1,
        commit_floor=1, term=1, level=4, configurations=((1, founders),),
    )  # fmt: skip
    raft.say(topology.WRITER, report)
    raft.hear_heartbeat(2, term=1, commit=1)
    assert raft.raft._slots[Counter.VISIBLE] > 0
    assert raft.status()["refusal"] == ""
    raft.raft._membership.on_members(MembersChanged(2, False, members_of(number=2)))
    assert raft.status()["refusal"] == "", "it is not committed"
    raft.raft._membership.on_members(MembersChanged(2, True, members_of(number=2)))
    raft.pass_time(SECOND_NS)
    assert raft.raft._slots[Counter.VISIBLE] == 0
    assert "configuration 2" in raft.status()["refusal"]


def test_a_replica_that_was_removed_does_not_ask_under_its_uuid_again(raft):
    """One whose place was in an entry that is truncated asks again."""
    recover(raft)
    answer(raft, 2, ErrorCode.OK)
    driver = raft.raft._membership
    driver.on_members(MembersChanged(2, False, members_of(US)))
    assert driver.deadline_ns == joining.NEVER_NS
    driver.on_members(MembersChanged(1, True, members_of()))
    assert driver.deadline_ns == 0
    driver.on_members(MembersChanged(3, True, members_of(US)))
    driver.on_members(MembersChanged(4, True, members_of(number=3)))
    assert driver.deadline_ns == joining.NEVER_NS


def spare_requests(raft):
    return of(JoinRequest, [each.message for each in of(TellJoin, raft.heard("spare-1"))])


def test_it_asks_the_leader_that_a_follower_names_though_its_file_does_not(raft):
    """A member that came later leads: the file of a founder that lost its disk has it not."""
    recover(raft)
    answer(raft, 2, ErrorCode.NOT_LEADER, "node-9:7800", leader=9)
    assert raft.heard(topology.SUPERVISOR)[-1] == ReplicatorWanted("spare-1")
    raft.say(topology.SUPERVISOR, ReplicatorStarted("spare-1"))
    [peer] = of(PeerIs, raft.heard("spare-1"))
    assert (peer.node, peer.uuid, peer.host, peer.port) == (9, b"", "node-9", 7800)
    requests(raft)
    raft.time_out()
    assert len(spare_requests(raft)) == 1
    assert all(map(len, requests(raft).values())), "the file's nodes are asked, too"
    raft.say("spare-1", PeerTaken(peer.seq))
    raft.say("spare-1", JoinReceived(9, b"9" * 16, JoinAnswer(ErrorCode.OK, 9, b"")))
    assert raft.status()["refusal"] == ""


@pytest.mark.parametrize(
    ("leader", "reason"),
    [
        (9, "node 9 leads"), (9, ""), (9, "node-9"), (9, "node-9:"), (9, ":7800"), (9, "node-9:0"),
        (9, "node-9:65536"), (9, "node-9:٣"), (9, "node-9:7\n"), (9, "no de:7800"),
        (9, "node-9:" + "9" * 5_000), (0, "node-9:7800"), (1, "node-9:7800"),
    ],
)  # fmt: skip
def test_a_leader_without_a_place_is_not_asked(raft, leader, reason):
    recover(raft)
    raft.heard(topology.SUPERVISOR)
    answer(raft, 2, ErrorCode.NOT_LEADER, reason, leader=leader)
    assert raft.heard(topology.SUPERVISOR) == []


# --- the replica that is asked ---


REQUEST = JoinRequest(7100, b"node-4")


def ask(raft, number=4, uuid=OTHER, request=REQUEST):
    told = JoinReceived(number, uuid, request)
    raft.say(topology.INGRESS, told, channel=topology.CONTROL)


def answers(raft):
    return of(TellJoin, raft.heard(topology.INGRESS))


def test_only_the_leader_gives_places_and_the_others_say_who_leads(raft):
    raft.recover()
    ask(raft)
    unknown = JoinAnswer(ErrorCode.NOT_LEADER, 0, b"")
    assert answers(raft) == [TellJoin(4, unknown, OTHER)]
    raft.hear_heartbeat(2, term=1)
    ask(raft)
    known = JoinAnswer(ErrorCode.NOT_LEADER, 2, b"")
    assert answers(raft) == [TellJoin(4, known, OTHER)], "no CONFIG says where"
    raft.raft._membership.on_members(MembersChanged(1, False, members_of(US)))
    ask(raft)
    placed = JoinAnswer(ErrorCode.NOT_LEADER, 2, b"node-2:7100")
    assert answers(raft) == [TellJoin(4, placed, OTHER)]


def test_a_replica_without_a_core_says_nothing(raft):
    recover(raft)
    ask(raft)
    assert answers(raft) == []


def test_what_the_core_answers_goes_to_the_replica_that_asked_and_not_to_clients(raft):
    raft.recover()
    raft.lead_and_commit()
    raft.heard(topology.INGRESS)
    ask(raft)
    heard = raft.heard(topology.INGRESS)
    [told] = of(TellJoin, heard)
    assert of(ChangeAnswered, heard) == []
    assert (told.peer, told.uuid, told.message.leader) == (4, OTHER, 1)
    assert told.message.code == ErrorCode.LEVEL_REFUSED
    assert b"logstore upgrade" in told.message.reason


@pytest.mark.parametrize(
    ("number", "uuid", "request_"),
    [
        (4, OTHER, JoinRequest(0, b"node-4")), (4, OTHER, JoinRequest(7100, b"")),
        (4, OTHER, JoinRequest(7100, "é".encode())), (4, OTHER, JoinRequest(7100, b"x" * 256)),
        (4, OTHER, JoinRequest(7100, b"node-4\nnode 1 is gone")),
        (4, OTHER, JoinRequest(7100, b"`reboot`")), (4, OTHER, JoinRequest(7100, b"\x1b[2J")),
        (4, NO_UUID, REQUEST), (0, OTHER, REQUEST),
    ],
)  # fmt: skip
def test_what_no_member_can_have_is_refused(raft, number, uuid, request_):
    raft.recover()
    raft.lead_and_commit()
    raft.heard(topology.INGRESS)
    ask(raft, number, uuid, request_)
    [told] = answers(raft)
    assert told.message.code == ErrorCode.INVALID_REQUEST
    assert request_.host in (b"", b"node-4") or request_.host not in told.message.reason


class Route:
    """What is sent to ingress; and the core that leads."""

    role, leader = Role.LEADER, 1

    def __init__(self):
        self.sent = []
        self.ingress = self

    def send(self, message):
        self.sent.append((message.peer, message.message.code))


@pytest.fixture
def route():
    return Route()


def test_a_repeated_request_waits_for_the_first_and_too_many_are_refused(route):
    parts = JoinRequests(route, first_id=7)
    first = parts.on_request(JoinReceived(4, OTHER, REQUEST), REQUEST, route)
    assert (first.request_id, first.kind) == (7, ChangeKind.JOIN)
    assert first.members == (Member(4, OTHER, "node-4", 7100),)
    assert parts.on_request(JoinReceived(4, OTHER, REQUEST), REQUEST, route) is None
    for number in range(JOINS_PENDING_MAX):
        told = JoinReceived(4, bytes([number + 1]) * 16, REQUEST)
        parts.on_request(told, REQUEST, route)
    assert len(parts._pending) == JOINS_PENDING_MAX
    assert (4, ErrorCode.NOT_READY) in route.sent
    route.role = Role.FOLLOWER
    parts.on_request(JoinReceived(4, OTHER, REQUEST), REQUEST, route)
    assert not parts._pending


def test_ok_is_for_a_replica_that_a_committed_config_names(route):
    """A lost voter's place is made free by a change of its own, which names no uuid yet."""
    parts = JoinRequests(route, first_id=7)
    steps = [
        (None, ErrorCode.NOT_READY),
        (MembersChanged(2, True, members_of((4, NO_UUID))), ErrorCode.NOT_READY),
        (MembersChanged(3, False, members_of((4, OTHER))), ErrorCode.NOT_READY),
        (MembersChanged(3, True, members_of((4, OTHER))), ErrorCode.OK),
    ]
    for changed, expected in steps:
        if changed is not None:
            parts.on_members(changed)
        request = parts.on_request(JoinReceived(4, OTHER, REQUEST), REQUEST, route)
        parts.on_answered(ChangeAnswered(request.request_id, ErrorCode.OK, ""), 1)
        assert route.sent.pop() == (4, expected)
    parts.on_answered(ChangeAnswered(99, ErrorCode.OK, ""), 1)
    assert route.sent == []
