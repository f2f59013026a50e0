"""What a CONFIG entry holds: who votes, who is about to, who learns (SAFETY C5).

Owns these values; `raft.configuration` knows which configuration may follow which.
"""

from __future__ import annotations

import msgspec

from logstore.format.fields import UUID_SIZE
from logstore.model import NodeId

# Of a voter that was not heard before the first CONFIG (C5a). No replica has it.
NO_UUID = bytes(UUID_SIZE)


class Member(msgspec.Struct, frozen=True):
    """A replica. `number` routes messages to it, `uuid` is what is counted (C6). `port`: the first
    one of its ports. `labels` are "key=value", sorted, each key once."""

    number: NodeId
    uuid: bytes
    host: str
    port: int
    labels: tuple[str, ...] = ()


class Configuration(msgspec.Struct, frozen=True):
    """The members of the cluster, each kind in the order in which they came.

    `id`: 1 in the first CONFIG, and one more in each; 0: of no entry, from the configuration file.
    `incoming`: the voters that the cluster changes to; empty while it does not. A voter that stays
    is in both (C7).
    """

    id: int
    voters: tuple[Member, ...]
    incoming: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()
