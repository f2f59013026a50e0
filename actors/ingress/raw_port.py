"""The raw port: what any ZeroMQ PUSH sends becomes payloads, without a protocol. Off, unless the
node has a `raw_port`.

Owns the PULL socket. It is there only while this replica leads, from when it takes batches, so a
PUSH that is connected to all replicas sends to the leader. Nothing is answered, as at level `none`:
what lies in sockets when the leader changes is lost. Payloads that are there at a time become
one batch. It is of no session, so it goes into an entry of kind IMPORT, and is of producer 0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from actors.guard import ConnectionGuard, Guarded
from actors.host import Clock
from actors.ingress.admission import Admission
from actors.ingress.replica_info import ReplicaInfo
from actors.ingress.sockets_and_rings import most_unread_bytes
from actors.station import Station
from actors.topology import Counter
from logstore.format.batch import BatchSizes, batch_size, encode_batch
from logstore.limits import BATCH_MAX_PAYLOADS, POSITION_MAX
from logstore.model import NO_TERM
from logstore.session.session import WindowRow
from transport.errors import LinkError
from transport.ports import Socket

NO_PRODUCER = 0
# Small payloads share batches of about this size, as in a client's pack.
_BATCH_BYTES = 65_536
_OPEN_AGAIN_NS = 10_000_000
_SAY_AFTER_NS = 1_000_000_000
_SAY_AGAIN_NS = 60_000_000_000

_log = logging.getLogger(__name__)


class RawSettings(msgspec.Struct, frozen=True):
    """`open_socket` binds the port. `unread_max_bytes`: what a connection may have sent ahead."""

    open_socket: Callable[[], Socket]
    batch_max_bytes: int
    unread_max_bytes: int


def payload_max_bytes(batch_max_bytes: int) -> int:
    """The largest payload of which a batch can be made: the socket takes no larger message."""
    return batch_max_bytes - batch_size(1, 0) - 7


class RawPort:
    """Collects payloads; `flush` appends them as one batch. Without `settings` there is none."""

    def __init__(
        self,
        settings: RawSettings | None,
        admission: Admission,
        guard: ConnectionGuard,
        replica: ReplicaInfo,
        slots: memoryview,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._admission = admission
        self._guard = guard
        self._replica = replica
        self._slots = slots
        self._clock = clock
        self.socket: Socket | None = None
        self._try_ns = 0  # not before
        self._failing_since_ns = 0  # 0: it is not
        self._say_ns = 0  # not before
        self._payloads: list[bytes] = []
        self._payload_bytes = 0

    def open_or_close(self, now_ns: int) -> None:
        """Listen from when this replica takes batches until it leads no more. Between two gens of a
        term, and while its disk is full, the port is there and not read."""
        settings, admission = self._settings, self._admission
        if settings is None:
            return
        if self.socket is not None:
            if admission.term == NO_TERM or not self._replica.is_leading:
                self.close()
        elif admission.is_ready and admission.takes_batches and now_ns >= self._try_ns:
            self._try_open(settings, now_ns)

    def _try_open(self, settings: RawSettings, now_ns: int) -> None:
        """The port may be taken for a moment after it was closed here."""
        try:
            self.socket = settings.open_socket()
        except LinkError as error:
            self._try_ns = now_ns + _OPEN_AGAIN_NS
            self._failing_since_ns = self._failing_since_ns or now_ns
            if now_ns >= max(self._failing_since_ns + _SAY_AFTER_NS, self._say_ns):
                self._say_ns = now_ns + _SAY_AGAIN_NS
                _log.error("the raw port stays closed for now: %s", error)
            return
        self._failing_since_ns = 0
        most = payload_max_bytes(settings.batch_max_bytes)
        self._guard.watch(Guarded("raw", self.socket, most, settings.unread_max_bytes))

    def close(self) -> None:
        """Listen no more. What was not read is lost."""
        if self.socket is not None:
            self._guard.forget(self.socket)
            self.socket.close(linger=0)
            self.socket = None

    def take(self, frames: Sequence[bytes | memoryview], now_ns: int) -> bool:
        """One message, which is one payload; False: it is no request. Hot."""
        del now_ns
        if len(frames) != 1 or self._settings is None:
            self._slots[Counter.FRAMES_DROPPED] += 1
            return False
        payload = bytes(frames[0])
        most_bytes = min(_BATCH_BYTES, self._settings.batch_max_bytes)
        count, size_bytes = len(self._payloads) + 1, self._payload_bytes + len(payload)
        if count > BATCH_MAX_PAYLOADS or batch_size(count, size_bytes) > most_bytes:
            self.flush()
        self._payloads.append(payload)
        self._payload_bytes += len(payload)
        return False

    def flush(self) -> None:
        """Append what was taken. The table is there: nothing is read without one."""
        payloads, size_bytes = self._payloads, self._payload_bytes
        if not payloads:
            return
        self._payloads, self._payload_bytes = [], 0
        batch = encode_batch(
            payloads,
            producer_id=NO_PRODUCER,
            producer_epoch=0,
            sequence=0,
            timestamp_ns=min(max(0, self._clock.wall_ns()), POSITION_MAX),
        )
        row = WindowRow(0, len(payloads), 0)
        sizes = BatchSizes(len(payloads), size_bytes, size_bytes)
        self._admission.take_raw(memoryview(batch), (NO_PRODUCER, 0, 0, row), sizes)


def raw_settings(station: Station) -> RawSettings | None:
    """How the raw port is opened, while this node leads; None: it has none."""
    config, node, host = station.config, station.node, station.host
    if not config.node(node).raw_port:
        return None
    batch_max_bytes = config.limits.batch_max_bytes

    def open_socket() -> Socket:
        socket: Socket = host.links.pull_bind(
            config.raw_endpoint(node),
            message_size_max=payload_max_bytes(batch_max_bytes),
            insecure=config.cluster.insecure,
        )
        return socket

    return RawSettings(open_socket, batch_max_bytes, most_unread_bytes(config))
