"""`logstore member list|add|promote|remove|replace`: the replicas that the cluster is made of."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

import click
import msgspec

from logstore.cli.options import IntegerRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import FoldedTable, Terminal, say, write_json
from logstore.client.client import LogClient, connect
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.client.core.member_admin import MemberInfo, Members
from logstore.client.endpoint import Endpoint, parse_endpoint
from logstore.errors import InvalidRequest, NotReady
from logstore.format.message import NODE_ID_MAX
from logstore.raft.configuration import PROMOTE_LABEL

# How often a wait for a replica that is to join looks who the members are.
LOOK_MS = 200
REPLACES_KEY = "replaces"  # of the label that `member replace --by` gives the new place

_number = click.argument("number", type=IntegerRange(1, NODE_ID_MAX))
_force = click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="also where no majority of the new voters answers, or one that stays is damaged",
)


class EndpointType(click.ParamType[Endpoint]):
    """HOST:PORT."""

    name = "endpoint"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Endpoint:
        if isinstance(value, Endpoint):
            return value
        try:
            return parse_endpoint(str(value))
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)


@click.group("member")
def member() -> None:
    """The replicas that the cluster is made of: list, add, promote, remove, replace.

    They need format level 4, to which `logstore upgrade` raises the log.
    """


@member.command("list")
@endpoint_option
@timeout_option
@json_option
def list_(endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Who the members are, in which role, and how far each is behind, as the leader says.

    Example: logstore member list --json -
    """
    with connect(endpoints, timeout=timeout_s) as client:
        found = client.admin.members()
    if json_path is not None:
        write_json(msgspec.to_builtins(found), json_path)
        return
    words = f"configuration {found.id}" if found.id else "the configuration file's nodes"
    state = ", the voters are being changed" if found.is_joint else ""
    state += "" if found.is_committed else ", not committed yet"
    console = Terminal()
    console.print(f"{words}{state}; node {found.leader} leads", soft_wrap=True)
    table = FoldedTable("node", "role", "address", "behind", "heard")
    members = sorted(found.members, key=lambda each: each.number)
    for each in members:
        table.add_row(*_cells(each, is_leader=each.number == found.leader))
    console.print(table)
    for each in members:
        notes = [*map(_label_words, each.labels), "has damaged entries" if each.is_damaged else ""]
        if words := ", ".join(filter(None, notes)):
            say(f"node {each.number}: {words}")
    if found.waits_for:
        say(found.waits_for)


@member.command("add")
@_number
@click.argument("place", type=EndpointType(), metavar="HOST:PORT")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="as often as needed")
@endpoint_option
@timeout_option
@json_option
def add(
    number: int,
    place: Endpoint,
    labels: tuple[str, ...],
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Reserve a place for replica NUMBER at HOST:PORT, the first of its ports.

    Then start it there, with an empty folder: it joins as a learner, which gets the log and counts
    in no majority. `logstore member promote` makes it a voter.

    Example: logstore member add 4 10.0.0.4:7100
    """
    with connect(endpoints, timeout=timeout_s) as client:
        client.admin.add_member(number, place.host, place.port, labels=labels, on_wait=_sayer())
        found = client.admin.members()
    _report(found, number, json_path)
    row = found.member(number)
    if row is not None and row.role == "reserved":
        say(f"node {number} has a place: {_how_to_join(number, found)}")
    elif row is not None:
        say(f"node {number} is a member already: {row.role} at {row.host}:{row.port}")


@member.command("promote")
@_number
@_force
@endpoint_option
@timeout_option
@json_option
def promote(
    number: int, is_forced: bool, endpoints: str, timeout_s: float, json_path: str | None
) -> None:
    """Make learner NUMBER a voter, once it has caught up; wait for that until --timeout.

    Exit status 3 if it has not caught up by then, or another change is under way.

    Example: logstore member promote 4 --timeout 600
    """
    until_ns = seconds_from_now(timeout_s)
    with connect(endpoints, timeout=timeout_s) as client:
        _wait_until_joined(client, number, until_ns)
        left_s = max(0.1, (until_ns - monotonic_ns()) / 1e9)
        client.admin.promote_member(number, force=is_forced, timeout=left_s, on_wait=_sayer())
        found = client.admin.members()
    _report(found, number, json_path)
    say(f"node {number} is a voter: {_count_of(found)}")


@member.command("remove")
@_number
@_force
@endpoint_option
@timeout_option
@json_option
def remove(
    number: int, is_forced: bool, endpoints: str, timeout_s: float, json_path: str | None
) -> None:
    """Remove replica NUMBER, or the place that is reserved for it. Stop its process afterwards.

    Example: logstore member remove 2
    """
    with connect(endpoints, timeout=timeout_s) as client:
        _require_member(client.admin.members(), number)
        client.admin.remove_member(number, force=is_forced, on_wait=_sayer())
        found = client.admin.members()
    _report(found, number, json_path)
    say(f"node {number} is no member any more: {_count_of(found)}; stop its process, if it runs")


@member.command("replace")
@_number
@click.option(
    "--by",
    "by",
    type=EndpointType(),
    metavar="HOST:PORT",
    help="where the new replica will be; if not given, it has the same number and address",
)
@_force
@endpoint_option
@timeout_option
@json_option
def replace(
    number: int,
    by: Endpoint | None,
    is_forced: bool,
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Let a new replica take the place of voter NUMBER, and wait until it votes.

    With --by the new one gets the next free number, and NUMBER leaves once that has caught up.
    Without, NUMBER has lost its disk: it leaves at once, and joins again with an empty folder.

    Exit status 3 if it does not vote by the end of --timeout; the replacement goes on.

    Example: logstore member replace 2 --by 10.0.0.4:7100 --timeout 600
    """
    until_ns = seconds_from_now(timeout_s)
    with connect(endpoints, timeout=timeout_s) as client:
        before = client.admin.members().member(number)
        client.admin.replace_member(number, by, force=is_forced, on_wait=_sayer())
        old_uuid = before.uuid if before is not None else ""
        found = _wait_for_voter(client, number, by, old_uuid, until_ns)
    now = _replacement(found, number, by)
    if now is not None:  # always: it was waited for
        _report(found, now.number, json_path)
        say(_replaced_words(now, number))


def _require_member(found: Members, number: int) -> None:
    """Raises: InvalidRequest: there is no such member, any more or yet."""
    if found.member(number) is None:
        numbers = ", ".join(map(str, sorted(each.number for each in found.members)))
        raise InvalidRequest(f"there is no node {number}: the members are {numbers}")


def _wait_until_joined(client: LogClient, number: int, until_ns: int) -> None:
    """Wait while the place of this number is reserved for a replica that has not joined.

    Raises:
      NotReady: it has not joined in time.
    """
    tell = _sayer()
    while True:
        found = client.admin.members()
        row = found.member(number)
        if row is None or row.role != "reserved":
            return  # the leader says whether there is such a learner
        words = f"node {number} has not joined: {_how_to_join(number, found)}"
        if monotonic_ns() >= until_ns:
            raise NotReady(words)
        tell(words)
        select.poll().poll(LOOK_MS)


def _wait_for_voter(
    client: LogClient, number: int, by: Endpoint | None, old_uuid: str, until_ns: int
) -> Members:
    """The members, once the new replica is one that votes, and the old one is none.

    Raises:
      NotReady: that has not happened in time; what is missing.
    """
    tell = _sayer()
    while True:
        found = client.admin.members()
        now = _replacement(found, number, by)
        if now is not None and now.is_voter and _has_left(found, number, by, old_uuid):
            return found
        words = _missing_words(found, now, number)
        if monotonic_ns() >= until_ns:
            raise NotReady(f"{words}; the replacement goes on: see `logstore member list`")
        tell(words)
        select.poll().poll(LOOK_MS)


def _has_left(found: Members, number: int, by: Endpoint | None, old_uuid: str) -> bool:
    row = found.member(number)
    if by is not None:
        return row is None
    return row is None or not old_uuid or row.uuid != old_uuid


def _replacement(found: Members, number: int, by: Endpoint | None) -> MemberInfo | None:
    if by is None:
        return found.member(number)
    return next(
        (each for each in found.members if (each.host, each.port) == (by.host, by.port)), None
    )


def _missing_words(found: Members, now: MemberInfo | None, number: int) -> str:
    if now is None:
        return f"no place is reserved for the replica that is to replace node {number}"
    if now.role == "reserved":
        return f"node {now.number} has not joined: {_how_to_join(now.number, found)}"
    if found.waits_for:
        return found.waits_for
    if now.role == "learner":
        return f"node {now.number} has not caught up: it is {_behind_words(now)} behind"
    if now.number == number:
        return f"node {number} is becoming a voter"
    return f"node {now.number} is {now.role}, and node {number} has not left yet"


def _replaced_words(now: MemberInfo, number: int) -> str:
    place = f"node {now.number} at {now.host}:{now.port}"
    if now.number == number:
        return f"{place} votes again, as a new replica"
    return f"{place} votes in place of node {number}; stop node {number}'s process, if it runs"


def _label_words(label: str) -> str:
    """What the cluster's own labels mean; an operator's as it is."""
    key, _, value = label.partition("=")
    if label == PROMOTE_LABEL:
        return "becomes a voter once it has caught up"
    if key == REPLACES_KEY:
        return f"takes the place of node {value} once it has caught up"
    return label


def _how_to_join(number: int, found: Members) -> str:
    known = ",".join(
        f"{each.host}:{each.port}" for each in found.members if each.role != "reserved"
    )
    return (
        f"unless it runs, start it with an empty folder, `logstore serve --config FILE --node "
        f"{number} --join {known}`"
    )


def _sayer() -> Callable[[str], None]:
    """Says on stderr what is waited for, each reason once in a row."""
    last = ""

    def tell(words: str) -> None:
        nonlocal last
        if words != last:
            say(f"waiting: {words}")
        last = words

    return tell


def _report(found: Members, number: int, json_path: str | None) -> None:
    if json_path is not None:
        row = found.member(number)
        document: dict[str, Any] = {
            "configuration": found.id,
            "member": None if row is None else msgspec.to_builtins(row),
        }
        write_json(document, json_path)


def _count_of(found: Members) -> str:
    voters = sum(each.is_voter for each in found.members)
    return f"the cluster has {voters} voter{'' if voters == 1 else 's'}"


def _cells(each: MemberInfo, *, is_leader: bool) -> tuple[str, ...]:
    heard = "-" if each.silent_seconds is None else f"{each.silent_seconds:.1f} s ago"
    return (
        str(each.number),
        each.role,
        f"{each.host}:{each.port}",
        _behind_words(each),
        "leads" if is_leader else heard,
    )


def _behind_words(each: MemberInfo) -> str:
    if each.entries_behind is None:
        return "-"
    size = "" if each.bytes_behind is None else f", {each.bytes_behind} bytes"
    return f"{each.entries_behind} entries{size}"
