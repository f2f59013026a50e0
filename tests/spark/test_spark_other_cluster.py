"""A cluster that is formed anew where another one was: nothing of it gets into that one's lake, or
under that one's replay. No Spark is needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from logstore.errors import WrongCluster
from logstore.spark import archive, replay
from logstore.spark.archive import Archive, ArchiveOptions
from logstore.spark.lake import LakeWriter
from logstore.spark.planning import Bounds
from logstore.spark.replay import Chunk, Replay, ReplayOptions

A, B, TARGET = "0a" * 16, "0b" * 16, "0c" * 16


class Answering:
    """Plans the log of whichever cluster answers now."""

    cluster_id = A
    leader = 1

    def __init__(self, _options: object) -> None:
        admin = SimpleNamespace(cursors=list, set_cursor=lambda *_, **__: 0)
        self.client = SimpleNamespace(admin=admin)

    def bounds(self) -> Bounds:
        return Bounds(1, 9)

    def spans(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(size_bytes=90, rows=[SimpleNamespace(first_lsn=1, last_lsn=9)])


def no_spark() -> None:
    raise AssertionError("something is read")


def test_an_archive_takes_nothing_of_another_cluster_than_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It added files of the other log to the lake, and only then missed its cursor."""
    monkeypatch.setattr(Answering, "cluster_id", A)
    monkeypatch.setattr(archive, "Planner", Answering)
    options = ArchiveOptions(endpoints="127.0.0.1:1", timeout_s=1, files_at_once=1)
    with LakeWriter(str(tmp_path)) as writer:
        work = Archive(no_spark, writer, options)  # type: ignore[arg-type]
        assert work.begin().cluster_id == A
        assert work.head_lsn() == 9
        monkeypatch.setattr(Answering, "cluster_id", B)
        for step in (work.head_lsn, lambda: work.pending_bytes(9), lambda: next(work.rounds(9))):
            with pytest.raises(WrongCluster, match="did when this archive began"):
                step()


def test_a_replay_appends_nothing_of_another_cluster_than_it_began_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = SimpleNamespace(cursors=list, session_commits=lambda _: None)
    target = SimpleNamespace(cluster_id=TARGET, client=SimpleNamespace(admin=admin))
    monkeypatch.setattr(Answering, "cluster_id", A)
    monkeypatch.setattr(replay, "Planner", Answering)
    monkeypatch.setattr(replay, "connected", lambda *_, **__: target)
    options = ReplayOptions(
        lake=None,
        source="127.0.0.1:1",
        target="127.0.0.1:2",
        name=None,
        first_lsn=None,
        timeout_s=1,
    )
    work = Replay(no_spark, options)  # type: ignore[arg-type]
    monkeypatch.setattr(Answering, "cluster_id", B)
    with pytest.raises(WrongCluster, match="did when this replay began"):
        work._append(Chunk(1, 9))
