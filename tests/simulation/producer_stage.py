"""A simulated producer on a stage of scripted replicas, brought as far as a test wants it."""

from __future__ import annotations

from typing import Any

from actors.simulation.clients.open_request import open_request
from actors.simulation.clients.producer import Producer, ProducerOptions
from actors.simulation.clients.session import ProducerSession
from logstore.format.client_messages import OpenSessionRequest, SessionStateRequest
from logstore.model import SequenceMode
from tests.simulation.scripted_replica import Pushed, Stage

EVERY_NS = 10_000_000
DENSE = open_request(SequenceMode.DENSE, window=16)


def make_stage(
    *,
    opening: OpenSessionRequest = DENSE,
    mischief: int = 0,
    flood: int = 0,
    upheaval: int = 0,
    seed: int = 1,
) -> Stage:
    stage = Stage()
    options = ProducerOptions(
        append_every_ns=EVERY_NS,
        burst=1,
        payload_max_bytes=64,
        batch_max_payloads=4,
        mischief=mischief,
        flood=flood,
        upheaval=upheaval,
        opening=opening,
    )
    stage.workload = Producer(stage.host("producer-1", seed=seed), options)
    stage.client = stage.workload.client
    stage.client.on_start()
    return stage


def open_session(stage: Stage, node: int = 1, **reply: Any) -> None:
    asked = stage.wait_asked(node, OpenSessionRequest)
    stage.replicas[node].reply_open(asked, **reply)


def tell_state(
    stage: Stage, node: int, next_sequence: int, *rows: bytes, epoch: int = 1
) -> SessionStateRequest:
    """Answer the next SessionState; the request."""
    asked = stage.wait_asked(node, SessionStateRequest)
    stage.replicas[node].reply_state(asked, next_sequence, *rows, epoch=epoch)
    message: SessionStateRequest = asked.message
    return message


def serving_stage(**options: Any) -> Stage:
    stage = make_stage(**options)
    open_session(stage)
    tell_state(stage, 1, 0)
    return stage


def wait_pushed(stage: Stage, count: int, node: int = 1) -> list[Pushed]:
    found: list[Pushed] = []

    def is_enough() -> bool:
        found.extend(stage.replicas[node].pushed())
        return len(found) >= count

    stage.pass_ms(1_000, until=is_enough)
    assert len(found) >= count
    return found


def session_of(stage: Stage) -> ProducerSession:
    session = stage.workload._session
    assert isinstance(session, ProducerSession)
    return session
