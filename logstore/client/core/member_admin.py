"""The members of the cluster, and changing them (SAFETY C7, C11).

Owns no state. The leader says who the members are, and decides whether they can be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from logstore.client.core.backoff import Backoff
from logstore.client.core.leader import LeaderRequest
from logstore.client.core.operating import Cluster
from logstore.client.core.steps import Steps
from logstore.client.endpoint import Endpoint, parse_endpoint
from logstore.client.status import parse_status
from logstore.errors import ErrorCode, FormatError, InvalidRequest, LevelRefused, NoQuorum
from logstore.format.client_messages import DoneReply, StatusReply, StatusRequest
from logstore.format.configuration_body import NO_UUID
from logstore.format.level import CONFIG_LEVEL
from logstore.format.member_messages import MemberChangeKind, MemberChangeRequest, encode_place
from logstore.format.message import NODE_ID_MAX

OnWait = Callable[[str], None]


class MemberInfo(msgspec.Struct, frozen=True):
    """A member of the cluster, as the leader knows it. None: the leader does not know.

    Attributes:
      number: its node id.
      role: "voter"; "incoming", "outgoing": one from now on, or no longer, once the change under
        way is done; "learner"; "reserved": the place of a replica that is yet to join.
      host: where it is.
      port: the first of its ports.
      uuid: of the replica, in hexadecimal; empty: not known, or it is yet to join.
      labels: "key=value", sorted.
      entries_behind: how many of the leader's entries it has not flushed.
      bytes_behind: the bytes of what the leader shows that it lacks.
      silent_seconds: for how long the leader has not heard it, at most since it leads.
      is_damaged: whether it has named damaged entries.
    """

    number: int
    role: str
    host: str
    port: int
    uuid: str
    labels: tuple[str, ...]
    entries_behind: int | None
    bytes_behind: int | None
    silent_seconds: float | None
    is_damaged: bool | None

    @property
    def is_voter(self) -> bool:
        """Whether it counts now, and will once the change under way is done."""
        return self.role == "voter"


class Members(msgspec.Struct, frozen=True):
    """Who the members are, as the leader says.

    Attributes:
      id: of the configuration, one more with each change; 0: the log has none, the nodes of the
        configuration file count.
      index: of its entry in the log.
      is_committed: whether a majority has it.
      is_joint: whether the voters are being changed.
      leader: node id.
      members: voters first, then those that become voters, then learners and reserved places.
      waits_for: which change, or which learner that may become a voter, full disks hold up; empty:
        none.
    """

    id: int
    index: int
    is_committed: bool
    is_joint: bool
    leader: int
    members: tuple[MemberInfo, ...]
    waits_for: str = ""

    def member(self, number: int) -> MemberInfo | None:
        """The member of this node id; None: there is none."""
        return next((each for each in self.members if each.number == number), None)


class _Row(msgspec.Struct):
    number: int
    role: str
    host: str
    port: int
    uuid: str
    labels: tuple[str, ...]


class _Configuration(msgspec.Struct):
    id: int
    index: int
    is_committed: bool
    is_joint: bool
    members: list[_Row]
    waits_for: str = ""


class _Lag(msgspec.Struct):
    node: int
    bytes: int | None = None


class _Lags(msgspec.Struct):
    followers: list[_Lag] = []


class _Leader(msgspec.Struct):
    """What is read of a leader's status. Versions before 2026-11-27 name no members."""

    last_index: int
    match: dict[str, int]
    silent_ms: dict[str, int]
    members: _Configuration | None = None
    faulty_peers: list[int] = []
    faulty_count: int = 0
    lag: _Lags | None = None


def members(cluster: Cluster) -> Steps[Members]:
    """As `Admin.members`."""
    host, routing, timeout_s = cluster
    deadline_ns = host.deadline_ns(timeout_s)
    pauses = Backoff(host)
    while True:
        left_s = max(0.0, (deadline_ns - host.clock.monotonic_ns()) / 1e9)
        request = LeaderRequest(host, routing, timeout_s=left_s)
        reply = yield from request.ask(StatusRequest(), StatusReply)
        leader = routing.leader
        document = parse_status(reply.document, node=leader)
        if document.get("role") == "leader":
            return (yield from _parse(cluster, document, leader))
        if host.clock.monotonic_ns() >= deadline_ns:
            raise NoQuorum(f"node {leader} leads no more, and no other one was found in time")
        yield pauses.wait(deadline_ns=deadline_ns)


def _parse(cluster: Cluster, document: dict[str, Any], leader: int) -> Steps[Members]:
    try:
        found = msgspec.convert(document, _Leader)
    except msgspec.ValidationError as error:
        raise FormatError(
            f"the status of node {leader} cannot be read ({error}): does it run another version? "
            "Ask with the `logstore` that it runs"
        ) from error
    said = found.members or _Configuration(0, 0, True, False, [])
    if not said.id:  # what the log does not say of them, the configuration file does
        nodes = yield from cluster.routing.nodes(timeout_s=cluster.timeout_s)
        said.members = [
            _Row(node, "voter", endpoint.host, endpoint.port, "", ())
            for node, endpoint in sorted(nodes.items())
        ]
    rows = tuple(_info(row, found, leader) for row in said.members)
    facts = said.id, said.index, said.is_committed, said.is_joint
    return Members(*facts, leader, rows, said.waits_for)


def _info(row: _Row, found: _Leader, leader: int) -> MemberInfo:
    key = str(row.number)
    lacks = {each.node: each.bytes for each in (found.lag.followers if found.lag else ())}
    entries, size, silent, is_damaged = None, lacks.get(row.number), None, None
    if row.number == leader:
        entries, size, silent, is_damaged = 0, 0, 0.0, found.faulty_count > 0
    elif key in found.match:
        entries = max(0, found.last_index - found.match[key])
        silent = found.silent_ms[key] / 1_000 if key in found.silent_ms else None
        is_damaged = row.number in found.faulty_peers
    fields = row.number, row.role, row.host, row.port, row.uuid, row.labels
    return MemberInfo(*fields, entries, size, silent, is_damaged)


# --- changes ---


def add_member(
    cluster: Cluster,
    number: int,
    host: str,
    port: int,
    labels: Iterable[str],
    on_wait: OnWait | None,
) -> Steps[None]:
    """As `Admin.add_member`."""
    endpoint = parse_endpoint(f"{host}:{port}")
    request = _request(MemberChangeKind.ADD, number, place=endpoint, labels=tuple(labels))
    yield from _change(cluster, request, on_wait)


def promote_member(
    cluster: Cluster, number: int, is_forced: bool, on_wait: OnWait | None
) -> Steps[None]:
    """As `Admin.promote_member`."""
    request = _request(MemberChangeKind.PROMOTE, number, is_forced=is_forced)
    yield from _change(cluster, request, on_wait)


def remove_member(
    cluster: Cluster, number: int, is_forced: bool, on_wait: OnWait | None
) -> Steps[None]:
    """As `Admin.remove_member`."""
    uuid = yield from _uuid_of(cluster, number)
    request = _request(MemberChangeKind.REMOVE, number, is_forced=is_forced, uuid=uuid)
    yield from _change(cluster, request, on_wait)


def replace_member(
    cluster: Cluster,
    number: int,
    by: int | str | Endpoint | None,
    is_forced: bool,
    on_wait: OnWait | None,
) -> Steps[None]:
    """As `Admin.replace_member`."""
    place = parse_endpoint(by) if isinstance(by, str) else by if isinstance(by, Endpoint) else None
    learner = by if isinstance(by, int) else 0
    if isinstance(by, int) and by == number:
        raise InvalidRequest(f"node {number} cannot take its own place: leave `by` out for that")
    uuid = yield from _uuid_of(cluster, number)
    request = _request(
        MemberChangeKind.REPLACE, number, by=learner, place=place, is_forced=is_forced, uuid=uuid
    )
    yield from _change(cluster, request, on_wait)


def _request(
    kind: MemberChangeKind,
    number: int,
    *,
    by: int = 0,
    place: Endpoint | None = None,
    labels: tuple[str, ...] = (),
    is_forced: bool = False,
    uuid: bytes = NO_UUID,
) -> MemberChangeRequest:
    for node in (number, by or number):
        if not 1 <= node <= NODE_ID_MAX:
            raise InvalidRequest(f"no member {node}: they are 1 to {NODE_ID_MAX}")
    if faulty := [each for each in labels if "\n" in each or not each.isascii()]:
        raise InvalidRequest(f"label {faulty[0]!r}: write key=value, in a line of ASCII")
    host, port = (place.host, place.port) if place is not None else ("", 0)
    return MemberChangeRequest(
        kind, number, by, port, is_forced, uuid, encode_place(host, sorted(labels))
    )


def _uuid_of(cluster: Cluster, number: int) -> Steps[bytes]:
    """Of the replica that is meant: a request whose answer was lost is asked again, and must not
    hit the one that has taken its place by then. Zeros: not known."""
    found = (yield from members(cluster)).member(number)
    return bytes.fromhex(found.uuid) if found is not None and found.uuid else NO_UUID


def _change(cluster: Cluster, request: MemberChangeRequest, on_wait: OnWait | None) -> Steps[None]:
    leader = LeaderRequest(
        cluster.host,
        cluster.routing,
        timeout_s=cluster.timeout_s,
        on_wait=None if on_wait is None else lambda error: _tell(on_wait, error),
    )
    try:
        yield from leader.ask(request, DoneReply)
    except InvalidRequest as error:
        if "unknown message type" not in str(error):
            raise
        raise LevelRefused(
            "the leader runs a version that cannot change the members: start a newer version on "
            f"every replica, then `logstore upgrade` to format level {CONFIG_LEVEL}"
        ) from error


def _tell(on_wait: OnWait, error: Exception) -> None:
    if getattr(error, "code", None) is ErrorCode.NOT_READY:
        on_wait(str(error))
