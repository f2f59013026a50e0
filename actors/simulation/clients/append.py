"""One append, as the client's core takes it: its bytes, which never change, and its outcome.

Makes payloads that are unique in the world as far as their size allows, among them empty ones,
zeros and images of batches (FAULTS D36). Knows no sockets.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Protocol

from logstore.errors import LogStoreError
from logstore.format.batch import PackedPayloads, batch_size, encode_batch

_TAG = struct.Struct("<IBxHQQ")  # sequence (low bits), number, producer epoch, client, producer id
_ODD_PAYLOADS_PERMILLE = 20


class Log(Protocol):
    """Who hears what becomes of an append."""

    def begun(self, append: Append) -> None:
        """It has its sequence and its bytes."""

    def committed(self, append: Append, first_lsn: int, count: int) -> None:
        """The core says so."""

    def failed(self, append: Append, error: LogStoreError) -> None:
        """The core gives it up."""


class Append:
    """A batch of one producer epoch from its payloads to its outcome: a `Pack` of the core.

    Its bytes stay, for who sends them again. `told`: first LSN and count, as the log acknowledged
    them first; count 0: committed, LSNs unknown. `is_over`: nothing more will be heard of it.
    """

    def __init__(
        self, log: Log, payloads: list[bytes], *, sequence: int, opened_ns: int, deadline_ns: int
    ) -> None:
        self.payloads: list[bytes] | PackedPayloads = payloads
        self.count = len(payloads)
        self.size_bytes = batch_size(self.count, sum(map(len, payloads)))
        self.opened_ns = opened_ns
        self.deadline_ns = deadline_ns
        self.sequence = sequence
        self.operation = 0
        self.is_over = False
        self.told: tuple[int, int] | None = None
        self.is_acknowledged = False
        self.error: LogStoreError | None = None
        self._log = log
        self._batch = b""

    @property
    def batch(self) -> bytes:
        return self._batch

    @batch.setter
    def batch(self, batch: bytes) -> None:
        if batch:  # it is emptied once it is settled
            self._batch = batch
            self._log.begun(self)

    def is_settled(self) -> bool:
        return self.is_acknowledged or self.error is not None

    def resolve(self, first_lsn: int, count: int) -> None:
        self.is_acknowledged = self.is_over = True
        self._log.committed(self, first_lsn, count)

    def fail(self, error: LogStoreError) -> None:
        self.error = self.error or error
        self._log.failed(self, error)


def draw_payloads(
    random: Random,
    *,
    client: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    count_max: int,
    payload_max_bytes: int,
    batch_max_bytes: int,
) -> list[bytes]:
    """1 to `count_max` payloads of 0 to `payload_max_bytes` bytes that fit into one batch."""
    payloads: list[bytes] = []
    total = 0
    for number in range(1 + int(random.random() * count_max)):
        size = int(random.random() * (payload_max_bytes + 1))
        if batch_size(number + 1, total + size) > batch_max_bytes:
            if payloads:
                break
            size = 0
        tag = _TAG.pack(
            sequence & 0xFFFFFFFF, number & 0xFF, producer_epoch & 0xFFFF, client, producer_id
        )
        if random.random() * 1_000 < _ODD_PAYLOADS_PERMILLE:
            tag = _odd(random, tag)
        payload = (tag * (size // len(tag) + 1))[:size]
        payloads.append(payload)
        total += size
    return payloads


def _odd(random: Random, tag: bytes) -> bytes:
    """Content that a careless reader of bytes takes for something else."""
    if random.random() < 0.5:
        return bytes(24)
    return encode_batch([tag], producer_id=1, producer_epoch=1, sequence=0, timestamp_ns=0)
