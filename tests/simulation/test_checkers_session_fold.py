"""The checkers' own fold of the log is the product's session table, whatever producers do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from actors.simulation.checkers.session_fold import FoldFault, PlainFold, plain_session
from logstore.format.entry import EntryHeader
from logstore.format.session_entries import ExpireEntry, encode_expire
from logstore.model import EntryKind, Index, Lsn, Term
from tests.property.test_session_model import World, steps
from tests.simulation.histories.stage import batch_of
from tests.unit.session_logs import encode_snapshot


def header_of(kind: int, index: int, first_lsn: int) -> EntryHeader:
    return EntryHeader(kind, 0, Term(1), Index(index), Term(1), Lsn(first_lsn), 0, 0, 0, 0, 0)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(steps)
def test_the_plain_fold_is_the_table_of_the_product(script: list[Any]) -> None:
    world: Any = World()
    world.open(1)
    for step in script:
        getattr(world, step[0])(*step[1:])
    fold = PlainFold(1)
    for index, (kind, first_lsn, body) in enumerate(world.log, start=1):
        fold.apply(header_of(kind, index, first_lsn), body)
    table = {each.producer_id: plain_session(each) for each in world.table.sessions()}
    assert fold.sessions == table
    assert tuple(fold.cursors[name] for name in sorted(fold.cursors)) == world.table.cursors.rows()
    snapshot = encode_snapshot(world.table)
    fold.apply(header_of(EntryKind.SESSION, len(world.log) + 1, world.next_lsn), snapshot)
    assert fold.sessions == table


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (EntryKind.DATA, batch_of(0)),
        (EntryKind.EXPIRE, encode_expire(ExpireEntry(7, 1))),
    ],
)
def test_an_entry_of_a_session_that_was_never_opened_does_not_fold(kind: int, body: bytes) -> None:
    with pytest.raises(FoldFault):
        PlainFold(1).apply(header_of(kind, 1, 1), body)
