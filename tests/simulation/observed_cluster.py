"""The small virtual cluster of the paper tests, observed by a ledger: real cores, fake disks."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from actors.simulation.checkers import facts
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.world_view import Held
from actors.simulation.oracle.ledger import Ledger
from logstore.model import Index, NodeId, Term
from logstore.raft.core import RaftCore
from tests.paper.virtual_cluster import VirtualCluster
from tests.paper.virtual_node import VirtualNode, recovered


class WatchedCore:
    """A real core that tells its steps to the ledger."""

    def __init__(self, core: RaftCore, node: WatchedNode) -> None:
        self._core = core
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def step(self, event: Any) -> list[Any]:
        effects = self._core.step(event)
        node = self._node
        node.ledger.tell(facts.Stepped(node.node, node.boot, self._core, event, effects))
        return effects


class WatchedNode(VirtualNode):
    ledger: Ledger
    cluster: ObservedCluster

    def now(self) -> int:
        return self.cluster.now_ns

    def start(self) -> None:
        super().start()
        if hasattr(self, "ledger"):
            self.tell_start()

    def tell_start(self) -> None:
        term, vote = self.durable_meta
        last_term = self.durable_rows[-1].header.term if self.durable_rows else Term(0)
        if last_term > term:
            term, vote = last_term, NodeId(0)
        found = recovered(self.durable_rows, term=term, vote=vote, commit_floor=self.durable_floor)
        self.ledger.tell(facts.Started(self.node, self.boot))
        self.ledger.tell(facts.CoreMade(self.node, found))
        self.core = WatchedCore(self.core, self)  # type: ignore[assignment]


class ObservedCluster(VirtualCluster):
    """The ledger's durability port is the cluster itself."""

    def __init__(self, nodes: int, seed: int) -> None:
        super().__init__(nodes, seed)
        timeout_ns = self.nodes[NodeId(1)].config.election_timeout_ns
        record = Record(
            list(self.nodes),
            lambda: self.now_ns,
            durability=self,
            election_timeout_ns=timeout_ns,
        )
        self.ledger = Ledger(record)
        for node in self.nodes.values():
            node.__class__ = WatchedNode
            assert isinstance(node, WatchedNode)
            node.cluster, node.ledger = self, self.ledger
            node.start()
        self.tick_all()

    def has_entry(self, node: int, index: int, chain: int) -> bool:
        rows: Sequence[Any] = self.nodes[NodeId(node)].durable_rows
        return len(rows) >= index and rows[Index(index) - 1].chain == chain

    def has_dropped(self, node: int, index: int, chain: int) -> bool:
        return not self.has_entry(node, index, chain)

    def meta(self, node: int) -> tuple[int, int]:
        return self.nodes[NodeId(node)].durable_meta

    def boot_of(self, node: int) -> int:
        return self.nodes[NodeId(node)].boot

    def is_excused(self, node: int) -> bool:
        return False

    def held_at_start(self, node: int) -> tuple[Held, ...]:
        return ()

    def segments_with_one_header(self, node: int) -> tuple[int, ...]:
        return ()

    def held_now(self, node: int, indexes: Container[int]) -> tuple[Held, ...]:
        return ()

    def pairs_below(self, node: int, start_index: int) -> tuple[int, ...]:
        return ()
