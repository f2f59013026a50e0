"""Which replica hears from ingress that it was removed (SAFETY C10)."""

from __future__ import annotations

import msgspec
import pytest

from actors.topology import Counter
from logstore.format.configuration_body import Configuration, Member
from logstore.format.peer_messages import Heartbeat, Removed, RemovedQuestion
from logstore.raft import effects
from tests.unit.ingress_stage import OUR_UUID, Stage

BEAT = Heartbeat(3, 0, 1, 0, 0, 1, 0)


@pytest.fixture
def stage():
    stage = Stage()
    stage.identify()
    return stage


def members_changed(*uuids: bytes, number: int = 1) -> effects.MembersChanged:
    voters = tuple(Member(1 + at, uuid, "host", 7_000 + at) for at, uuid in enumerate(uuids))
    return effects.MembersChanged(5, True, Configuration(number, voters))


def removed(stage, number, uuid, config_index=0):
    """What a replica hears that asks whether it is a member still; None: nothing."""
    stage.peer_send(
        "peer_control", RemovedQuestion(config_index), node=number, sender_uuid=uuid * 16
    )
    assert stage.heard() == [], "raft hears nothing of it"
    found = stage.peer_receive("peer_control", number)
    return None if found is None else found[1]


def test_only_a_replica_that_no_committed_configuration_names_hears_that_it_was_removed(stage):
    """SAFETY C10: whatever replica speaks under its number, and while members are heard."""
    assert removed(stage, 2, b"x") is None, "this replica knows no configuration"
    stage.tell(members_changed(OUR_UUID, b"\2" * 16, number=0))
    assert removed(stage, 2, b"x") is None, "nor does the configuration file remove one"
    stage.tell(members_changed(OUR_UUID, b"\2" * 16))
    stage.peer_send("peer_control", BEAT)
    stage.heard()
    assert removed(stage, 2, b"x", 5) == Removed(5)
    assert removed(stage, 2, b"\2", 5) is None
    assert removed(stage, 9, b"x", 5) == Removed(5)
    assert removed(stage, 9, b"x", 6) is None, "it knows a newer configuration"
    assert removed(stage, 9, b"\2") is None, "a member, whatever its number"
    assert stage.counter(Counter.FRAMES_FOREIGN) == 0


def test_a_configuration_that_is_not_committed_removes_nobody(stage):
    stage.tell(members_changed(OUR_UUID, b"\2" * 16, b"\3" * 16))
    without = members_changed(OUR_UUID, b"\2" * 16, number=2)
    stage.tell(msgspec.structs.replace(without, index=7, is_committed=False))
    assert removed(stage, 3, b"\3", 5) is None
    stage.tell(msgspec.structs.replace(without, index=7))
    assert removed(stage, 3, b"\3", 5) == Removed(7)


def test_a_reserved_place_is_no_replica_and_a_voter_without_a_uuid_may_be_the_one_that_asks(stage):
    changed = members_changed(OUR_UUID, bytes(16))
    reserved = (Member(3, bytes(16), "host", 7_002),)
    configuration = msgspec.structs.replace(changed.configuration, learners=reserved)
    stage.tell(msgspec.structs.replace(changed, configuration=configuration))
    assert removed(stage, 3, b"\3", 5) == Removed(5)
    assert removed(stage, 2, b"\2", 5) is None


@pytest.mark.parametrize(
    "envelope", [{"cluster_id": b"another cluster!"}, {"target": 3}, {"sender_uuid": OUR_UUID}]
)
def test_a_stranger_hears_nothing_of_the_members(stage, envelope):
    stage.tell(members_changed(OUR_UUID, b"\2" * 16))
    stage.peer_send("peer_control", RemovedQuestion(0), node=3, **envelope)
    assert stage.peer_receive("peer_control", 3) is None
    assert stage.counter(Counter.FRAMES_FOREIGN) == 1
