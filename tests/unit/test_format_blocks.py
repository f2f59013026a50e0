"""Entry headers, frames, records, segment headers and META: what they refuse and how they agree."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import pytest

from logstore.errors import FormatError, InvariantViolated
from logstore.format.entry import (
    EntryHeader,
    Row,
    chain_start,
    header_fault,
    takes_lsns,
    unpack_entry_header,
)
from logstore.format.fields import seal
from logstore.format.group import FrameHeader, frame_size, unpack_frame_header
from logstore.format.meta import (
    META_CONFIG_VERSION,
    Forgotten,
    ForgottenWhat,
    InstallMark,
    LogStart,
    Meta,
    unpack_meta,
)
from logstore.format.pair_summary import PairSummary, unpack_pair_summary
from logstore.format.raft_record import (
    RECORD_SIZE,
    places_of_kind,
    record_from_frame,
    unpack_raft_record,
)
from logstore.format.record_array import RECORD_DTYPE, record_array
from logstore.format.segment_header import FileRole, SegmentHeader, unpack_segment_header
from logstore.limits import POSITION_MAX
from logstore.model import EntryKind, ReplicaState

SEGMENT = b"segment 16 bytes"
OTHER = b"another segment!"
DATA = EntryHeader(
    kind=EntryKind.DATA, count=3, term=5, index=9, prev_term=4, first_lsn=21, timestamp_ns=10**18,
    cumulative_bytes=4096, prev_chain=77, body_size=64, body_crc=123,
)  # fmt: skip
NOOP = EntryHeader(
    kind=EntryKind.NOOP, count=0, term=5, index=10, prev_term=5, first_lsn=24, timestamp_ns=10**18,
    cumulative_bytes=4096, prev_chain=DATA.chain(), body_size=0, body_crc=0,
)  # fmt: skip


def replaced(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def resealed(block: bytes, seed: bytes, **bytes_at: bytes) -> bytes:
    """The block with bytes at p<position> replaced and a good CRC."""
    changed = bytearray(block)
    for position, data in bytes_at.items():
        at = int(position[1:])
        changed[at : at + len(data)] = data
    return seal(bytes(changed[:-4]), seed)


def test_only_data_and_imports_take_lsns() -> None:
    with_lsns = [EntryKind.DATA, EntryKind.IMPORT]
    assert [kind for kind in EntryKind if takes_lsns(kind)] == with_lsns
    assert header_fault(replaced(DATA, kind=EntryKind.IMPORT)) is None
    for wrong in ({"count": 0}, {"body_size": 0, "body_crc": 0}):
        assert header_fault(replaced(DATA, kind=EntryKind.IMPORT, **wrong))
    assert DATA.next_lsn == 24
    assert NOOP.next_lsn == NOOP.first_lsn


def test_the_chain_is_blake2b_of_the_fields_that_identify_an_entry() -> None:
    """SAFETY S3; written out so that another language can follow it."""
    packed = b"".join(
        value.to_bytes(size, "little")
        for value, size in ((77, 8), (2, 2), (0, 2), (3, 4), (5, 8), (9, 8), (21, 8), (10**18, 8),
                            (123, 4))
    )  # fmt: skip
    assert len(packed) == 52
    expected = int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")
    assert DATA.chain() == expected == Row.of(DATA).chain
    start = blake2b(bytes(16), digest_size=8).digest()
    assert chain_start(bytes(16)) == int.from_bytes(start, "little")


@pytest.mark.parametrize(
    "field",
    ["kind", "count", "term", "index", "first_lsn", "timestamp_ns", "prev_chain", "body_crc"],
)
def test_every_field_that_identifies_an_entry_changes_its_chain(field: str) -> None:
    assert replaced(DATA, **{field: getattr(DATA, field) + 1}).chain() != DATA.chain()


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": 0}, {"kind": 9}, {"kind": 10}, {"kind": 12}, {"count": 0},
        {"kind": EntryKind.OPEN}, {"term": 0}, {"term": POSITION_MAX + 1}, {"prev_term": 6},
        {"index": 0}, {"index": POSITION_MAX + 1}, {"first_lsn": 0},
        {"first_lsn": POSITION_MAX - 2}, {"timestamp_ns": POSITION_MAX + 1}, {"body_size": 60},
        {"body_size": 1 << 31}, {"cumulative_bytes": 63}, {"cumulative_bytes": POSITION_MAX + 1},
        {"body_size": 0}, {"body_size": 0, "body_crc": 0},
        {"kind": EntryKind.NOOP, "count": 0}, {"kind": EntryKind.TRIM, "count": 0, "body_size": 0},
    ],
    ids=str,
)  # fmt: skip
def test_a_header_that_no_entry_has_is_neither_packed_nor_read(fields: dict[str, int]) -> None:
    """FAULTS D35: sizes above every bound, too."""
    header = replaced(DATA, **fields)
    assert header_fault(header)
    with pytest.raises(InvariantViolated):
        header.pack()


def test_a_header_with_a_reserved_field_or_an_unknown_kind_is_not_read() -> None:
    packed = bytearray(DATA.pack())
    packed[2] = 1
    with pytest.raises(FormatError, match="reserved"):
        unpack_entry_header(packed)
    packed[0:4] = b"\x09\0\0\0"
    with pytest.raises(FormatError, match="kind 9"):
        unpack_entry_header(packed)


@pytest.mark.parametrize("header", [DATA, NOOP])
def test_a_record_rebuilt_from_its_frame_is_byte_identical(header: EntryHeader) -> None:
    """SAFETY S1."""
    frame = FrameHeader(header, segment=2, segment_uuid=SEGMENT, log_epoch=1, commit_known=8)
    written = record_from_frame(frame, 8192).pack(SEGMENT)
    read = unpack_frame_header(frame.pack(), segment_uuid=SEGMENT)
    assert record_from_frame(read, 8192).pack(SEGMENT) == written
    record = unpack_raft_record(written, segment_uuid=SEGMENT)
    assert record.row == Row.of(header)
    assert (record.frame_offset, record.commit_known, record.log_epoch) == (8192, 8, 1)
    assert frame_size(header) == 128 + header.body_size


def test_bytes_of_another_segment_cannot_verify() -> None:
    """SAFETY S6, FAULTS D37: recycled bytes carry another segment's uuid in their CRC's seed."""
    frame = FrameHeader(DATA, segment=2, segment_uuid=SEGMENT, log_epoch=1, commit_known=8)
    with pytest.raises(FormatError, match="CRC"):
        unpack_frame_header(frame.pack(), segment_uuid=OTHER)
    with pytest.raises(FormatError, match="CRC"):
        unpack_raft_record(record_from_frame(frame, 4096).pack(SEGMENT), segment_uuid=OTHER)
    with pytest.raises(FormatError, match="expected"):
        unpack_frame_header(resealed(frame.pack(), OTHER), segment_uuid=OTHER)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"p6": b"\1"}, "reserved"), ({"p116": b"\1"}, "reserved"), ({"p80": b"\1"}, "multiple"),
        ({"p80": b"\xff" * 8}, "frame_offset"), ({"p104": b"\xff" * 8}, "commit_known"),
        ({"p88": b"\x19"}, "next LSN 25"), ({"p96": bytes(8)}, "chain"), ({"p8": b"\0"}, "kind"),
        ({"p0": b"LGRP"}, "magic"),
    ],
    ids=str,
)  # fmt: skip
def test_a_record_whose_fields_do_not_agree_is_refused(change: dict[str, bytes], why: str) -> None:
    frame = FrameHeader(DATA, segment=2, segment_uuid=SEGMENT, log_epoch=1, commit_known=8)
    packed = record_from_frame(frame, 4096).pack(SEGMENT)
    with pytest.raises(FormatError, match=why):
        unpack_raft_record(resealed(packed, SEGMENT, **change), segment_uuid=SEGMENT)


@pytest.mark.parametrize("change", [{"p6": b"\1"}, {"p123": b"\1"}, {"p104": b"\xff" * 8}], ids=str)
def test_a_frame_with_reserved_bytes_or_a_huge_commit_is_refused(change: dict[str, bytes]) -> None:
    frame = FrameHeader(DATA, segment=2, segment_uuid=SEGMENT, log_epoch=1, commit_known=8)
    with pytest.raises(FormatError):
        unpack_frame_header(resealed(frame.pack(), SEGMENT, **change), segment_uuid=SEGMENT)


def test_ids_of_another_size_are_never_packed() -> None:
    with pytest.raises(InvariantViolated, match="16"):
        FrameHeader(DATA, segment=2, segment_uuid=b"", log_epoch=1, commit_known=8).pack()


def test_records_are_searched_as_an_array_with_the_records_fields() -> None:
    """SAFETY S2: LSN, time and byte position are binary searches over live records."""
    records = []
    for index in range(1, 50):
        header = replaced(
            DATA, index=index, first_lsn=3 * index - 2, timestamp_ns=1000 * index,
            cumulative_bytes=64 * index,
        )  # fmt: skip
        frame = FrameHeader(
            header, segment=2, segment_uuid=SEGMENT, log_epoch=6, commit_known=index - 1
        )
        records.append(record_from_frame(frame, 4096 + 192 * index))
    block = b"".join(record.pack(SEGMENT) for record in records)
    array = record_array(block)
    assert len(array) == 49
    assert RECORD_DTYPE.itemsize == RECORD_SIZE
    for name in ("frame_offset", "chain", "commit_known", "log_epoch"):
        assert array[name].tolist() == [getattr(record, name) for record in records]
    for name in DATA.__struct_fields__:
        assert array[name].tolist() == [getattr(record.header, name) for record in records]
    position = int(np.searchsorted(array["next_lsn"], 25, side="right"))
    assert records[position].header.first_lsn == 25
    assert array["next_lsn"].tolist() == [record.header.next_lsn for record in records]
    with pytest.raises(FormatError, match="whole number"):
        record_array(block[:-1])


FIRST = SegmentHeader(
    role=FileRole.DATA, number=1, log_epoch=0, cluster_id=bytes(16), replica_uuid=OTHER,
    segment_uuid=SEGMENT, first_index=1, first_lsn=1, base_term=0, base_chain=5,
    base_timestamp_ns=0, base_cumulative_bytes=0,
)  # fmt: skip


def test_the_headers_of_a_pair_differ_in_their_role_only() -> None:
    twin = FIRST.twin()
    assert twin.role == FileRole.RAFT
    assert twin.twin() == FIRST
    assert unpack_segment_header(FIRST.pack()) == FIRST
    assert unpack_segment_header(twin.pack()) == twin
    differing = [
        n for n, (a, b) in enumerate(zip(FIRST.pack(), twin.pack(), strict=True)) if a != b
    ]
    assert set(differing) <= {6, 508, 509, 510, 511}


@pytest.mark.parametrize(
    "fields",
    [
        {"number": 0}, {"first_index": 0}, {"first_lsn": 0}, {"previous_number": 1},
        {"first_index": POSITION_MAX + 1}, {"previous_valid_end": POSITION_MAX + 1}, {"role": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_segment_header_that_no_segment_has_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(FormatError):
        unpack_segment_header(replaced(FIRST, **fields).pack())


@pytest.mark.parametrize("change", [{"p116": b"\1"}, {"p200": b"\1"}], ids=str)
def test_a_segment_header_with_reserved_bytes_is_refused(change: dict[str, bytes]) -> None:
    with pytest.raises(FormatError, match="reserved"):
        unpack_segment_header(resealed(FIRST.pack(), b"", **change))


SUMMARY = PairSummary(
    segment_uuid=SEGMENT, first_index=9, end_index=19, commit_known=12, records_crc=5,
    term_starts=((9, 4), (12, 6)), trims=(10, 13), levels=((14, 2), (15, 3)),
)  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"first_index": 0}, {"first_index": 8}, {"end_index": 15}, {"end_index": POSITION_MAX + 1},
        {"commit_known": POSITION_MAX + 1}, {"term_starts": ((10, 4),)},
        {"term_starts": ((9, 4), (12, 4))}, {"term_starts": ((9, 6), (12, 4))},
        {"term_starts": ((9, 0),)}, {"term_starts": ((9, POSITION_MAX + 1),)}, {"term_starts": ()},
        {"configs": (13, 10)}, {"trims": (13, 10)}, {"trims": (10, 10)},
        {"levels": ((14, 1),)}, {"levels": ((14, 64),)},
    ],
    ids=str,
)  # fmt: skip
def test_a_summary_that_no_pair_has_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        unpack_pair_summary(replaced(SUMMARY, **fields).pack(OTHER), holder_uuid=OTHER)


@pytest.mark.parametrize(
    "change",
    [
        {"p6": b"\0"}, {"p6": b"\x1d"}, {"p6": b"\7"}, {"p52": b"\1"}, {"p56": b"\4"},
        {"p58": b"\1"}, {"p96": b"\1"}, {"p160": b"\1"}, {"p504": b"\1"},
    ],
    ids=str,
)  # fmt: skip
def test_a_summary_with_other_marks_or_reserved_bytes_is_refused(change: dict[str, bytes]) -> None:
    with pytest.raises(FormatError):
        unpack_pair_summary(resealed(SUMMARY.pack(OTHER), OTHER, **change), holder_uuid=OTHER)


def test_a_summary_names_the_config_entries() -> None:
    configured = replaced(SUMMARY, configs=(11, 16))
    assert unpack_pair_summary(configured.pack(OTHER), holder_uuid=OTHER) == configured


def test_a_summary_is_of_the_pair_that_holds_it_and_of_28_marks_at_most() -> None:
    full = replaced(SUMMARY, end_index=99, trims=tuple(range(20, 44)))
    assert unpack_pair_summary(full.pack(OTHER), holder_uuid=OTHER) == full
    with pytest.raises(FormatError, match="CRC"):
        unpack_pair_summary(full.pack(OTHER), holder_uuid=SEGMENT)
    with pytest.raises(InvariantViolated, match="29 marks"):
        replaced(full, trims=tuple(range(20, 45))).pack(OTHER)


META = Meta(
    state=ReplicaState.EMPTY, cluster_id=bytes(16), replica_uuid=OTHER, node=1, vote=0, nonce=0,
    term=0, boot_counter=1, generation=1, log_start=LogStart(0, 0, 0, 1),
)  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"node": 0}, {"node": 0x10000}, {"vote": 0x10000}, {"state": 0}, {"state": 5},
        {"term": POSITION_MAX + 1}, {"generation": POSITION_MAX + 1},
        {"log_start": LogStart(0, 0, 0, 0)}, {"log_start": LogStart(POSITION_MAX + 1, 0, 0, 1)},
        {"installing": InstallMark(POSITION_MAX + 1, 0)},
        {"installing": InstallMark(0, POSITION_MAX + 1)},
    ],
    ids=str,
)  # fmt: skip
def test_a_meta_that_no_replica_has_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        unpack_meta(replaced(META, **fields).pack())


@pytest.mark.parametrize("installing", [None, InstallMark(0, 0)])
@pytest.mark.parametrize("change", [{"p116": b"\1"}, {"p300": b"\1"}], ids=str)
def test_a_meta_with_reserved_bytes_is_refused(
    change: dict[str, bytes], installing: InstallMark | None
) -> None:
    with pytest.raises(FormatError, match="reserved"):
        unpack_meta(resealed(replaced(META, installing=installing).pack(), b"", **change))


@pytest.mark.parametrize("change", [{"p120": b"\1"}, {"p128": b"\1"}], ids=str)
@pytest.mark.parametrize("level", [1, 2])
def test_only_the_mark_says_what_the_entry_at_log_start_was(
    change: dict[str, bytes], level: int
) -> None:
    with pytest.raises(FormatError, match="reserved"):
        unpack_meta(resealed(replaced(META, level=level).pack(), b"", **change))


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("mark", [InstallMark(0, 0), InstallMark(POSITION_MAX, 5)], ids=str)
def test_a_meta_with_the_mark_install_is_read_at_any_level(level: int, mark: InstallMark) -> None:
    meta = replaced(META, level=level, installing=mark)
    assert unpack_meta(meta.pack()) == meta


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("mark", [None, InstallMark(0, 0), InstallMark(7, 8)])
@pytest.mark.parametrize("what", ForgottenWhat)
def test_a_meta_with_the_mark_forgotten_keeps_all_else(
    level: int, mark: InstallMark | None, what: ForgottenWhat
) -> None:
    """SAFETY L7."""
    forgotten = Forgotten(what, 3, 4, 6)
    meta = replaced(META, level=level, installing=mark, forgotten=forgotten)
    assert unpack_meta(meta.pack()) == meta


@pytest.mark.parametrize(("at", "byte"), [(136, 0), (136, 3), (138, 2), (142, 1), (160, 1)])
def test_a_mark_forgotten_that_nobody_writes_is_refused(at: int, byte: int) -> None:
    image = bytearray(replaced(META, forgotten=Forgotten(1, 3, 4, 6)).pack()[:-4])
    image[at] = byte
    with pytest.raises(FormatError):
        unpack_meta(seal(bytes(image), b""))


@pytest.mark.parametrize("at", [136, 138, 140, 144, 152])
def test_a_meta_without_the_mark_forgotten_has_zeros_there(at: int) -> None:
    image = bytearray(META.pack()[:-4])
    image[at] = 1
    with pytest.raises(FormatError, match="reserved"):
        unpack_meta(seal(bytes(image), b""))


@pytest.mark.parametrize("forgotten", [None, Forgotten(ForgottenWhat.ENTRIES, 3, 4, 6)])
@pytest.mark.parametrize("mark", [None, InstallMark(0, 0), InstallMark(7, 8)])
def test_a_meta_of_a_log_that_has_had_a_config_keeps_all_else(
    mark: InstallMark | None, forgotten: Forgotten | None
) -> None:
    """A version that does not know it refuses the folder by this number."""
    meta = replaced(META, level=4, installing=mark, forgotten=forgotten, has_config=True)
    image = meta.pack()
    assert int.from_bytes(image[4:6], "little") == META_CONFIG_VERSION
    assert unpack_meta(image) == meta


@pytest.mark.parametrize(
    ("at", "byte"), [(112, 3), (116, 0), (116, 2), (118, 1), (120, 1), (138, 2), (140, 1), (144, 1)]
)
def test_a_meta_of_a_log_with_a_config_that_nobody_writes_is_refused(at: int, byte: int) -> None:
    image = bytearray(replaced(META, level=4, has_config=True).pack()[:-4])
    image[at] = byte
    with pytest.raises(FormatError):
        unpack_meta(seal(bytes(image), b""))


def test_a_log_below_the_level_of_config_entries_has_had_none() -> None:
    with pytest.raises(InvariantViolated, match="format level 3"):
        replaced(META, level=3, has_config=True).pack()


@pytest.mark.parametrize(
    ("forgotten", "words"),
    [
        (Forgotten(1, 3, 4, 6), "this is start 4 .*, but node 3 has seen start 6"),
        (Forgotten(1, 3, 6, 6), "node 3 has seen another start 6 of this replica"),
        (Forgotten(2, 3, 4, 6), "entries 5 to 6 are gone, .*acknowledged, says its leader, node 3"),
    ],
)
def test_what_was_forgotten_is_said_in_words(forgotten: Forgotten, words: str) -> None:
    assert re.fullmatch(rf"amnesia: {words}\. The folder is an older copy, .*", forgotten.words)


def test_records_of_a_kind_are_found_newest_first_whatever_their_other_bytes() -> None:
    random = np.random.default_rng(7)
    raw = bytearray(random.bytes(4_000 * RECORD_SIZE))
    records = record_array(raw)
    records["kind"] = random.choice([4, 4 << 8, 4 << 8 | 4, 0, 8], 4_000)
    for kind in (4, 4 << 8, 4 << 8 | 4, 0, 8, 9):
        expected = np.flatnonzero(records["kind"] == kind)[::-1].tolist()
        assert list(places_of_kind(bytes(raw), kind)) == expected
    assert not list(places_of_kind(b"", 4))
