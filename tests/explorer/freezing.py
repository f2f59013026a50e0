"""Consensus state as a value: frozen to nested tuples, and thawed to live objects again.

All fields that the classes declare are frozen, so a new field of the core is part of the explored
state without a change here. `normal_form` has removed differences that do not matter before. Must
not know events, messages in flight or promises.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from hashlib import blake2b
from typing import Any

import msgspec

from logstore.format.entry import Row
from logstore.model import Index, NodeId
from logstore.raft.configurations import Configurations
from logstore.raft.core import RaftCore
from logstore.raft.faulty import FaultyEntries
from logstore.raft.log_view import EntryLog
from logstore.raft.persist import Outstanding, PersistQueue
from logstore.raft.progress import Progress
from logstore.raft.state import (
    Campaign,
    Change,
    Following,
    Gen,
    Leading,
    Read,
    Room,
    Shown,
    State,
    Transfer,
)
from logstore.raft.stream import FollowerStream
from logstore.raft.term_and_vote import TermAndVote

Frozen = Any  # a nested tuple of immutable values; tuples that begin with a str are objects

# The same in every state of one exploration, or (the view) derived from the replica's rows.
_OUTSIDE = frozenset({"config", "random", "_view"})
_SLOTTED = (
    RaftCore, State, TermAndVote, PersistQueue, EntryLog, FaultyEntries, Configurations,
)  # fmt: skip
_DATA = (
    Gen,
    Campaign,
    Following,
    Leading,
    Read,
    Room,
    Shown,
    Transfer,
    Progress,
    Outstanding,
    Change,
)
_STREAM = FollowerStream(
    NodeId(1), mode="paper", window_bytes=1, window_entries=1, resend_timeout_ns=1
)
_FIELDS: dict[type, tuple[str, ...]] = {
    **{each: tuple(n for n in sorted(each.__slots__) if n not in _OUTSIDE) for each in _SLOTTED},
    **{each: tuple(field.name for field in dataclasses.fields(each)) for each in _DATA},
    FollowerStream: tuple(vars(_STREAM)),
}
_CLASSES = {each.__name__: (each, fields) for each, fields in _FIELDS.items()}


class FileRows:
    """The Raft log as its files show it, flushed or not: a `LogView`."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def row(self, index: Index) -> Row:
        return self.rows[index - 1]


def freeze(value: Any) -> Frozen:
    """`value` as a nested tuple.

    Raises:
      TypeError: it contains a mutable object of an unknown class.
    """
    kind = type(value)
    fields = _FIELDS.get(kind)
    if fields is not None:
        return (kind.__name__, *[freeze(getattr(value, name)) for name in fields])
    if kind is list or kind is deque:
        return (kind.__name__, *[freeze(each) for each in value])
    if kind is set:
        return ("set", *sorted(value))
    if kind is dict:
        return ("dict", *[(key, freeze(each)) for key, each in value.items()])
    if value is None or isinstance(value, int | bytes | tuple | msgspec.Struct):
        return value
    raise TypeError(f"the explorer cannot freeze a {kind.__name__}: add it to freezing.py")


def thaw(value: Frozen) -> Any:
    """New live objects from what `freeze` returned; immutable values are shared."""
    if type(value) is not tuple or not value or type(value[0]) is not str:
        return value
    tag = value[0]
    if tag == "list":
        return [thaw(each) for each in value[1:]]
    if tag == "deque":
        return deque(thaw(each) for each in value[1:])
    if tag == "set":
        return set(value[1:])
    if tag == "dict":
        return {key: thaw(each) for key, each in value[1:]}
    kind, fields = _CLASSES[tag]
    made: Any = object.__new__(kind)
    for name, each in zip(fields, value[1:], strict=True):
        setattr(made, name, thaw(each))
    return made


def digest_of(value: Frozen) -> bytes:
    """A hash of a frozen state, 16 bytes."""
    return blake2b(msgspec.msgpack.encode(value), digest_size=16).digest()
