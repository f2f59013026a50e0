"""The body of a CONFIG entry: who votes, who is about to, who leaves, who learns (SAFETY C5).

Owns these values and their bytes; `raft.configuration` knows which configuration may follow which.
Reserved for format level 4: no version writes it yet.

  0 magic u32 'LCNF' │ version u16 │ reserved u16 = 0
  8 id u64 (1 in the first CONFIG, and one more in each)
 16 members u32 │ crc u32 (of all but itself)
 24 members, voters first (1 and 2), then 3, then 4:
   0 number u16 │ port u16 │ role u8 (1 VOTER, 2 OUTGOING, 3 INCOMING, 4 LEARNER)
     │ host size u8 │ labels size u16
   8 uuid, 16 bytes (zero: of a voter that was not heard yet, or of a place that is reserved)
  24 host, zeros to a multiple of 8
     labels, one "key=value" a line, zeros to a multiple of 8

Host and labels are printable ASCII. A member is there once, so the two sets of a joint
configuration cannot say different things of one that is in both.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from enum import IntEnum

import msgspec

from logstore.errors import FormatError
from logstore.format.entry_body import (
    ENTRY_BODY_VERSION,
    check_body,
    padded_name,
    read_name,
    refuse,
    refuse_read,
    seal_body,
)
from logstore.format.fields import UUID_SIZE, Buffer, check_room, magic_number
from logstore.format.message import NODE_ID_MAX
from logstore.limits import (
    MEMBER_HOST_MAX_BYTES,
    MEMBER_LABEL_MAX_BYTES,
    MEMBER_LABELS_MAX,
    NODES_MAX,
    POSITION_MAX,
)
from logstore.model import NodeId

CONFIGURATION_MAGIC = magic_number("LCNF")
# Of a voter that was not heard before the first CONFIG (C5a), and of a learner that is no replica
# yet but a place, reserved for one that is to join (L4). No replica has it.
NO_UUID = bytes(UUID_SIZE)
_HEAD = struct.Struct("<IHHQII")
_HEAD_CRC = 20
_MEMBER = struct.Struct("<HHBBH16s")
_PORT_MAX = 0xFFFF
_HOST = re.compile(r"[!-~]+")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]*=[ -~]*")


class MemberRole(IntEnum):
    """What a member is in a configuration. All but learners count."""

    VOTER = 1  # and stays one
    OUTGOING = 2  # counts in the old majority only
    INCOMING = 3  # counts in the new majority only
    LEARNER = 4


_ROLES = frozenset(MemberRole)


class Member(msgspec.Struct, frozen=True):
    """A replica. `number` routes messages to it, `uuid` is what is counted (C6). `port`: the first
    one of its ports. `labels` are "key=value", sorted, each key once."""

    number: NodeId
    uuid: bytes
    host: str
    port: int
    labels: tuple[str, ...] = ()


class Configuration(msgspec.Struct, frozen=True):
    """The members of the cluster, each kind in the order in which they came.

    `id`: 1 in the first CONFIG, and one more in each; 0: of no entry, from the configuration file.
    `incoming`: the voters that the cluster changes to; empty while it does not. A voter that stays
    is in both (C7), and comes before those that do not vote yet.
    """

    id: int
    voters: tuple[Member, ...]
    incoming: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()


def roles(configuration: Configuration) -> list[tuple[Member, MemberRole]]:
    """Every member once, with its role: voters, those that become voters, learners."""
    voters, incoming = configuration.voters, configuration.incoming
    found = [
        (each, MemberRole.OUTGOING if incoming and each not in incoming else MemberRole.VOTER)
        for each in voters
    ]
    found += [(each, MemberRole.INCOMING) for each in incoming if each not in voters]
    return found + [(each, MemberRole.LEARNER) for each in configuration.learners]


def is_host_name(host: str) -> bool:
    """Whether clients take it for an IPv4 address or a host name, and a log line or a command with
    it says nothing else. A request for a place must have one; a CONFIG may hold others, which
    were written before 2026-11-27 or come from a configuration file."""
    return _HOST_NAME.fullmatch(host) is not None


def sorted_by_key(labels: Iterable[str]) -> tuple[str, ...]:
    """As a CONFIG holds them. As whole texts "rack-unit=7" would come before "rack=2"."""
    return tuple(sorted(labels, key=lambda label: label.partition("=")[0]))


def encode_configuration(configuration: Configuration) -> bytes:
    """The body of a CONFIG entry.

    Raises:
      InvalidRequest: a configuration that no decoder would accept.
    """
    refuse(_fault(configuration))
    rows = [_pack_member(member, role) for member, role in roles(configuration)]
    head = _HEAD.pack(CONFIGURATION_MAGIC, ENTRY_BODY_VERSION, 0, configuration.id, len(rows), 0)
    return seal_body(head + b"".join(rows), _HEAD_CRC)


def decode_configuration(body: Buffer) -> Configuration:
    """The configuration that a CONFIG entry holds.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything but a whole, undamaged CONFIG body.
    """
    check_body(body, CONFIGURATION_MAGIC, _HEAD.size, _HEAD_CRC, "CONFIG")
    _, _, reserved, number, count, _ = _HEAD.unpack_from(body)
    if reserved or count > 3 * NODES_MAX:
        raise FormatError(f"CONFIG body of {count} members, reserved field {reserved}")
    found, end = [], _HEAD.size
    for _ in range(count):
        member, role, end = _read_member(body, end)
        found.append((member, role))
    if end != len(body):
        raise FormatError(f"CONFIG body of {len(body)} bytes, its members end at {end}")
    configuration = _of_roles(number, found)
    refuse_read(_fault(configuration))
    refuse_read("CONFIG: members out of order" if roles(configuration) != found else None)
    return configuration


def _pack_member(member: Member, role: MemberRole) -> bytes:
    host, labels = member.host.encode("ascii"), "\n".join(member.labels).encode("ascii")
    fields = _MEMBER.pack(member.number, member.port, role, len(host), len(labels), member.uuid)
    return fields + padded_name(host) + padded_name(labels)


def _read_member(body: Buffer, offset: int) -> tuple[Member, MemberRole, int]:
    """The member at `offset`, its role, and where it ends."""
    check_room(body, offset, _MEMBER.size, "member")
    number, port, role, host_size, labels_size, uuid = _MEMBER.unpack_from(body, offset)
    host, end = read_name(body, offset + _MEMBER.size, host_size, "host")
    labels, end = read_name(body, end, labels_size, "list of labels")
    if role not in _ROLES:
        raise FormatError(f"a member in role {role}, 1 to {max(MemberRole)} are known")
    if not (host.isascii() and labels.isascii()):
        raise FormatError("host or labels of a member are not ASCII")
    lines = tuple(labels.decode("ascii").split("\n")) if labels else ()
    member = Member(NodeId(number), uuid, host.decode("ascii"), port, lines)
    return member, MemberRole(role), end


def _of_roles(number: int, found: list[tuple[Member, MemberRole]]) -> Configuration:
    def of(*wanted: MemberRole) -> tuple[Member, ...]:
        return tuple(member for member, role in found if role in wanted)

    changing = of(MemberRole.OUTGOING, MemberRole.INCOMING)
    return Configuration(
        number,
        of(MemberRole.VOTER, MemberRole.OUTGOING),
        of(MemberRole.VOTER, MemberRole.INCOMING) if changing else (),
        of(MemberRole.LEARNER),
    )


# --- what cannot be ---


def _fault(configuration: Configuration) -> str | None:
    """Why there is no such configuration, or None."""
    if not 1 <= configuration.id <= POSITION_MAX:
        return f"CONFIG with id {configuration.id}"
    if not configuration.voters:
        return "CONFIG without a voter"
    everyone = roles(configuration)
    sets = (configuration.voters, configuration.incoming, configuration.learners)
    return (
        next(filter(None, map(_set_fault, sets)), None)
        or _change_fault(configuration, everyone)
        or next(filter(None, (_member_fault(member, role) for member, role in everyone)), None)
        or _twice("replica", (member.uuid for member, _ in everyone if member.uuid != NO_UUID))
    )


def _set_fault(members: tuple[Member, ...]) -> str | None:
    """In each set numbers and addresses are unique; a place may be reserved that is a voter's until
    that has left (L5)."""
    if len(members) > NODES_MAX:
        return f"CONFIG with {len(members)} voters or learners, at most {NODES_MAX}"
    return _twice("node", (member.number for member in members)) or _twice(
        "address", ((member.host, member.port) for member in members)
    )


def _change_fault(
    configuration: Configuration, everyone: list[tuple[Member, MemberRole]]
) -> str | None:
    incoming = configuration.incoming
    kept = (MemberRole.VOTER, MemberRole.INCOMING)
    if incoming and incoming != tuple(member for member, role in everyone if role in kept):
        return "CONFIG whose incoming voters are out of order: those that stay come first"
    changed = (MemberRole.OUTGOING, MemberRole.INCOMING)
    if incoming and not any(role in changed for _, role in everyone):
        return "CONFIG that changes the voters to what they are"
    return None


def _member_fault(member: Member, role: MemberRole) -> str | None:
    if not (1 <= member.number <= NODE_ID_MAX and 1 <= member.port <= _PORT_MAX):
        return f"member {member.number} at port {member.port}"
    if len(member.uuid) != UUID_SIZE:
        return f"a replica uuid of {len(member.uuid)} bytes"
    if member.uuid == NO_UUID and role == MemberRole.INCOMING:
        return f"node {member.number} is to become a voter without a replica uuid"
    if not _HOST.fullmatch(member.host) or len(member.host) > MEMBER_HOST_MAX_BYTES:
        return f"host {member.host!r}: 1 to {MEMBER_HOST_MAX_BYTES} characters of ASCII, no spaces"
    return _labels_fault(member.labels)


def _labels_fault(labels: tuple[str, ...]) -> str | None:
    if len(labels) > MEMBER_LABELS_MAX:
        return f"{len(labels)} labels of a member, at most {MEMBER_LABELS_MAX}"
    for label in labels:
        if not _LABEL.fullmatch(label) or len(label) > MEMBER_LABEL_MAX_BYTES:
            return f"label {label!r}: key=value, at most {MEMBER_LABEL_MAX_BYTES} bytes of ASCII"
    keys = [label.partition("=")[0] for label in labels]
    if keys != sorted(keys):
        return f"labels {labels} are not sorted by key"
    return _twice("label", keys)


def _twice(what: str, values: Iterable[object]) -> str | None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            return f"CONFIG with {what} {value!r} twice"
        seen.add(value)
    return None
