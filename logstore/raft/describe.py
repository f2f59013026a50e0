"""One line of text for every event, effect and state: for transcripts, logs and debugging.

Owns nothing. Lines are stable: the transcripts under tests/transcripts compare them literally.
Times are in milliseconds; chains are shortened to their first eight hexadecimal digits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logstore.format.entry import EntryHeader, kind_name
from logstore.format.peer_messages import BulkAnswer, ControlMessage, InitMessage
from logstore.raft.bootstrap import InitEffect
from logstore.raft.core import RaftCore
from logstore.raft.effects import Answer, Effect, Log, Send
from logstore.raft.events import Event

NS_PER_MS = 1_000_000
_LEFT_OUT = (
    ("configuration", None),
    ("install", None),
    ("level", 0),
    ("peer", 0),
    ("room_bytes", 0),
    ("waits_for_flush", False),
)  # of messages that mostly have none


def describe(item: Event | Effect | InitEffect | ControlMessage | BulkAnswer | InitMessage) -> str:
    """`Name field=value …`, with messages and headers in their short forms."""
    match item:
        case Send() | Answer():
            return f"{type(item).__name__} to {item.peer}: {describe(item.message)}"
        case Log():
            return f"Log {item.text}"
        case _:
            fields = msgspec.structs.asdict(item)
            named = [_field(*each) for each in fields.items() if each not in _LEFT_OUT]
            return " ".join([type(item).__name__, *named])


def describe_core(core: RaftCore) -> str:
    """Role, term, positions and, on a leader, the peers' matches."""
    parts = [
        f"{core.role.name} term={core.term} vote={core.vote} leader={core.leader}",
        f"last={core.last_index} commit={core.commit}",
        f"persisted={core.persisted} verified={core.verified}",
    ]
    if core.visible_lsn is not None:
        parts.append(f"visible_lsn={core.visible_lsn}")
    if core.open_gen is not None:
        parts.append(f"gen={core.open_gen}")
    if core.match:
        parts.append("match=" + ",".join(f"{peer}:{at}" for peer, at in core.match.items()))
    if core.faulty:
        parts.append("faulty=" + ",".join(f"{first}-{last}" for first, last in core.faulty))
    return " ".join(parts)


def _field(name: str, value: Any) -> str:
    if name.endswith("_ns"):
        return f"{name[:-3]}={value / NS_PER_MS:g}ms"
    if name in ("chain", "prev_chain", "start_chain"):
        return f"{name}={value:016x}"[: len(name) + 9]
    return f"{name}={_value(value)}"


def _value(value: Any) -> str:
    match value:
        case EntryHeader():
            kind = kind_name(value.kind)
            lsns = f" lsn {value.first_lsn}+{value.count}" if value.count else ""
            return f"[{value.index} of term {value.term} {kind}{lsns} {value.body_size}B]"
        case msgspec.Struct():
            fields = msgspec.structs.asdict(value)
            return "(" + " ".join(_field(*each) for each in fields.items()) + ")"
        case bool():
            return "yes" if value else "no"
        case bytes():
            return value.hex()[:8]
        case _:
            return str(value)
