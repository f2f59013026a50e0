"""Reads everything that one replica shows, once: every entry is whole, or the replica reports it as
damaged.

Owns how far it is: it has every entry verified, by index, then it reads every payload, by LSN. It
goes on after damage that the replica reports. Must not know which entries are damaged.
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.delivery_recorder import DeliveryRecorder
from actors.simulation.checkers.messages.message_checker import MessageChecker
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.network.core_client import CoreClient
from actors.simulation.world.client_host import MS_NS, ClientHost
from logstore.client.core.range_machine import RangeMachine, RangeWalk
from logstore.client.core.replica_reader import ReplicaReader
from logstore.client.core.steps import Steps, Wait
from logstore.client.refusal import TRANSIENT
from logstore.errors import CorruptData, LogStoreError, OutOfRange
from logstore.format.client_messages import LSN_MAX, VerifyReply, VerifyRequest
from logstore.limits import KIB

_SLICE_BYTES = 32 * KIB
_AGAIN_NS = 100 * MS_NS


class Auditor:
    """`client` is its process. `is_done`: it has seen everything that `node` shows."""

    def __init__(self, host: ClientHost, node: int) -> None:
        self.host = host
        self.node = node
        self.witness = Witness(host)
        self.client = CoreClient(host, self._live, MessageChecker(self.witness))
        self.is_done = False
        self._next_index = 1
        self._next_lsn = int(host.first_lsn)
        self._is_verified = False

    def _live(self, client: CoreClient) -> Steps[None]:
        routing = client.connect()
        timeout_s = self.host.draw_timeout_ns() / 1e9
        reader = ReplicaReader(client.core, routing, replica=self.node, timeout_s=timeout_s)
        machine = RangeMachine(
            client.core, routing, replica=self.node, timeout_s=timeout_s, max_bytes=_SLICE_BYTES
        )
        while not self.is_done:
            try:
                if self._is_verified:
                    yield from self._read(machine)
                else:
                    yield from self._verify(reader, timeout_s)
            except LogStoreError as error:
                if error.code not in TRANSIENT:
                    text = f"node {self.node} refused an audit: {error}"
                    self.witness.violated(Invariant.I11, text)
                    self.is_done = True
                yield Wait(client.clock.now_ns + _AGAIN_NS)

    def _verify(self, reader: ReplicaReader, timeout_s: float) -> Steps[None]:
        request = VerifyRequest(self._next_index, _SLICE_BYTES)
        reply, _ = yield from reader.request(request, VerifyReply, timeout_s=timeout_s)
        self._next_index = reply.last_index + 1
        self._is_verified = reply.last_index >= reply.visible_index
        self.is_done = not self._is_verified and reply.last_index < request.first_index

    def _read(self, machine: RangeMachine) -> Steps[None]:
        """Read to the end, or to the next damage."""
        recorder = DeliveryRecorder(self.host)
        walk = RangeWalk(
            machine, recorder, self._next_lsn, LSN_MAX, min_lsn=0, is_linearizable=False
        )
        recorder.begin_at(self._next_lsn)
        try:
            while True:
                batches = yield from walk.next_batches()
                recorder.record(self.node, batches)
                self._next_lsn = batches[-1].last_lsn + 1
        except CorruptData as damage:
            if not damage.first_lsn == self._next_lsn <= damage.last_lsn:
                raise
            self._next_lsn = damage.last_lsn + 1
        except OutOfRange as bounds:
            if self._next_lsn < bounds.first:
                self._next_lsn = bounds.first
            elif self._next_lsn <= bounds.last:
                raise
            else:
                self.is_done = True
