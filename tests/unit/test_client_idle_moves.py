"""A client that does nothing while its cluster moves to other machines finds it afterwards."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

import logstore
from logstore import aio
from logstore.client.core import routing
from logstore.client.core.steps import Steps
from logstore.client.endpoint import parse_endpoint
from logstore.client.members_thread import THREAD_NAME, MembersThread
from logstore.client.threads import host_on, new_context, run
from logstore.format.client_messages import MetadataRequest
from tests.unit.client_stage import Cluster
from tests.unit.test_client_members import tell_members


@pytest.fixture
def moving() -> Iterator[Cluster]:
    """Six machines, of which 1 to 3 are the cluster's first."""
    with Cluster(nodes=6) as cluster:
        tell_members(cluster, 1, {node: cluster.ports[node] for node in (1, 2, 3)})
        yield cluster


def test_a_client_that_does_nothing_while_its_cluster_moves_finds_it(
    moving: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks now and then. At the end none of the endpoints that it knew at first answers."""
    monkeypatch.setattr(routing, "KEEP_CURRENT_S", 0.05)
    with logstore.connect(moving.endpoint, timeout=10) as log:
        move_all(moving)
        assert sorted(log.nodes()) == [4, 5, 6]
        assert log.admin.leader() == 6


def test_an_aio_client_that_does_nothing_while_its_cluster_moves_finds_it(
    moving: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "KEEP_CURRENT_S", 0.05)

    async def idle() -> list[int]:
        async with aio.connect(moving.endpoint, timeout=10) as log:
            await asyncio.to_thread(move_all, moving)
            return sorted(await log.nodes())

    assert asyncio.run(idle()) == [4, 5, 6]


def test_the_thread_of_a_client_that_is_dropped_ends(moving: Cluster) -> None:
    context = new_context()
    known = routing.Routing(host_on(context), [parse_endpoint(moving.endpoint)])
    keeper = MembersThread(known)
    [thread] = [each for each in threading.enumerate() if each.name == THREAD_NAME]
    del known
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
    keeper.close()
    context.close()


def test_a_client_of_a_loop_that_is_dropped_is_not_kept(moving: Cluster) -> None:
    """The loop's timer kept it, with its sockets, until the loop ended."""

    async def drop() -> object:
        log = await aio.connect(moving.endpoint, timeout=10)
        assert await log.admin.leader() == 1
        known, context = weakref.ref(log._driver), log._driver._context
        del log
        await asyncio.sleep(0)
        gc.collect()
        context.close_with_sockets()  # pyzmq warns of one that is not closed
        return known()

    assert asyncio.run(drop()) is None


@pytest.mark.parametrize("is_aio", [False, True])
def test_what_fails_in_this_process_is_tried_again(
    moving: Cluster, monkeypatch: pytest.MonkeyPatch, is_aio: bool
) -> None:
    """No descriptor may be left at that moment: the client was not kept current ever after."""
    monkeypatch.setattr(routing, "KEEP_CURRENT_S", 0.05)
    asked, second = [], threading.Event()
    known = routing.Routing.keep_current

    def fail_once(self: routing.Routing) -> Steps[float]:
        asked.append(self)
        if len(asked) == 1:
            raise OSError(24, "Too many open files")
        second.set()
        return (yield from known(self))

    monkeypatch.setattr(routing.Routing, "keep_current", fail_once)
    if not is_aio:
        with logstore.connect(moving.endpoint, timeout=10):
            assert second.wait(10)
        return

    async def idle() -> bool:
        async with aio.connect(moving.endpoint, timeout=10):
            return await asyncio.to_thread(second.wait, 10)

    assert asyncio.run(idle())


def test_who_the_members_are_is_asked_once_a_minute_at_most(moving: Cluster) -> None:
    with logstore.connect(moving.endpoint, timeout=10) as log:
        assert log.admin.leader() == 1
        assert 59 < run(log._routing.keep_current()) <= 66
        heard = moving.replicas[1].requests
        while not heard.empty():
            heard.get()
        assert 59 < run(log._routing.keep_current()) <= 66
        assert heard.empty()
        assert len({round(run(log._routing.keep_current())) for _ in range(50)}) > 3, "not at once"


def move_all(cluster: Cluster) -> None:
    """Replace machine by machine, each once the clients of the cluster have heard of the last."""
    voters = [1, 2, 3]
    for step, (old, new) in enumerate(((1, 4), (2, 5), (3, 6))):
        voters = [*(each for each in voters if each != old), new]
        cluster.leader, cluster.term = new, cluster.term + 1
        tell_members(cluster, 2 + step, {node: cluster.ports[node] for node in voters})
        asked = threading.Event()
        leader = cluster.replicas[new]
        answer = leader.on[MetadataRequest]
        leader.on[MetadataRequest] = lambda request, asked=asked, answer=answer: (
            asked.set() or answer(request)
        )
        assert asked.wait(10)
        cluster.replicas[old].stop()
