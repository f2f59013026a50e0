"""The simulator's driver of the client's core: it goes through steps as a thread would."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.simulation.network.core_client import CoreClient
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Steps, Wait
from logstore.format.client_messages import OpenSessionRequest
from logstore.model import AckLevel, SequenceMode
from tests.simulation.scripted_replica import PRODUCER, Stage

OPEN = OpenSessionRequest(0, SequenceMode.DENSE, AckLevel.QUORUM, 16, b"")


def stage_of(live: Callable[[CoreClient], Steps[None]]) -> tuple[Stage, CoreClient]:
    stage = Stage()
    client = stage.client = CoreClient(stage.host(), live)
    client.on_start()
    return stage, client


def test_steps_of_the_core_reach_their_end() -> None:
    opened = []

    def live(client: CoreClient) -> Steps[None]:
        routing = client.connect()
        session = yield from open_session(client.core, routing, OPEN, timeout_s=5.0)
        routing.close()
        opened.append(session.producer_id)

    stage, _ = stage_of(live)
    stage.replicas[1].reply_open(stage.wait_asked(1, OpenSessionRequest))
    stage.pass_ms(100)
    assert opened == [PRODUCER]


def test_a_pause_lasts_and_a_sleep_ends_when_the_process_runs() -> None:
    looks = []

    def live(client: CoreClient) -> Steps[None]:
        begin_ns = client.clock.now_ns
        yield Wait(begin_ns + 10 * MS_NS)
        looks.append(client.clock.now_ns - begin_ns)
        yield client.sleep(begin_ns + 30 * MS_NS)
        looks.append(client.clock.now_ns - begin_ns)

    stage, client = stage_of(live)
    begin_ns = stage.now_ns
    for milliseconds in (0, 5, 10, 15):
        client.do_work(begin_ns + milliseconds * MS_NS)
    assert looks == [10 * MS_NS, 15 * MS_NS]


def test_a_task_that_is_woken_by_another_runs_in_the_same_moment() -> None:
    seen = []

    def listener(client: CoreClient, box: list[int]) -> Steps[None]:
        while not box:
            yield client.sleep(1 << 62)
        seen.append(box.pop())

    def live(client: CoreClient) -> Steps[None]:
        box: list[int] = []
        client.start(listener(client, box))
        yield Wait(client.clock.now_ns + MS_NS)
        box.append(7)
        client.wake()

    stage, client = stage_of(live)
    client.do_work(stage.now_ns)
    client.do_work(stage.now_ns + MS_NS)
    assert seen == [7]
    assert client.next_timer_ns() == 1 << 62


def test_an_error_of_the_steps_is_not_lost() -> None:
    def live(client: CoreClient) -> Steps[None]:
        yield Wait(client.clock.now_ns)
        raise ValueError("nobody expects it")

    stage, client = stage_of(live)
    with pytest.raises(ValueError, match="nobody expects it"):
        client.do_work(stage.now_ns)
