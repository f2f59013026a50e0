"""Around every bound: whatever the session table admits, a snapshot holds (SAFETY E1, E6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import FormatError, InvalidRequest
from logstore.format.cursor_entries import ANY_LSN, Cursor
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.format.session_snapshot import (
    KeptName,
    PartHead,
    SessionPart,
    SessionRow,
    WindowRow,
    decode_session_part,
)
from logstore.limits import POSITION_MAX
from logstore.model import EntryKind, Index, Lsn, SequenceMode
from logstore.session.cursors import CursorRequest
from logstore.session.fold import Fold, snapshot_bound, snapshot_parts
from logstore.session.grants import SessionLimits
from logstore.session.session import Refused
from logstore.session.session import WindowRow as Row
from logstore.session.table import EPOCH_MAX, OpenRequest, SessionTable, assign_lsns
from tests.unit.session_logs import encode_part

U64_MAX = (1 << 64) - 1
AROUND = [0, 1, 2, POSITION_MAX - 2, POSITION_MAX - 1, POSITION_MAX, POSITION_MAX + 1, U64_MAX]
numbers = st.sampled_from(AROUND)
names = st.sampled_from([b"", b"a", b"n" * 254, b"n" * 255, b"n" * 256, b"\xff", "ü".encode()])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(1, 4), st.sampled_from([0, 1, 2, 3]), names),
        st.tuples(st.just("batch"), st.integers(1, 4), numbers, st.integers(1, 3)),
        st.tuples(st.just("batch"), st.integers(1, 4), numbers, st.integers(1, 3)),
        st.tuples(st.just("cursor"), names, numbers, st.booleans()),
        st.tuples(st.just("expire"), st.integers(1, 4), st.booleans(), st.none()),
        st.tuples(st.just("epoch"), st.integers(1, 4), st.none(), st.none()),
    ),
    max_size=60,
)


class World:
    """A table at whose bounds things are tried; times and LSNs begin close below theirs."""

    def __init__(self, next_lsn: int, time_ns: int) -> None:
        self.table = SessionTable(SessionLimits())
        self.next_lsn = next_lsn
        self.time_ns = time_ns
        self.index = 0

    def open(self, producer_id: int, mode: int, name: bytes) -> None:
        known = self.table.get(producer_id)
        request = OpenRequest(
            producer_id if known else 0, mode, 1, 16, name if known is None else b""
        )
        entry = self.table.decide_open(request, producer_id)
        if isinstance(entry, OpenEntry):
            self.table.apply_open(entry, self.time_ns)

    def batch(self, producer_id: int, sequence: int, count: int) -> None:
        session = self.table.get(producer_id)
        if session is None or self.next_lsn + count > POSITION_MAX:
            return  # a log this close to its end is not admitted to
        # dense ones get near no bound: their next one instead
        sequence = session.next_sequence if session.is_dense else sequence
        verdict = self.table.offer(producer_id, session.producer_epoch, sequence, count, 7)
        if type(verdict) is Row:
            self.index += 1
            assign_lsns([verdict], Index(self.index), Lsn(self.next_lsn))
            session.last_used_ns = self.time_ns
            self.next_lsn += count
            self.table.commit = Index(self.index)

    def cursor(self, name: bytes, lsn: int, is_held: bool) -> None:
        request = CursorRequest(Cursor(name, Lsn(lsn), is_held), ANY_LSN)
        if not isinstance(self.table.cursors.refusal_of(request), Refused):
            self.table.cursors.apply(request.cursor)

    def expire(self, producer_id: int, is_kept: bool, _: None) -> None:
        session = self.table.get(producer_id)
        if session is not None and self.table.can_expire(session):
            self.table.apply_expire(ExpireEntry(producer_id, session.producer_epoch, is_kept))

    def epoch(self, producer_id: int, *_: None) -> None:
        """Its last producer epoch but one: the next opening is the last."""
        session = self.table.get(producer_id)
        if session is not None:
            session.producer_epoch = EPOCH_MAX - 1


@settings(deadline=None)
@given(
    steps,
    st.sampled_from([1, 1 << 62, POSITION_MAX - 40]),
    st.sampled_from([0, 1, POSITION_MAX]),
    st.sampled_from([512, 4_096]),
)
def test_whatever_is_admitted_is_held_by_a_snapshot(
    script: list[Any], next_lsn: int, time_ns: int, part_max_bytes: int
) -> None:
    world = World(next_lsn, time_ns)
    for name, *arguments in script:
        getattr(world, name)(*arguments)
    table = world.table
    parts = list(snapshot_parts(table, term=POSITION_MAX, number=1, part_max_bytes=part_max_bytes))
    assert max(map(len, parts)) <= part_max_bytes
    parts_max, total_max = snapshot_bound(table, part_max_bytes=part_max_bytes)
    assert len(parts) <= parts_max
    assert sum(map(len, parts)) <= total_max
    again = SessionTable(SessionLimits())
    fold = Fold(again)
    for part in parts:
        fold.apply(EntryKind.SESSION, Index(POSITION_MAX), Lsn(1), part, timestamp_ns=0)
    assert fold.snapshots == 1
    assert again.kept() == table.kept()
    assert again.cursors.rows() == table.cursors.rows()
    ids = sorted({each.producer_id for each in (*table.sessions(), *table.kept())})
    for found in (table, again):
        assert found.ids_above(0, len(ids) + 1) == ids
        assert found.ids_above(2, 1) == [each for each in ids if each > 2][:1]
    whole = {"term": 1, "number": 1, "part_max_bytes": 1 << 22}
    assert list(snapshot_parts(again, **whole)) == list(snapshot_parts(table, **whole))


def part_with(**changes: int) -> SessionPart:
    """Of one session, at the last place of each number."""
    fields = {
        "term": POSITION_MAX, "next_sequence": POSITION_MAX, "sequence": POSITION_MAX - 1,
        "first_lsn": POSITION_MAX - 2, "last_used_ns": POSITION_MAX, "kept": POSITION_MAX,
        "cursor": POSITION_MAX, **changes,
    }  # fmt: skip
    row = WindowRow(fields["sequence"], Lsn(fields["first_lsn"]), 2, 7)
    session = SessionRow(
        1, (1 << 32) - 1, SequenceMode.MONOTONE, 1, 16, U64_MAX, fields["next_sequence"],
        fields["last_used_ns"], b"a", (row,),
    )  # fmt: skip
    return SessionPart(
        PartHead(fields["term"], (1 << 32) - 1, 0, True),
        (session,),
        (Cursor(b"c", Lsn(fields["cursor"]), False),),
        (KeptName(2, (1 << 32) - 1, fields["kept"], b"k"),),
    )


def test_the_last_place_of_every_number_is_held() -> None:
    part = part_with()
    assert decode_session_part(encode_part(part)) == part


@pytest.mark.parametrize(
    "beyond",
    [
        {"term": POSITION_MAX + 1}, {"next_sequence": POSITION_MAX + 1},
        {"sequence": POSITION_MAX}, {"first_lsn": POSITION_MAX - 1},
        {"last_used_ns": POSITION_MAX + 1}, {"kept": POSITION_MAX + 1},
        {"cursor": POSITION_MAX + 1},
    ],
    ids=str,
)  # fmt: skip
def test_one_more_of_any_number_is_refused(beyond: dict[str, int]) -> None:
    with pytest.raises((InvalidRequest, FormatError)):
        decode_session_part(encode_part(part_with(**beyond)))
