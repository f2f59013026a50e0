"""Mutants of the writer: the order of flushes, segments, META (SAFETY F1 to F8, S2, S6 to S9)."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

LOG_WRITER = "logstore.storage.log_writer:LogWriter"
META_STORE = "logstore.storage.meta_store:MetaStore"
SEGMENT = "logstore.storage.segment"
WRITER = "actors.writer.actor:WriterActor"
LOG_WORK = "actors.writer.log_work:LogWork"

MUTANTS: tuple[Mutant, ...] = (
    # --- appending ---
    mutant(
        "data-not-flushed",
        "SAFETY F1",
        f"{LOG_WRITER}.flush_data",
        "self._disk.flush(group.pair.data)",
        "pass",
        "records are written and flushed, their frames only written",
    ),
    mutant(
        "records-before-their-data",
        "SAFETY F1, FAULTS D4",
        f"{LOG_WORK}._write_group",
        "    log.flush_data(group)\n",
        "    log.write_records(group)\n    log.flush_data(group)\n",
        "a record may be durable before its frame is",
    ),
    mutant(
        "records-not-flushed",
        "SAFETY F1",
        f"{LOG_WRITER}.flush_records",
        "self._disk.flush(group.pair.raft)",
        "pass",
        "a group is acknowledged when its records are written",
    ),
    mutant(
        "answered-before-the-records-are-flushed",
        "SAFETY F1",
        f"{LOG_WORK}._finish_group",
        "    log.flush_records(group)\n    yield\n    self._records_timer.ended(group, begun_ns)\n"
        "    self._answer(Persisted(last_seq))\n",
        "    self._answer(Persisted(last_seq))\n    log.flush_records(group)\n    yield\n",
        "Persisted leaves, then the flush begins",
    ),
    mutant(
        "answer-names-what-only-waits",
        "SAFETY F1, F4",
        f"{LOG_WORK}._finish_group",
        "self._answer(Persisted(last_seq))",
        "self._answer(Persisted(self._queue[-1].seq if self._queue else last_seq))",
        "Persisted has the newest sequence number that the writer received",
    ),
    mutant(
        "written-names-what-only-waits",
        "SAFETY W4, E5",
        f"{LOG_WORK}._finish_group",
        "self._slots[Counter.WRITTEN] = last_seq",
        "self._slots[Counter.WRITTEN] = self._queue[-1].seq if self._queue else last_seq",
        "readers are sent to entries that are still queued",
    ),
    mutant(
        "groups-share-a-sector",
        "SAFETY S6",
        f"{LOG_WRITER}.append",
        "start = offset = aligned(self._data_end, self._options.sector_bytes)",
        "start = offset = self._data_end",
        "a torn write of one group reaches acknowledged bytes of the one before",
    ),
    mutant(
        "failed-data-flush-tried-again",
        "SAFETY F5, FAULTS D25",
        f"{LOG_WRITER}.flush_data",
        "    self._disk.flush(group.pair.data)\n",
        "    try:\n"
        "        self._disk.flush(group.pair.data)\n"
        "    except Exception:\n"
        "        self._disk.flush(group.pair.data)\n",
        "the second flush succeeds on pages that the first one failed to write",
    ),
    mutant(
        "failed-record-flush-tried-again",
        "SAFETY F5, FAULTS D25",
        f"{LOG_WRITER}.flush_records",
        "    self._disk.flush(group.pair.raft)\n",
        "    try:\n"
        "        self._disk.flush(group.pair.raft)\n"
        "    except Exception:\n"
        "        self._disk.flush(group.pair.raft)\n",
        "the second flush succeeds on pages that the first one failed to write",
    ),
    mutant(
        "failed-data-flush-passed-over",
        "SAFETY F5, FAULTS D24",
        f"{LOG_WRITER}.flush_data",
        "    self._disk.flush(group.pair.data)\n",
        "    try:\n"
        "        self._disk.flush(group.pair.data)\n"
        "    except Exception:\n"
        "        return\n",
        "an error is swallowed and the group acknowledged",
    ),
    # --- rolling and truncating ---
    mutant(
        "truncation-while-a-flush-is-under-way",
        "SAFETY F6",
        f"{LOG_WORK}._begin",
        "        return self._open_segment(partial(self._truncate, command, self._commit))\n",
        "        self._data_worker.start(partial(self._truncate, command, self._commit))\n"
        "        return 1\n",
        "a truncation does not wait for the flushes before it",
    ),
    mutant(
        "roll-while-a-flush-is-under-way",
        "SAFETY F6",
        f"{LOG_WORK}._begin",
        "        return self._open_segment(partial(self._roll, entries))\n",
        "        self._data_worker.start(partial(self._roll, entries))\n        return 1\n",
        "a roll does not wait for the flushes before it",
    ),
    mutant(
        "truncation-opens-no-segment",
        "SAFETY S7",
        f"{LOG_WRITER}.truncate",
        "    self._open_segment(before, log_epoch=log_epoch, valid_end=valid_end)\n",
        "    header = self._current().header\n"
        "    if before.header.index < header.first_index:\n"
        "        self._open_segment(before, log_epoch=log_epoch, valid_end=valid_end)\n"
        "    else:\n"
        "        self.last, self._data_end = before, valid_end\n",
        "a truncation within the segment writes new entries over the removed ones",
    ),
    mutant(
        "empty-segment-kept-with-a-short-raft-file",
        "FAULTS D12",
        f"{LOG_WRITER}.make_room",
        " or len(entries) > self._current().records_capacity",
        "",
        "an empty segment whose Raft file lost its tail is never left, and nothing is appended",
        unreachable="the world's media damage sectors and never cut files;"
        " tests/unit/test_storage_log_writer.py cuts one",
    ),
    mutant(
        "segment-headers-not-flushed",
        "SAFETY S7",
        f"{SEGMENT}:write_headers_durable",
        "        disk.flush(handle)\n",
        "",
        "a truncation is answered while its headers are in the page cache",
    ),
    mutant(
        "folder-not-flushed",
        "SAFETY S7, FAULTS D23",
        f"{SEGMENT}:write_headers_durable",
        "    disk.sync_folder(folder)\n",
        "",
        "the names of a new segment vanish in a power cut",
        Edit(f"{SEGMENT}:prepare_pair", "    disk.sync_folder(folder)\n", ""),
    ),
    mutant(
        "valid-end-of-an-empty-segment",
        "SAFETY S7",
        f"{SEGMENT}:header_after",
        "if old.first_index == header.first_index:",
        "if old.first_index == header.first_index < 0:",
        "the end of an empty segment is taken for that of the one before, and live frames are cut",
    ),
    mutant(
        "segment-cut-at-the-end-of-a-missing-one",
        "SAFETY S7, FAULTS D20",
        f"{SEGMENT}:release_allocation",
        "if successor.previous_number != header.number or not successor.previous_valid_end:",
        "if not successor.previous_valid_end:",
        "a segment is cut where its successor says that the missing one between them ends",
        unreachable="the world's media damage sectors and never lose whole files;"
        " tests/unit/test_storage_log_writer.py loses a pair",
    ),
    mutant(
        "closed-segment-cut-one-record-short",
        "SAFETY S7",
        f"{SEGMENT}:release_allocation",
        "record_position(header, successor.first_index)",
        "record_position(header, Index(successor.first_index - 1))",
        "the released allocation contains the last live record",
    ),
    mutant(
        "truncated-entries-stay-alive",
        "SAFETY S7",
        "logstore.storage.segment_map:SegmentMap.of",
        "number, first[number], end, known.get(number), ends_here.get(end, 0)",
        "number, first[number], OPEN_END, known.get(number), ends_here.get(end, 0)",
        "an older segment's entries live beyond the start of its successor",
    ),
    mutant(
        "log-epoch-stands-still",
        "SAFETY S7",
        f"{LOG_WRITER}.truncate",
        "log_epoch = self._log_epoch + 1",
        "log_epoch = self._log_epoch",
        "truncations are not counted",
        unreachable="the segment's uuid is in every CRC's seed, so nothing of another log_epoch"
        " can pass for this segment's",
    ),
    mutant(
        "writer-truncates-committed-entries",
        "SAFETY F8",
        f"{LOG_WRITER}.truncate",
        "if first_index <= max(commit, self._start.index):",
        "if first_index < 0:",
        "the writer's own guard of committed entries is gone",
        unreachable="it only speaks when raft's guard has failed, too",
    ),
    # --- payload bytes, once (P8) ---
    mutant(
        "payloads-in-the-raft-log-too",
        "SAFETY S2",
        f"{LOG_WRITER}.append",
        "    self.data_bytes_written += self._disk.write(pair.data, start, views)\n",
        "    self.data_bytes_written += self._disk.write(pair.data, start, views)\n"
        "    self._disk.write(pair.raft, self._disk.size(pair.raft), views)\n",
        "frames are appended to the file of records as well",
    ),
    mutant(
        "frames-written-twice-in-their-place",
        "SAFETY S7",
        f"{LOG_WRITER}.append",
        "    self.data_bytes_written += self._disk.write(pair.data, start, views)\n",
        "    self.data_bytes_written += self._disk.write(pair.data, start, views)\n"
        "    self.data_bytes_written += self._disk.write(pair.data, start, views)\n",
        "a group is written over itself before it is flushed",
    ),
    mutant(
        "segments-filled-with-zeros",
        "SAFETY S9",
        f"{SEGMENT}:prepare_pair",
        "disk.allocate(handle, size)",
        "disk.write(handle, 0, [bytes(size)])",
        "space is reserved by writing it, so every byte is written twice",
    ),
    # --- META ---
    mutant(
        "votes-wait-for-the-flushes-of-the-log",
        "SAFETY S8, F9",
        f"{WRITER}._take_commands",
        "self._meta_worker.start(partial(self._save_meta, command))",
        "self._work.workers[0].start(partial(self._save_meta, command))",
        "META is saved in the worker that flushes the log's data",
    ),
    mutant(
        "meta-not-flushed",
        "SAFETY S8",
        f"{META_STORE}.save",
        "        self._disk.flush(handle)\n",
        "",
        "a vote is answered while META is in the page cache",
    ),
    mutant(
        "meta-in-one-copy",
        "SAFETY S8",
        f"{META_STORE}.save",
        "for handle in self._handles:",
        "for handle in self._handles[:1]:",
        "a torn write leaves the META of the last start",
    ),
    mutant(
        "room-of-a-group-under-way-is-free",
        "SAFETY S9",
        f"{LOG_WORK}._disk_report",
        "self._room_left if is_busy else self._folder.log.room()",
        "self._folder.log.room()",
        "the report of a full disk does not count the group that is being written",
        unreachable="a TRIM must need just that room: not in 15 seeds; "
        "`test_s9_a_group_that_is_being_written_takes_its_room` finds it",
    ),
    mutant(
        "flushed-groups-kept-until-the-next-roll",
        "FAULTS I14",
        f"{LOG_WRITER}.append",
        "    self._forget_finished()\n",
        "",
        "each group of a segment stays in memory, with its records",
        unreachable="the simulator asks for their number at each step, which lets go of them: "
        "`test_what_is_flushed_is_not_kept_until_the_next_roll` finds it",
    ),
    mutant(
        "meta-copies-written-at-once",
        "SAFETY S8",
        f"{META_STORE}.save",
        "        self._disk.flush(handle)\n",
        "",
        "both copies are in flight together, and a power cut tears both",
        Edit(
            f"{META_STORE}.save",
            "    self.meta = numbered\n",
            "    for handle in self._handles:\n"
            "        self._disk.flush(handle)\n"
            "    self.meta = numbered\n",
        ),
    ),
    mutant(
        "failed-meta-flush-tried-again",
        "SAFETY F5, S8",
        f"{META_STORE}.save",
        "        self._disk.flush(handle)\n",
        "        try:\n"
        "            self._disk.flush(handle)\n"
        "        except Exception:\n"
        "            self._disk.flush(handle)\n",
        "the second flush succeeds on a page that the first one failed to write",
    ),
    mutant(
        "older-meta-counts",
        "SAFETY S8",
        "logstore.storage.meta_store:load_meta",
        "newest = max(whole, key=lambda meta: meta.generation)",
        "newest = min(whole, key=lambda meta: meta.generation)",
        "of two whole copies the older one is taken",
        unreachable="the copies differ only when a save was cut short, and what it saved was"
        " never answered",
    ),
)
