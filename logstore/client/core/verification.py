"""Shows that replicas hold the same log: each recomputes its chain from its bytes, we compare them.

Owns the walk over a replica's log and the comparison. Equal chains at an index mean equal logs up
to it (SAFETY S3). Damage is listed as the replica found it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logstore.client.core.replica_reader import ReplicaReader
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps
from logstore.errors import Closed, FormatError, LogStoreError
from logstore.format.client_messages import VerifyReply, VerifyRequest


class ReplicaVerdict(msgspec.Struct, frozen=True):
    """The result for one replica. `error`: why its log was not read to the end, else empty."""

    node: int
    last_index: int
    last_lsn: int
    chain: str
    payloads: int
    size_bytes: int
    faulty: list[dict[str, Any]]
    error: str


class Verification(msgspec.Struct, frozen=True):
    """`chains_equal` covers the entries that all replicas without an error hold, up to
    `compared_index`."""

    chains_equal: bool
    compared_index: int
    compared_lsn: int
    replicas: list[ReplicaVerdict]

    @property
    def is_good(self) -> bool:
        """Whether every replica answered, none has damage and all are equal."""
        return self.chains_equal and not any(row.error or row.faulty for row in self.replicas)


class _Walk:
    """One replica's log, slice by slice; `chains` are those at the slices' ends."""

    def __init__(
        self, reader: ReplicaReader, node: int, *, max_bytes: int, timeout_s: float
    ) -> None:
        self.node = node
        self.chains: dict[int, int] = {}
        self.faulty: list[dict[str, Any]] = []
        self.last_index = self.last_lsn = self.chain = 0
        self.payloads = self.size_bytes = 0
        self.error = ""
        self._reader = reader
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    def run(self) -> Steps[None]:
        """Walk up to what the replica shows now."""
        try:
            target = 1
            while self.last_index < target:
                slice_ = yield from self._ask(self.last_index + 1, self._max_bytes)
                if slice_.last_index <= self.last_index:
                    break
                target = max(target, slice_.visible_index) if target == 1 else target
                self._add(slice_)
        except Closed:
            raise
        except LogStoreError as error:
            self.error = str(error)

    def chain_at(self, index: int) -> Steps[int | None]:
        """The chain at an index that was walked over. None: the replica answered with a lower
        index, or it cannot be had any more; then `error` says why."""
        if index not in self.chains:
            try:
                slice_ = yield from self._ask(index, 1)
            except Closed:
                raise
            except LogStoreError as error:
                self.error = str(error)
                return None
            if slice_.last_index > index:
                self.error = f"entry {index} was trimmed before it was compared: verify again"
                return None
            self.chains[slice_.last_index] = slice_.chain
        return self.chains.get(index)

    def verdict(self) -> ReplicaVerdict:
        return ReplicaVerdict(
            self.node,
            self.last_index,
            self.last_lsn,
            f"{self.chain:016x}",
            self.payloads,
            self.size_bytes,
            self.faulty,
            self.error,
        )

    def _ask(self, first_index: int, max_bytes: int) -> Steps[VerifyReply]:
        reply, _ = yield from self._reader.request(
            VerifyRequest(first_index, max_bytes),
            VerifyReply,
            timeout_s=self._timeout_s,
            answer_timeout_s=self._timeout_s,
        )
        return reply

    def _add(self, slice_: VerifyReply) -> None:
        self.last_index, self.chain = slice_.last_index, slice_.chain
        self.last_lsn = max(self.last_lsn, slice_.last_lsn)
        self.payloads += slice_.payloads
        self.size_bytes += slice_.size_bytes
        self.chains[slice_.last_index] = slice_.chain
        try:
            self.faulty += msgspec.json.decode(slice_.document, type=list[dict[str, Any]])
        except ValueError as error:
            raise FormatError(
                f"what is faulty on node {self.node} cannot be read ({error}): does it run another "
                "version? Ask with the `logstore` that it runs"
            ) from error


def verify_replicas(
    host: Host, routing: Routing, *, max_bytes: int, timeout_s: float
) -> Steps[Verification]:
    """Walk every configured replica's log and compare the chains.

    Under load replicas end at different indexes; the comparison goes up to the lowest of them. Each
    slice may take `timeout_s`, also where a replica is not ready.

    Raises:
      Unreachable: no replica answers with the nodes.
    """
    walks: list[_Walk] = []
    readers: list[ReplicaReader] = []
    try:
        for node in sorted((yield from routing.current_nodes(timeout_s=timeout_s))):
            reader = ReplicaReader(host, routing, replica=node, timeout_s=timeout_s)
            readers.append(reader)
            walk = _Walk(reader, node, max_bytes=max_bytes, timeout_s=timeout_s)
            if (yield from routing.is_answering(node, timeout_s=timeout_s)):
                yield from walk.run()
            else:
                walk.error = "unreachable"
            walks.append(walk)
        return (yield from _compare(walks))
    finally:
        for reader in readers:
            reader.close()


def _compare(walks: list[_Walk]) -> Steps[Verification]:
    read = [walk for walk in walks if not walk.error]
    common_index = min((walk.last_index for walk in read), default=0)
    common_lsn = min((walk.last_lsn for walk in read), default=0)
    indexes = {common_index} if common_index else set()
    if read:
        indexes |= set.intersection(*(set(walk.chains) for walk in read))
    is_equal = bool(read)
    for index in sorted(indexes):
        chains = set()
        for walk in read:
            chain = yield from walk.chain_at(index)
            if chain is not None or not walk.error:  # else it died: that is not a difference
                chains.add(chain)
        is_equal = is_equal and len(chains) <= 1 and None not in chains
    return Verification(is_equal, common_index, common_lsn, [walk.verdict() for walk in walks])
