"""Any bytes of any length on a request port: answered once, or counted, and never more than that
(FAULTS X8).

The actors are the shipped ones on fake sockets. A refusal is small, and an answer that is sent back
gets none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply
from logstore.format.message import decode_message, encode_message, message_types
from logstore.limits import REQUEST_TIMEOUT_NS
from tests.property.test_format_mutations import GOLDEN, MESSAGES
from tests.unit.actor_stage import CLUSTER
from tests.unit.egress_stage import EgressStage
from tests.unit.ingress_stage import Stage
from transport import link

# An envelope, the fixed fields of an ErrorReply, and a sentence.
REFUSAL_MAX_BYTES = 64 + 24 + 256
SILENT = (Counter.FRAMES_DROPPED, Counter.FRAMES_DAMAGED)
U16 = st.integers(0, (1 << 16) - 1)
FRAMES_MAX = 5


class Port:
    """`exchange` sends one message and says what came back, and how often silence was counted."""

    def __init__(self, socket: Any, slots: Any, settle: Any) -> None:
        self._socket = socket
        self._slots = slots
        self._settle = settle

    def exchange(self, frames: list[bytes]) -> tuple[list[list[bytes]], int]:
        before = sum(self._slots[each] for each in SILENT)
        assert link.try_send(self._socket, frames)
        self._settle()
        answers = []
        while (answer := link.try_receive(self._socket)) is not None:
            answers.append(answer)
        return answers, sum(self._slots[each] for each in SILENT) - before


def ingress_port(*, is_leading: bool) -> Port:
    stage = Stage()
    if is_leading:
        stage.lead()
    else:
        stage.identify()

    def settle() -> None:
        stage.work()
        stage.clock.now_ns += REQUEST_TIMEOUT_NS  # whoever waits for raft is told so
        stage.work()
        stage.heard()

    return Port(stage.client().socket, stage.slots, settle)


@pytest.fixture(scope="module")
def egress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EgressStage]:
    folder: Path = tmp_path_factory.mktemp("egress")
    with pytest.MonkeyPatch.context() as monkeypatch:
        stage = EgressStage(folder, monkeypatch)
        stage.append(8, 8, 8)
        stage.show()
        yield stage
        stage.close()


def egress_port(stage: EgressStage) -> Port:
    def settle() -> None:
        stage.work()
        stage.stage.now_ns += REQUEST_TIMEOUT_NS * 10
        stage.work()
        stage.heard()

    return Port(stage.client().socket, stage.slots, settle)


@st.composite
def near_requests(draw: Any) -> bytes:
    """A message of ours with something wrong, mostly sealed as whoever means it would."""
    frame = bytearray(GOLDEN[draw(st.sampled_from(MESSAGES))])
    frame[16:32] = draw(st.sampled_from([bytes(16), CLUSTER, b"another cluster!"]))
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(frame) - 1))
        frame[position] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        frame[6:8] = draw(U16).to_bytes(2, "little")
    if draw(st.booleans()):
        size = draw(st.integers(0, 100))
        frame = frame[:size] if draw(st.booleans()) else frame + bytes(size)
    if len(frame) >= 64 and draw(st.booleans()):
        frame[0:4] = b"LMSG"
        frame[8:12] = (len(frame) - 64).to_bytes(4, "little")
    if len(frame) >= 16 and draw(st.integers(0, 9)):
        frame[12:16] = crc32c(bytes(frame[16:]), crc32c(bytes(frame[:12]))).to_bytes(4, "little")
    return bytes(frame)


FRAME = st.one_of(st.binary(max_size=4_096), near_requests(), near_requests())
MESSAGE = st.one_of(
    FRAME.map(lambda frame: [frame]), st.lists(FRAME, min_size=1, max_size=FRAMES_MAX)
)


def check(port: Port, frames: list[bytes]) -> None:
    answers, silences = port.exchange(frames)
    assert len(answers) + silences == 1, (answers, silences)
    for answer in answers:
        envelope, message = decode_message(answer[0])
        if isinstance(message, ErrorReply):
            assert len(answer) == 1
            assert len(answer[0]) <= REFUSAL_MAX_BYTES
            assert message.code != ErrorCode.OK
        correlations = [int.from_bytes(frame[56:64], "little") for frame in frames]
        assert envelope.correlation in correlations
        assert port.exchange(answer) == ([], 1), "an answer is answered"


# One stage serves all examples: what one message does to the next is part of what is asked.
EXAMPLES = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.parametrize("is_leading", [True, False])
def test_the_control_port_answers_or_counts_whatever_comes(is_leading: bool) -> None:
    port = ingress_port(is_leading=is_leading)

    @EXAMPLES
    @given(MESSAGE)
    def ask(frames: list[bytes]) -> None:
        check(port, frames)

    ask()


def test_the_fetch_port_answers_or_counts_whatever_comes(egress: EgressStage) -> None:
    port = egress_port(egress)

    @EXAMPLES
    @given(MESSAGE)
    def ask(frames: list[bytes]) -> None:
        check(port, frames)

    ask()


@pytest.mark.parametrize(
    ("kind", "place"),
    [(zmq.PUSH, "append"), (zmq.DEALER, "peer_control"), (zmq.DEALER, "peer_bulk")],
)
def test_the_other_ports_of_ingress_survive_whatever_comes(kind: int, place: str) -> None:
    """And a port that is no client's sends nothing back."""
    stage = Stage()
    stage.lead()
    socket = stage.network.connect(kind, place)

    @EXAMPLES
    @given(MESSAGE)
    def send(frames: list[bytes]) -> None:
        assert link.try_send(socket, frames)
        stage.work()
        stage.heard()
        stage.heard(bulk=True)
        assert kind == zmq.PUSH or link.try_receive(socket) is None

    send()


@pytest.mark.parametrize("number", message_types())
def test_every_message_of_ours_is_answered_or_counted_on_both_ports(
    number: int, egress: EgressStage
) -> None:
    _, message = decode_message(golden_of(number))
    frame = encode_message(
        message, cluster_id=CLUSTER, sender_uuid=bytes(16), sender=0, target=0, correlation=9
    )
    for port in (ingress_port(is_leading=True), egress_port(egress)):
        check(port, [frame])


def golden_of(number: int) -> bytes:
    found = (GOLDEN[name] for name in MESSAGES)
    return next(frame for frame in found if int.from_bytes(frame[6:8], "little") == number)
