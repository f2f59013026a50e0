"""What actors show to whoever looks on, and that nobody needs to."""

import pytest

from actors.host import RealHost
from actors.observer import AdmissionOpened, FolderRecovered, NoObserver, RetryKnown, SpareUsed
from actors.writer.log_work import SPARE_RETRY_NS
from logstore.format.meta import META_SIZE
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import SEGMENT_HEADER_SIZE
from logstore.limits import SECTOR_BYTES
from logstore.raft.core import RaftCore
from logstore.storage.meta_store import META_NAMES
from tests.unit.ingress_stage import Stage
from tests.unit.writer_stage import WriterStage


def restarted(first: WriterStage, folder) -> WriterStage:
    first.close()
    first.disk.kill_process()
    second = WriterStage(folder, disk=first.disk)
    second.start()
    return second


def test_on_a_real_machine_nobody_looks_on():
    observer = RealHost().observer
    assert isinstance(observer, NoObserver)
    assert observer.core_type(RaftCore) is RaftCore
    observer.saw(SpareUsed())


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_start_shows_how_many_copies_of_meta_were_whole(tmp_path, damaged):
    first = WriterStage(tmp_path)
    first.bear()
    for name in META_NAMES[:damaged]:
        first.disk.damage(f"{first.stage.folder}/data/{name}", 0, b"\xff" * META_SIZE)
    second = restarted(first, tmp_path)
    assert second.seen == [FolderRecovered(2 - damaged, 0, has_torn_tail=False)]
    third = restarted(second, tmp_path)
    assert third.seen == [FolderRecovered(2, 0, has_torn_tail=False)]
    third.close()


def test_a_start_shows_a_torn_tail_and_frames_that_had_no_record(tmp_path):
    first = WriterStage(tmp_path)
    first.bear()
    first.persist(8)
    first.settle()
    [data] = [name for name in first.disk.paths() if name.endswith("1.data")]
    first.disk.write(first.disk.open_write(data), 100 << 10, [b"torn"])
    [raft] = [name for name in first.disk.paths() if name.endswith("1.raft")]
    first.disk.damage(raft, SEGMENT_HEADER_SIZE // SECTOR_BYTES, bytes(RECORD_SIZE))
    second = restarted(first, tmp_path)
    assert second.seen == [FolderRecovered(2, 1, has_torn_tail=True)]
    second.close()


def test_a_roll_and_a_truncation_show_that_they_used_the_spare(tmp_path):
    stage = WriterStage(tmp_path)
    stage.bear()
    stage.seen.clear()
    stage.persist(60 << 10, 60 << 10, 60 << 10)
    stage.settle()
    assert stage.seen == []
    stage.persist(60 << 10, 60 << 10)
    stage.settle()
    assert stage.seen == [SpareUsed()]
    stage.stage.now_ns += 2 * SPARE_RETRY_NS  # another one is prepared by now
    stage.settle()
    stage.truncate(5)
    stage.settle()
    assert stage.seen == [SpareUsed()] * 2
    stage.close()


def test_an_opening_shows_its_table_and_a_retry_whether_it_is_committed():
    stage = Stage()
    stage.lead()
    [opened] = stage.seen
    assert isinstance(opened, AdmissionOpened)
    assert (opened.table, opened.snapshot_parts, opened.passed_over) == (
        stage.ingress.admission.table, 0, 0,
    )  # fmt: skip
    producer = stage.producer()
    producer.push(0)
    producer.push(0)
    stage.accept_and_commit()
    producer.push(0)
    assert stage.seen[1:] == [RetryKnown(is_committed=False), RetryKnown(is_committed=True)]
