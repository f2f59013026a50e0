"""An accepted configuration holds the largest entry that it permits (SAFETY S6, W7, E6)."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from actors.writer.log_work import GROUP_SEGMENT_SHARE
from logstore import limits
from logstore.config import Config, parse_config
from logstore.errors import ConfigError
from logstore.format.cursor_entries import Cursor, encode_cursor
from logstore.format.entry import EntryHeader
from logstore.format.group import frame_size
from logstore.format.segment_header import SEGMENT_HEADER_SIZE
from logstore.format.session_entries import OpenEntry, encode_open
from logstore.format.session_snapshot import KeptName
from logstore.model import EntryKind, Index, Lsn, SequenceMode, Term
from logstore.session.fold import snapshot_parts
from logstore.session.grants import SessionLimits
from logstore.session.session import Session, WindowRow
from logstore.session.table import SessionTable

LONG_NAME = b"n" * limits.SESSION_NAME_MAX_BYTES
SIZES = st.sampled_from([4_096, 5_000, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20])


def full_table(*, sessions: int, window: int) -> SessionTable:
    table = SessionTable(SessionLimits())
    for number in range(1, sessions + 1):
        rows = OrderedDict((n, WindowRow(n, 1, n, Lsn(n + 1), Index(1))) for n in range(window))
        name = LONG_NAME[:-5] + b"%05d" % number
        mode = SequenceMode.MONOTONE
        table.put(Session(number, 1, mode, 1, window, 1 << 25, name, window, rows))
    table.keep(KeptName(1_000, 1, limits.POSITION_MAX, LONG_NAME))
    table.cursors.apply(Cursor(LONG_NAME, Lsn(1), True))
    return table


# Windows fill whole parts, and small sessions with long names do.
TABLES = (full_table(sessions=3, window=4_096), full_table(sessions=48, window=16))


def accepted(segment: int, segment_records: int, batch_max: int, group_max: int) -> Config | None:
    text = f"""
        [cluster]
        name = "any"
        [[nodes]]
        node = 1
        port = 7000
        [storage]
        segment = "{segment}B"
        segment_records = {segment_records}
        [limits]
        batch_max = "{batch_max}B"
        group_max = "{group_max}B"
        ring = "512MiB"
        bulk_window = "32MiB"
    """
    try:
        return parse_config(text)
    except ConfigError:
        return None


def size_on_disk(body_size: int) -> int:
    header = EntryHeader(
        EntryKind.SESSION, 0, Term(1), Index(1), Term(0), Lsn(1), 0, body_size, 0, body_size, 0
    )
    return frame_size(header)


@settings(deadline=None, max_examples=60)
@given(
    segment=st.sampled_from([16_384, 20_000, 1 << 20, 4 << 20, 64 << 20]),
    segment_records=st.sampled_from([256, 300, 1 << 20]),
    batch_max=SIZES,
    group_max=SIZES,
)
def test_an_accepted_configuration_holds_its_largest_entry(
    segment: int, segment_records: int, batch_max: int, group_max: int
) -> None:
    """With 1 MiB, 256 KiB and 256 KiB, 48 sessions made an entry that no segment held."""
    config = accepted(segment, segment_records, batch_max, group_max)
    assume(config is not None)
    assert config is not None
    bounds = config.limits
    largest = max(bounds.batch_max_bytes, bounds.group_max_bytes)
    bodies = [
        len(encode_open(OpenEntry(1, 1, 1, 1, 4_096, 1 << 30, LONG_NAME))),
        len(encode_cursor(Cursor(LONG_NAME, Lsn(1), True))),
    ]
    for table in TABLES:
        parts = snapshot_parts(table, term=1, number=1, part_max_bytes=bounds.group_max_bytes)
        bodies += [len(part) for part in parts]
    assert max(bodies) <= largest
    # The writer's largest flush group: up to a share of the segment, and one entry more.
    group = config.storage.segment_bytes // GROUP_SEGMENT_SHARE - 1 + size_on_disk(largest)
    assert SEGMENT_HEADER_SIZE + group <= config.storage.segment_bytes
    assert config.storage.segment_records >= limits.FLUSH_ENTRIES_MAX
    assert 4 * largest <= config.ring_bytes
    assert largest < bounds.message_max_bytes
    assert largest <= bounds.bulk_window_bytes


def test_the_configuration_that_failed_is_one_that_is_accepted() -> None:
    config = accepted(1 << 20, 256, 256 << 10, 256 << 10)
    assert config is not None
