"""Which configuration of the cluster may follow which, and who counts in one (SAFETY C5-C8, C11).

Owns the changes of a configuration, their refusals as far as these are arithmetic, and the roles
of a member. Must not know the log, time, or who was heard: whether a learner has caught up and
whether the new majority answers, the caller asks before it changes anything.

A change of voters has two steps: to a joint configuration, in which a majority of each set is
needed, and from there to the new one. It only goes forward: to undo a change is another change.
Learners do not count, so adding or removing one is a single step.

Keys: a `Member` has a number and a uuid, and `VoterSets`, which counts, is generic over its key.
The consensus core counts `by_number`: no two replicas bear one number in a configuration, and what
comes under another uuid is not taken for the member's (C6).
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
    sorted_by_key,
)
from logstore.format.message import NODE_ID_MAX
from logstore.limits import MEMBER_LABELS_MAX, NODES_MAX
from logstore.model import NO_NODE, NodeId
from logstore.raft.quorum import VoterSets
from logstore.settings import PortOffset

# Labels of a learner that the leader acts on by itself, once it has joined and caught up.
PROMOTE_LABEL = "promote=auto"
REPLACES_KEY = "replaces"
_INTENT_KEYS = ("promote", REPLACES_KEY)


class Refusal(Enum):
    """Why a change is refused."""

    CHANGE_UNDER_WAY = "change under way"
    NO_CHANGE_UNDER_WAY = "no change under way"
    NO_VOTER_LEFT = "no voter left"
    TOO_MANY_VOTERS = "too many voters"
    TOO_MANY_LEARNERS = "too many learners"
    TOO_MANY_LABELS = "too many labels"
    LABEL_TAKEN = "label taken"
    NUMBER_TAKEN = "number taken"
    ADDRESS_TAKEN = "address taken"
    UUID_TAKEN = "uuid taken"
    NO_UUID = "no uuid"
    NO_LEARNER = "no learner"
    NO_VOTER = "no voter"
    NO_MEMBER = "no member"
    NO_CONFIGURATION = "no configuration yet"


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


def as_counted_by(configuration: Configuration, node: NodeId, uuid: bytes) -> VoterSets[NodeId]:
    """`by_number`, as the replica `uuid` counts under the number `node`: where that is another
    replica's by now, it does not count itself as that one (C6). An empty uuid: it is not known."""
    sets = by_number(configuration)
    if not uuid or all(
        member.number != node or member.uuid in (uuid, NO_UUID) for member in counted(configuration)
    ):
        return sets
    return VoterSets(
        *(
            tuple(NO_NODE if each == node else each for each in part)
            for part in (sets.voters, sets.incoming)
        )
    )


def is_joint(configuration: Configuration) -> bool:
    """Whether the voters are being changed."""
    return bool(configuration.incoming)


def members(configuration: Configuration) -> tuple[Member, ...]:
    """Every member once: voters, those that become voters, learners."""
    return tuple(member for member, _ in roles(configuration))


def present_roles(configuration: Configuration) -> list[tuple[Member, MemberRole]]:
    """Every member that is a replica, with its role: without places that are reserved. A voter
    without a uuid is one that was not heard before the first CONFIG (C5a)."""
    return [
        (member, role)
        for member, role in roles(configuration)
        if role != MemberRole.LEARNER or member.uuid != NO_UUID
    ]


def present(configuration: Configuration) -> tuple[Member, ...]:
    """Every member that is a replica."""
    return tuple(member for member, _ in present_roles(configuration))


def counted(configuration: Configuration) -> tuple[Member, ...]:
    """Every member that counts in a majority, once."""
    return tuple(member for member, role in roles(configuration) if role != MemberRole.LEARNER)


def role_of(configuration: Configuration, member: Member) -> MemberRole | None:
    """What `member` is; None: no member."""
    return dict(roles(configuration)).get(member)


# --- changes ---


def add_learner(configuration: Configuration, member: Member) -> Configuration | Refused:
    """The configuration with one learner more. One without a uuid is a place that is reserved, for
    a replica that is to join under this number at this address (L4)."""
    if is_joint(configuration):
        return _under_way(configuration)
    if len(configuration.learners) >= NODES_MAX:
        return _too_many_learners()
    if len(_kept_labels(member)) >= MEMBER_LABELS_MAX:
        return Refused(
            Refusal.TOO_MANY_LABELS,
            f"a member has at most {MEMBER_LABELS_MAX - 1} labels: one is left for what it is to "
            "become",
        )
    return (
        _taken(configuration, member)
        or _overlapped(configuration, member)
        or _next(configuration, learners=(*configuration.learners, member))
    )


def take_place(
    configuration: Configuration, learner: Member, uuid: bytes
) -> Configuration | Refused:
    """The configuration in which the replica `uuid` has the place of `learner`, which is reserved,
    or whose replica is lost."""
    if is_joint(configuration):
        return _under_way(configuration)
    joined = msgspec.structs.replace(learner, uuid=uuid)
    return _taken(configuration, joined, replaced=learner) or _next(
        configuration,
        learners=tuple(joined if each == learner else each for each in configuration.learners),
    )


def replace_in_place(configuration: Configuration, voter: Member) -> Configuration | Refused:
    """The joint configuration by which a lost voter leaves, and its number and address are reserved
    for a replica that becomes a voter once it has joined and caught up (L5). A place elsewhere that
    is reserved for its successor, and still empty, is given up: two would become voters."""
    other = _successor(configuration, voter)
    if other is not None and other.uuid != NO_UUID:
        return _replaced_already(voter, other)
    left = remove(configuration, voter)
    if isinstance(left, Refused) or not is_joint(left):
        return left
    learners = tuple(each for each in left.learners if each != other)
    if len(learners) >= NODES_MAX:
        return _too_many_learners()
    labels = sorted_by_key((*_kept_labels(voter), PROMOTE_LABEL))
    reserved = msgspec.structs.replace(voter, uuid=NO_UUID, labels=labels)
    return msgspec.structs.replace(left, learners=(*learners, reserved))


def replace_elsewhere(
    configuration: Configuration, voter: Member, host: str, port: int
) -> Configuration | Refused:
    """The configuration with a place that is reserved at another address, under the next number,
    for a replica that takes the voter's place once it has joined and caught up (L5)."""
    if voter not in configuration.voters:
        return _no(Refusal.NO_VOTER, voter)
    other = _successor(configuration, voter)
    if other is not None:
        return _replaced_already(voter, other)
    number = _next_number(configuration)
    labels = sorted_by_key((*_kept_labels(voter), _replaces(voter)))
    return add_learner(configuration, Member(number, NO_UUID, host, port, labels))


def _successor(configuration: Configuration, voter: Member) -> Member | None:
    """The learner that is to have the voter's place elsewhere."""
    return next((each for each in configuration.learners if _replaces(voter) in each.labels), None)


def _replaced_already(voter: Member, other: Member) -> Refused:
    return Refused(
        Refusal.CHANGE_UNDER_WAY,
        f"node {other.number} at {other.host}:{other.port} is to replace node {voter.number} "
        "already: remove that one first",
    )


def _replaces(voter: Member) -> str:
    return f"{REPLACES_KEY}={voter.number}"


def _next_number(configuration: Configuration) -> NodeId:
    """Above those of all members; the lowest free one where one has the highest."""
    taken = {each.number for each in members(configuration)}
    following = max(taken) + 1
    if following > NODE_ID_MAX:
        following = next(each for each in range(1, NODE_ID_MAX) if each not in taken)
    return NodeId(following)


def renew(configuration: Configuration) -> Configuration | Refused:
    """The same members once more."""
    return _under_way(configuration) if is_joint(configuration) else _next(configuration)


def intended(configuration: Configuration, learner: Member) -> Configuration | Refused | None:
    """The change by which a learner becomes what it was added for; None: that is an operator's
    matter."""
    for label in learner.labels:
        key, _, value = label.partition("=")
        if label == PROMOTE_LABEL:
            return promote(configuration, learner)
        if key == REPLACES_KEY:
            number = int(value) if value.isdigit() else 0
            voter = next((each for each in configuration.voters if each.number == number), None)
            if voter is None:
                return promote(configuration, learner)
            return replace(configuration, voter, learner)
    return None


def promote(configuration: Configuration, learner: Member) -> Configuration | Refused:
    """The joint configuration by which a learner becomes one voter more."""
    if is_joint(configuration):
        return _under_way(configuration)
    if learner not in configuration.learners:
        return _no(Refusal.NO_LEARNER, learner)
    return _is_absent(learner) or _joint(configuration, (*configuration.voters, learner))


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
    return _is_absent(learner) or _joint(configuration, (*stay, learner))


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
    voters = tuple(
        msgspec.structs.replace(each, labels=_kept_labels(each)) for each in configuration.incoming
    )
    return _next(configuration, voters=voters, incoming=())


def why_not_labelled(member: Member) -> Refused | None:
    """Why an operator cannot add a member with these labels; None: one can."""
    for label in member.labels:
        key = label.partition("=")[0]
        if key in _INTENT_KEYS:
            return Refused(
                Refusal.LABEL_TAKEN,
                f"label {key!r} says what a leader is to do with a learner: choose another name, "
                "and use `logstore member promote` or `replace`",
            )
    return None


def _kept_labels(member: Member) -> tuple[str, ...]:
    """Without those that say what a learner is added for."""
    return tuple(label for label in member.labels if label.partition("=")[0] not in _INTENT_KEYS)


def _is_absent(learner: Member) -> Refused | None:
    if learner.uuid != NO_UUID:
        return None
    return Refused(
        Refusal.NO_UUID, f"node {learner.number} has not joined yet: start it with --join"
    )


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


def _taken(
    configuration: Configuration, member: Member, replaced: Member | None = None
) -> Refused | None:
    """What another member than `replaced` has that `member` would have, too."""
    for other in members(configuration):
        if other.uuid == member.uuid != NO_UUID:
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


def _overlapped(configuration: Configuration, member: Member) -> Refused | None:
    """Whose ports `member` would share on one host, where its replica could not listen. Only a new
    address is judged: members of older configuration files may be eight ports apart, for their
    produce ports lie elsewhere."""
    for other in members(configuration):
        if other.host == member.host and abs(other.port - member.port) < len(PortOffset):
            return Refused(
                Refusal.ADDRESS_TAKEN,
                f"{member.host}:{member.port} overlaps node {other.number}'s ports {other.port} to "
                f"{other.port + len(PortOffset) - 1}: choose one that is {len(PortOffset)} or more "
                "away",
            )
    return None


def _too_many_learners() -> Refused:
    return Refused(
        Refusal.TOO_MANY_LEARNERS,
        f"there are {NODES_MAX} learners already: promote or remove one first",
    )


def _under_way(configuration: Configuration) -> Refused:
    return Refused(
        Refusal.CHANGE_UNDER_WAY,
        f"configuration {configuration.id} changes the voters: wait until that is done",
    )


def _no(refusal: Refusal, member: Member) -> Refused:
    return Refused(
        refusal, f"node {member.number} is {refusal.value} of this cluster: see `logstore status`"
    )
