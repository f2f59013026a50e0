"""The first CONFIG: the leader asks its core for it once it knows every founder."""

from __future__ import annotations

import msgspec
import pytest

from actors import topology
from actors.messages import StartReceived
from actors.raft.first_configuration import FirstConfiguration
from actors.raft.join_requests import CHANGES_OF_RAFT
from logstore.errors import ErrorCode
from logstore.format.configuration_body import Configuration, Member
from logstore.format.level import CONFIG_LEVEL
from logstore.format.peer_messages import HeartbeatReply, StartReport, StartSeen
from logstore.model import ReplicaState, Role
from logstore.raft.effects import ChangeAnswered, MembersChanged, ProposeConfiguration
from logstore.raft.events import ChangeKind, ChangeRequested
from tests.unit.actor_stage import OUR_UUID
from tests.unit.raft_stage import RaftStage, recovered

NEVER_HEARD = "nodes [3] were not heard since this replica started"


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


class Core:
    """What the driver looks at."""

    def __init__(self):
        self.role, self.level = Role.LEADER, CONFIG_LEVEL


def driver_of(raft, state=ReplicaState.VOTER, *, heard=(2, 3), **changes):
    report = msgspec.structs.replace(recovered(state), **changes)
    station = raft.stage.station(topology.RAFT)
    driver = FirstConfiguration(station, report, request_id=CHANGES_OF_RAFT)
    for peer in heard:
        hear(driver, peer)
    return driver, station.config.raft.election_timeout_ns


def hear(driver, peer):
    driver.on_heard(StartReceived(peer, bytes([peer]) * 16, 1, StartReport(5)))


def founders(raft):
    nodes = raft.stage.station(topology.RAFT).config.nodes
    uuids = {1: OUR_UUID, 2: b"\2" * 16, 3: b"\3" * 16}
    return tuple(Member(each.node, uuids[each.node], each.host, each.port) for each in nodes)


def test_a_leader_asks_for_it_once_an_election_timeout_until_there_is_one(raft):
    driver, timeout_ns = driver_of(raft)
    asked = ChangeRequested(CHANGES_OF_RAFT, ChangeKind.FOUND, members=founders(raft))
    times = [0, 1, timeout_ns - 1, timeout_ns, timeout_ns + 1]
    assert [driver.on_tick(ns, Core()) for ns in times] == [asked, None, None, asked, None]
    driver.on_members(MembersChanged(9, False, Configuration(1, founders(raft))))
    assert driver.on_tick(9 * timeout_ns, Core()) is None
    driver.on_members(MembersChanged(0, True, Configuration(0, founders(raft))))  # truncated
    assert driver.on_tick(9 * timeout_ns, Core()) == asked


@pytest.mark.parametrize(
    ("role", "level"),
    [(Role.FOLLOWER, CONFIG_LEVEL), (Role.LEADER, CONFIG_LEVEL - 1)],
)
def test_only_the_leader_of_a_log_that_may_have_one_asks(raft, role, level):
    driver, _ = driver_of(raft)
    core = Core()
    core.role, core.level = role, level
    assert driver.on_tick(0, core) is None
    core.role, core.level = Role.LEADER, CONFIG_LEVEL
    assert driver.on_tick(0, core) is not None, "at once"


@pytest.mark.parametrize(
    ("state", "changes"),
    [(ReplicaState.LEARNER, {}), (ReplicaState.VOTER, {"has_config": True})],
)
def test_a_replica_that_joined_or_knows_of_one_asks_for_none(raft, state, changes):
    driver, _ = driver_of(raft, state, **changes)
    assert driver.on_tick(0, Core()) is None
    driver.on_members(MembersChanged(0, True, Configuration(0, ())))
    assert driver.on_tick(0, Core()) is None


def test_it_waits_for_every_founder_and_says_once_for_which(raft, caplog):
    driver, timeout_ns = driver_of(raft, heard=(2,))
    for number in range(3):
        assert driver.on_tick(number * timeout_ns, Core()) is None
    assert [each.getMessage() for each in caplog.records] == [
        f"the log has no configuration of its members yet: {NEVER_HEARD}"
    ]
    hear(driver, 3)
    assert driver.on_tick(3 * timeout_ns, Core()).members == founders(raft)


def test_what_passes_by_itself_is_not_logged(raft, caplog):
    driver, _ = driver_of(raft)
    for code in (ErrorCode.OK, ErrorCode.NOT_LEADER, ErrorCode.NOT_READY):
        driver.on_answered(ChangeAnswered(CHANGES_OF_RAFT, code, "wait"))
    assert caplog.records == []
    for _ in range(2):
        refused = ChangeAnswered(CHANGES_OF_RAFT, ErrorCode.INVALID_REQUEST, "the voters are 1, 2")
        driver.on_answered(refused)
    assert [each.getMessage() for each in caplog.records] == [
        "the log has no configuration of its members yet: the voters are 1, 2"
    ]


def test_the_core_offers_it_to_ingress_and_no_client_hears_of_the_request(raft):
    raft.say(topology.WRITER, msgspec.structs.replace(recovered(), level=CONFIG_LEVEL))
    for peer in (2, 3):
        raft.hear_of_start(peer, StartSeen(OUR_UUID, 1, 1))
    term = raft.lead_and_commit()
    for _ in range(20):  # at first it was not ready
        for peer in (2, 3):
            raft.hear(peer, HeartbeatReply(term, 1, 1, 0, 0, newest_level=CONFIG_LEVEL, level=4))
        raft.pass_time(100_000_000)
    heard = raft.heard(topology.INGRESS)
    offers = [each for each in heard if isinstance(each, ProposeConfiguration)]
    assert [each.configuration for each in offers] == [Configuration(1, founders(raft))]
    assert not [each for each in heard if isinstance(each, ChangeAnswered)]
