"""Verification on the fetch port: what is damage, what is none, how much of it at a time."""

from __future__ import annotations

import msgspec
import pytest

from logstore.format.client_messages import VerifyReply, VerifyRequest
from tests.unit.egress_stage import EgressStage, batch


@pytest.fixture
def egress(tmp_path, monkeypatch):
    stage = EgressStage(tmp_path, monkeypatch)
    yield stage
    stage.close()


def test_verify_names_a_batch_that_was_damaged_before_its_entry_was_written(egress):
    """Its own CRC says so, the entry's does not."""
    broken = bytearray(batch(8))
    broken[-1] ^= 1
    egress.log.persist_bodies([batch(8), bytes(broken), batch(8)])
    egress.log.settle()
    egress.show()
    [reply] = egress.client().ask(VerifyRequest(1, 1 << 20))
    [row] = msgspec.json.decode(reply.document)
    assert (row["first_index"], row["first_lsn"], row["last_lsn"]) == (2, 2, 2)
    assert "batch CRC" in row["reason"]
    assert reply.last_index == 3


def test_a_batch_above_a_limit_that_was_lowered_is_no_damage(egress):
    """It was within the limit when it was committed."""
    stage = egress.stage
    lowered = msgspec.structs.replace(stage.config.limits, batch_max="4KiB")
    stage.config = msgspec.structs.replace(stage.config, limits=lowered)
    egress.egress.on_close()
    egress.restart()
    egress.append(8_000)
    egress.show()
    [reply] = egress.client().ask(VerifyRequest(1, 1 << 20))
    assert (msgspec.json.decode(reply.document), reply.payloads) == ([], 1)
    assert egress.heard() == []


def test_a_verification_is_cut_into_slices_of_bounded_work(egress, monkeypatch):
    monkeypatch.setattr("actors.egress.reads.VERIFY_ENTRIES_MAX", 2)
    egress.append(8, 8, 8)
    egress.show()
    client = egress.client()
    first, last = (client.ask(VerifyRequest(at, 1 << 20))[0] for at in (1, 3))
    assert isinstance(first, VerifyReply)
    assert [reply.last_index for reply in (first, last)] == [2, 3]
    assert last.chain == egress.log.rows[3].chain
