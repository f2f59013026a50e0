"""How many batches of a producer are under way (SAFETY E1, E7)."""

from __future__ import annotations

from logstore.client.core.unresolved import Unresolved
from logstore.client.future import Pack


def pack_of(sequence: int) -> Pack:
    pack = Pack([b"payload"], opened_ns=0, deadline_ns=1)
    pack.sequence = sequence
    return pack


def test_a_monotone_producer_has_one_batch_under_way_whatever_its_window() -> None:
    """Found by the simulator, seed 17 of 2026-11-21: the first of two was lost with its connection,
    the second was stored, and the first was then answered as committed (P7)."""
    unresolved = Unresolved(next_sequence=0, limit=16, is_dense=False)
    unresolved.add(pack_of(5))
    assert not unresolved.has_room
    unresolved.pop(5)
    assert unresolved.has_room
    unresolved.add(pack_of(9))
    assert not unresolved.has_room


def test_a_dense_producer_fills_its_window() -> None:
    unresolved = Unresolved(next_sequence=0, limit=2, is_dense=True)
    unresolved.add(pack_of(-1))
    assert unresolved.has_room
    unresolved.add(pack_of(-1))
    assert not unresolved.has_room


def test_an_unresolved_batch_never_leaves_the_window_that_the_log_remembers() -> None:
    """The acknowledgement of the first one is lost, later ones come: were they replaced by new
    ones without end, the log would forget the LSNs of the first (SAFETY E1)."""
    unresolved = Unresolved(next_sequence=0, limit=3, is_dense=True)
    for _ in range(3):
        unresolved.add(pack_of(-1))
    unresolved.pop(1)
    unresolved.pop(2)
    assert not unresolved.has_room
    unresolved.pop(0)
    assert unresolved.has_room
