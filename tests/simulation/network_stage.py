"""A virtual network with processes on it, for tests: by default node 2 connects to node 1."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from actors.simulation.network.network import VirtualNetwork
from actors.simulation.network.socket import VirtualSocket
from tests.simulation.event_queue import MILLISECOND_NS, EventQueue, Process
from transport.link import Lane, try_receive, try_send

DELAY_NS = (1 * MILLISECOND_NS, 2 * MILLISECOND_NS)
CONNECTED_NS = 4 * MILLISECOND_NS + 2  # a round trip at most
FRAME_MAX = 1_000
ENDPOINT = "tcp://1:1"  # host: the node


class NetworkStage:
    def __init__(self, seed: int = 1) -> None:
        self.queue = EventQueue(seed)
        self.network = VirtualNetwork(
            self.queue,
            Random(seed),
            node_of=lambda endpoint: int(endpoint.split(":")[1].removeprefix("//")),
            default_delay_ns=DELAY_NS,
        )
        self.counters = self.network.counters
        self.processes: dict[str, Process] = {}

    def process(self, name: str) -> Process:
        """`name` begins with its node: "2" or "2.second"."""
        if name not in self.processes:
            self.processes[name] = Process(self.queue, int(name[0]), name)
        return self.processes[name]

    def links(self, name: str) -> Any:
        return self.network.links(self.process(name))

    def bind(self, kind: str, name: str = "1", endpoint: str = ENDPOINT, **more: Any) -> Any:
        lane = {"lane": Lane.CONTROL} if kind == "router" else {}
        make = getattr(self.links(name), f"{kind}_bind")
        return make(endpoint, message_size_max=FRAME_MAX, **lane, **more)

    def connect(self, kind: str, name: str = "2", endpoint: str = ENDPOINT, **more: Any) -> Any:
        lane = {"lane": Lane.CONTROL} if kind == "dealer" else {}
        make = getattr(self.links(name), f"{kind}_connect")
        return make(endpoint, message_size_max=FRAME_MAX, **lane, **more)

    def run(self, milliseconds: float) -> None:
        self.queue.run_for(int(milliseconds * MILLISECOND_NS))

    def push_and_pull(self, **more: Any) -> tuple[VirtualSocket, VirtualSocket]:
        """A connection from node 2 to node 1, there already."""
        pull = self.bind("pull", **more)
        push = self.connect("push", **more)
        self.run(10)
        return push, pull

    def dealer_and_router(self) -> tuple[VirtualSocket, VirtualSocket]:
        """The same, for both directions; the dealer is b"n2"."""
        router = self.bind("router")
        dealer = self.connect("dealer", routing_id=b"n2")
        self.run(10)
        return dealer, router


def send_numbers(socket: Any, numbers: Sequence[int], *address: bytes) -> list[bool]:
    """Send each number as a message; whether it was accepted."""
    return [try_send(socket, [*address, b"%d" % number]) for number in numbers]


def received(socket: Any) -> list[list[bytes]]:
    """All that can be received now."""
    messages = []
    while (frames := try_receive(socket)) is not None:
        messages.append(frames)
    return messages


def received_numbers(socket: Any) -> list[int]:
    """The last frames of all that can be received now."""
    return [int(frames[-1]) for frames in received(socket)]
