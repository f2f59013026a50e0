"""The core's requests over played links: who is asked, when again, and what is told in the end."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from logstore.client.core.cursor_admin import Cursor, Cursors
from logstore.client.core.leader import LeaderRequest
from logstore.client.core.operating import Cluster, commit_lsn, status
from logstore.client.core.range_machine import RangeMachine, RangeWalk
from logstore.client.core.replica_reader import ReplicaReader
from logstore.client.core.requests import Port, Survey
from logstore.client.core.routing import NoReplicaAnswers, Routing
from logstore.client.core.session_admin import SessionAdmin
from logstore.client.core.steps import Steps, Wait
from logstore.client.core.task import Task
from logstore.client.core.verification import Verification, verify_replicas
from logstore.client.metadata import parse_metadata
from logstore.client.records import RecordBatch, batches_of
from logstore.errors import (
    Closed,
    CorruptData,
    ErrorCode,
    FormatError,
    NoQuorum,
    NotReady,
    OutcomeUnknown,
    Unreachable,
    WrongCluster,
)
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    EndSessionRequest,
    ErrorReply,
    MetadataReply,
    MetadataRequest,
    SetCursorRequest,
    StatusReply,
    StatusRequest,
    VerifyReply,
    VerifyRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.model import Lsn
from tests.unit.core_stage import SECOND_NS, World, not_leader

MARKS = WatermarksRequest(Lsn(0), 0, False)


def error(code: ErrorCode) -> ErrorReply:
    return ErrorReply(code, 0, 1, 2, b"because")


# --- a task ---


def test_a_wait_without_a_link_lasts_until_its_time_and_others_may_end_early() -> None:
    world = World()
    link = world.requester("tcp://node1:7100")
    seen: list[str] = []

    def steps() -> Iterator[Wait]:
        yield Wait(world.now_ns + 10)
        seen.append("paused")
        yield Wait(world.now_ns + 10, (link,))
        seen.append("looked")

    task = Task(steps())  # type: ignore[arg-type]
    for _ in range(3):
        task.do_work(world.now_ns)
    assert seen == []
    task.do_work(world.now_ns + 10)
    task.do_work(world.now_ns)
    assert seen == ["paused", "looked"]
    assert task.is_done


def test_steps_close_what_they_have_opened_whether_they_end_fail_or_are_given_up() -> None:
    for end in ("close", "fail", "answer"):
        world = World()
        if end != "answer":
            world.on[WatermarksRequest] = lambda *_: None
        task = Task(commit_lsn(Cluster(world.host, world.routing, 10.0)))
        world.work(task)
        if end == "close":
            task.close()
        elif end == "fail":
            with pytest.raises(ZeroDivisionError):
                task.fail(ZeroDivisionError())
        assert task.is_done
        assert all(link.is_closed for link in world.links)


# --- one request ---


def test_a_request_waits_a_second_for_a_connection_and_no_longer() -> None:
    world = World()
    world.stop(1)
    port = Port(world.host, world.nodes[1].fetch)
    begun_ns = world.now_ns
    with pytest.raises(Unreachable, match="no connection"):
        world.finish(port.request(MARKS, WatermarksReply, deadline_ns=begun_ns + 9 * SECOND_NS))
    assert world.now_ns == begun_ns + SECOND_NS
    world.at(0.5, lambda: world.start(1))
    request = port.request(MARKS, WatermarksReply, deadline_ns=world.now_ns + 9 * SECOND_NS)
    assert world.finish(request)[0] == WatermarksReply(1, 0)


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    world = World()
    answers = iter([None, WatermarksReply(1, 5)])
    world.on[WatermarksRequest] = lambda *_: next(answers)
    port = Port(world.host, world.nodes[1].fetch)
    with pytest.raises(Unreachable, match="no answer"):
        world.finish(port.request(MARKS, WatermarksReply, deadline_ns=world.now_ns + 10))
    (link,) = world.links
    link.inbox.append([world._encode(WatermarksReply(9, 9), 1)])  # of the first request
    found, _ = world.finish(
        port.request(MARKS, WatermarksReply, deadline_ns=world.now_ns + SECOND_NS)
    )
    assert found == WatermarksReply(1, 5)


def test_a_late_answer_does_not_keep_a_request_without_a_connection_busy() -> None:
    """It would end every wait for the connection at once, for a second of processor time."""
    world = World()
    world.on[WatermarksRequest] = lambda *_: None
    port = Port(world.host, world.nodes[1].fetch)
    with pytest.raises(Unreachable, match="no answer"):
        world.finish(port.request(MARKS, WatermarksReply, deadline_ns=world.now_ns + 10))
    (link,) = world.links
    world.stop(1)
    link.inbox.append([world._encode(WatermarksReply(9, 9), 1)])
    with pytest.raises(Unreachable, match="no connection"):
        world.finish(port.request(MARKS, WatermarksReply, deadline_ns=world.now_ns + SECOND_NS))


def test_a_survey_asks_who_says_nothing_again_after_a_second_and_who_comes_later_at_once() -> None:
    world = World()
    world.stop(3)
    world.on[StatusRequest] = lambda node, _: StatusReply(b"%d" % node) if node != 2 else None
    survey = Survey(world.host, world.nodes.values(), StatusRequest(), StatusReply)
    world.at(0.3, lambda: world.start(3))
    found = []

    def steps() -> Steps[None]:
        while answer := (yield from survey.next_answer(deadline_ns=world_end_ns)):
            found.append((answer[1].document, world.now_ns - begun_ns))

    begun_ns, world_end_ns = world.now_ns, world.now_ns + 2_500_000_000
    world.finish(steps())
    assert found == [(b"1", 0), (b"3", 300_000_000)]
    assert world.kinds_asked(2) == [StatusRequest] * 3


def test_a_status_waits_a_second_for_the_dead_once_somebody_has_answered() -> None:
    world = World()
    world.stop(2)
    world.on[StatusRequest] = lambda node, _: StatusReply(
        b'{"role":"leader","term":1}' if node == 1 else b'{"role":"follower"}'
    )
    begun_ns = world.now_ns
    found = world.finish(status(Cluster(world.host, world.routing, 10.0)))
    assert [row["role"] for row in found["nodes"]] == ["leader", "unreachable", "follower"]
    assert world.now_ns - begun_ns == SECOND_NS


# --- who leads ---


def find(world: World, seconds: float = 2.0) -> int:
    deadline_ns = world.now_ns + int(seconds * SECOND_NS)
    node, endpoint = world.finish(world.routing.find_leader(deadline_ns=deadline_ns))
    assert endpoint == world.nodes[node]
    return node


def test_the_leader_is_found_through_any_node_and_waited_for() -> None:
    world = World()
    world.leader = 3
    assert find(world) == 3
    world.leader = 0
    world.at(1.0, lambda: world.lead(2))
    assert find(world) == 2
    world.leader = 0
    with pytest.raises(NoQuorum, match="none of them leads"):
        find(world)


def pauses_ms(seed: int) -> list[float]:
    """Between the times at which a replica is asked while nobody leads."""
    world = World(seed=seed)
    world.leader = 0
    asked_ns = []

    def answer(node: int, _: object) -> MetadataReply:
        if node == 2:
            asked_ns.append(world.now_ns)
        return world.metadata(node)

    world.on[MetadataRequest] = answer
    with pytest.raises(NoQuorum):
        find(world, 1.5)
    return [(later - earlier) / 1e6 for earlier, later in pairwise(asked_ns)]


def test_replicas_are_asked_less_and_less_often_while_nobody_leads() -> None:
    """One that waits for an election asked each replica 40 times a second."""
    found = pauses_ms(1)
    assert 7 <= len(found) <= 10
    for pause_ms, usual_ms in zip(found, [25, 50, 100, *[200] * 7], strict=False):
        assert 0.8 * usual_ms <= pause_ms <= 1.2 * usual_ms
    assert pauses_ms(2) != found, "clients that lost one leader do not ask in the same moments"


def test_a_search_that_follows_a_found_leader_begins_with_short_pauses_again() -> None:
    world = World()
    world.leader = 0
    world.at(1.0, lambda: world.lead(2))
    assert find(world) == 2
    world.leader = 0
    world.at(0.04, lambda: world.lead(3))
    begun_ns = world.now_ns
    assert find(world) == 3
    assert world.now_ns - begun_ns < 100_000_000


def test_a_leader_that_refuses_is_asked_less_and_less_often() -> None:
    """Each time every replica is connected to and asked who leads."""
    world = World()
    world.on[CursorsRequest] = lambda *_: error(ErrorCode.NOT_READY)
    leader = LeaderRequest(world.host, world.routing, timeout_s=2.0)
    with pytest.raises(NotReady):
        world.finish(leader.ask(CursorsRequest(), CursorsReply))
    assert 10 <= world.kinds_asked(1).count(CursorsRequest) <= 15


def test_nobody_believes_a_leader_of_an_older_term() -> None:
    world = World()
    world.leader, world.term = 2, 9
    assert find(world) == 2
    world.leader, world.term = 1, 8
    with pytest.raises(NoQuorum):
        find(world)


def test_who_may_not_exist_is_named_once_nobody_has_answered() -> None:
    world = World()
    for node in world.nodes:
        world.stop(node)
    with pytest.raises(NoReplicaAnswers) as caught:
        find(world)
    assert caught.value.hosts == ("node1",)
    world.start(1)
    assert find(world) == 1
    world.stop(1)
    with pytest.raises(NoReplicaAnswers) as caught:
        find(world)
    assert caught.value.hosts == (), "its name was known"


def test_listed_endpoints_of_two_clusters_are_refused_however_late_one_tells() -> None:
    world = World()
    world.stop(2)
    routing = Routing(world.host, [world.nodes[1], world.nodes[2]])
    metadata = world.metadata

    def by_node(node: int, _: object) -> MetadataReply:
        world.cluster_id = bytes(16) if node == 3 else bytes([node]) * 16
        return metadata(node)

    world.on[MetadataRequest] = by_node
    begun_ns = world.now_ns
    assert world.finish(routing.check_endpoints(deadline_ns=world.now_ns + 9 * SECOND_NS)) is None
    assert world.now_ns == begun_ns, "a machine that refuses is not waited for"
    routing.check_endpoints_now()
    world.start(2)
    routing.check_endpoints_now()  # asks
    with pytest.raises(WrongCluster):
        routing.check_endpoints_now()
    with pytest.raises(WrongCluster):
        world.finish(routing.find_leader(deadline_ns=world.now_ns + SECOND_NS))


def test_who_hears_the_listed_endpoints_keeps_others_from_their_links() -> None:
    """Two tasks of one client: the second takes over, and nobody waits in a lock."""
    world = World()
    world.on[MetadataRequest] = lambda *_: None
    routing = Routing(world.host, [world.nodes[1], world.nodes[2]])
    tasks = [Task(routing.check_endpoints(deadline_ns=world.now_ns + 9 * SECOND_NS)) for _ in "ab"]
    for task in tasks:
        world.work(task)
    assert tasks[0].wait.reads
    assert not tasks[1].wait.reads
    routing.check_endpoints_now()
    tasks[0].close()
    world.now_ns = tasks[1].wait.until_ns
    world.work(tasks[1])
    assert tasks[1].wait.reads


# --- a request to whoever leads ---


def test_a_request_follows_the_leader_until_its_time_is_over() -> None:
    world = World()
    refusals = [error(ErrorCode.NOT_READY), not_leader(2), error(ErrorCode.OUTCOME_UNKNOWN)]
    world.on[CursorsRequest] = lambda *_: refusals.pop(0) if refusals else CursorsReply(b"")
    leader = LeaderRequest(world.host, world.routing, timeout_s=5.0)
    assert world.finish(leader.ask(CursorsRequest(), CursorsReply)) == CursorsReply(b"")
    assert leader.is_in_doubt, "one try may have taken effect"
    world.on[CursorsRequest] = lambda *_: error(ErrorCode.NOT_READY)
    begun_ns = world.now_ns
    with pytest.raises(NotReady, match="because"):
        world.finish(leader.ask(CursorsRequest(), CursorsReply))
    assert 5 * SECOND_NS <= world.now_ns - begun_ns < 6 * SECOND_NS


def test_a_change_whose_answer_is_lost_is_in_doubt() -> None:
    world = World()
    moved = ErrorReply(ErrorCode.CURSOR_MOVED, 0, 5, 0, b"")
    answers = iter([None, moved])
    world.on[SetCursorRequest] = lambda *_: next(answers)
    cursors = Cursors(world.host, world.routing, timeout_s=9.0)
    with pytest.raises(OutcomeUnknown, match="set by this call"):
        world.finish(cursors.change(Cursor("name", 5, False), 3))


@pytest.mark.parametrize("code", [ErrorCode.OVERLOADED, ErrorCode.NOT_READY])
def test_a_refusal_of_one_try_does_not_hide_that_another_had_no_answer(code: ErrorCode) -> None:
    """Overloaded: nothing was changed, was told of a change that the first try may have made."""
    world = World()
    answers = iter([error(code), None])
    world.on[SetCursorRequest] = lambda *_: next(answers, None)
    world.on[EndSessionRequest] = lambda *_: next(answers, None)
    cursors = Cursors(world.host, world.routing, timeout_s=3.0)
    with pytest.raises(OutcomeUnknown, match="may be changed"):
        world.finish(cursors.change(Cursor("name", 5, False), 3))
    answers = iter([error(code), None])
    with pytest.raises(OutcomeUnknown, match="may be ended"):
        world.finish(SessionAdmin(world.host, world.routing, timeout_s=3.0).end(7))


# --- a request to any replica ---


def ask(world: World, reader: ReplicaReader, timeout_s: float = 9.0) -> int:
    reply, _ = world.finish(reader.request(MARKS, WatermarksReply, timeout_s=timeout_s))
    assert reply.log_start_lsn == 1
    return reader.node


def test_a_reader_leaves_a_replica_that_cannot_answer_and_a_pinned_one_waits() -> None:
    world = World()
    reader = ReplicaReader(world.host, world.routing, replica=None, timeout_s=9.0)
    assert ask(world, reader) == 1, "nobody is known to lead yet"
    world.stop(1)
    assert ask(world, reader) == 2
    pinned = ReplicaReader(world.host, world.routing, replica=1, timeout_s=9.0)
    world.at(2.5, lambda: world.start(1))
    assert ask(world, pinned) == 1
    world.stop(1)
    with pytest.raises(Unreachable, match="node 1 does not answer"):
        ask(world, pinned)


def test_damage_is_told_once_every_replica_was_tried() -> None:
    world = World()
    world.on[WatermarksRequest] = lambda node, _: (
        error(ErrorCode.CORRUPT_DATA) if node != 3 else WatermarksReply(1, 4)
    )
    reader = ReplicaReader(world.host, world.routing, replica=None, timeout_s=9.0)
    assert ask(world, reader) == 3
    world.on[WatermarksRequest] = lambda *_: error(ErrorCode.CORRUPT_DATA)
    with pytest.raises(CorruptData):
        ask(world, reader)
    asked = {node for node, request in world.requests if isinstance(request, WatermarksRequest)}
    assert asked == {1, 2, 3}


def test_what_was_asked_ahead_is_not_asked_again_on_the_same_connection() -> None:
    world = World()
    reader = ReplicaReader(world.host, world.routing, replica=1, timeout_s=9.0)
    ask(world, reader)
    reader.send_ahead(MARKS)
    ask(world, reader)
    assert world.kinds_asked(1).count(WatermarksRequest) == 2
    reader.send_ahead(MARKS)
    reader.close()
    ask(world, reader)
    assert world.kinds_asked(1).count(WatermarksRequest) == 4


def test_a_new_range_does_not_begin_with_what_was_asked_ahead_for_an_earlier_one() -> None:
    """That answer shows the log as it was then: appended and acknowledged since, LSN 2 was told as
    not committed, in a linearizable read, too (SAFETY V5)."""
    world = World(1)
    world.fill([b"1"])
    machine = RangeMachine(world.host, world.routing, replica=None, timeout_s=9.0, reads_ahead=True)

    def walk(first_lsn: int) -> list[RecordBatch]:
        steps = RangeWalk(machine, batches_of, first_lsn, 2, min_lsn=0, is_linearizable=True)
        return world.finish(steps.next_batches())

    assert [batch.last_lsn for batch in walk(1)] == [1]
    world.fill([b"2"])
    assert [batch.last_lsn for batch in walk(2)] == [2]


# --- what replicas say wrongly ---


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cluster_id", "ab"),
        ("nodes", [{"node": 2, "host": "node2", "port": 70_000}]),
        ("nodes", [{"node": 2, "host": "a b", "port": 7_100}]),
        ("nodes", [{"node": n, "host": "node2", "port": 7_100} for n in range(10_000)]),
    ],
    ids=["cluster", "port", "host", "too many"],
)
def test_metadata_that_no_cluster_has_is_refused_before_sockets_are_made(
    key: str, value: object
) -> None:
    document = json.loads(World().metadata(1).document) | {key: value}
    with pytest.raises(FormatError, match="metadata of a replica"):
        parse_metadata(json.dumps(document).encode())


def verify(world: World) -> Steps[Verification]:
    return verify_replicas(world.host, world.routing, max_bytes=100, timeout_s=2.0)


def test_a_replica_that_dies_after_its_walk_does_not_differ() -> None:
    """The verdict was "NOT equal", as for a log that is another one."""
    world = World(2)
    world.on[VerifyRequest] = lambda node, request: (
        VerifyReply(4 - node, 4 - node, 7, 1, 1, 1, b"[]") if request.max_bytes > 1 else None
    )
    found = world.finish(verify(world))
    assert found.chains_equal
    assert not found.is_good
    assert "does not answer" in found.replicas[0].error
    world.on[VerifyRequest] = lambda node, request: VerifyReply(2, 2, node, 1, 1, 1, b"[]")
    assert not world.finish(verify(world)).chains_equal


def test_an_entry_that_was_trimmed_during_the_walks_does_not_differ() -> None:
    """The verdict was "NOT equal"; nothing was compared, so it must not be "equal" either."""
    world = World(2)
    # Node 2 is behind, at entry 2. By the time that node 1 is asked for its chain there, its log
    # begins at entry 4.
    world.on[VerifyRequest] = lambda node, request: (
        VerifyReply({1: 5, 2: 2}[node], {1: 5, 2: 2}[node], 7, 1, 1, 1, b"[]")
        if request.max_bytes > 1
        else VerifyReply(4, 5, 6, 1, 1, 1, b"[]")
    )
    found = world.finish(verify(world))
    assert not found.is_good
    assert "entry 2 was trimmed before it was compared" in found.replicas[0].error
    assert found.chains_equal


def test_a_verification_ends_when_its_client_is_closed() -> None:
    """It was told as trouble of the replica that was asked just then."""
    world = World(1)
    world.on[VerifyRequest] = lambda *_: None
    task = Task(verify(world))
    world.work(task)
    with pytest.raises(Closed):
        task.fail(Closed("the client was closed"))


class LinkOfItsReader:
    """A link that refers to who waits for it, as a simulated socket refers to its process."""

    wait: Wait


def test_a_wait_and_a_link_that_refer_to_each_other_are_freed() -> None:
    link: Any = LinkOfItsReader()
    link.wait = Wait(0, (link,))
    freed = weakref.ref(link)
    del link
    gc.collect()
    assert freed() is None
