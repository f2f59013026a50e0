"""The marks hear what storage and sessions did, and nothing once the run is over."""

from __future__ import annotations

from random import Random

from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.oracle.overheard import overheard
from actors.simulation.oracle.reach import Reach, ReachObserver
from logstore.errors import ErrorCode
from logstore.format.meta import META_SIZE
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.model import AckLevel, Index, NodeId, SequenceMode
from logstore.session.grants import SessionLimits
from logstore.session.session import Duplicate, Refused, WindowRow
from logstore.session.table import OpenWish, SessionTable
from logstore.storage import recovery
from logstore.storage.segment import SegmentOptions

FOLDER = "/node"
OPTIONS = SegmentOptions(1 << 16, 64)


def start(disk: SimulatedDisk) -> None:
    """The first half of a replica's life."""
    random = Random(3)
    recovery.recover(
        disk, FOLDER, OPTIONS, node=NodeId(1), new_uuid=lambda: random.randbytes(16),
        tick=lambda: None,
    )  # fmt: skip
    disk.kill_process()


def test_a_damaged_copy_of_meta_is_heard_of_at_the_start_behind_it() -> None:
    observer, disk = ReachObserver((1, 2, 3)), SimulatedDisk()
    with overheard(observer):
        start(disk)
        start(disk)
        assert observer.counts() == {}
        disk.damage(f"{FOLDER}/meta.b", 0, b"\xff" * META_SIZE)
        start(disk)
        start(disk)
    assert observer.counts() == {Reach.META_COPY_BAD.name: 1}
    disk.damage(f"{FOLDER}/meta.a", 0, b"\xff" * META_SIZE)
    start(disk)
    assert observer.counts() == {Reach.META_COPY_BAD.name: 1}


def test_a_retry_is_heard_of_with_what_is_known_of_its_commit() -> None:
    observer = ReachObserver((1, 2, 3))
    table = SessionTable(SessionLimits())
    wish = OpenWish(0, SequenceMode.DENSE, AckLevel.QUORUM, 16, b"")
    entry = table.decide_open(wish, 7)
    assert isinstance(entry, OpenEntry)
    table.apply_open(entry)
    with overheard(observer):
        row = table.offer(7, 1, 0, 1, 99)
        assert isinstance(row, WindowRow)
        assert observer.counts() == {}
        assert isinstance(table.offer(7, 1, 0, 1, 99), Duplicate)
        assert observer.counts() == {Reach.DEDUP_UNCOMMITTED.name: 1}
        row.index = table.commit = Index(5)
        table.offer(7, 1, 0, 1, 99)
    assert observer.counts() == {
        Reach.DEDUP_UNCOMMITTED.name: 1, Reach.DEDUP_COMMITTED.name: 1,
    }  # fmt: skip


def test_a_session_given_up_is_heard_of_once_and_whoever_comes_back_to_it() -> None:
    observer = ReachObserver((1, 2, 3))
    wish = OpenWish(0, SequenceMode.DENSE, AckLevel.QUORUM, 16, b"")
    with overheard(observer):
        for table in (SessionTable(SessionLimits()), SessionTable(SessionLimits())):
            entry = table.decide_open(wish, 7)
            assert isinstance(entry, OpenEntry)
            table.apply_open(entry)
            assert isinstance(table.offer(9, 1, 0, 1, 99), Refused)  # of nobody
            table.apply_expire(ExpireEntry(7, 1))
        assert observer.counts() == {Reach.SESSION_EXPIRED.name: 1}
        refused = table.offer(7, 1, 0, 1, 99)
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.UNKNOWN_PRODUCER
    assert observer.counts() == {
        Reach.SESSION_EXPIRED.name: 1, Reach.EXPIRED_CAME_BACK.name: 1,
    }  # fmt: skip
