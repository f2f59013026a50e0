"""The session table against a dumb model, and against the fold of the log it produced (I17)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import ErrorCode
from logstore.format.batch import encode_batch, read_batch_header
from logstore.format.cursor_entries import ANY_LSN, Cursor, encode_cursor
from logstore.format.session_entries import (
    ExpireEntry,
    OpenEntry,
    encode_expire,
    encode_open,
)
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import EntryKind, Index, Lsn, SequenceMode
from logstore.session.cursors import CursorRequest
from logstore.session.fold import Fold, snapshot_parts
from logstore.session.grants import SessionLimits
from logstore.session.session import Duplicate, Refused
from logstore.session.table import OpenRequest, SessionTable, assign_lsns
from tests.unit.session_logs import encode_snapshot, fold_entry

MODES = {1: SequenceMode.DENSE, 2: SequenceMode.MONOTONE, 3: SequenceMode.DENSE}

batches = st.tuples(
    st.just("batch"),
    st.sampled_from(sorted(MODES)),
    st.integers(0, 2),  # how far the epoch is from the first one
    st.integers(-40, 3),  # how far the sequence is from the next one
    st.sampled_from([b"x", b"y"]),
)
opens = st.tuples(st.just("open"), st.sampled_from(sorted(MODES)))
expires = st.tuples(st.just("expire"), st.sampled_from(sorted(MODES)))
commits = st.tuples(st.just("commit"))
cursors = st.tuples(
    st.just("cursor"),
    st.sampled_from([b"a", b"b"]),
    st.integers(0, 3),
    st.sampled_from([0, 1, 2, 3, ANY_LSN]),
)
steps = st.lists(
    st.one_of(batches, batches, batches, batches, commits, opens, expires, cursors), max_size=120
)


class DumbProducer:
    """Everything ever accepted, in lists."""

    def __init__(self):
        self.epoch = 0
        self.accepted = []  # (sequence, payload)


def expected_code(model, mode, epoch, sequence, payload):
    """OK for new, DUPLICATE as None, else the refusal's code; OVERLOADED is left to the caller."""
    if model is None or epoch > model.epoch:
        return ErrorCode.UNKNOWN_PRODUCER
    if epoch < model.epoch:
        return ErrorCode.FENCED
    last = model.accepted[-1][0] if model.accepted else -1
    if sequence > last:
        if mode is SequenceMode.DENSE and sequence != last + 1:
            return ErrorCode.GAP
        return ErrorCode.OK
    for known, bytes_ in model.accepted[-SESSION_WINDOW_MIN:]:
        if known == sequence:
            if mode is SequenceMode.DENSE and bytes_ != payload:
                return ErrorCode.SEQUENCE_REUSED
            return None
    return ErrorCode.COMMITTED_LSN_UNKNOWN


class World:
    """A table, its model and the log that the table's decisions make."""

    def __init__(self):
        self.table = SessionTable(SessionLimits())
        self.models = {}
        self.cursors = {}
        self.log = []  # (kind, first_lsn, body)
        self.next_lsn = 1

    def append(self, kind, body, count=0):
        self.log.append((kind, self.next_lsn, body))
        self.next_lsn += count
        return Index(len(self.log))

    def open(self, producer_id):
        model = self.models.get(producer_id)
        asked = OpenRequest(producer_id if model else 0, MODES[producer_id], 1, 16, b"")
        entry = self.table.decide_open(asked, producer_id)
        assert isinstance(entry, OpenEntry)
        self.append(EntryKind.OPEN, encode_open(entry))
        self.table.apply_open(entry)
        model = self.models.setdefault(producer_id, DumbProducer())
        model.epoch += 1
        if MODES[producer_id] is SequenceMode.DENSE:
            model.accepted = []

    def expire(self, producer_id):
        model = self.models.pop(producer_id, None)
        if model is not None:
            entry = ExpireEntry(producer_id, model.epoch)
            self.append(EntryKind.EXPIRE, encode_expire(entry))
            self.table.apply_expire(entry)

    def cursor(self, name, lsn, expected_lsn):
        request = CursorRequest(Cursor(name, Lsn(lsn), lsn > 1), Lsn(expected_lsn))
        refused = self.table.cursors.refusal_of(request)
        stands = self.cursors.get(name, 0)
        if expected_lsn not in (stands, ANY_LSN):
            assert (refused.code, refused.detail) == (ErrorCode.CURSOR_MOVED, stands)
            return
        assert refused is None
        self.append(EntryKind.CURSOR, encode_cursor(request.cursor))
        self.table.cursors.apply(request.cursor)
        self.cursors[name] = lsn

    def commit(self):
        self.table.commit = Index(len(self.log))

    def batch(self, producer_id, epoch_offset, sequence_offset, payload):
        model = self.models.get(producer_id)
        mode = MODES[producer_id]
        last = model.accepted[-1][0] if model is not None and model.accepted else -1
        sequence = max(0, last + 1 + sequence_offset)
        epoch = max(1, (model.epoch if model is not None else 1) - 1 + epoch_offset)
        body = encode_batch(
            [payload],
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=sequence,
            timestamp_ns=0,
        )
        header = read_batch_header(body)
        verdict = self.table.offer(producer_id, epoch, sequence, header.count, header.crc)
        expected = expected_code(model, mode, epoch, sequence, payload)
        if isinstance(verdict, Refused) and verdict.code is ErrorCode.OVERLOADED:
            assert expected is ErrorCode.OK
            assert len(model.accepted) >= SESSION_WINDOW_MIN
            return
        if isinstance(verdict, Refused):
            assert verdict.code is expected
        elif isinstance(verdict, Duplicate):
            assert expected is None
            kind, _, stored = self.log[verdict.row.index - 1]
            assert kind is EntryKind.DATA
            assert stored == body or mode is SequenceMode.MONOTONE
        else:
            assert expected is ErrorCode.OK
            lsn = self.next_lsn
            assign_lsns([verdict], self.append(EntryKind.DATA, body, 1), Lsn(lsn))
            model.accepted.append((sequence, payload))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(steps, st.integers(0, 200))
def test_the_table_agrees_with_the_model_and_with_the_fold_of_its_log(script, cut):
    world = World()
    world.open(1)
    for step in script:
        getattr(world, step[0])(*step[1:])
    stand = {each.name: each.lsn for each in world.table.cursors.rows()}
    assert stand == {name: lsn for name, lsn in world.cursors.items() if lsn}
    kept = encode_snapshot(world.table)
    assert encode_snapshot(fold(world.log, 0)) == kept
    cut = min(cut, len(world.log))
    assert encode_snapshot(fold(world.log, cut)) == kept


def fold(log, snapshot_after):
    """The table by folding `log`, through a snapshot of its first `snapshot_after` entries."""
    table = SessionTable(SessionLimits())
    for index, (kind, first_lsn, body) in enumerate(log, start=1):
        if index == snapshot_after:
            # A whole snapshot in parts, then two parts of a leader that ended amid its own.
            parts = list(snapshot_parts(table, term=1, number=1, part_max_bytes=400))
            table = SessionTable(SessionLimits())
            into = Fold(table)
            for part in (
                *parts,
                *list(snapshot_parts(table, term=2, number=1, part_max_bytes=400))[:-1],
            ):
                into.apply(EntryKind.SESSION, Index(index), Lsn(first_lsn), part, timestamp_ns=0)
            assert into.snapshots == 1
        fold_entry(table, kind, Index(index), Lsn(first_lsn), body)
    return table
