"""Members of the cluster, as operators and clients see and change them, against played replicas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.cli.member import _missing_words
from logstore.errors import ErrorCode, InvalidRequest, LevelRefused, NotReady
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    FetchRequest,
    MetadataReply,
    MetadataRequest,
    StatusReply,
    StatusRequest,
)
from logstore.format.member_messages import MemberChangeKind, MemberChangeRequest, decode_place
from tests.unit.cli_stage import kept_process_settings, run
from tests.unit.client_stage import Cluster

ADD, PROMOTE, REMOVE, REPLACE = MemberChangeKind
FOUR = "10.0.0.4:7100"


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with kept_process_settings():
        yield


class Played:
    """A leader, node 1, that takes every change at once; `refusals` come first. Nodes 2 and 3 are
    known to it, and need not run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.leader = cluster.replicas[1]
        self.asked: list[MemberChangeRequest] = []
        self.refusals: list[ErrorReply] = []
        self.id = 1
        self.waits_for = ""
        self.joins_as = "learner"  # one that has a place, when it is looked at next
        port = cluster.ports[1]
        self.rows = [self.row(node, "127.0.0.1", port + 10 * (node - 1)) for node in (1, 2, 3)]
        self.leader.on[StatusRequest] = lambda _: StatusReply(json.dumps(self.status()).encode())
        self.leader.on[MemberChangeRequest] = self.change

    def row(self, number: int, host: str, port: int, role: str = "voter") -> dict[str, Any]:
        uuid = "" if role == "reserved" else f"{number:02x}" * 16
        return {
            "number": number, "role": role, "host": host, "port": port, "uuid": uuid, "labels": [],
        }  # fmt: skip

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "role": "leader", "term": 1, "visible_lsn": 0, "last_index": 90, "faulty_count": 0,
            "match": {"2": 90, "3": 80}, "silent_ms": {"2": 100, "3": 2_500}, "faulty_peers": [3],
            "lag": {"followers": [{"node": 3, "payloads": 5, "bytes": 640}]},
            "members": {
                "id": self.id, "index": 7, "is_committed": True, "is_joint": False,
                "waits_for": self.waits_for,
                "members": [dict(each) for each in self.rows],
            },
        }  # fmt: skip
        for each in self.rows:
            if each["role"] == "reserved":
                each |= {"role": self.joins_as, "uuid": "ee" * 16}
        return document

    def change(self, request: MemberChangeRequest) -> DoneReply | ErrorReply:
        self.asked.append(request)
        if self.refusals:
            return self.refusals.pop(0)
        self.id += 1
        host, labels = decode_place(request.place)
        numbers = [each["number"] for each in self.rows]
        if request.kind in (REMOVE, REPLACE):
            left = next(each for each in self.rows if each["number"] == request.number)
            self.rows.remove(left)
            if request.kind == REPLACE and host:
                self.rows.append(self.row(max(numbers) + 1, host, request.port, "reserved"))
            elif request.kind == REPLACE:
                self.rows.append(self.row(left["number"], left["host"], left["port"], "reserved"))
        elif request.kind == ADD:
            self.rows.append(self.row(request.number, host, request.port, "reserved"))
            self.rows[-1]["labels"] = labels
        else:
            next(each for each in self.rows if each["number"] == request.number)["role"] = "voter"
        return DoneReply(0)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    with Cluster(nodes=1) as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        yield Played(cluster)


def not_ready(text: str) -> ErrorReply:
    return ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, text.encode())


def connect(played: Played, **options: Any) -> logstore.LogClient:
    return logstore.connect(played.cluster.endpoint, timeout=10, **options)


# --- who they are ---


def test_members_are_what_the_leader_says_of_them(played: Played) -> None:
    with connect(played) as log:
        found: logstore.Members = log.admin.members()
    assert (found.id, found.index, found.is_committed, found.is_joint) == (1, 7, True, False)
    assert (found.leader, [each.number for each in found.members]) == (1, [1, 2, 3])
    mine, second, third = found.members
    port = played.cluster.ports[1]
    assert mine == logstore.MemberInfo(
        1, "voter", "127.0.0.1", port, "01" * 16, (), 0, 0, 0.0, False
    )
    assert (second.entries_behind, second.bytes_behind, second.is_damaged) == (0, None, False)
    assert (third.entries_behind, third.bytes_behind, third.silent_seconds) == (10, 640, 2.5)
    assert third.is_damaged
    assert found.member(3) is third
    assert found.member(4) is None


def test_without_a_configuration_in_the_log_the_file_s_nodes_are_the_voters(
    played: Played,
) -> None:
    played.leader.on[StatusRequest] = lambda _: StatusReply(
        b'{"role":"leader","term":1,"last_index":3,"match":{},"silent_ms":{}}'
    )
    with connect(played) as log:
        found = log.admin.members()
    assert (found.id, [(each.number, each.role) for each in found.members]) == (0, [(1, "voter")])
    assert found.members[0].port == played.cluster.ports[1]


def test_asyncio_has_the_same(played: Played) -> None:
    async def use() -> list[str]:
        async with aio.connect(played.cluster.endpoint, timeout=10) as log:
            await log.admin.add_member(4, "10.0.0.4", 7100, labels=["zone=a"])
            roles = [each.role for each in (await log.admin.members()).members]
            await log.admin.promote_member(4, force=True)
            await log.admin.replace_member(2)
            await log.admin.remove_member(3)
            return roles

    assert asyncio.run(use()) == ["voter", "voter", "voter", "reserved"]
    kinds = [(each.kind, each.number, each.is_forced) for each in played.asked]
    assert kinds == [(ADD, 4, False), (PROMOTE, 4, True), (REPLACE, 2, False), (REMOVE, 3, False)]
    assert decode_place(played.asked[0].place) == ("10.0.0.4", ("zone=a",))


# --- changes ---


def test_a_removal_and_a_replacement_name_the_replica_that_is_meant(played: Played) -> None:
    """Asked again after a lost answer, they must not hit the one that came after it."""
    with connect(played) as log:
        log.admin.replace_member(2, FOUR, force=True)
        log.admin.remove_member(3)
        log.admin.replace_member(1, 4)
    assert [each.replica_uuid for each in played.asked] == [
        b"\x02" * 16, b"\x03" * 16, b"\x01" * 16,
    ]  # fmt: skip
    assert (played.asked[0].port, played.asked[0].is_forced) == (7100, True)
    assert played.asked[2].by == 4


def test_what_must_wait_is_asked_again_and_said(played: Played) -> None:
    played.refusals = [not_ready("7 bytes behind"), not_ready("7 bytes behind")]
    heard: list[str] = []
    with connect(played) as log:
        log.admin.add_member(4, "10.0.0.4", 7100)
        log.admin.promote_member(4, on_wait=heard.append)
    assert heard == []  # the refusals were the addition's
    played.refusals = [not_ready("7 bytes behind"), not_ready("3 bytes behind")]
    with connect(played) as log:
        log.admin.promote_member(4, on_wait=heard.append)
    assert heard == ["7 bytes behind", "3 bytes behind"]


def test_the_last_reason_is_the_error_once_the_time_is_over(played: Played) -> None:
    played.refusals = [not_ready("it is 7 bytes behind")] * 100
    with connect(played) as log, pytest.raises(NotReady, match="it is 7 bytes behind"):
        log.admin.promote_member(4, timeout=0.3)


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        (ErrorCode.INVALID_REQUEST, "node 4 is a member", InvalidRequest),
        (ErrorCode.LEVEL_REFUSED, "run `logstore upgrade`", LevelRefused),
    ],
)
def test_a_refusal_is_raised_at_once(
    played: Played, code: ErrorCode, text: str, error: type[Exception]
) -> None:
    played.refusals = [ErrorReply(code, 0, 0, 0, text.encode())]
    with connect(played) as log, pytest.raises(error, match=text):
        log.admin.add_member(4, "10.0.0.4", 7100)
    assert len(played.asked) == 1


def test_an_older_leader_has_to_be_upgraded(played: Played) -> None:
    old = ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b"unknown message type 87")
    played.refusals = [old]
    with connect(played) as log, pytest.raises(LevelRefused, match="`logstore upgrade`"):
        log.admin.add_member(4, "10.0.0.4", 7100)


def test_bad_arguments_are_refused_before_anything_is_asked(played: Played) -> None:
    with connect(played) as log:
        calls: list[Callable[[], None]] = [
            lambda: log.admin.add_member(0, "a", 7100),
            lambda: log.admin.add_member(4, "a b", 7100),
            lambda: log.admin.add_member(4, "a", 70_000),
            lambda: log.admin.add_member(4, "a", 7100, labels=["é=1"]),
            lambda: log.admin.replace_member(2, 2),
            lambda: log.admin.promote_member(65_536),
        ]
        for call in calls:
            with pytest.raises(InvalidRequest):
                call()
    assert not played.asked


# --- the command ---


def test_list_is_a_table_or_json(played: Played, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("member", "list") == 0
    said = capfd.readouterr()
    assert "configuration 1; node 1 leads" in said.out
    assert "10 entries, 640 bytes" in said.out
    assert said.err == "node 3: has damaged entries\n"
    assert run("member", "list", "--json", "-") == 0
    document = json.loads(capfd.readouterr().out)
    assert document["members"][2]["uuid"] == "03" * 16
    assert document["is_joint"] is False


def test_what_full_disks_hold_up_is_shown(
    played: Played, capfd: pytest.CaptureFixture[str]
) -> None:
    played.waits_for = "configuration 2 waits for space"
    with connect(played) as log:
        assert log.admin.members().waits_for == played.waits_for
    assert run("member", "list") == 0
    assert "configuration 2 waits for space\n" in capfd.readouterr().err
    played.joins_as = "reserved"
    assert run("member", "replace", "2", "--by", FOUR, "--timeout", "0.5") == 3
    assert "node 4 has not joined" in capfd.readouterr().err
    played.rows[-1]["role"] = "learner"
    with connect(played) as log:
        found = log.admin.members()
    assert _missing_words(found, found.member(4), 2) == played.waits_for


def test_add_says_how_to_start_the_replica(
    played: Played, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("member", "add", "4", FOUR, "--label", "zone=a") == 0
    assert "logstore serve --config FILE --node 4 --join 127.0.0.1:" in capfd.readouterr().err
    assert decode_place(played.asked[0].place) == ("10.0.0.4", ("zone=a",))
    assert run("member", "add", "5", "nowhere") == 2
    assert "HOST:PORT" in capfd.readouterr().err
    played.rows.append(played.row(5, "10.0.0.5", 7100))
    assert run("member", "add", "5", "10.0.0.5:7100") == 0
    assert capfd.readouterr().err == "node 5 is a member already: voter at 10.0.0.5:7100\n"


def test_promote_says_what_it_waits_for_and_each_reason_once(
    played: Played, capfd: pytest.CaptureFixture[str]
) -> None:
    played.rows.append(played.row(4, "10.0.0.4", 7100, "learner"))
    played.refusals = [not_ready("it is 9 bytes behind")] * 2
    assert run("member", "promote", "4", "--json", "-") == 0
    said = capfd.readouterr()
    assert (
        said.err == "waiting: it is 9 bytes behind\nnode 4 is a voter: the cluster has 4 voters\n"
    )
    assert json.loads(said.out)["member"]["role"] == "voter"
    played.refusals = [not_ready("it is 9 bytes behind")] * 100
    assert run("member", "promote", "4", "--timeout", "0.3") == 3
    assert capfd.readouterr().err.endswith("error: it is 9 bytes behind\n")


def test_list_is_in_the_order_of_numbers_and_says_what_places_are_for(
    played: Played, capfd: pytest.CaptureFixture[str]
) -> None:
    played.rows.append(played.rows.pop(1))  # as after node 2 was replaced in place
    for number, label in ((4, "promote=auto"), (5, "replaces=2"), (6, "rack=7")):
        played.rows.append(played.row(number, "10.0.0.4", 7100 + number, "learner"))
        played.rows[-1]["labels"] = [label]
    assert run("member", "list") == 0
    said = capfd.readouterr()
    rows = [line.split()[1] for line in said.out.splitlines() if line.startswith("│")]
    assert rows == ["1", "2", "3", "4", "5", "6"]
    assert "node 4: becomes a voter once it has caught up\n" in said.err
    assert "node 5: takes the place of node 2 once it has caught up\n" in said.err
    assert "node 6: rack=7\n" in said.err


def test_promote_waits_for_a_replica_that_has_not_joined(
    played: Played, capfd: pytest.CaptureFixture[str]
) -> None:
    played.rows.append(played.row(4, "10.0.0.4", 7100, "reserved"))
    assert run("member", "promote", "4") == 0
    assert capfd.readouterr().err.startswith(
        "waiting: node 4 has not joined: unless it runs, start"
    )
    played.rows.append(played.row(5, "10.0.0.5", 7100, "reserved"))
    played.joins_as = "reserved"
    assert run("member", "promote", "5", "--timeout", "0.5") == 3
    assert "error: node 5 has not joined" in capfd.readouterr().err
    assert [each.number for each in played.asked] == [4]


def test_remove_and_refusals_have_their_exit_status(
    played: Played, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("member", "remove", "3", "--force") == 0
    assert "node 3 is no member any more: the cluster has 2 voters" in capfd.readouterr().err
    assert played.asked[0].is_forced
    assert run("member", "remove", "9") == 2
    assert "error: there is no node 9: the members are 1, 2\n" in capfd.readouterr().err
    assert len(played.asked) == 1
    played.refusals = [ErrorReply(ErrorCode.LEVEL_REFUSED, 0, 0, 0, b"run `logstore upgrade`")]
    assert run("member", "add", "4", FOUR) == 4
    assert "logstore upgrade" in capfd.readouterr().err


@pytest.mark.parametrize("by", [(), ("--by", FOUR)])
def test_replace_waits_until_the_new_one_votes(
    played: Played, capfd: pytest.CaptureFixture[str], by: tuple[str, ...]
) -> None:
    played.joins_as = "voter"
    assert run("member", "replace", "2", *by) == 0
    said = capfd.readouterr().err
    new = 4 if by else 2
    assert f"waiting: node {new} has not joined: unless it runs, start it with an empty" in said
    if by:
        assert said.endswith("votes in place of node 2; stop node 2's process, if it runs\n")
    else:
        assert said.endswith("votes again, as a new replica\n")


def test_a_replacement_that_is_not_done_in_time_says_what_is_missing(
    played: Played, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("member", "replace", "2", "--by", FOUR, "--timeout", "1") == 3
    said = capfd.readouterr().err
    assert "node 4 has not caught up" in said
    assert "the replacement goes on: see `logstore member list`" in said


# --- a cluster that moves machine by machine ---


def tell_members(cluster: Cluster, configuration: int, nodes: dict[int, int]) -> None:
    """Every replica names these nodes as those of this configuration."""
    for replica in cluster.replicas.values():
        replica.on[MetadataRequest] = partial(_answer, cluster, replica.node, configuration, nodes)


def _answer(
    cluster: Cluster, node: int, configuration: int, nodes: dict[int, int], _: MetadataRequest
) -> MetadataReply:
    return metadata(cluster, node, configuration, nodes)


def metadata(
    cluster: Cluster, node: int, configuration: int, nodes: dict[int, int]
) -> MetadataReply:
    document = {
        "cluster_id": cluster.cluster_id.hex(), "node": node, "leader": cluster.leader,
        "term": cluster.term, "configuration": configuration, "limits": {},
        "nodes": [{"node": each, "host": "127.0.0.1", "port": port, "role": "voter"}
                  for each, port in nodes.items()],
    }  # fmt: skip
    return MetadataReply(json.dumps(document).encode())


@pytest.fixture
def moving() -> Iterator[Cluster]:
    """Six machines, of which 1 to 3 are the cluster's first."""
    with Cluster(nodes=6) as cluster:
        tell_members(cluster, 1, {node: cluster.ports[node] for node in (1, 2, 3)})
        yield cluster


def test_a_client_of_one_old_endpoint_finds_the_cluster_of_today(moving: Cluster) -> None:
    nodes = {node: moving.ports[node] for node in (1, 5, 6)}
    tell_members(moving, 9, nodes)
    moving.leader = 6
    with logstore.connect(moving.endpoint, timeout=10) as log:
        assert {node: each.port for node, each in log.nodes().items()} == nodes
        assert log.admin.leader() == 6


def test_a_running_client_follows_machine_by_machine(moving: Cluster) -> None:
    """At the end none of the endpoints that it was given answers any more."""
    with logstore.connect(moving.endpoint, timeout=10) as log:
        assert log.admin.leader() == 1
        voters = [1, 2, 3]
        for step, (old, new) in enumerate(((1, 4), (2, 5), (3, 6))):
            voters = [*(each for each in voters if each != old), new]
            moving.leader, moving.term = new, moving.term + 1
            tell_members(moving, 2 + step, {node: moving.ports[node] for node in voters})
            assert log.admin.leader() == new
            moving.replicas[old].stop()
        assert sorted(log.nodes()) == [4, 5, 6]
        assert log.admin.leader() == 6


def test_a_reader_finds_members_that_came_after_its_own_have_left(moving: Cluster) -> None:
    for replica in moving.replicas.values():
        replica.append_to_log([b"one"])
    with logstore.connect(moving.endpoint, timeout=10) as log, log.reader() as reader:
        assert [each.payloads() for each in reader.read(1, 1)] == [[b"one"]]
        tell_members(moving, 2, {node: moving.ports[node] for node in (4, 5, 6)})
        for old in (2, 3):
            moving.replicas[old].stop()
        refused = ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"removed")
        moving.replicas[1].on[FetchRequest] = lambda _: refused
        assert [each.payloads() for each in reader.read(1, 1)] == [[b"one"]]
        assert sorted(log.nodes()) == [4, 5, 6]


def test_a_replica_that_is_behind_does_not_bring_back_who_has_left(moving: Cluster) -> None:
    today = {node: moving.ports[node] for node in (1, 5, 6)}
    tell_members(moving, 7, today)
    moving.leader = 6
    with logstore.connect(moving.endpoint, timeout=10) as log:
        assert log.admin.leader() == 6
        moving.replicas[1].on[MetadataRequest] = lambda _: metadata(moving, 1, 2, {2: 7100})
        for replica in (5, 6):
            moving.replicas[replica].stop()
        assert {node: each.port for node, each in log.nodes().items()} == today


def test_a_leader_s_word_ends_a_configuration_that_did_not_last(moving: Cluster) -> None:
    told = {node: moving.ports[node] for node in (1, 2, 3, 4)}
    tell_members(moving, 5, told)
    with logstore.connect(moving.endpoint, timeout=10) as log:
        assert sorted(log.nodes()) == [1, 2, 3, 4]
        moving.term = 2  # its leader was deposed, and what it had added is gone
        tell_members(moving, 4, {node: moving.ports[node] for node in (1, 2, 3)})
        assert log.admin.leader() == 1
        assert sorted(log.nodes()) == [1, 2, 3]
