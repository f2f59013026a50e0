"""Asks what no port takes, as whoever writes a client does at first, and expects to be told so.

Owns one wrong request at a time, asked again elsewhere until somebody answers it: silence ends as
an answer that is missing after the faults. Knows of ports what PROTOCOL.md says.

| blunder | what must come of it |
|---|---|
| UNKNOWN_TYPE, OTHER_PORT, OF_REPLICAS | INVALID_REQUEST |
| SHORT, LONG, DELIMITER | INVALID_REQUEST |
| NEWER | UNSUPPORTED_VERSION |
| FOREIGN | WRONG_CLUSTER, of whoever has a cluster |
| DAMAGED, ANSWER | nothing: the honest request behind it, of the same number, is answered |
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Any

from crc32c import crc32c

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Answer, Asker
from actors.simulation.clients.host import MS_NS, NEVER_NS, ClientHost
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, MetadataReply, MetadataRequest
from logstore.settings import PortOffset

_ASK_EVERY_NS = 1_500 * MS_NS  # the mean
_VERSION, _TYPE, _LENGTH, _CRC, _CLUSTER = (
    slice(4, 6), slice(6, 8), slice(8, 12), slice(12, 16), slice(16, 32)
)  # fmt: skip
_ENVELOPE_SIZE = 64
_UNKNOWN_TYPES = (127, 0, 255, 65_535)
_TYPES_OF_REPLICAS = (1, 3, 5, 7, 32, 35)
_ANSWERS = (65, 67, 69, 71, 74, 128, 161, 169, 194)
_STATE_REQUEST, _TAIL_SIZE_MAX = 68, 3_000
_TYPES_OF_PORT = {PortOffset.CONTROL: (64, 66, 68, 72), PortOffset.FETCH: (160, 162, 166)}
_OTHER = {PortOffset.CONTROL: PortOffset.FETCH, PortOffset.FETCH: PortOffset.CONTROL}


class Blunder(StrEnum):
    UNKNOWN_TYPE = "unknown-type"
    OTHER_PORT = "other-port"
    OF_REPLICAS = "of-replicas"
    SHORT = "short"
    LONG = "long"
    DELIMITER = "delimiter"
    NEWER = "newer"
    FOREIGN = "foreign"
    DAMAGED = "damaged"
    ANSWER = "answer"


_SILENT = frozenset({Blunder.DAMAGED, Blunder.ANSWER})
_CODES: dict[Blunder, frozenset[ErrorCode]] = {
    Blunder.NEWER: frozenset({ErrorCode.UNSUPPORTED_VERSION}),
    Blunder.FOREIGN: frozenset({ErrorCode.WRONG_CLUSTER, ErrorCode.INVALID_REQUEST}),
}
_INVALID = frozenset({ErrorCode.INVALID_REQUEST})


class Bungler:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.wire = Wire(host)
        self._asker: Asker | None = None
        self._blunder = Blunder.UNKNOWN_TYPE
        self._port = PortOffset.CONTROL
        self._ask_ns = 0
        self._is_stopped = False

    @property
    def counts(self) -> dict[str, int]:
        return self.wire.counts

    @property
    def is_asking(self) -> bool:
        return self._asker is not None

    def stop(self) -> None:
        """No more questions after the one under way. Wake its process."""
        self._is_stopped = True

    # --- an actor's words ---

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        if self._asker is not None:
            self._read_answer(self._asker, now_ns)
        elif now_ns >= self._ask_ns and not self._is_stopped:
            random = self.host.random
            self._ask_ns = now_ns + int(random.expovariate(1.0) * _ASK_EVERY_NS)
            self._blunder = random.choice(tuple(Blunder))
            self._port = PortOffset.CONTROL
            if self._blunder not in _SILENT and random.random() < 0.5:
                self._port = PortOffset.FETCH
            self._ask(now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        return [] if self._asker is None else [self._asker.socket]

    def next_timer_ns(self) -> int:
        if self._asker is not None:
            return self._asker.next_timer_ns()
        return NEVER_NS if self._is_stopped else self._ask_ns

    def on_close(self) -> None:
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    # --- one blunder ---

    def _ask(self, now_ns: int) -> None:
        correlation, honest = self.wire.encode(MetadataRequest())
        wrong = spoiled(self._blunder, self._port, honest, self.host.random)
        messages: list[tuple[bytes, ...]] = [wrong]
        expects: type[Any] = ErrorReply
        if self._blunder in _SILENT:
            messages, expects = [wrong, (honest,)], MetadataReply
        self._asker = Asker(self.wire, self.host.any_node(), self._port)
        self._asker.ask_bytes(correlation, messages, expects, now_ns)

    def _read_answer(self, asker: Asker, now_ns: int) -> None:
        answer = asker.poll(now_ns)
        if answer is not None:
            self.on_close()
            self._take(answer)
        elif asker.is_late(now_ns):
            self.wire.count("late")
            self.on_close()
            self._ask(now_ns)

    def _take(self, answer: Answer) -> None:
        blunder, message = self._blunder, answer.message
        if isinstance(message, MetadataReply):
            self.wire.count(f"silence-{blunder}")
        elif blunder not in _SILENT and message.code in _CODES.get(blunder, _INVALID):
            self.wire.count(f"told-{blunder}")
            if not message.text:
                self.wire.violated(Invariant.I11, f"{blunder} is refused without a reason")
        else:
            text = f"{blunder} at {self._port.name} of node {answer.node} is answered {message}"
            self.wire.violated(Invariant.I11, text)


def spoiled(blunder: Blunder, port: PortOffset, honest: bytes, random: Random) -> tuple[bytes, ...]:
    """The frames of a wrong request, made of an honest one without a body."""
    match blunder:
        case Blunder.UNKNOWN_TYPE:
            return (_with_type(honest, random.choice(_UNKNOWN_TYPES)),)
        case Blunder.OTHER_PORT:
            return (_with_type(honest, random.choice(_TYPES_OF_PORT[_OTHER[port]])),)
        case Blunder.OF_REPLICAS:
            return (_with_type(honest, random.choice(_TYPES_OF_REPLICAS)),)
        case Blunder.SHORT:
            return (_with_type(honest, _TYPES_OF_PORT[port][1]),)
        case Blunder.LONG:
            return (sealed(honest + random.randbytes(random.randrange(1, _TAIL_SIZE_MAX))),)
        case Blunder.DELIMITER:
            return (b"", honest)
        case Blunder.NEWER:
            return (_with(honest, _VERSION, random.choice((0, 2, 65_535)).to_bytes(2, "little")),)
        case Blunder.FOREIGN:
            return (_with(_with_type(honest, _UNKNOWN_TYPES[0]), _CLUSTER, b"another cluster!"),)
        case Blunder.DAMAGED:
            position = random.randrange(_CRC.stop, len(honest))
            flipped = honest[position] ^ 1 << random.randrange(8)
            return (honest[:position] + bytes((flipped,)) + honest[position + 1 :],)
        case Blunder.ANSWER:
            return (_with_type(honest, random.choice(_ANSWERS)),)


def _with_type(frame: bytes, number: int) -> bytes:
    return _with(frame, _TYPE, number.to_bytes(2, "little"))


def _with(frame: bytes, place: slice, data: bytes) -> bytes:
    return sealed(frame[: place.start] + data + frame[place.stop :])


def sealed(frame: bytes) -> bytes:
    """The frame with its own length and CRC."""
    size = (len(frame) - _ENVELOPE_SIZE).to_bytes(4, "little")
    frame = frame[: _LENGTH.start] + size + frame[_LENGTH.stop :]
    crc = crc32c(frame[_CRC.stop :], crc32c(frame[: _CRC.start]))
    return frame[: _CRC.start] + crc.to_bytes(4, "little") + frame[_CRC.stop :]
