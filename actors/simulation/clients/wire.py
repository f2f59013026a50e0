"""A client's side of the envelope: the cluster's id, numbers for its appends, honest complaints.

Owns what one client has learned of the cluster. A frame that a replica should not have sent is a
violation: the simulated network loses, repeats and delays, but never changes a byte.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.facts import PromiseBroken
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.world.client_host import ClientHost
from logstore.errors import FormatError, InvalidRequest, LogStoreError, WrongCluster
from logstore.format.fields import UUID_SIZE
from logstore.format.message import Envelope, decode_message

_ZERO_ID = bytes(UUID_SIZE)


class Wire:
    """Decodes for one client. `counts` says what happened to it, by name."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.counts: dict[str, int] = {}
        self._cluster_id = _ZERO_ID
        self._operation = host.number << 32

    def next_operation(self) -> int:
        """A number for an append, unique in the world."""
        self._operation += 1
        return self._operation

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def decode(self, frame: bytes) -> tuple[Envelope, Any] | None:
        """What a replica says; None, and a violation, if it is no message of this cluster."""
        try:
            envelope, message = decode_message(frame)
        except FormatError as error:
            self.violated(Invariant.I11, f"a replica sent no message: {error}")
            return None
        cluster_id = envelope.cluster_id
        if cluster_id not in (self._cluster_id, _ZERO_ID):
            if self._cluster_id != _ZERO_ID:
                text = f"node {envelope.sender} is of another cluster, {cluster_id.hex()}"
                self.violated(Invariant.I8, text)
                return None
            self._cluster_id = cluster_id
        return envelope, message

    def failed(self, error: LogStoreError) -> None:
        """A call of the core ended with this: what a user has to expect, or a violation."""
        kind = type(error)
        if isinstance(error, FormatError | WrongCluster) or kind in (InvalidRequest, LogStoreError):
            self.violated(Invariant.I11, f"a call failed with {kind.__name__}: {error}")
        else:
            self.count(f"failed-{error.code.name.lower()}")

    def violated(self, invariant: Invariant, text: str) -> None:
        """An answer broke a promise."""
        host = self.host
        host.tell(PromiseBroken(invariant, f"{host.name}: {text}"))
