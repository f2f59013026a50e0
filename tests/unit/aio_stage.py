"""Runs the body of a test in an event loop of either kind, with a client of a played cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import uvloop

from logstore import aio
from tests.unit.client_stage import Cluster, FakeReplica

LOOPS = ("asyncio", "uvloop")
Body = Callable[[aio.LogClient], Awaitable[None]]
Run = Callable[[Body], None]


def runner_of(kind: str) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=uvloop.new_event_loop if kind == "uvloop" else None)


def run_of(kind: str, cluster: Cluster) -> Run:
    async def with_client(body: Body) -> None:
        async with asyncio.timeout(60), aio.connect(cluster.endpoint, timeout=20) as log:
            await body(log)

    def run_body(body: Body) -> None:
        with runner_of(kind) as runner:
            runner.run(with_client(body))

    return run_body


def silent(*_: object) -> None:
    """A leader that takes a batch and says nothing."""


def fill(replica: FakeReplica) -> None:
    """LSN 1 to 20, in batches of two."""
    for number in range(10):
        replica.append_to_log([b"%d a" % number, b"%d b" % number])
