"""Which replicator serves which member: raft's side."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors import topology
from actors.messages import (
    Identity,
    PeerIs,
    PeerTaken,
    ProcessGone,
    ReplicatorStarted,
    ReplicatorWanted,
    RotReported,
    TellStart,
)
from actors.raft.peer_routes import Bind, Order, PeerRoutes, Unserved, Want
from actors.raft.routes import Routes
from actors.topology import SPARE_NAMES, SPARES, Counter
from logstore.format.configuration_body import NO_UUID, Configuration, Member
from logstore.format.entry import EntryHeader
from logstore.format.peer_messages import (
    AppendPersisted,
    Heartbeat,
    PreVoteReply,
    StartReport,
    StartSeen,
    VoteReply,
)
from logstore.model import NO_NODE, EntryKind, NodeId, Role
from logstore.raft.effects import Describe, Lead, MembersChanged, Rewind, Send, StopLeading
from logstore.raft.events import StreamAnswer
from tests.unit.actor_stage import OUR_UUID, ActorStage
from tests.unit.raft_stage import RaftStage, recovered

CONFIGURED = {NodeId(2): ("127.0.0.1", 7100), NodeId(3): ("127.0.0.1", 7200)}
BEAT = Heartbeat(1, 0, 1, 0, 0, 1, 0)


def uuid(number: int) -> bytes:
    return bytes([number]) * 16


def member(number: int, *, replica: bytes | None = None, port: int = 0) -> Member:
    return Member(
        NodeId(number),
        uuid(number) if replica is None else replica,
        "127.0.0.1",
        port or 6_900 + 100 * number,
    )


def members(*numbers: int, learners: tuple[Member, ...] = (), id: int = 1) -> Configuration:
    return Configuration(id, tuple(map(member, numbers)), (), learners)


def bound(orders: list[Order]) -> dict[str, tuple[int, bytes, int]]:
    """What the replicators that run are told: actor to number, uuid, port."""
    return {
        each.actor: (each.peer.node, each.peer.uuid, each.peer.port)
        for each in orders
        if isinstance(each, Bind)
    }


# --- who serves whom ---


@pytest.fixture
def peers() -> PeerRoutes:
    return PeerRoutes(NodeId(1), CONFIGURED)


def test_without_a_configuration_the_file_says_who_the_peers_are(peers: PeerRoutes) -> None:
    assert peers.serving() == {2: "replicator-2", 3: "replicator-3"}
    assert peers.members == (2, 3)
    assert peers.take_members(members(9, id=0)) == []
    assert peers.begin("replicator-2") is None


def test_members_of_the_file_keep_their_own_replicator_and_get_their_uuid(
    peers: PeerRoutes,
) -> None:
    orders = peers.take_members(members(1, 2, 3))
    assert bound(orders) == {"replicator-2": (2, uuid(2), 7100), "replicator-3": (3, uuid(3), 7200)}
    assert peers.take_members(members(1, 2, 3, id=2)) == []


def test_a_member_that_the_file_has_not_gets_a_spare_once_that_runs(peers: PeerRoutes) -> None:
    orders = peers.take_members(members(1, 2, 3, learners=(member(4),)))
    assert [each for each in orders if not isinstance(each, Bind)] == [Want("spare-1")]
    assert 4 not in peers.serving()
    peer = peers.begin("spare-1")
    assert peer is not None
    assert (peer.node, peer.uuid, peer.host, peer.port) == (4, uuid(4), "127.0.0.1", 7300)
    assert peers.serving()[NodeId(4)] == "spare-1"


def test_a_reserved_place_has_no_replica_yet(peers: PeerRoutes) -> None:
    reserved = members(1, 2, 3, learners=(member(4, replica=NO_UUID),))
    assert not [each for each in peers.take_members(reserved) if isinstance(each, Want)]
    assert peers.members == (2, 3)
    joined = members(1, 2, 3, learners=(member(4),), id=2)
    assert peers.take_members(joined) == [Want("spare-1")]


def test_a_voter_that_was_not_heard_before_the_first_configuration_is_any_that_answers(
    peers: PeerRoutes,
) -> None:
    voters = (member(1), member(2), member(3, replica=NO_UUID))
    assert bound(peers.take_members(Configuration(1, voters))) == {
        "replicator-2": (2, uuid(2), 7100)
    }
    assert peers.serving()[NodeId(3)] == "replicator-3"


def test_a_member_at_another_address_or_with_another_uuid_is_bound_again(
    peers: PeerRoutes,
) -> None:
    peers.take_members(members(1, 2, 3))
    moved = Configuration(2, (member(1), member(2, port=9_000), member(3, replica=uuid(33))))
    assert bound(peers.take_members(moved)) == {
        "replicator-2": (2, uuid(2), 9_000),
        "replicator-3": (3, uuid(33), 7200),
    }


def test_one_that_left_keeps_its_replicator_until_its_leader_stops(peers: PeerRoutes) -> None:
    """It hears the stop before."""
    peers.take_members(members(1, 2, 3, 4))
    peers.begin("spare-1")
    peers.on_lead(NodeId(4))
    assert peers.take_members(members(1, 2, 3, id=2)) == []
    assert peers.serving()[NodeId(4)] == "spare-1"
    assert bound(peers.on_stop(NodeId(4))) == {"spare-1": (NO_NODE, b"", 0)}
    assert 4 not in peers.serving()


def test_a_follower_lets_one_go_that_left_at_once_and_so_does_one_that_stops_leading(
    peers: PeerRoutes,
) -> None:
    peers.take_members(members(1, 2, 3))
    assert bound(peers.take_members(members(1, 2, id=2))) == {"replicator-3": (NO_NODE, b"", 0)}
    peers.take_members(members(1, 2, 3, id=3))
    peers.on_lead(NodeId(3))
    assert peers.take_members(members(1, 2, id=4)) == []
    assert bound(peers.on_stop(NO_NODE)) == {"replicator-3": (NO_NODE, b"", 0)}


def test_a_configuration_that_is_truncated_gives_the_peers_of_the_file_back(
    peers: PeerRoutes,
) -> None:
    peers.take_members(members(1, 2, 4))
    peers.begin("spare-1")
    orders = peers.take_members(Configuration(0, (member(1), member(2), member(3))))
    assert bound(orders) == {
        "replicator-2": (2, b"", 7100),
        "replicator-3": (3, b"", 7200),
        "spare-1": (NO_NODE, b"", 0),
    }


def test_a_spare_that_is_free_again_serves_the_next_member_before_one_that_never_ran(
    peers: PeerRoutes,
) -> None:
    peers.take_members(members(1, 2, 3, 4))
    peers.begin("spare-1")
    peers.take_members(members(1, 2, 3, id=2))
    orders = peers.take_members(members(1, 2, 3, 5, 6, id=3))
    assert bound(orders) == {"spare-1": (5, uuid(5), 7400)}
    assert orders[-1] == Want("spare-2")


def test_a_spare_is_wanted_once_however_often_its_peer_changes_before_it_runs(
    peers: PeerRoutes,
) -> None:
    assert Want("spare-1") in peers.take_members(members(1, 2, 3, 4))
    assert peers.take_members(members(1, 2, 3, id=2)) == []
    assert peers.take_members(members(1, 2, 3, 5, id=3)) == []
    peer = peers.begin("spare-1")
    assert peer is not None
    assert peer.node == 5


def test_with_every_spare_taken_a_member_is_named_once_and_served_when_one_is_free(
    peers: PeerRoutes,
) -> None:
    many = range(10, 10 + SPARES)
    peers.take_members(members(1, 2, 3, *many))
    for spare in SPARE_NAMES:
        peers.begin(spare)
    one_more = members(1, 2, 3, *many, 90, id=2)
    assert peers.take_members(one_more) == [Unserved(NodeId(90))]
    assert peers.take_members(msgspec.structs.replace(one_more, id=3)) == []
    orders = peers.take_members(members(1, 2, 3, *many[1:], 90, id=4))
    assert bound(orders)["spare-1"][0] == 90
    back = peers.take_members(members(1, 2, 3, *many, 90, id=5))
    assert back == [Unserved(NodeId(10))]


def test_voters_get_spares_before_learners_do() -> None:
    """A replica whose file names itself only talks to all voters, or it is never elected."""
    peers = PeerRoutes(NodeId(1), {})
    learners = tuple(map(member, range(10, 10 + SPARES)))
    orders = peers.take_members(members(1, 2, 3, learners=learners))
    assert [each.node for each in orders if isinstance(each, Unserved)] == [16, 17]
    for spare in SPARE_NAMES:
        peers.begin(spare)
    assert {NodeId(2), NodeId(3)} <= peers.serving().keys()


def test_a_learner_that_becomes_a_voter_gets_the_spare_of_another_learner() -> None:
    peers = PeerRoutes(NodeId(1), {})
    learners = tuple(map(member, range(10, 10 + SPARES)))
    peers.take_members(members(1, 2, learners=learners))
    for spare in SPARE_NAMES:
        peers.begin(spare)
    assert 17 not in peers.serving()
    for number in range(10, 17):
        peers.on_lead(NodeId(number))
    promoted = members(1, 2, 17, learners=learners[:-1], id=2)
    assert peers.take_members(promoted) == [], "all learners get the log from here"
    peers.on_stop(NO_NODE)
    serving = peers.serving()
    assert {2, 17} <= serving.keys()
    assert len(serving) == SPARES


def test_each_order_to_a_replicator_has_a_number_of_its_own(peers: PeerRoutes) -> None:
    orders = peers.take_members(members(1, 2, 3))
    seqs = [each.peer.seq for each in orders if isinstance(each, Bind)]
    again = peers.begin("replicator-2")
    assert again is not None
    assert len({*seqs, again.seq}) == 3
    assert again.seq > max(seqs)


def test_a_leader_that_the_file_has_not_is_served_until_another_is_named(
    peers: PeerRoutes,
) -> None:
    """By those that a replica without members asks."""
    assert peers.take_leader(NodeId(4), "127.0.0.1", 7300) == [Want("spare-1")]
    assert peers.members == (2, 3, 4)
    assert peers.take_leader(NodeId(4), "127.0.0.1", 7300) == []
    peer = peers.begin("spare-1")
    assert peer is not None
    assert (peer.node, peer.uuid, peer.host, peer.port) == (4, b"", "127.0.0.1", 7300)
    assert bound(peers.take_leader(NodeId(2), "127.0.0.1", 9000)) == {
        "spare-1": (NO_NODE, b"", 0),
        "replicator-2": (2, b"", 9000),
    }
    assert peers.members == (2, 3)


def test_a_leader_of_the_file_is_served_already_and_no_replica_talks_to_itself(
    peers: PeerRoutes,
) -> None:
    assert peers.take_leader(NodeId(3), "127.0.0.1", 7200) == []
    assert peers.take_leader(NodeId(1), "127.0.0.1", 7000) == []
    assert peers.members == (2, 3)


def test_a_leader_that_was_named_counts_only_where_no_configuration_names_members(
    peers: PeerRoutes,
) -> None:
    peers.take_leader(NodeId(4), "127.0.0.1", 7300)
    peers.begin("spare-1")
    assert peers.take_members(Configuration(0, (member(1), member(2), member(3)))) == []
    peers.take_members(members(1, 2, 3))
    assert peers.members == (2, 3)
    assert peers.take_leader(NodeId(5), "127.0.0.1", 7400) == []
    assert NodeId(4) not in peers.serving()


# --- the rings ---


class RoutesStage:
    def __init__(self, folder: Path) -> None:
        self.stage = ActorStage(folder)
        self.routes = Routes(self.stage.station(topology.RAFT))
        self.identity = Identity(b"c" * 16, uuid(1), 1, 3)

    def send(self, *effects) -> None:
        for effect in effects:
            self.routes.send(effect)
        self.routes.flush(self.stage.now_ns)

    def heard(self, actor: str) -> list:
        return self.stage.heard(topology.RAFT, actor)

    def begin(self, actor: str) -> NodeId:
        number = self.routes.reset_replicator(actor, self.identity)
        self.routes.flush(self.stage.now_ns)
        return number

    @property
    def dropped(self) -> int:
        return self.stage.slots[Counter.SENDS_DROPPED]


@pytest.fixture
def rings(tmp_path: Path) -> RoutesStage:
    return RoutesStage(tmp_path)


def lead(peer: int) -> Lead:
    return Lead(NodeId(peer), 1, 1, 1, 0, 0, 0)


def describe() -> Describe:
    header = EntryHeader(EntryKind.NOOP, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0)
    return Describe(1, header, 0, 0, 1, 0)


def changed(configuration: Configuration) -> MembersChanged:
    return MembersChanged(5, True, configuration)


def test_effects_for_a_peer_without_a_replicator_are_dropped_and_counted(
    rings: RoutesStage,
) -> None:
    rings.send(Send(7, BEAT), lead(7), Rewind(7, 1, 1, 1), StopLeading(1, 7))
    rings.routes.to_peer(TellStart(NodeId(7), StartReport(1)))
    rings.routes.stop_leading(NodeId(7), 1)
    assert rings.dropped == 5
    assert rings.heard("replicator-2") == rings.heard("replicator-3") == []


def test_a_spare_gets_identity_peer_and_orders_once_it_is_started(rings: RoutesStage) -> None:
    rings.send(changed(members(1, 2, 3, 4)), lead(4))
    assert rings.heard(topology.SUPERVISOR) == [ReplicatorWanted("spare-1")]
    assert rings.heard("spare-1") == []  # its rings have no memory yet
    assert rings.dropped == 1
    assert rings.begin("spare-1") == 4
    rings.send(lead(4), Send(4, BEAT), describe())
    [identity, peer, *orders] = rings.heard("spare-1")
    assert identity == rings.identity
    assert isinstance(peer, PeerIs)
    assert (peer.node, peer.uuid, peer.host, peer.port) == (4, uuid(4), "127.0.0.1", 7300)
    assert orders == [lead(4), Send(4, BEAT), describe()]
    served = rings.stage.station(topology.RAFT).slot(topology.served_slot("spare-1"))
    assert rings.stage.slots[served] == 4


def test_one_that_left_hears_the_stop_before_its_replicator_lets_it_go(rings: RoutesStage) -> None:
    rings.send(changed(members(1, 2, 3)), lead(3), changed(members(1, 2, id=2)))
    rings.send(Send(3, BEAT), StopLeading(1, 3), Send(3, BEAT), describe())
    [_, *orders] = rings.heard("replicator-3")
    assert orders[:3] == [lead(3), Send(3, BEAT), StopLeading(1, 3)]
    assert [each.node for each in orders[3:]] == [NO_NODE]
    assert rings.dropped == 1


def test_a_process_that_died_gets_the_peer_that_its_predecessor_had(rings: RoutesStage) -> None:
    assert rings.begin("replicator-2") == 2
    assert rings.heard("replicator-2") == [rings.identity]  # it knows the file
    rings.send(changed(members(1, 2, id=1)))
    rings.heard("replicator-2")
    assert rings.begin("replicator-2") == 2
    [identity, peer] = rings.heard("replicator-2")
    assert (identity, peer.node, peer.uuid) == (rings.identity, 2, uuid(2))
    rings.heard("replicator-3")
    assert rings.begin("replicator-3") == NO_NODE
    assert rings.heard("replicator-3")[1].node == NO_NODE


def test_a_member_that_gets_nothing_is_named_in_the_log_once(
    rings: RoutesStage, caplog: pytest.LogCaptureFixture
) -> None:
    many = members(1, 2, 3, *range(10, 10 + SPARES), 90)
    rings.send(changed(many), changed(msgspec.structs.replace(many, id=2)))
    [record] = caplog.records
    assert "node 90 gets nothing" in record.getMessage()
    assert "[[nodes]]" in record.getMessage()


def test_what_a_replicator_heard_of_its_peer_before_does_not_count_for_the_new_one(
    rings: RoutesStage,
) -> None:
    """Under one number."""
    old, new = (StreamAnswer(NodeId(3), 1, AppendPersisted(1, each)) for each in (1, 2))
    rot = RotReported(1, 1, 1)
    inbox = rings.routes.inboxes["replicator-3"]
    rings.send(changed(members(1, 2, 3)))
    [first] = rings.heard("replicator-3")
    again = Configuration(2, (member(1), member(2), member(3, replica=uuid(33))))
    rings.send(changed(again))
    [second] = rings.heard("replicator-3")
    rings.stage.send("replicator-3", topology.RAFT, old, rot, PeerTaken(first.seq), old)
    assert inbox.receive() == [rot]
    rings.stage.send("replicator-3", topology.RAFT, PeerTaken(second.seq), new)
    assert inbox.receive() == [new]
    rings.stage.send("replicator-3", topology.RAFT, new)
    assert inbox.receive() == [new]


# --- the actor ---


OURSELVES = member(1, replica=OUR_UUID)


@pytest.fixture
def raft(tmp_path: Path) -> RaftStage:
    """Its log begins after a CONFIG that has node 4 besides those of the file."""
    stage = RaftStage(tmp_path)
    report = msgspec.structs.replace(
        recovered(), start_index=5, start_term=1, term=1, persisted=5, commit_floor=5, level=4,
        configurations=((5, Configuration(1, (OURSELVES, *members(2, 3, 4).voters))),),
    )  # fmt: skip
    stage.say(topology.WRITER, report)
    return stage


def elect(raft: RaftStage) -> None:
    for peer in (2, 3, 4):
        raft.hear_of_start(peer, StartSeen(OUR_UUID, 1, 1))
    raft.time_out()
    for peer in (2, 3):
        raft.hear(peer, PreVoteReply(2, True))
    raft.flush()
    for peer in (2, 3):
        raft.hear(peer, VoteReply(2, True))
    assert raft.raft._core.role == Role.LEADER


def test_raft_wants_a_spare_for_a_member_of_the_log_and_begins_its_stream(raft: RaftStage) -> None:
    assert raft.heard(topology.SUPERVISOR) == [ReplicatorWanted("spare-1")]
    assert [each.node for each in raft.heard("replicator-2") if isinstance(each, PeerIs)] == [2]
    elect(raft)
    raft.say(topology.SUPERVISOR, ReplicatorStarted("spare-1"))
    [identity, peer, order] = raft.heard("spare-1")[:3]
    assert (type(identity), peer.node) == (Identity, 4)
    assert (type(order), order.peer) == (Lead, 4)
    raft.say("spare-1", PeerTaken(peer.seq), StreamAnswer(4, 1, AppendPersisted(2, 5)))
    assert raft.status()["match"]["4"] == 5


def test_a_spare_that_died_begins_the_stream_of_whom_it_served(raft: RaftStage) -> None:
    raft.say(topology.SUPERVISOR, ReplicatorStarted("spare-1"))
    elect(raft)
    [first] = [each for each in raft.heard("spare-1") if isinstance(each, Lead)]
    raft.say(topology.SUPERVISOR, ProcessGone("spare-1"))
    [identity, peer, again] = raft.heard("spare-1")
    assert (type(identity), peer.node, again.peer) == (Identity, 4, 4)
    assert again.stream > first.stream


def test_a_spare_holds_bytes_of_the_payload_ring_for_its_leader(raft: RaftStage) -> None:
    raft.say(topology.SUPERVISOR, ReplicatorStarted("spare-1"))
    elect(raft)
    station = raft.stage.station("spare-1")
    start, _ = raft.stage.write_body(b"x" * 64)
    reader = station.payload_reader()
    reader.set_hold(station.hold_slot("spare-1"), term=2, position=start)
    assert raft.raft._freer.lowest_hold(2, range(len(station.replicators))) == start
    raft.say(topology.SUPERVISOR, ProcessGone("spare-1"))
    assert raft.raft._freer.lowest_hold(2, range(len(station.replicators))) is None


def test_members_that_came_are_asked_what_they_saw_of_this_start(raft: RaftStage) -> None:
    """SAFETY L7."""
    raft.say(topology.SUPERVISOR, ReplicatorStarted("spare-1"))
    for _ in range(3):
        raft.time_out()
    asked = [each for each in raft.heard("spare-1") if isinstance(each, TellStart)]
    assert asked
    assert {each.peer for each in asked} == {4}
