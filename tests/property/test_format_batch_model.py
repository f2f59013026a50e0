"""The batch encoder against a dumb one, byte by byte as PROTOCOL.md says it."""

from __future__ import annotations

import struct
from itertools import pairwise

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from logstore.format.batch import (
    batch_arrays,
    batch_payloads,
    encode_batch,
    iterate_batches,
    read_batch_header,
    verify_batch,
)

U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=150)


def dumb_batch(payloads: list[bytes], producer: int, epoch: int, sequence: int, now: int) -> bytes:
    body = struct.pack("<i", 0)
    end = 0
    for payload in payloads:
        end += len(payload)
        body += struct.pack("<i", end)
    for payload in payloads:
        body += payload
    while len(body) % 8:
        body += b"\0"
    head = b"LBAT" + struct.pack("<HHII", 1, 0, len(body), len(payloads))
    head += struct.pack("<QI", producer, epoch)
    rest = struct.pack("<QQ", sequence, now) + body
    return head + struct.pack("<I", crc32c(head + rest)) + rest


@given(PAYLOADS, U64, U32, U64, U64)
def test_the_encoder_makes_the_bytes_of_the_dumb_one(
    payloads: list[bytes], producer: int, epoch: int, sequence: int, now: int
) -> None:
    batch = encode_batch(
        payloads, producer_id=producer, producer_epoch=epoch, sequence=sequence, timestamp_ns=now
    )
    assert batch == dumb_batch(payloads, producer, epoch, sequence, now)
    header = read_batch_header(batch)
    verify_batch(batch, 0, header, batch_max_bytes=len(batch))
    assert batch_payloads(batch, 0, header) == payloads
    offsets, values = batch_arrays(batch, 0, header)
    assert [values[a:b].tobytes() for a, b in pairwise(offsets)] == payloads


@given(st.lists(PAYLOADS, max_size=5))
def test_a_body_of_several_batches_is_walked_to_its_end(groups: list[list[bytes]]) -> None:
    body = b"".join(dumb_batch(payloads, 1, 2, n, 3) for n, payloads in enumerate(groups))
    walked = [batch_payloads(body, offset, header) for offset, header in iterate_batches(body)]
    assert walked == groups
