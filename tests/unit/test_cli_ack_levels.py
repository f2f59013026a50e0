"""`logstore produce --acks leader|none` against a played replica: what it counts, how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ACK_ROW,
    Acks,
    ErrorReply,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
    SessionStateRequest,
)
from tests.unit.cli_stage import kept_process_settings, run
from tests.unit.client_stage import Cluster, FakeReplica

LINES = 5
PRODUCER = 7


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with kept_process_settings():
        yield


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        yield cluster.replicas[1]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(LINES)))
    return path


class Levels:
    """Its leader answers provisionally, and refuses `refused` once, with what comes after it."""

    def __init__(self, replica: FakeReplica, refused: bytes, code: ErrorCode) -> None:
        self._replica = replica
        self._refused = refused
        self._code = code
        self._epoch = 0
        self._gone_round = 0
        self.stored: list[bytes] = []
        self._taken = 0  # in this epoch
        replica.on_push = self._push
        replica.on[OpenSessionRequest] = self._open
        replica.on[SessionStateRequest] = self._state

    def _open(self, _request: Any) -> OpenSessionReply:
        self._epoch += 1
        self._taken = 0
        return OpenSessionReply(PRODUCER, self._epoch, 64, 1 << 22, 1 << 20, 0)

    def _state(self, request: SessionStateRequest) -> Any:
        if self._gone_round and self._code in (ErrorCode.FENCED, ErrorCode.UNKNOWN_PRODUCER):
            return ErrorReply(self._code, 0, 0, 0, b"it is over")
        return SessionStateReply(PRODUCER, request.producer_epoch, self._taken, b"")

    def _push(self, round_number: int, sequence: int, payloads: list[bytes]) -> None:
        code = ErrorCode.PROVISIONAL
        if round_number == self._gone_round:
            return
        if payloads == [self._refused] and not self._gone_round:
            self._gone_round = round_number
            code = self._code
        else:
            self._taken = sequence + 1
            self.stored += payloads
        row = ACK_ROW.pack(sequence, 0, len(payloads), code, 0)
        self._replica.publish_ack(Acks(PRODUCER, self._epoch, round_number, row), PRODUCER)


def test_a_change_of_leader_does_not_end_it_and_losses_are_counted_once(
    replica: FakeReplica, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    levels = Levels(replica, b"1", ErrorCode.NOT_LEADER)
    report = tmp_path / "report"
    arguments = ("produce", source, "--acks", "leader", "--batch", "1")
    assert run(*arguments, "--json", report) == 0
    told = json.loads(report.read_bytes())
    assert told["error"] is None
    assert told["unanswered"] >= 1
    assert told["provisional"] == len(levels.stored) == LINES - told["unanswered"]
    assert told["possibly_lost"] == told["unanswered"]

    Levels(replica, b"1", ErrorCode.NOT_LEADER)
    assert run(*arguments) == 0
    said = capfd.readouterr().err
    assert "had no answer; of all that was sent" in said
    assert "may be lost" in said


@pytest.mark.parametrize("acks", ["leader", "none"])
@pytest.mark.parametrize(
    ("code", "says"),
    [(ErrorCode.FENCED, "it is over"), (ErrorCode.INVALID_BATCH, "sequence 4 was refused")],
)
def test_a_producer_that_ended_is_no_success(
    replica: FakeReplica,
    source: Path,
    capfd: pytest.CaptureFixture[str],
    acks: str,
    code: ErrorCode,
    says: str,
) -> None:
    """The last line is refused: nothing is appended any more that could be told so."""
    Levels(replica, b"%d" % (LINES - 1), code)
    assert run("produce", source, "--acks", acks, "--batch", "1") == 4
    error = next(line for line in capfd.readouterr().err.splitlines() if "error:" in line)
    if acks == "none" or code == ErrorCode.FENCED:
        assert says in error
