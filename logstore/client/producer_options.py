"""What a producer may be told, and what follows from it for its queue and its steps.

Shared by the producers of threads and of asyncio.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from logstore.client.append_queue import QueueLimits
from logstore.client.core.connection import Session
from logstore.client.core.producer_machine import AckObserver, MachineOptions
from logstore.errors import InvalidRequest
from logstore.format.client_messages import OpenSessionRequest
from logstore.limits import (
    KIB,
    POSITION_MAX,
    SESSION_NAME_MAX_BYTES,
    SESSION_WINDOW_BYTES,
    SESSION_WINDOW_MAX,
    SESSION_WINDOW_MIN,
)
from logstore.model import AckLevel, SequenceMode

# How long the steps may take to end once they are told to, beyond what batches may take.
STOP_TIMEOUT_S = 10.0


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a producer.

    Attributes:
      name: a lasting identity; a producer that opens it again fences the one before. None:
        anonymous.
      mode: DENSE, sequences are counted for you; MONOTONE, each batch brings its own, rising one.
      linger_ms: how long a small append waits for others to share its batch while another batch is
        in flight.
      pack_bytes: a pack of small appends of this size goes without lingering.
      window: batches in flight at most (SESSION_WINDOW_MIN..MAX).
      window_bytes: unacknowledged bytes at most; never above what the leader grants.
      append_timeout_s: how long an append waits for room in the window before it raises Overloaded.
      delivery_timeout_s: after this a future fails, whatever happened to its batch.
      ack_timeout_s: after so long without an acknowledgement the leader is looked for and asked.
      on_ack: called per committed batch, from the network thread (asyncio: in the loop), with its
        bytes, its payloads, and the monotonic times in ns at which its first payload was appended
        and its acknowledgement came.
    """

    name: str | None = None
    mode: SequenceMode = SequenceMode.DENSE
    linger_ms: float = 1.0
    pack_bytes: int = 64 * KIB
    window: int = 1_024
    window_bytes: int = SESSION_WINDOW_BYTES
    append_timeout_s: float = 30.0
    delivery_timeout_s: float = 30.0
    ack_timeout_s: float = 1.0
    on_ack: AckObserver | None = None


def open_request(options: ProducerOptions) -> OpenSessionRequest:
    """What opens the session.

    Raises:
      InvalidRequest: an option is out of bounds.
    """
    _check(options)
    name = (options.name or "").encode()
    return OpenSessionRequest(0, options.mode, AckLevel.QUORUM, options.window, name)


def queue_limits(options: ProducerOptions, session: Session) -> QueueLimits:
    return QueueLimits(
        window_bytes=min(options.window_bytes, session.window_bytes),
        pack_bytes=options.pack_bytes,
        batch_max_bytes=session.batch_max_bytes,
        append_timeout_s=options.append_timeout_s,
        delivery_timeout_s=options.delivery_timeout_s,
    )


def machine_options(
    options: ProducerOptions, *, on_connected: Callable[[int], None]
) -> MachineOptions:
    return MachineOptions(
        linger_s=options.linger_ms / 1_000,
        ack_timeout_s=options.ack_timeout_s,
        delivery_timeout_s=options.delivery_timeout_s,
        is_dense=options.mode == SequenceMode.DENSE,
        on_ack=options.on_ack,
        on_connected=on_connected,
    )


def check_sequence(sequence: int | None, last: int) -> int:
    """The sequence of a monotone producer's next batch, after `last`.

    Raises:
      InvalidRequest: there is none, or it does not rise.
    """
    if sequence is None or sequence < 0:
        raise InvalidRequest(f"a monotone producer gives each batch a sequence, not {sequence}")
    if sequence >= POSITION_MAX:
        raise InvalidRequest(f"sequence {sequence}: sequences end at {POSITION_MAX - 1}")
    if sequence <= last:
        raise InvalidRequest(f"sequence {sequence} after {last}: they must rise")
    return sequence


def _check(options: ProducerOptions) -> None:
    if not SESSION_WINDOW_MIN <= options.window <= SESSION_WINDOW_MAX:
        raise InvalidRequest(
            f"window {options.window}: give {SESSION_WINDOW_MIN}..{SESSION_WINDOW_MAX} batches"
        )
    if options.name is not None and not 0 < len(options.name.encode()) <= SESSION_NAME_MAX_BYTES:
        raise InvalidRequest(f"a producer's name has 1..{SESSION_NAME_MAX_BYTES} bytes")
    if options.mode == SequenceMode.MONOTONE and options.name is None:
        raise InvalidRequest("a monotone producer needs a name: its sequences outlive it")
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
