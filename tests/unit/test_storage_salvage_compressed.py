"""Salvaged entries with compressed batches: a damaged block is told by its LSNs only."""

from __future__ import annotations

from crc32c import crc32c

from logstore.format.batch import encode_batch
from logstore.model import Codec
from logstore.storage.salvage import SalvagedEntry
from logstore.storage.salvaged_batches import salvage_batches
from tests.unit.compressed_batches import TEXT, compressed

PLAIN = encode_batch([b"a", b"b"], producer_id=7, producer_epoch=1, sequence=0, timestamp_ns=5)
FIRST_LSN = 21


def entry_of(body: bytes, count: int, fault: str = "") -> SalvagedEntry:
    return SalvagedEntry(9, FIRST_LSN, count, body, 8, fault)


def test_whole_compressed_batches_are_told_as_they_are() -> None:
    block = compressed(TEXT, Codec.ZSTD)
    found = list(salvage_batches(entry_of(PLAIN + block + PLAIN, 4 + len(TEXT))))
    assert [each.data for each in found] == [PLAIN, block, PLAIN]
    assert [each.first_lsn for each in found] == [21, 23, 23 + len(TEXT)]
    assert not [each.fault for each in found if each.fault]


def test_of_a_damaged_block_only_the_lsns_are_left_and_what_is_around_it_stays() -> None:
    block = bytearray(compressed(TEXT, Codec.LZ4))
    block[-20] ^= 1
    assert crc32c(block[32:], crc32c(block[:28])) != int.from_bytes(block[28:32], "little")
    body = PLAIN + bytes(block) + PLAIN
    found = list(salvage_batches(entry_of(body, 4 + len(TEXT), "the CRC of the body")))
    assert [(each.first_lsn, each.count) for each in found] == [
        (21, 2), (23, len(TEXT)), (23 + len(TEXT), 2),
    ]  # fmt: skip
    assert [each.data for each in found] == [PLAIN, b"", PLAIN]
    assert [bool(each.fault) for each in found] == [False, True, False]
