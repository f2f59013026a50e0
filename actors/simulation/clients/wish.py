"""Which session a producer wants to open (E8).

Pure. Knows nothing of how it is asked for.
"""

from __future__ import annotations

import msgspec

from logstore.format.client_messages import OpenSessionRequest
from logstore.model import AckLevel, SequenceMode


def session_name(client: str) -> bytes:
    """The name under which this client opens sessions, if it uses one."""
    return f"name of {client}".encode()


class Wish(msgspec.Struct, frozen=True):
    """Producer id 0 and no name: a new producer. `window` in batches."""

    mode: SequenceMode
    window: int
    name: bytes = b""
    producer_id: int = 0

    @property
    def is_dense(self) -> bool:
        return self.mode is SequenceMode.DENSE

    def request(self) -> OpenSessionRequest:
        return OpenSessionRequest(
            self.producer_id, self.mode, AckLevel.QUORUM, self.window, self.name
        )
