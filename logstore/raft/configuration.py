"""Which configuration of the cluster may follow which, and who counts in one (SAFETY C5-C8, C11).

Owns the changes of a configuration, their refusals as far as these are arithmetic, and the roles
of a member. Must not know the log, time, or who was heard: whether a learner has caught up and
whether the new majority answers, the caller asks before it changes anything.

A change of voters has two steps: to a joint configuration, in which a majority of each set is
needed, and from there to the new one. It only goes forward: to undo a change is another change.
Learners do not count, so adding or removing one is a single step.

Keys: a `Member` has a number and a uuid, and `VoterSets`, which counts, is generic over its key.
The consensus core hears replicas under their node numbers today and counts `by_number`; once its
events and Progress are keyed by uuid it counts `by_uuid` (C6), and nothing else of this changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from logstore.format.configuration_body import (
    NO_UUID,
    Configuration,
    Member,
    MemberRole,
    roles,
)
from logstore.limits import NODES_MAX
from logstore.model import NodeId
from logstore.raft.quorum import VoterSets


class Refusal(Enum):
    """Why a change is refused."""

    CHANGE_UNDER_WAY = "change under way"
    NO_CHANGE_UNDER_WAY = "no change under way"
    NO_VOTER_LEFT = "no voter left"
    TOO_MANY_VOTERS = "too many voters"
    TOO_MANY_LEARNERS = "too many learners"
    NUMBER_TAKEN = "number taken"
    ADDRESS_TAKEN = "address taken"
    UUID_TAKEN = "uuid taken"
    NO_UUID = "no uuid"
    NO_LEARNER = "no learner"
    NO_VOTER = "no voter"
    NO_MEMBER = "no member"


class Refused(msgspec.Struct, frozen=True):
    """A change is refused; `text` says what to do."""

    refusal: Refusal
    text: str


def founders(numbers: Iterable[NodeId]) -> Configuration:
    """The voters of the configuration file, of which only the numbers are known."""
    return Configuration(0, tuple(Member(number, NO_UUID, "", 0) for number in numbers))


# --- who counts ---


def by_number(configuration: Configuration) -> VoterSets[NodeId]:
    """The voters by node number. Two replicas that bear one number, while one is replaced in place,
    are one voter here: only numbers that are unique may be counted."""
    return VoterSets(
        tuple(member.number for member in configuration.voters),
        tuple(member.number for member in configuration.incoming),
    )


def by_uuid(configuration: Configuration) -> VoterSets[bytes]:
    """The voters by replica uuid."""
    return VoterSets(
        tuple(member.uuid for member in configuration.voters),
        tuple(member.uuid for member in configuration.incoming),
    )


def is_joint(configuration: Configuration) -> bool:
    """Whether the voters are being changed."""
    return bool(configuration.incoming)


def members(configuration: Configuration) -> tuple[Member, ...]:
    """Every member once: voters, those that become voters, learners."""
    return tuple(member for member, _ in roles(configuration))


def counted(configuration: Configuration) -> tuple[Member, ...]:
    """Every member that counts in a majority, once."""
    return tuple(member for member, role in roles(configuration) if role != MemberRole.LEARNER)


def role_of(configuration: Configuration, member: Member) -> MemberRole | None:
    """What `member` is; None: no member."""
    return dict(roles(configuration)).get(member)


# --- changes ---


def add_learner(
    configuration: Configuration, member: Member, *, replaced: Member | None = None
) -> Configuration | Refused:
    """The configuration with one learner more. `replaced`: the voter whose place it is to take,
    whose number and address are free for it (L5); None: it is one more replica."""
    if is_joint(configuration):
        return _under_way(configuration)
    if replaced is not None and replaced not in configuration.voters:
        return _no(Refusal.NO_VOTER, replaced)
    if member.uuid == NO_UUID:
        return Refused(
            Refusal.NO_UUID, f"node {member.number} has no uuid: start it, it brings one"
        )
    if len(configuration.learners) >= NODES_MAX:
        return Refused(
            Refusal.TOO_MANY_LEARNERS,
            f"there are {NODES_MAX} learners already: promote or remove one first",
        )
    taken = _taken(configuration, member, replaced)
    if taken is not None:
        return taken
    return _next(configuration, learners=(*configuration.learners, member))


def promote(configuration: Configuration, learner: Member) -> Configuration | Refused:
    """The joint configuration by which a learner becomes one voter more."""
    if is_joint(configuration):
        return _under_way(configuration)
    if learner not in configuration.learners:
        return _no(Refusal.NO_LEARNER, learner)
    return _has_place_of(learner, configuration.voters) or _joint(
        configuration, (*configuration.voters, learner)
    )


def replace(
    configuration: Configuration, voter: Member, learner: Member
) -> Configuration | Refused:
    """The joint configuration by which a learner takes a voter's place."""
    if is_joint(configuration):
        return _under_way(configuration)
    if voter not in configuration.voters:
        return _no(Refusal.NO_VOTER, voter)
    if learner not in configuration.learners:
        return _no(Refusal.NO_LEARNER, learner)
    stay = tuple(each for each in configuration.voters if each != voter)
    return _has_place_of(learner, stay) or _joint(configuration, (*stay, learner))


def remove(configuration: Configuration, member: Member) -> Configuration | Refused:
    """The joint configuration by which a voter leaves. A learner does not count: the next
    configuration is the one without it."""
    if is_joint(configuration):
        return _under_way(configuration)
    if member in configuration.learners:
        left = tuple(each for each in configuration.learners if each != member)
        return _next(configuration, learners=left)
    if member not in configuration.voters:
        return _no(Refusal.NO_MEMBER, member)
    return _joint(configuration, tuple(each for each in configuration.voters if each != member))


def finish(configuration: Configuration) -> Configuration | Refused:
    """The configuration that a joint one leads to, once that is committed."""
    if not is_joint(configuration):
        return Refused(
            Refusal.NO_CHANGE_UNDER_WAY, f"configuration {configuration.id} changes no voters"
        )
    return _next(configuration, voters=configuration.incoming, incoming=())


def _joint(configuration: Configuration, incoming: tuple[Member, ...]) -> Configuration | Refused:
    if not incoming:
        return Refused(
            Refusal.NO_VOTER_LEFT, "it is the last voter: add another one before it leaves"
        )
    if len(incoming) > NODES_MAX:
        return Refused(
            Refusal.TOO_MANY_VOTERS, f"there are {NODES_MAX} voters already: remove one first"
        )
    learners = tuple(each for each in configuration.learners if each not in incoming)
    return _next(configuration, incoming=incoming, learners=learners)


def _next(configuration: Configuration, **parts: tuple[Member, ...]) -> Configuration:
    return msgspec.structs.replace(configuration, id=configuration.id + 1, **parts)


def _taken(configuration: Configuration, member: Member, replaced: Member | None) -> Refused | None:
    """What another member has that `member` would have, too."""
    for other in members(configuration):
        if other.uuid == member.uuid:
            return Refused(
                Refusal.UUID_TAKEN, f"its uuid is that of node {other.number}, which is a member"
            )
        if other == replaced:
            continue
        if other.number == member.number:
            return Refused(
                Refusal.NUMBER_TAKEN, f"node {other.number} is a member: choose another number"
            )
        if (other.host, other.port) == (member.host, member.port):
            return Refused(
                Refusal.ADDRESS_TAKEN,
                f"{other.host}:{other.port} is that of node {other.number}: choose another one",
            )
    return None


def _has_place_of(learner: Member, voters: Iterable[Member]) -> Refused | None:
    """The learner came to replace one of these `voters`, and cannot be a voter beside it."""
    for voter in voters:
        is_number = voter.number == learner.number
        if is_number or (voter.host, voter.port) == (learner.host, learner.port):
            return Refused(
                Refusal.NUMBER_TAKEN if is_number else Refusal.ADDRESS_TAKEN,
                f"this learner has the place of node {voter.number}: let it replace that one",
            )
    return None


def _under_way(configuration: Configuration) -> Refused:
    return Refused(
        Refusal.CHANGE_UNDER_WAY,
        f"configuration {configuration.id} changes the voters: wait until that is done",
    )


def _no(refusal: Refusal, member: Member) -> Refused:
    return Refused(
        refusal, f"node {member.number} is {refusal.value} of this cluster: see `logstore status`"
    )
