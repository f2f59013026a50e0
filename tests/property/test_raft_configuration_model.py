"""Majorities of configurations and of their neighbours, against definitions by brute force."""

from __future__ import annotations

from itertools import chain, combinations, pairwise
from typing import TypeVar

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from logstore.format.configuration_body import (
    NO_UUID,
    Configuration,
    Member,
    MemberRole,
    decode_configuration,
    encode_configuration,
)
from logstore.limits import NODES_MAX
from logstore.model import NodeId
from logstore.raft.configuration import (
    Refusal,
    Refused,
    add_learner,
    by_number,
    counted,
    finish,
    is_joint,
    members,
    present,
    promote,
    remove,
    replace,
    replace_in_place,
    role_of,
    take_place,
)
from logstore.raft.quorum import VoterSets
from tests.paper.member_cluster import by_uuid

KEYS = st.integers(1, 12)
SETS = st.lists(KEYS, min_size=1, max_size=NODES_MAX, unique=True).map(tuple)
JOINT = st.builds(VoterSets, SETS, SETS | st.just(()))
Key = TypeVar("Key", int, bytes)


def more_than_half(keys: tuple[int, ...], of: frozenset[int]) -> bool:
    return 2 * len(of & set(keys)) > len(keys)


def smallest_majorities(sets: VoterSets[Key]) -> list[frozenset[Key]]:
    """Those that are none any more without one of them: if these meet, all do. Nobody has
    NO_UUID."""
    keys = sorted({*sets.voters, *sets.incoming} - {NO_UUID})
    every = chain.from_iterable(combinations(keys, size) for size in range(len(keys) + 1))
    sets_of_keys: list[frozenset[Key]] = [frozenset(each) for each in every]
    return [
        each
        for each in sets_of_keys
        if sets.is_majority(each) and not any(sets.is_majority(each - {key}) for key in each)
    ]


@given(JOINT, st.frozensets(KEYS))
def test_a_majority_is_more_than_half_of_each_set(sets: VoterSets[int], of: frozenset[int]) -> None:
    expected = more_than_half(sets.voters, of)
    if sets.incoming:
        expected = expected and more_than_half(sets.incoming, of)
    assert sets.is_majority(of) == expected


def test_majorities_of_one_to_nine_voters_are_the_smallest_that_meet() -> None:
    for size in range(1, NODES_MAX + 1):
        sets = VoterSets(tuple(range(size)))
        needed = {len(each) for each in smallest_majorities(sets)}
        assert needed == {size // 2 + 1}
        assert not sets.is_majority(range(size // 2))
        assert sets.is_majority(range(size // 2 + 1))


@given(st.builds(VoterSets, SETS, SETS))
def test_a_joint_majority_meets_those_before_it_and_after_it(joint: VoterSets[int]) -> None:
    old, new = VoterSets(joint.voters), VoterSets(joint.incoming)
    found = smallest_majorities(joint)
    for neighbour in (old, new, joint):
        others = smallest_majorities(neighbour)
        assert all(each & other for each in found for other in others)


@given(JOINT, st.dictionaries(KEYS, st.integers(0, 9)))
def test_reached_is_the_highest_value_that_a_majority_has(
    sets: VoterSets[int], values: dict[int, int]
) -> None:
    expected = max(
        value
        for value in range(10)
        if value == 0 or sets.is_majority({key for key in values if values[key] >= value})
    )
    assert sets.reached(values) == expected


def member(number: int, age: int = 0) -> Member:
    """The replica that is the `age`-th to bear this number."""
    uuid = bytes([number, age]) + bytes(13) + b"\1"
    return Member(NodeId(number), uuid, f"host-{number}", 7000 + number)


def unknown(one: Member) -> Member:
    return msgspec.structs.replace(one, uuid=NO_UUID)


@st.composite
def chains(draw: st.DrawFn) -> list[Configuration]:
    """A first configuration, in which some voters may not be known, and what changes lead to."""
    size, unheard = draw(st.integers(1, 5)), draw(st.frozensets(st.integers(1, 5), max_size=2))
    first = [member(number) for number in range(1, size + 1)]
    chain_ = [
        Configuration(1, tuple(unknown(one) if one.number in unheard else one for one in first))
    ]
    for age in range(1, draw(st.integers(1, 12))):
        last = chain_[-1]
        everyone = st.sampled_from(members(last))
        learner = st.sampled_from(last.learners) if last.learners else everyone
        act = draw(
            st.sampled_from(["learn", "lose", "take", "promote", "replace", "remove", "finish"])
        )
        match act:
            case "learn":
                found = add_learner(last, member(draw(KEYS), age))
            case "lose":
                found = replace_in_place(last, draw(everyone))
            case "take":
                lost = draw(learner)
                found = take_place(last, lost, member(lost.number, age).uuid)
            case "promote":
                found = promote(last, draw(learner))
            case "replace":
                found = replace(last, draw(everyone), draw(learner))
            case "remove":
                found = remove(last, draw(everyone))
            case _:
                found = finish(last)
        if isinstance(found, Configuration):
            chain_.append(found)
    return chain_


@given(chains())
def test_majorities_of_neighbours_meet_whatever_is_changed(chain_: list[Configuration]) -> None:
    for before, after in pairwise(chain_):
        assert after.id == before.id + 1
        old, new = (smallest_majorities(by_uuid(each)) for each in (before, after))
        assert all(each & other for each in old for other in new)
        assert all(each & other for each in new for other in new)


@given(chains())
def test_every_configuration_that_changes_lead_to_is_a_possible_one(
    chain_: list[Configuration],
) -> None:
    for each in chain_:
        assert 1 <= len(each.voters) <= NODES_MAX
        assert len(each.incoming) <= NODES_MAX
        assert len(each.learners) <= NODES_MAX
        for part in (each.voters, each.incoming, each.learners):
            numbers = [one.number for one in part]
            uuids = [one.uuid for one in part if one.uuid != NO_UUID]
            assert len(set(numbers)) == len(numbers)
            assert len(set(uuids)) == len(uuids)
        numbers = [one.number for one in present(each)]
        assert len(set(numbers)) == len(numbers)
        assert not set(each.learners) & {*each.voters, *each.incoming}
        assert len(by_number(each).voters) == len(each.voters)


@given(chains())
def test_roles_are_those_that_the_sets_say(chain_: list[Configuration]) -> None:
    for each in chain_:
        roles = {one: role_of(each, one) for one in members(each)}
        assert None not in roles.values()
        assert {one for one in roles if roles[one] != MemberRole.LEARNER} == set(counted(each))
        leaving = {one for one in roles if roles[one] == MemberRole.OUTGOING}
        assert leaving == (set(each.voters) - set(each.incoming) if is_joint(each) else set())
        coming = {one for one in roles if roles[one] == MemberRole.INCOMING}
        assert coming == set(each.incoming) - set(each.voters)
        assert role_of(each, member(99)) is None


@given(chains())
def test_a_change_goes_forward_only(chain_: list[Configuration]) -> None:
    """A joint configuration leads to its new voters, and to nothing else."""
    for before, after in pairwise(chain_):
        if not is_joint(before):
            continue
        assert not after.incoming
        whom = [
            [(one.number, one.uuid) for one in part] for part in (after.voters, before.incoming)
        ]
        assert whom[0] == whom[1]  # without the labels that say what they were to become
        assert after.learners == before.learners
        for found in (
            add_learner(before, member(99)),
            promote(before, member(99)),
            replace(before, before.voters[0], member(99)),
            remove(before, before.voters[0]),
        ):
            assert isinstance(found, Refused)
            assert found.refusal == Refusal.CHANGE_UNDER_WAY


@given(chains())
def test_every_configuration_that_changes_lead_to_has_bytes(chain_: list[Configuration]) -> None:
    for each in chain_:
        assert decode_configuration(encode_configuration(each)) == each
