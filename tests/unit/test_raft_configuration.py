"""Changes of a configuration one by one, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from logstore.format.configuration_body import NO_UUID, Configuration, Member, MemberRole
from logstore.model import NodeId
from logstore.raft.configuration import (
    Refusal,
    Refused,
    add_learner,
    as_counted_by,
    by_number,
    counted,
    finish,
    founders,
    intended,
    present,
    promote,
    remove,
    renew,
    replace,
    replace_elsewhere,
    replace_in_place,
    role_of,
    take_place,
)
from logstore.raft.quorum import VoterSets
from tests.paper.member_cluster import by_uuid


def member(number: int, uuid: int = 0, *, host: str = "", port: int = 7000) -> Member:
    return Member(
        NodeId(number), (uuid or number).to_bytes(16, "big"), host or f"node-{number}", port
    )


A, B, C, D = (member(number) for number in range(1, 5))
NEW_C = member(3, 33)
THREE = Configuration(5, (A, B, C))
LEARNING = Configuration(6, (A, B, C), (), (D,))
PLACE_OF_C = Member(NodeId(3), NO_UUID, "node-3", 7000, ("promote=auto",))
TAKING = Configuration(6, (A, B, C), (), (PLACE_OF_C,))
NINE = Configuration(1, tuple(member(number) for number in range(1, 10)))


def done(found: Configuration | Refused) -> Configuration:
    assert isinstance(found, Configuration), found
    return found


def test_a_learner_is_added_and_promoted_through_a_joint_configuration() -> None:
    learning = done(add_learner(THREE, D))
    assert learning == LEARNING
    assert by_uuid(learning) == by_uuid(THREE)  # it does not count
    joint = done(promote(learning, D))
    assert joint == Configuration(7, (A, B, C), (A, B, C, D))
    assert role_of(joint, D) == MemberRole.INCOMING
    assert role_of(joint, A) == MemberRole.VOTER
    assert done(finish(joint)) == Configuration(8, (A, B, C, D))


def test_a_voter_is_removed_through_a_joint_configuration() -> None:
    joint = done(remove(THREE, A))
    assert joint == Configuration(6, (A, B, C), (B, C))
    assert role_of(joint, A) == MemberRole.OUTGOING
    assert counted(joint) == (A, B, C)
    assert not by_uuid(joint).is_majority({A.uuid, B.uuid})
    assert by_uuid(joint).is_majority({B.uuid, C.uuid})
    final = done(finish(joint))
    assert final == Configuration(7, (B, C))
    assert role_of(final, A) is None


def test_a_lost_voter_leaves_before_another_replica_has_its_number() -> None:
    joint = done(replace_in_place(THREE, C))
    assert joint == Configuration(6, (A, B, C), (A, B), (PLACE_OF_C,))
    assert by_number(joint) == VoterSets((1, 2, 3), (1, 2))
    assert present(joint) == (A, B, C)
    reserved = done(finish(joint))
    assert reserved == Configuration(7, (A, B), (), (PLACE_OF_C,))
    assert present(reserved) == (A, B)
    learning = done(take_place(reserved, PLACE_OF_C, NEW_C.uuid))
    (learner,) = learning.learners
    assert (learner.uuid, learner.port) == (NEW_C.uuid, C.port)
    promoted = intended(learning, learner)
    assert promoted == done(promote(learning, learner))
    assert done(finish(done(promoted))) == Configuration(10, (A, B, NEW_C))


def test_a_voter_is_replaced_from_another_address_under_the_next_number() -> None:
    reserved = done(replace_elsewhere(THREE, B, "other", 9000))
    (place,) = reserved.learners
    assert place == Member(NodeId(4), NO_UUID, "other", 9000, ("replaces=2",))
    learning = done(take_place(reserved, place, D.uuid))
    joint = intended(learning, learning.learners[0])
    assert isinstance(joint, Configuration)
    assert by_number(joint) == VoterSets((1, 2, 3), (1, 3, 4))
    assert done(finish(joint)).voters[-1] == Member(NodeId(4), D.uuid, "other", 9000)


def test_where_the_voter_left_meanwhile_its_replacement_is_one_more() -> None:
    learner = msgspec.structs.replace(D, labels=("rack=7", "replaces=3"))
    joint = intended(Configuration(6, (A, B), (), (learner,)), learner)
    assert isinstance(joint, Configuration)
    assert done(finish(joint)).voters[-1] == msgspec.structs.replace(D, labels=("rack=7",))


def test_what_a_learner_was_added_for_is_left_to_an_operator_where_it_does_not_say() -> None:
    assert intended(LEARNING, D) is None


def test_the_same_members_once_more() -> None:
    assert done(renew(LEARNING)) == Configuration(7, (A, B, C), (), (D,))


def test_a_lost_learner_gives_its_place_to_another_replica() -> None:
    found = done(take_place(LEARNING, D, NEW_C.uuid))
    assert found.learners == (msgspec.structs.replace(D, uuid=NEW_C.uuid),)


def test_one_that_bears_a_number_does_not_count_as_the_replica_that_has_it_now() -> None:
    assert as_counted_by(THREE, C.number, NEW_C.uuid) == VoterSets((1, 2, 0))
    assert as_counted_by(THREE, C.number, C.uuid) == VoterSets((1, 2, 3))
    assert as_counted_by(THREE, C.number, b"") == VoterSets((1, 2, 3))


def test_a_learner_leaves_in_one_step() -> None:
    assert done(remove(LEARNING, D)) == Configuration(7, (A, B, C))


def test_founders_are_counted_by_number_and_nobody_has_their_uuid() -> None:
    found = founders(map(NodeId, (1, 2, 3)))
    assert by_number(found) == VoterSets((1, 2, 3))
    assert by_uuid(found).voters == (NO_UUID,) * 3
    assert not by_uuid(found).is_majority({A.uuid, B.uuid, C.uuid})


def test_a_voter_that_was_not_heard_is_part_of_its_sets_size() -> None:
    unheard = Member(NodeId(3), NO_UUID, "node-3", 7000)
    sets = by_uuid(Configuration(1, (A, B, unheard)))
    assert sets.is_majority({A.uuid, B.uuid})
    assert not sets.is_majority({A.uuid})
    assert sets.reached({A.uuid: 7, B.uuid: 4, D.uuid: 9}) == 4
    assert sets.reached({A.uuid: 7}) == 0


@pytest.mark.parametrize(
    ("change", "refusal", "says"),
    [
        (lambda: add_learner(THREE, member(3, 33)), Refusal.NUMBER_TAKEN, "node 3 is a member"),
        (
            lambda: add_learner(THREE, member(4, host="node-2")),
            Refusal.ADDRESS_TAKEN, "node-2:7000 is that of node 2",
        ),
        (
            lambda: add_learner(THREE, member(4, host="node-2", port=7008)),
            Refusal.ADDRESS_TAKEN, "node-2:7008 overlaps node 2's ports 7000 to 7008",
        ),
        (
            lambda: add_learner(LEARNING, member(5, host="node-4", port=6992)),
            Refusal.ADDRESS_TAKEN, "node-4:6992 overlaps node 4's ports",
        ),
        (
            lambda: replace_elsewhere(THREE, A, "node-1", 7001),
            Refusal.ADDRESS_TAKEN, "overlaps node 1's ports",
        ),
        (lambda: add_learner(THREE, member(4, 2)), Refusal.UUID_TAKEN, "that of node 2"),
        (lambda: take_place(LEARNING, D, C.uuid), Refusal.UUID_TAKEN, "that of node 3"),
        (lambda: add_learner(LEARNING, member(4, 44)), Refusal.NUMBER_TAKEN, "node 4"),
        (lambda: replace_in_place(THREE, D), Refusal.NO_MEMBER, "node 4"),
        (lambda: replace_in_place(Configuration(1, (A,)), A), Refusal.NO_VOTER_LEFT, "last voter"),
        (lambda: replace_elsewhere(THREE, D, "h", 1), Refusal.NO_VOTER, "node 4"),
        (
            lambda: replace_elsewhere(THREE, A, "node-2", 7000),
            Refusal.ADDRESS_TAKEN, "that of node 2",
        ),
        (
            lambda: add_learner(
                Configuration(1, (A,), (), tuple(member(each) for each in range(2, 11))),
                member(11),
            ),
            Refusal.TOO_MANY_LEARNERS, "9 learners",
        ),
        (lambda: promote(THREE, D), Refusal.NO_LEARNER, "node 4 is no learner"),
        (lambda: promote(LEARNING, A), Refusal.NO_LEARNER, "node 1"),
        (lambda: promote(TAKING, PLACE_OF_C), Refusal.NO_UUID, "not joined"),
        (lambda: replace(TAKING, A, PLACE_OF_C), Refusal.NO_UUID, "not joined"),
        (
            lambda: promote(done(add_learner(NINE, member(10))), member(10)),
            Refusal.TOO_MANY_VOTERS, "9 voters",
        ),
        (lambda: replace(LEARNING, D, D), Refusal.NO_VOTER, "node 4"),
        (lambda: replace(LEARNING, A, B), Refusal.NO_LEARNER, "node 2"),
        (lambda: remove(THREE, D), Refusal.NO_MEMBER, "node 4 is no member"),
        (lambda: remove(Configuration(1, (A,)), A), Refusal.NO_VOTER_LEFT, "last voter"),
        (lambda: finish(THREE), Refusal.NO_CHANGE_UNDER_WAY, "configuration 5"),
    ],
)  # fmt: skip
def test_what_cannot_follow_is_refused_by_name(
    change: Callable[[], Configuration | Refused], refusal: Refusal, says: str
) -> None:
    found = change()
    assert isinstance(found, Refused)
    assert found.refusal == refusal
    assert says in found.text


@pytest.mark.parametrize(
    "change",
    [
        lambda joint: add_learner(joint, member(9)),
        lambda joint: promote(joint, D),
        lambda joint: replace(joint, B, D),
        lambda joint: remove(joint, B),
        lambda joint: replace_in_place(joint, B),
        lambda joint: take_place(joint, D, NEW_C.uuid),
        renew,
    ],
)
def test_one_change_at_a_time(change: Callable[[Configuration], Configuration | Refused]) -> None:
    joint = done(promote(LEARNING, D))
    found = change(joint)
    assert isinstance(found, Refused)
    assert found.refusal == Refusal.CHANGE_UNDER_WAY
    assert "wait" in found.text


def test_nine_voters_are_changed_one_for_one() -> None:
    learning = done(add_learner(NINE, member(10)))
    joint = done(replace(learning, NINE.voters[0], member(10)))
    assert len(joint.incoming) == 9
    assert done(finish(joint)).voters[-1] == member(10)


def test_the_next_number_after_the_highest_one_is_the_lowest_free_one() -> None:
    highest = Configuration(5, (A, B, member(0xFFFF)))
    (place,) = done(replace_elsewhere(highest, B, "other", 9000)).learners
    assert place.number == 3


def test_a_voter_is_replaced_by_one_replica_at_a_time() -> None:
    """The second one would come in place of none, as a voter more."""
    first = done(replace_elsewhere(THREE, B, "other", 9000))
    second = replace_elsewhere(first, B, "third", 9000)
    assert isinstance(second, Refused)
    assert "node 4 at other:9000 is to replace node 2 already" in second.text
    assert done(replace_elsewhere(first, C, "third", 9000)).learners[1].number == 5


def test_replicas_of_one_host_may_be_nine_ports_apart_and_older_ones_eight() -> None:
    """A lost voter of an older configuration file is replaced in its place."""
    for port in (6_991, 7_009):
        assert isinstance(add_learner(THREE, member(4, host="node-2", port=port)), Configuration)
    close = tuple(member(each, host="here", port=7_000 + 8 * each) for each in range(1, 4))
    found = replace_in_place(Configuration(1, close), close[1])
    while isinstance(found, Configuration) and found.incoming:
        found = finish(found)
    assert isinstance(found, Configuration)
    [place] = found.learners
    assert isinstance(take_place(found, place, bytes(range(16))), Configuration)
