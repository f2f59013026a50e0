"""`logstore consume --cursor` where a batch cannot be read: nothing is written for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from logstore.cli.main import main
from logstore.errors import ErrorCode
from logstore.format.batch import encode_batch, read_batch_header
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import Cursor, encode_cursors
from logstore.model import Codec
from tests.unit.cli_stage import kept_process_settings
from tests.unit.client_stage import Cluster, FakeReplica
from tests.unit.compressed_batches import with_block


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    """LSNs 1 and 2, then 3 and 4, which cannot be decompressed, then 5; and a cursor `tap`."""
    with Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        played = cluster.replicas[1]
        batches = [
            batch_of(b"one"),
            batch_of(b"two"),
            with_block([100, 100], b"no block", Codec.ZSTD, producer_id=99),
            batch_of(b"five"),
        ]

        def fill() -> None:
            for batch in batches:
                played.starts.append(played.next_lsn)
                played.log.append(batch)
                played.next_lsn += read_batch_header(batch).count

        played.call(fill)
        yield played


@pytest.fixture
def places(replica: FakeReplica) -> list[int]:
    """Where the cursor was set, in order."""
    found: list[int] = []

    def list_cursors(_: CursorsRequest) -> CursorsReply:
        rows = (Cursor(b"tap", found[-1], False),) if found else ()
        return CursorsReply(encode_cursors(rows))

    def set_cursor(request: SetCursorRequest) -> DoneReply:
        found.append(request.lsn)
        return DoneReply(0)

    replica.on[CursorsRequest] = list_cursors
    replica.on[SetCursorRequest] = set_cursor
    return found


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with kept_process_settings():
        yield


def batch_of(payload: bytes) -> bytes:
    return encode_batch([payload], producer_id=7, producer_epoch=1, sequence=0, timestamp_ns=5)


def consume(*more: str) -> int:
    return main(["consume", "--cursor", "tap", "--to", "5", "--timeout", "2", *more])


@pytest.mark.parametrize("form", [(), ("--raw",), ("--json", "-")])
def test_a_command_that_is_begun_again_stops_at_a_batch_that_cannot_be_read(
    form: tuple[str, ...],
    replica: FakeReplica,
    places: list[int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert consume(*form) != 0
    said = capfd.readouterr()
    assert written(said.out, form) == ["one", "two"]
    assert "go on at LSN 5" in said.err
    assert places == [3]
    assert consume(*form) != 0
    assert capfd.readouterr().out == ""
    assert places == [3]
    places.append(5)
    assert consume(*form) == 0
    assert written(capfd.readouterr().out, form) == ["five"]
    assert places[-1] == 6


def test_the_error_that_ended_the_reading_is_told_though_the_cursor_cannot_be_moved(
    replica: FakeReplica, places: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    replica.on[SetCursorRequest] = lambda _: ErrorReply(ErrorCode.CURSOR_MOVED, 0, 9, 0, b"")
    assert consume() != 0
    said = capfd.readouterr()
    assert written(said.out, ()) == ["one", "two"]
    assert "go on at LSN 5" in said.err
    assert places == []


def written(out: str, form: tuple[str, ...]) -> list[str]:
    if form == ("--raw",):
        return [each for each in ("one", "two", "five") if each in out]
    lines = out.splitlines()
    return [json.loads(line)["payload"] for line in lines] if form else lines
