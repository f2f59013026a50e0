"""How long a replica takes to start with a long log: many sealed segments, millions of entries.

Owns how such a folder is made, and the rounds. A cluster of one replica, so that nothing but its
own start counts: from the supervisor's start until it leads and takes appends. Starts of an empty
folder take turns with starts of the long log, whose files are in the page cache or not.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec
from crc32c import crc32c

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_config
from logstore.client.core.connection import Session
from logstore.config import Config
from logstore.errors import LogStoreError
from logstore.format.batch import encode_batch
from logstore.format.entry import EntryHeader, Row
from logstore.format.level import NEWEST_LEVEL
from logstore.limits import MIB
from logstore.model import EntryKind, Index, NodeId
from logstore.settings import StorageSettings
from logstore.storage.disk import RealDisk
from logstore.storage.log_writer import EntryToWrite, LogWriter
from logstore.storage.recovery import recover
from logstore.storage.segment import SegmentOptions

NODE = NodeId(1)
SEGMENT_BYTES = 16 * MIB
PAYLOAD = b"x" * 100
GROUP = 1_000  # entries that are flushed at once
SEGMENTS_MORE = 5  # the first and the last ones, and one that is prepared
# A new leader reads what came after the last snapshot of the sessions: here at first, everything.
FIRST_START_TIMEOUT_S = 1_800.0
# A start of the long log takes at most so much longer than one of an empty folder.
TARGET_S = 2.0
WARM, COLD = "in the page cache", "from the disk"


class Start(msgspec.Struct, frozen=True):
    """One start, in seconds. `what`: "empty", or where the files of the long log are."""

    what: str
    round: int
    seconds: float


def measure_restarts(
    folder: Path, *, entries: int, segments: int, rounds: int, say: Callable[[str], None]
) -> tuple[list[Start], dict[str, Any]]:
    """Make the long log, then start each kind `rounds` times in turn; starts and summary.

    Raises:
      LogStoreError: the log has other segments or entries than was asked for.
    """
    starts: list[Start] = []
    with tempfile.TemporaryDirectory(prefix="restart-", dir=folder) as own:
        config = _config(-(-entries // segments))
        with EmbeddedCluster(_made(Path(own) / "long"), config) as long:
            began_s = time.monotonic()
            facts = _make(long, entries)
            say(f"{facts} in {time.monotonic() - began_s:.0f} s")
            for number in range(1, rounds + 1):
                with EmbeddedCluster(_made(Path(own) / f"empty-{number}"), config) as empty:
                    starts.append(Start("empty", number, _start_s(empty)))
                read_pages(long.node_folder(NODE))
                starts.append(Start(WARM, number, _start_s(long)))
                forget_pages(long.node_folder(NODE))
                starts.append(Start(COLD, number, _start_s(long)))
                say(", ".join(f"{start.what} {start.seconds:.2f} s" for start in starts[-3:]))
    if not segments <= facts["segments"] <= segments + SEGMENTS_MORE or facts["entries"] < entries:
        raise LogStoreError(f"{segments} segments, {entries} entries are wanted, made: {facts}")
    return starts, facts | summarise(starts)


def summarise(starts: list[Start]) -> dict[str, Any]:
    """Medians, and what the long log adds to them."""
    medians = {
        what: round(median(start.seconds for start in starts if start.what == what), 3)
        for what in ("empty", WARM, COLD)
    }
    added = {what: round(medians[what] - medians["empty"], 3) for what in (WARM, COLD)}
    return {
        "median_s": medians,
        "added_s": added,
        "target_s": TARGET_S,
        "is_reached": {what: added[what] <= TARGET_S for what in added},
    }


def _config(segment_records: int) -> Config:
    storage = StorageSettings(segment=f"{SEGMENT_BYTES // MIB}MiB", segment_records=segment_records)
    return msgspec.structs.replace(make_config(1, Random(os.urandom(8))), storage=storage)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _start_s(cluster: EmbeddedCluster, timeout_s: float = 60.0) -> float:
    """Start the replica, wait until it takes an append, and stop it again."""
    began_s = time.monotonic()
    cluster.start(NODE)
    cluster.wait_for_leader(timeout_s)
    with logstore.connect(cluster.endpoints, timeout=timeout_s) as log, log.producer() as producer:
        producer.append(b"first").result(timeout_s)
        seconds = time.monotonic() - began_s
    cluster.stop(NODE)
    return round(seconds, 3)


def read_pages(folder: Path) -> None:
    """Have the kernel read these files, so that it holds them."""
    for path in folder.glob("*.*"):
        with open(path, "rb", buffering=0) as file:
            while file.read(4 * MIB):
                pass


def forget_pages(folder: Path) -> None:
    """Have the kernel forget what it holds of these files; all of it is flushed."""
    for path in folder.glob("*.*"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


# --- the long log ---


def _make(cluster: EmbeddedCluster, entries: int) -> dict[str, int]:
    """A log of so many entries, a batch of one payload in each, as the writer would have left it;
    how many there are of each."""
    cluster.start_all()
    cluster.wait_for_leader()
    with logstore.connect(cluster.endpoints) as log, log.producer() as producer:
        producer.append(PAYLOAD).result()
        session = producer.session
    cluster.stop(NODE)
    _append(cluster.node_folder(NODE), cluster.config.storage, session, entries)
    _start_s(cluster, FIRST_START_TIMEOUT_S)  # it writes a snapshot of the sessions
    segments = len(list(cluster.node_folder(NODE).glob("*.raft")))
    return {"segments": segments, "entries": entries}


def _append(folder: Path, storage: StorageSettings, session: Session, entries: int) -> None:
    disk = RealDisk()
    recovered = recover(
        disk,
        str(folder),
        SegmentOptions(storage.segment_bytes, storage.segment_records),
        node=NODE,
        newest_level=NEWEST_LEVEL,
        new_uuid=lambda: os.urandom(16),
        tick=lambda: None,
    )
    writer = recovered.writer
    if writer is None:
        raise LogStoreError("the folder holds no log")
    try:
        last = recovered.last
        for first in range(1, entries + 1, GROUP):
            group: list[EntryToWrite] = []
            for sequence in range(first, min(first + GROUP, entries + 1)):
                last, body = _next_entry(last, session, sequence)
                group.append((last.header, last.chain, recovered.commit_floor, [body]))
            _write(writer, group)
    finally:
        writer.close()
        recovered.meta.close()
        disk.unlock_folder(str(folder))


def _next_entry(last: Row, session: Session, sequence: int) -> tuple[Row, bytes]:
    before = last.header
    timestamp_ns = before.timestamp_ns + 1
    body = encode_batch(
        [PAYLOAD],
        producer_id=session.producer_id,
        producer_epoch=session.producer_epoch,
        sequence=sequence,
        timestamp_ns=timestamp_ns,
    )
    header = EntryHeader(
        kind=EntryKind.DATA,
        count=1,
        term=before.term,
        index=Index(before.index + 1),
        prev_term=before.term,
        first_lsn=before.next_lsn,
        timestamp_ns=timestamp_ns,
        cumulative_bytes=before.cumulative_bytes + len(body),
        prev_chain=last.chain,
        body_size=len(body),
        body_crc=crc32c(body),
    )
    return Row.of(header), body


def _write(writer: LogWriter, entries: list[EntryToWrite]) -> None:
    if writer.needs_roll(entries):
        writer.make_room(entries)
    group = writer.append(entries)
    writer.flush_data(group)
    writer.write_records(group)
    writer.flush_records(group)
