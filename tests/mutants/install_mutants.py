"""Mutants of installing a log start on a follower (SAFETY G5, G5a)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

FOLLOWING = "logstore.raft.following"
FOLDER = "actors.writer.folder:Folder"
WRITER = "logstore.storage.log_writer:LogWriter"
RECOVERY = "logstore.storage.recovery"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "log-dropped-that-has-the-entry",
        "SAFETY G5, FAULTS R21",
        f"{FOLLOWING}:on_install",
        "if not _has_entry_at(state, start):",
        "if start.index >= state.commit:",
        "a follower that has the entry at log start drops its log, when it is told again",
    ),
    mutant(
        "log-kept-that-has-another-entry",
        "SAFETY G5, W3",
        f"{FOLLOWING}:on_install",
        "if not _has_entry_at(state, start):",
        "if start.index > state.log.last_index:",
        "a follower with another entry at log start keeps it, commits it and begins after it",
    ),
    mutant(
        "log-start-sent-goes-back",
        "SAFETY G4, G5",
        f"{FOLDER}.next_log_start",
        "reached = reader.start.index if highest is None",
        "reached = 0 if highest is None",
        "a log start that was sent twice, or is lower than that of a TRIM, is carried out",
    ),
    mutant(
        "log-start-sent-before-its-entry-is-flushed",
        "SAFETY G4, G5",
        f"{FOLLOWING}:on_install",
        "if start.index > state.persisted:",
        "if start.index > state.log.last_index:",
        "META names an entry that a crash takes",
        unreachable="a full follower must have just that entry under way: not in 54 seeds; "
        "tests/paper/test_safety_g5_install.py shows it",
    ),
    mutant(
        "install-claimed-before-the-answer",
        "SAFETY G5A, F4",
        f"{FOLLOWING}:_start_over",
        "state.emit(InstallLog(seq, whole))",
        "state.emit(InstallLog(seq, whole))\n"
        "    state.persists.persisted = start.index\n"
        "    finish_install(state)\n"
        "    commit.report_match(state)",
        "log start is claimed and shown while the writer still drops the log",
    ),
    mutant(
        "install-with-another-chain",
        "SAFETY G5, S3",
        "logstore.raft.stream:FollowerStream._send_install",
        "fields = (at.index, at.term, at.next_lsn, at.chain)",
        "fields = (at.index, at.term, at.next_lsn, at.chain ^ 1)",
        "the new log begins after an entry that nobody has",
    ),
    mutant(
        "install-with-the-bytes-of-the-first-entry",
        "SAFETY G5",
        "logstore.raft.log_view:EntryLog.whole_start",
        "header.cumulative_bytes - header.body_size,",
        "header.cumulative_bytes,",
        "the new log counts its first entry twice",
    ),
    mutant(
        "install-without-the-mark",
        "SAFETY G5A, S10",
        f"{FOLDER}.save_install",
        "installing=InstallMark(whole.cumulative_bytes, whole.timestamp_ns),",
        "installing=None,",
        "a start amid an install finds no segments, or those of the old log",
        unreachable="a crash must fall between two steps of an install: not in 45 seeds; "
        "tests/unit/test_writer_installs.py shows the order of the steps",
    ),
    mutant(
        "install-mark-kept",
        "SAFETY G5A",
        f"{FOLDER}.save_installed",
        "installing=None",
        "installing=meta.meta.installing",
        "the next start drops the new log as well",
    ),
    mutant(
        "install-removes-pairs-before-meta",
        "SAFETY G5A, F7",
        f"{FOLDER}.save_install",
        "meta = self._opened_meta()",
        "self.drop_log(whole)\n    meta = self._opened_meta()",
        "a crash leaves META with the old log start, and no segment",
        unreachable="a crash must fall between two steps of an install: not in 41 seeds; "
        "tests/unit/test_writer_installs.py shows the order of the steps",
    ),
    mutant(
        "install-keeps-the-old-pairs",
        "SAFETY G5A",
        f"{WRITER}.drop",
        "self.remove_pairs(old)",
        "pass",
        "the old log takes its space until the next start",
    ),
    mutant(
        "recovery-overlooks-the-mark",
        "SAFETY G5A, S10, FAULTS R20",
        f"{RECOVERY}:_recover_under",
        "if meta.installing is not None:",
        "if meta.installing is not None and meta.term < 0:",
        "a start amid an install goes on with what is left of the old log",
        unreachable="a crash must fall between two steps of an install: not in 43 seeds; "
        "tests/crash/test_crash_installs.py shows it",
    ),
    mutant(
        "recovery-under-the-mark-waits-for-space",
        "SAFETY G5A, S9",
        f"{RECOVERY}:_finish_install",
        "    if writer.prepare_spare():\n"
        "        writer.open_first()\n"
        "        store.save(msgspec.structs.replace(store.meta, installing=None))\n",
        "    writer.open_first()\n"
        "    store.save(msgspec.structs.replace(store.meta, installing=None))\n",
        "a voter that was killed amid an install on a full disk does not vote until there is space",
        unreachable="an install must be broken off on a disk that is still full at the start: "
        "not in 17 seeds; tests/unit/test_writer_installs.py finds it",
    ),
    mutant(
        "recovery-under-the-mark-removes-or-waits",
        "SAFETY G5A, S9",
        f"{RECOVERY}:_finish_install",
        "remove_dead_pair(disk, folder, number)",
        "[disk.unlink(segment_path(folder, number, role)) for role in FileRole]",
        "a start waits where a full copy-on-write disk refuses to remove the old log",
        unreachable="a disk of the world removes files however full it is: "
        "tests/unit/test_storage_install.py finds it",
    ),
    mutant(
        "install-not-ended-after-a-start-without-space",
        "SAFETY G5A, S9",
        "actors.writer.actor:WriterActor._try_recover",
        "if unfinished is not None:",
        "if False:",
        "the mark stays after a start without space, and the next start drops the new log",
        unreachable="an install must be broken off on a disk that is still full at the start: "
        "not in 14 seeds; tests/unit/test_writer_installs.py finds it",
    ),
    mutant(
        "trim-under-way-overtakes-an-install",
        "SAFETY G5A, G4",
        "actors.writer.trims:Trims.is_idle",
        "if self._queue or self._worker.is_busy:\n        return False\n    return not (",
        "return True or (",
        "META's log start goes back to that of a TRIM of the old log",
        unreachable="a replica that carries out a TRIM is not left below the log start so soon; "
        "tests/unit/test_writer_installs.py shows it",
    ),
    mutant(
        "removed-files-kept-until-there-is-space",
        "SAFETY G5A, S9",
        "actors.writer.log_work:LogWork._start_over",
        "self._slots[Counter.MAP_GENERATION] += 1",
        "pass",
        "readers keep the space of the old log, and a full disk has no other",
        unreachable="an install on a full disk whose files a reader has open: not in 44 seeds; "
        "tests/unit/test_writer_installs.py shows it",
    ),
)
