"""What one client has seen: its cluster, how often something happened, and violations.

Must not know what a message means. The simulated network loses, repeats and delays messages, but
never changes a byte: if a message does not decode, or is of another cluster, the replica is wrong.
"""

from __future__ import annotations

from typing import Any, Protocol

from actors.simulation.checkers.facts import Fact, PromiseBroken
from actors.simulation.checkers.invariant import Invariant
from logstore.errors import FormatError, InvalidRequest, LogStoreError, WrongCluster
from logstore.format.fields import UUID_SIZE
from logstore.format.message import Envelope, decode_message
from logstore.model import Lsn
from logstore.settings import PortOffset

_ZERO_ID = bytes(UUID_SIZE)


class Client(Protocol):
    """What a checker may read of a client. `number` and `name` are unique; the log begins at
    `first_lsn`."""

    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def nodes(self) -> tuple[int, ...]: ...

    @property
    def joiners(self) -> tuple[int, ...]: ...

    @property
    def may_members_leave(self) -> bool: ...

    @property
    def first_lsn(self) -> Lsn: ...

    def endpoint(self, node: int, port: PortOffset, /) -> str: ...

    def world_now(self) -> int: ...

    def tell(self, fact: Fact, /) -> None: ...


class Witness:
    """Belongs to one client. `counts`: by name, how often something happened to it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.counts: dict[str, int] = {}
        self._cluster_id = _ZERO_ID
        self._operation = client.number << 32

    def next_operation(self) -> int:
        """A number for an append or a request, unique in the world."""
        self._operation += 1
        return self._operation

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def tell(self, fact: Fact) -> None:
        self.client.tell(fact)

    def violated(self, invariant: Invariant, text: str) -> None:
        """A replica broke an invariant."""
        self.tell(PromiseBroken(invariant, f"{self.client.name}: {text}"))

    def call_failed(self, error: LogStoreError) -> None:
        """A call of the core raised this. It is a violation unless a user must expect it."""
        kind = type(error)
        if self.has_left(str(error)):
            self.count("failed-no-node")
            return
        if isinstance(error, FormatError | WrongCluster) or kind in (InvalidRequest, LogStoreError):
            self.violated(Invariant.I11, f"a call failed with {kind.__name__}: {error}")
        else:
            self.count(f"failed-{error.code.name.lower()}")

    def has_left(self, text: str) -> bool:
        """Whether an error says rightly that the node that was asked, or that was to be changed,
        is no member: another operator, or the leader itself, was earlier."""
        is_none = text.startswith("no node ") or "is no such member of this cluster" in text
        return is_none and self.client.may_members_leave

    def decode(self, frame: bytes) -> tuple[Envelope, Any] | None:
        """The message in a frame; None, after a violation, if it is none of this cluster."""
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
