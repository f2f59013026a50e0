"""META: this replica's identity, its term and vote, and where its log starts (SAFETY S8).

Owns one 512-byte image; two files hold one each, written in turn, and the valid one of the higher
generation counts. `storage` decides which file is written when.

      0 magic u32 'LMET' │ version u16 (5: the log has had a CONFIG, 4: the mark FORGOTTEN,
                                      3: the mark INSTALL, 2: above format level 1, else 1)
      6 state u16 (1 EMPTY, 2 STARTING, 3 VOTER, 4 LEARNER)
      8 cluster id, 16 bytes (zero while EMPTY)
     24 replica uuid, 16 bytes
     40 node id u32 │ vote u32 (node id, 0: none)
     48 nonce u64 (of the bootstrap, SAFETY L2)
     56 term u64
     64 boot counter u64
     72 generation u64
     80 log start: index u64     88 term u64
     96 log start: chain u64    104 next_lsn u64
    112 format level u32 (version 1: reserved = 0)
    116 the log has had a CONFIG u16 (1 in version 5, else reserved = 0) │ reserved u16 = 0
    120 of the entry at log start: cumulative_bytes u64   128 timestamp_ns u64
        (versions 1 and 2: reserved = 0)
    136 what was forgotten u16 (version 5: 0, nothing) │ installing u16 (1: the mark INSTALL, too) │
        told by u32 (node id)
    144 known u64   152 told u64 (versions 1 to 3: reserved = 0)
    160 reserved = 0
    508 crc u32: CRC32C of [0, 508), seeded with CRC32C(nothing) = 0
"""

from __future__ import annotations

import struct
from enum import IntEnum

import msgspec

from logstore.errors import FormatError, InvariantViolated
from logstore.format.fields import (
    Buffer,
    check_ids,
    check_positions,
    check_room,
    check_sealed,
    magic_number,
    seal,
)
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL, LEVEL_MAX
from logstore.format.message import NODE_ID_MAX
from logstore.limits import SECTOR_BYTES
from logstore.model import FIRST_LSN, NO_INDEX, NO_TERM, Index, Lsn, NodeId, ReplicaState, Term

META_MAGIC = magic_number("LMET")
META_VERSION = 1  # of a log at the first level, which versions before levels read, too
META_LEVEL_VERSION = 2
META_INSTALL_VERSION = 3  # only while a log start is being installed
META_FORGOTTEN_VERSION = 4  # only of a replica that must not go on, which an older version refuses
META_CONFIG_VERSION = 5  # of a log that has had a CONFIG; the marks are as in version 4
META_SIZE = SECTOR_BYTES
_FIELDS = struct.Struct("<IHH16s16sIIQQQQQQQQIHHQQHHIQQ")
_ZEROS = bytes(META_SIZE - 4 - _FIELDS.size)
_STATES = frozenset(ReplicaState)


class LogStart(msgspec.Struct, frozen=True, gc=False):
    """The entry before the first one kept: its index, term and chain, and the LSN after it."""

    index: Index
    term: Term
    chain: int
    next_lsn: Lsn


# Of a folder without META.
NO_START = LogStart(NO_INDEX, NO_TERM, 0, FIRST_LSN)


class InstallMark(msgspec.Struct, frozen=True, gc=False):
    """A log start is being installed: whatever segments there are hold nothing of this log (SAFETY
    G5a). What the first segment must say of the entry at log start, besides what META says."""

    cumulative_bytes: int
    timestamp_ns: int


class ForgottenWhat(IntEnum):
    """How a replica knows that it has forgotten something (SAFETY L7)."""

    STARTS = 1  # a peer saw start `told`, this folder is at `known`; of one number: another start
    ENTRIES = 2  # its leader knows that it had flushed entry `told`, its log ends at `known`


_FORGOTTEN = frozenset(ForgottenWhat)


class Forgotten(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Why this replica must not go on with its folder: it may have forgotten a vote, too."""

    what: int
    told_by: NodeId
    known: int
    told: int

    @property
    def words(self) -> str:
        """For an operator."""
        if self.what == ForgottenWhat.ENTRIES:
            found = (
                f"entries {self.known + 1} to {self.told} are gone, which this replica had flushed "
                f"and acknowledged, says its leader, node {self.told_by}"
            )
        elif self.told > self.known:
            found = (
                f"this is start {self.known} of this replica by its data folder, but node "
                f"{self.told_by} has seen start {self.told}"
            )
        else:
            found = f"node {self.told_by} has seen another start {self.told} of this replica"
        return (
            f"amnesia: {found}. The folder is an older copy, or its device forgot what it had "
            "flushed, votes perhaps as well: do not trust either"
        )


class Meta(msgspec.Struct, frozen=True, gc=False):
    """One generation of META. `vote` 0: none in `term`. `level`: the highest format level that this
    replica knows the log to have; never below the one at the log start. `installing`: the mark
    INSTALL. `forgotten`: this replica must not go on. `has_config`: the log has had a CONFIG, so
    the founders do not count any more, even where none can be read (C12)."""

    state: ReplicaState
    cluster_id: bytes
    replica_uuid: bytes
    node: NodeId
    vote: NodeId
    nonce: int
    term: Term
    boot_counter: int
    generation: int
    log_start: LogStart
    level: int = FIRST_LEVEL
    installing: InstallMark | None = None
    forgotten: Forgotten | None = None
    has_config: bool = False

    def pack(self) -> bytes:
        """The 512-byte image."""
        check_ids("META", self.cluster_id, self.replica_uuid)
        start, mark, forgotten = self.log_start, self.installing, self.forgotten
        is_raised = self.level > FIRST_LEVEL
        version = META_LEVEL_VERSION if is_raised else META_VERSION
        if mark is not None:
            version = META_INSTALL_VERSION
        lost = (0, 0, 0, 0, 0)
        if forgotten is not None:
            version = META_FORGOTTEN_VERSION
            lost = (
                forgotten.what, mark is not None, forgotten.told_by, forgotten.known, forgotten.told
            )  # fmt: skip
        if self.has_config:
            if self.level < CONFIG_LEVEL:
                raise InvariantViolated(f"META: a CONFIG in a log at format level {self.level}")
            version = META_CONFIG_VERSION
            if forgotten is None:
                lost = (0, mark is not None, 0, 0, 0)
        fields = _FIELDS.pack(
            META_MAGIC, version, self.state, self.cluster_id, self.replica_uuid, self.node,
            self.vote, self.nonce, self.term, self.boot_counter, self.generation, start.index,
            start.term, start.chain, start.next_lsn, self.level if is_raised else 0,
            self.has_config, 0,
            0 if mark is None else mark.cumulative_bytes, 0 if mark is None else mark.timestamp_ns,
            *lost,
        )  # fmt: skip
        return seal(fields + _ZEROS, b"")


def unpack_meta(buffer: Buffer, offset: int = 0) -> Meta:
    """The META at `offset`.

    Raises:
      UnsupportedVersion: a newer version of META.
      FormatError: anything but a whole, undamaged META.
    """
    check_room(buffer, offset, META_SIZE, "META")
    block = memoryview(buffer)[offset : offset + META_SIZE]
    version = check_sealed(
        block,
        b"",
        magic=META_MAGIC,
        version=META_CONFIG_VERSION,
        what="META",
        oldest=META_VERSION,
    )
    _, _, state, cluster_id, uuid, node, vote, nonce, term, boot, generation, *rest = (
        _FIELDS.unpack_from(block)
    )
    *start, level, has_config, reserved, cumulative_bytes, timestamp_ns = rest[:9]
    what, is_installing, told_by, known, told = marks = rest[9:]
    is_configured = version == META_CONFIG_VERSION
    is_forgotten = version == META_FORGOTTEN_VERSION or (is_configured and what)
    is_marked = version == META_INSTALL_VERSION or (
        version > META_INSTALL_VERSION and is_installing
    )
    if (
        block[_FIELDS.size : -4] != _ZEROS
        or reserved
        or (has_config and not is_configured)
        or (version == META_VERSION and level)
        or (not is_marked and (cumulative_bytes or timestamp_ns))
        or (version < META_FORGOTTEN_VERSION and any(marks))
        or (is_configured and not is_forgotten and (told_by or known or told))
    ):
        raise FormatError("META: reserved bytes are not zero")
    if level > LEVEL_MAX or level == FIRST_LEVEL or (version == META_LEVEL_VERSION and not level):
        raise FormatError(f"META: format level {level}")
    if is_configured and (has_config != 1 or level < CONFIG_LEVEL):
        raise FormatError(f"META: a CONFIG {has_config}, at format level {level}")
    if is_installing > 1 or (is_forgotten and (what not in _FORGOTTEN or told_by > NODE_ID_MAX)):
        raise FormatError(f"META: forgotten {what}, installing {is_installing}, told by {told_by}")
    if state not in _STATES:
        raise FormatError(f"META: state {state}")
    if not 1 <= node <= NODE_ID_MAX or vote > NODE_ID_MAX:
        raise FormatError(f"META: node {node}, vote {vote}")
    log_start = LogStart(*start)
    check_positions(
        "META",
        term=term,
        boot_counter=boot,
        generation=generation,
        log_start_index=log_start.index,
        log_start_term=log_start.term,
        log_start_next_lsn=log_start.next_lsn,
        log_start_cumulative_bytes=cumulative_bytes,
        log_start_timestamp_ns=timestamp_ns,
        forgotten_known=known,
        forgotten_told=told,
    )
    if log_start.next_lsn < 1:
        raise FormatError("META: the log starts at LSN 0")
    return Meta(
        ReplicaState(state), cluster_id, uuid, NodeId(node), NodeId(vote), nonce, term, boot,
        generation, log_start, level or FIRST_LEVEL,
        InstallMark(cumulative_bytes, timestamp_ns) if is_marked else None,
        Forgotten(what, NodeId(told_by), known, told) if is_forgotten else None,
        is_configured,
    )  # fmt: skip
