"""What is appended: payloads that are unique in the world as far as their size allows, among them
empty ones, zeros and images of batches (FAULTS D36). Pure."""

from __future__ import annotations

import struct
from random import Random

from logstore.format.batch import batch_size, encode_batch

_TAG = struct.Struct("<IBxHQQ")  # sequence (low bits), number, producer epoch, client, producer id
_MISLEADING_PERMILLE = 20


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
        if random.random() * 1_000 < _MISLEADING_PERMILLE:
            tag = _misleading(random, tag)
        payload = (tag * (size // len(tag) + 1))[:size]
        payloads.append(payload)
        total += size
    return payloads


def _misleading(random: Random, tag: bytes) -> bytes:
    """Bytes that a careless reader takes for something else."""
    if random.random() < 0.5:
        return bytes(24)
    return encode_batch([tag], producer_id=1, producer_epoch=1, sequence=0, timestamp_ns=0)
