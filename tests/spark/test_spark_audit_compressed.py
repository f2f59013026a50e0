"""An audit, LSN by LSN, of compressed batches: by their payloads, or by their bytes where these
cannot be told."""

from __future__ import annotations

import sys

import pytest

from logstore.errors import CodecMissing
from logstore.model import Codec
from logstore.spark import audit_digests
from logstore.spark.audit_digests import LsnRow, list_part
from logstore.spark.audit_sources import Lake, Part, Place
from tests.unit.compressed_batches import TEXT, compressed, with_block

PART = Part(Lake("nowhere"), 1, 100)


def rows_of(monkeypatch: pytest.MonkeyPatch, data: bytes, count: int) -> list[LsnRow]:
    monkeypatch.setattr(audit_digests, "read_part", lambda _: iter([Place(1, count, data)]))
    return list_part([(1, 100)], PART)


def test_only_the_payloads_that_differ_do(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [*TEXT[:-1], b"another"]
    one = rows_of(monkeypatch, compressed(TEXT, Codec.ZSTD), len(TEXT))
    other = rows_of(monkeypatch, compressed(changed, Codec.LZ4), len(TEXT))
    assert [a.lsn for a, b in zip(one, other, strict=True) if a.payload != b.payload] == [len(TEXT)]


def test_a_block_that_is_none_is_compared_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    lies = [with_block([5, 9], block, Codec.ZSTD) for block in (b"no block", b"nor this")]
    one, again, other = (rows_of(monkeypatch, each, 2) for each in (lies[0], lies[0], lies[1]))
    assert one == again
    assert [a.payload == b.payload for a, b in zip(one, other, strict=True)] == [False, False]


def test_a_missing_codec_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(CodecMissing, match=r"logstore\[lz4\]"):
        rows_of(monkeypatch, with_block([5], b"x", Codec.LZ4), 1)
