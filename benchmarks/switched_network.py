"""A network of its own for each replica, all of them at one switch: so that one can be cut off.

Owns the namespaces, the switch and its ports. Must not know replicas. Every node has a namespace
with one address, which a veth pair joins to a bridge; the bridge stands in the client's namespace.
To cut a node off is to take its port off the bridge: at once, in both directions, what is sent is
dropped without a word, while both ends still have a carrier. Nothing of it outlives this process
(see `namespaces`).

     client
     switch ── port-1 ══ node 1
        ├───── port-2 ══ node 2       ══ a veth pair
        └───── port-3 ══ node 3
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from benchmarks.namespaces import Namespace
from logstore.errors import LogStoreError

CLIENT = 0
_ADDRESS = "10.88.0.{}"  # of node N; the last one is the client's
_NODES_MAX = 99
_SWITCH = "switch"
_DEVICE = "eth0"


class SwitchedNetwork:
    """Namespaces of `nodes` (ids from 1 to 99) and of the client, all joined. Used by one thread;
    close it, or use it as a context manager.

    Raises:
      OSError, LogStoreError: it cannot be made here.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        with ExitStack() as undo:
            self._client = client = undo.enter_context(Namespace())
            self._nodes = {node: undo.enter_context(Namespace()) for node in nodes}
            client.run("ip", "link", "add", "name", _SWITCH, "type", "bridge")
            client.run("ip", "link", "set", _SWITCH, "up")
            client.run("ip", "address", "add", f"{self.address(CLIENT)}/24", "dev", _SWITCH)
            for node, namespace in self._nodes.items():
                client.run(
                    "ip", "link", "add", "name", _port(node), "up", "master", _SWITCH,
                    "type", "veth", "peer", "name", _DEVICE, "netns", namespace.path_for_children,
                    also=[namespace],
                )  # fmt: skip
                address = f"{self.address(node)}/24"
                namespace.run("ip", "address", "add", address, "dev", _DEVICE)
                namespace.run("ip", "link", "set", _DEVICE, "up")
            self._undo = undo.pop_all()

    def __enter__(self) -> SwitchedNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all of it. Processes inside should have ended."""
        self._undo.close()

    def address(self, place: int) -> str:
        """The IPv4 address of a node, or of the client."""
        return _ADDRESS.format(place if place != CLIENT else _NODES_MAX + 1)

    def entered(self, place: int) -> AbstractContextManager[None]:
        """This thread is there meanwhile, and what it starts begins there."""
        return (self._nodes[place] if place != CLIENT else self._client).entered()

    def cut(self, node: int) -> None:
        """From now on nothing reaches the node, and nothing of it reaches others.

        Raises:
          LogStoreError: `ip` failed.
        """
        self._client.run("ip", "link", "set", "dev", _port(node), "nomaster")

    def mend(self, node: int) -> None:
        """The node is joined again.

        Raises:
          LogStoreError: `ip` failed.
        """
        self._client.run("ip", "link", "set", "dev", _port(node), "master", _SWITCH)


def why_no_switch() -> str:
    """What this process lacks to make such a network; empty if nothing."""
    try:
        with SwitchedNetwork([1]) as network:
            network.cut(1)
            network.mend(1)
    except (OSError, LogStoreError) as error:
        return f"no replica can be cut off here ({error}): run it as root, with iproute2 installed"
    return ""


def _port(node: int) -> str:
    return f"port-{node}"
