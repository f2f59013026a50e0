"""Sends requests that no port accepts (`checkers/messages/blunders`), and expects a refusal.

Owns one wrong request at a time. It is sent to one node after the other until one answers: if none
ever does, the run ends with an answer that is missing. Knows of ports what PROTOCOL.md says.
"""

from __future__ import annotations

from random import Random
from typing import Any

from crc32c import crc32c

from actors.simulation.checkers.messages.blunders import SILENT, Blunder, judge_blunder
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.network.core_links import SimulatedLinks
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.steps import Steps, Wait
from logstore.format.client_messages import MetadataRequest
from logstore.format.fields import UUID_SIZE
from logstore.format.message import decode_message, encode_message
from logstore.model import NO_NODE
from logstore.settings import PortOffset
from transport import link

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


class Bungler:
    """A subject. Its links have no observer: it passes the answers to their judge itself."""

    ask_every_ns = 1_500 * MS_NS

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer
        self._host = inquirer.host
        self._links = SimulatedLinks(inquirer.host.links)
        self._correlation = 0

    def ask(self) -> Steps[None]:
        """Send one blunder again and again until a node answers."""
        random, witness = self._host.random, self._inquirer.witness
        blunder, port = random.choice(tuple(Blunder)), PortOffset.CONTROL
        if blunder not in SILENT and random.random() < 0.5:
            port = PortOffset.FETCH
        message = None
        while message is None:
            node = self._host.any_node()
            message = yield from self._send(blunder, node, port)
            if message is None:
                witness.count("late")
        judge_blunder(witness, blunder, f"{port.name} of node {node}", message)

    def _send(self, blunder: Blunder, node: int, port: PortOffset) -> Steps[Any]:
        """The answer; None: there is none in time. After a blunder that must not be answered, an
        honest request of the same number is sent."""
        core, zero = self._inquirer.core, bytes(UUID_SIZE)
        self._correlation += 1
        honest = encode_message(
            MetadataRequest(), cluster_id=zero, sender_uuid=zero, sender=NO_NODE, target=NO_NODE,
            correlation=self._correlation,
        )  # fmt: skip
        unsent = [spoiled(blunder, port, honest, self._host.random)]
        if blunder in SILENT:
            unsent.append((honest,))
        made = self._links.requester(self._host.endpoint(node, port))
        deadline_ns = core.deadline_ns(self._inquirer.draw_timeout_s())
        try:
            while core.clock.monotonic_ns() < deadline_ns:
                while unsent and link.try_send(made.socket, unsent[0]):
                    del unsent[0]
                while (frames := made.try_receive()) is not None:
                    envelope, message = decode_message(frames[0])
                    if envelope.correlation == self._correlation:
                        return message
                yield Wait(deadline_ns, (made,), (made,) if unsent else ())
            return None
        finally:
            made.close()


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
