"""Format levels as kinds of entries (SAFETY S11)."""

from __future__ import annotations

import msgspec
import pytest

from logstore.errors import FolderRefused, FormatError, InvariantViolated, UnsupportedLevel
from logstore.format.entry import EntryHeader, header_fault, kind_name, takes_lsns
from logstore.format.level import (
    COMPRESSION_LEVEL,
    EXPECTED_LSN_LEVEL,
    FIRST_LEVEL,
    LEVEL_KINDS,
    LEVEL_MAX,
    LEVELS,
    NEWEST_LEVEL,
    check_level,
    level_kind,
    level_of,
)
from logstore.format.meta import META_SIZE, LogStart, Meta, unpack_meta
from logstore.model import EntryKind, ReplicaState

HEADER = EntryHeader(
    kind=level_kind(2), count=0, term=5, index=9, prev_term=4, first_lsn=21, timestamp_ns=10**18,
    cumulative_bytes=4096, prev_chain=77, body_size=0, body_crc=0,
)  # fmt: skip
META = Meta(
    state=ReplicaState.VOTER, cluster_id=bytes(16), replica_uuid=bytes(range(16)), node=1, vote=0,
    nonce=0, term=1, boot_counter=1, generation=1, log_start=LogStart(0, 0, 0, 1),
)  # fmt: skip


def test_every_level_says_what_it_brought_and_none_is_left_out() -> None:
    assert list(LEVELS) == list(range(FIRST_LEVEL, NEWEST_LEVEL + 1))
    assert all(LEVELS.values())


def test_a_kind_and_its_level_are_told_from_each_other() -> None:
    levels = range(FIRST_LEVEL + 1, LEVEL_MAX + 1)
    assert [level_of(level_kind(level)) for level in levels] == list(levels)
    assert [level_kind(level) for level in levels] == list(LEVEL_KINDS)
    assert not any(level_of(kind) for kind in (*EntryKind, 0, 64, 65, 128))
    assert (kind_name(level_kind(7)), kind_name(EntryKind.TRIM)) == ("LEVEL 7", "TRIM")


@pytest.mark.parametrize("kind", [LEVEL_KINDS[0], LEVEL_KINDS[-1]])
def test_an_entry_of_any_level_has_a_header_without_body_and_lsns(kind: int) -> None:
    """Also of a level that this version does not know: it is not damaged."""
    header = msgspec.structs.replace(HEADER, kind=kind)
    assert header_fault(header) is None
    assert not takes_lsns(kind)
    for fields in ({"count": 1}, {"body_size": 8}, {"body_crc": 1}):
        wrong = msgspec.structs.replace(header, **fields)
        assert header_fault(wrong)
        with pytest.raises(InvariantViolated):
            wrong.pack()


@pytest.mark.parametrize("kind", [64, 65, 128])
def test_kinds_beside_the_levels_are_unknown(kind: int) -> None:
    assert header_fault(msgspec.structs.replace(HEADER, kind=kind)) is not None


def test_a_level_above_the_newest_is_refused_by_name() -> None:
    check_level("this log", 2, newest=2)
    with pytest.raises(UnsupportedLevel) as refused:
        check_level("this log", 3, newest=2)
    assert str(refused.value) == (
        "this log is at format level 3, this version reads levels up to 2: start a newer version"
    )
    assert isinstance(refused.value, FolderRefused)
    assert not isinstance(refused.value, FormatError)


def test_meta_of_the_first_level_has_the_bytes_that_it_had_before_levels() -> None:
    raised = msgspec.structs.replace(META, level=2)
    assert META.pack()[4:6] == b"\1\0"
    assert META.pack()[112:508] == bytes(396)
    assert raised.pack()[4:6] == b"\2\0"
    for meta in (META, raised):
        assert unpack_meta(meta.pack()) == meta
        assert len(meta.pack()) == META_SIZE


@pytest.mark.parametrize("level", [LEVEL_MAX + 1, 1 << 31])
def test_a_meta_of_a_level_that_no_log_has_is_refused(level: int) -> None:
    with pytest.raises(FormatError, match="format level"):
        unpack_meta(msgspec.structs.replace(META, level=level).pack())


def test_a_compressed_batch_that_expects_an_lsn_needs_no_second_look_at_the_level() -> None:
    """Ingress asks for the level of the expectation only."""
    assert COMPRESSION_LEVEL <= EXPECTED_LSN_LEVEL
