"""What a producer may be told, and what follows from it for its queue and its steps.

Shared by the producers of threads and of asyncio.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from logstore.client.append_queue import QueueLimits
from logstore.client.core.connection import Session
from logstore.client.core.given_sequences import GivenSequences
from logstore.client.core.packs import PackSource
from logstore.client.core.producer_machine import AckObserver, MachineOptions, ProducerMachine
from logstore.client.core.provisional_machine import ProvisionalMachine, ProvisionalOptions
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host
from logstore.errors import Closed, InvalidRequest, LogStoreError
from logstore.format.client_messages import OpenSessionRequest
from logstore.format.codecs import NO_COMPRESSION, make_compressor
from logstore.limits import (
    KIB,
    POSITION_MAX,
    SESSION_NAME_MAX_BYTES,
    SESSION_WINDOW_BYTES,
    SESSION_WINDOW_MAX,
    SESSION_WINDOW_MIN,
)
from logstore.model import FIRST_LSN, AckLevel, SequenceMode

_LOG = logging.getLogger(__name__)

# How long the steps may take to end once they are told to, beyond what batches may take.
STOP_TIMEOUT_S = 10.0

Acks = Literal["quorum", "leader", "none"]
Mode = Literal["dense", "monotone"]
_MODES = {"dense": SequenceMode.DENSE, "monotone": SequenceMode.MONOTONE}
_ACK_LEVELS = {"quorum": AckLevel.QUORUM, "leader": AckLevel.LEADER, "none": AckLevel.NONE}


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a producer.

    Attributes:
      name: a lasting identity; a producer that opens it again fences the one before. At acks leader
        and none the one before may fence the new one instead, if it opens its session again just
        then, at a change of leader: one of the two ends. None: anonymous.
      mode: DENSE, or "dense": sequences are counted for you; MONOTONE, or "monotone": each batch
        brings its own, rising one.
      acks: when an append has its outcome. "quorum": a majority has it on disk; the outcome is its
        LSNs, and nothing of it is ever lost. "leader": the leader has it on disk; "none": it was
        handed over. The outcome of these two is `Provisional`, without LSNs: what is on its way, or
        on the leader's disk alone, may be lost when the connection breaks or another node leads.
        Nothing is stored twice or out of order. DENSE only.
      linger_ms: how long a small append waits for others to share its batch while another batch is
        in flight.
      pack_bytes: a pack of small appends of this size goes without lingering.
      window: batches in flight at most (SESSION_WINDOW_MIN..MAX).
      window_bytes: unacknowledged bytes at most; never above what the leader grants.
      append_timeout_s: how long an append waits for room in the window before it raises Overloaded.
      delivery_timeout_s: after this a future fails, whatever happened to its batch.
      ack_timeout_s: after so long without an acknowledgement the leader is looked for and asked.
      compression: "none", "lz4" or "zstd": how the payloads of each batch are packed, where that
        makes it smaller, in the thread that sends (asyncio: in the loop, where 1 MiB of text takes
        5 ms with zstd). lz4 and zstd need a package, `lz4` and `zstandard`,
        here and where payloads are read, and a log of format level 3. Windows and limits count
        bytes without compression.
      on_ack: called per batch that is committed, or at acks leader provisional, and at acks none
        never; from the network thread (asyncio: in the loop), with its
        bytes, its payloads, and the monotonic times in ns at which its first payload was appended
        and its acknowledgement came. One that raises is logged, and changes no outcome.
    """

    name: str | None = None
    mode: SequenceMode | Mode = SequenceMode.DENSE
    acks: Acks = "quorum"
    linger_ms: float = 1.0
    pack_bytes: int = 64 * KIB
    window: int = 1_024
    window_bytes: int = SESSION_WINDOW_BYTES
    append_timeout_s: float = 30.0
    delivery_timeout_s: float = 30.0
    ack_timeout_s: float = 1.0
    compression: str = NO_COMPRESSION
    on_ack: AckObserver | None = None


def options_or_default(options: ProducerOptions | None) -> ProducerOptions:
    """Raises: InvalidRequest: it is something else, a dict for example."""
    if options is None:
        return ProducerOptions()
    if not isinstance(options, ProducerOptions):
        raise InvalidRequest(
            f"a producer's options {options!r}: give a ProducerOptions, such as "
            'producer(ProducerOptions(acks="leader"))'
        )
    return options


def mode_of(options: ProducerOptions) -> SequenceMode:
    """Raises: InvalidRequest: there is no such mode."""
    try:
        mode = options.mode
        return _MODES[mode] if isinstance(mode, str) else SequenceMode(mode)
    except (KeyError, ValueError) as error:
        raise InvalidRequest(f"mode {mode!r}: give one of {', '.join(_MODES)}") from error


def open_request(options: ProducerOptions) -> OpenSessionRequest:
    """What opens the session.

    Raises:
      InvalidRequest: an option is out of bounds.
      CodecMissing: the package of its codec is not installed.
    """
    _check(options)
    name = (options.name or "").encode()
    return OpenSessionRequest(0, mode_of(options), _ACK_LEVELS[options.acks], options.window, name)


def queue_limits(options: ProducerOptions, session: Session) -> QueueLimits:
    return QueueLimits(
        window_bytes=min(options.window_bytes, session.window_bytes),
        pack_bytes=options.pack_bytes,
        batch_max_bytes=session.batch_max_bytes,
        append_timeout_s=options.append_timeout_s,
        delivery_timeout_s=options.delivery_timeout_s,
    )


def make_machine(
    host: Host,
    routing: Routing,
    options: ProducerOptions,
    session: Session,
    queue: PackSource,
    given: GivenSequences,
    *,
    on_connected: Callable[[int], None],
) -> ProducerMachine | ProvisionalMachine:
    """The steps that send, for the session that was opened with these options."""
    if options.acks == "quorum":
        machine_options = MachineOptions(
            linger_s=options.linger_ms / 1_000,
            ack_timeout_s=options.ack_timeout_s,
            delivery_timeout_s=options.delivery_timeout_s,
            is_dense=mode_of(options) == SequenceMode.DENSE,
            on_ack=_caught(options.on_ack),
            on_connected=on_connected,
            compressor=make_compressor(options.compression),
        )
        return ProducerMachine(host, routing, session, queue, machine_options, given)
    provisional_options = ProvisionalOptions(
        opening=open_request(options),
        linger_s=options.linger_ms / 1_000,
        ack_timeout_s=options.ack_timeout_s,
        delivery_timeout_s=options.delivery_timeout_s,
        on_ack=_caught(options.on_ack),
        on_connected=on_connected,
        compressor=make_compressor(options.compression),
    )
    return ProvisionalMachine(host, routing, session, queue, provisional_options)


def _caught(on_ack: AckObserver | None) -> AckObserver | None:
    """The same, but an error is logged: it would end the producer, and fail every other append."""
    if on_ack is None:
        return None

    def observe(size_bytes: int, payloads: int, appended_ns: int, acked_ns: int) -> None:
        try:
            on_ack(size_bytes, payloads, appended_ns, acked_ns)
        except Exception:
            _LOG.exception("the on_ack of a producer raised")

    return observe


def log_ending(machine: ProducerMachine | ProvisionalMachine, error: LogStoreError) -> None:
    """A producer ended by itself. At acks leader and none no future may be left to say so."""
    if isinstance(machine, ProvisionalMachine) and not isinstance(error, Closed):
        _LOG.warning("producer %d ended: %s", machine.session.producer_id, error)


def check_expected(expected_next_lsn: int | None) -> None:
    """Raises: InvalidRequest: no batch can have this LSN."""
    if expected_next_lsn is None:
        return
    if not FIRST_LSN <= expected_next_lsn <= POSITION_MAX:
        raise InvalidRequest(
            f"expected_next_lsn {expected_next_lsn}: give an LSN, {FIRST_LSN} or more, or None"
        )


def no_sequence(sequence: int | None, expected_next_lsn: int | None) -> None:
    """A dense producer's batch is given neither.

    Raises:
      InvalidRequest: it is.
    """
    if sequence is not None:
        raise InvalidRequest("a dense producer counts for itself: give no sequence")
    if expected_next_lsn is not None:
        raise InvalidRequest(
            "a dense producer expects no LSN: its batches follow each other whatever becomes of "
            "one; open a monotone one"
        )


def _check(options: ProducerOptions) -> None:
    make_compressor(options.compression)
    if not SESSION_WINDOW_MIN <= options.window <= SESSION_WINDOW_MAX:
        raise InvalidRequest(
            f"window {options.window}: give {SESSION_WINDOW_MIN}..{SESSION_WINDOW_MAX} batches"
        )
    if options.name is not None and not 0 < len(options.name.encode()) <= SESSION_NAME_MAX_BYTES:
        raise InvalidRequest(f"a producer's name has 1..{SESSION_NAME_MAX_BYTES} bytes")
    if mode_of(options) == SequenceMode.MONOTONE and options.name is None:
        raise InvalidRequest("a monotone producer needs a name: its sequences outlive it")
    if options.acks not in get_args(Acks):
        raise InvalidRequest(f"acks {options.acks!r}: give one of {', '.join(get_args(Acks))}")
    if options.acks != "quorum" and mode_of(options) != SequenceMode.DENSE:
        raise InvalidRequest(
            f"acks {options.acks}: a monotone producer must know what is stored, so it has acks "
            "quorum"
        )
    positive = {
        "window_bytes": options.window_bytes,
        "pack_bytes": options.pack_bytes,
        "append_timeout_s": options.append_timeout_s,
        "delivery_timeout_s": options.delivery_timeout_s,
        "ack_timeout_s": options.ack_timeout_s,
    }
    for name, value in positive.items():
        if not value > 0:  # NaN is not, either
            raise InvalidRequest(f"{name} {value}: give a number above 0")
    if not options.linger_ms >= 0:
        raise InvalidRequest(f"linger_ms {options.linger_ms}: give 0 or more")
