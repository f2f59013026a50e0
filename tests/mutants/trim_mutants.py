"""Mutants of the log start and of the TRIM entries that move it (SAFETY sections 7 and 14)."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

DECIDE = "actors.ingress.trim_requests"
COMMIT = "logstore.raft.commit:advance_visible"
FOLDER = "actors.writer.folder:Folder"
TRIMS = "actors.writer.trims:Trims"
WRITER = "logstore.storage.log_writer:LogWriter"
EGRESS = "actors.egress.fetch_port:Requests"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "trim-above-the-newest-snapshot",
        "SAFETY G1",
        f"{DECIDE}:_decide",
        "kept = min(log.index_of_lsn(lsn, highest), highest)",
        "kept = min(log.index_of_lsn(lsn, highest), highest) + 1",
        "the snapshot's first part may go with what lies below it",
    ),
    mutant(
        "trim-without-asking-the-level",
        "SAFETY S11",
        f"{DECIDE}:why_level_forbids",
        "if level >= TRIM_LEVEL:",
        "if level >= 0:",
        "versions that do not act on a TRIM get one",
        Edit(
            f"{DECIDE}:trim_to",
            "        level,\n    )",
            "        max(level, TRIM_LEVEL),\n    )",
        ),
    ),
    mutant(
        "trim-of-what-a-cursor-holds",
        "SAFETY G1",
        f"{DECIDE}:lowest_held",
        "if cursor.is_held)",
        "if cursor.is_held and cursor.lsn > 1 << 40)",
        "held cursors keep nothing",
    ),
    mutant(
        "cursor-holds-what-a-trim-under-way-takes",
        "SAFETY G1",
        "actors.ingress.control:ControlPort._decide_cursor",
        "NO_LSN < lsn < self._admission.trimmed_lsn:",
        "NO_LSN < lsn < NO_LSN:",
        "a cursor is set below a log start that is proposed and not reached yet",
        unreachable="a client must hold just that within the milliseconds of a commit, which is "
        "too rare; tests/unit/test_ingress_trims.py shows it",
    ),
    mutant(
        "trim-with-another-chain",
        "SAFETY G4",
        f"{DECIDE}:trim_to",
        "LogStart(header.index, header.term, before.chain, header.next_lsn)",
        "LogStart(header.index, header.term, header.prev_chain, header.next_lsn)",
        "a TRIM has the chain of the entry before the log start",
    ),
    mutant(
        "trim-with-the-bytes-before-its-entry",
        "SAFETY G4",
        f"{DECIDE}:trim_to",
        "header.cumulative_bytes,",
        "header.cumulative_bytes - header.body_size,",
        "a replica whose own entry there is damaged would count bytes wrongly",
    ),
    mutant(
        "trim-answered-before-its-commit",
        "SAFETY G1",
        "actors.ingress.pending_trims:PendingTrims._propose",
        "self._admission.take(entry).request = HeldAnswer(request_id, reply)",
        "self._admission.take(entry)\n    self._requests.answer(request_id, reply)",
        "an operator is told so as soon as the entry is proposed",
    ),
    mutant(
        "trim-acts-before-its-commit",
        "SAFETY G1",
        COMMIT,
        "for trim in state.log.take_trims(index):",
        "for trim in state.log.take_trims(state.log.last_index):",
        "an entry that may be truncated yet is carried out",
    ),
    mutant(
        "trim-acts-before-it-is-flushed-here",
        "SAFETY G1",
        COMMIT,
        "for trim in state.log.take_trims(index):",
        "for trim in state.log.take_trims(state.commit):",
        "a TRIM is carried out that this disk does not have yet",
    ),
    mutant(
        "truncated-trim-remembered",
        "SAFETY G1",
        "logstore.raft.log_view:EntryLog.truncate",
        "while self._trims and self._trims[-1] >= first_index:",
        "while self._trims and self._trims[-1] > first_index + 9:",
        "a TRIM is truncated, and whatever entry takes its place is carried out",
        unreachable="a TRIM must be truncated and its index committed before another comes: not "
        "in 46 seeds; tests/paper/test_safety_g_log_start.py shows it",
    ),
    mutant(
        "trims-not-recovered",
        "SAFETY G1",
        "actors.writer.folder:_report",
        "trims=recovered.trims,",
        "trims=(),",
        "a replica that starts after a TRIM was appended never carries it out",
    ),
    mutant(
        "pairs-removed-before-meta-has-the-log-start",
        "SAFETY F7, G4",
        f"{TRIMS}._save",
        "self._folder.save_log_start(whole)",
        "pass",
        "a start finds segments missing above the log start that META has",
        Edit(
            f"{TRIMS}._remove",
            "self._removed = whole",
            "self._folder.save_log_start(whole)\n    self._removed = whole",
        ),
    ),
    mutant(
        "log-start-goes-back",
        "SAFETY G4",
        "actors.writer.folder:_trim_at",
        "if start.index <= reader.start.index:\n            return None",
        "if start.index <= reader.start.index:\n            return _whole(trim)",
        "a start carries out every TRIM of its log again, the lowest first",
        Edit(
            f"{FOLDER}.next_log_start",
            "reached = reader.start.index if highest is None",
            "reached = 0 if highest is None",
        ),
    ),
    mutant(
        "log-start-forgets-the-vote",
        "SAFETY S8, G4",
        f"{FOLDER}.save_log_start",
        "msgspec.structs.replace(meta.meta, log_start=log_start_of(whole), level=level)",
        "msgspec.structs.replace(meta.meta, log_start=log_start_of(whole), level=level, vote=0)",
        "META with a new log start has no vote, and the replica may vote twice",
    ),
    mutant(
        "pair-removed-that-holds-the-log-start",
        "SAFETY G4",
        f"{WRITER}.move_start",
        "self._live[1].first_index <= start.index + 1:",
        "self._live[0].first_index <= start.index + 1:",
        "a pair goes with entries above the log start",
    ),
    mutant(
        "open-pair-removed",
        "SAFETY G4",
        f"{WRITER}.move_start",
        "return below",
        "return below or self._live[-1:]",
        "the writer goes on in files that no start will find",
    ),
    mutant(
        "log-start-walked-from-inside-its-pair",
        "SAFETY G4",
        "logstore.storage.verdict:_begin",
        "return row_at_start(start) if oldest is None else row_before(oldest)",
        "return row_at_start(start)",
        "after damage to the first record kept, what was acknowledged is taken for a torn tail",
        unreachable="all records above the log start must be damaged at once, and few are there so "
        "seldom; tests/unit/test_storage_log_start.py shows it",
    ),
    mutant(
        "pairs-below-the-log-start-kept",
        "SAFETY G4",
        f"{TRIMS}._remove",
        "self._folder.log.remove_pairs([pair])",
        "pass",
        "a trim frees no space until the next start",
    ),
    mutant(
        "below-the-log-start-is-damage",
        "SAFETY G6",
        "logstore.storage.log_reader:LogReader._segment",
        'raise BelowLogStart(f"index {index} is not above the log start {self.start.index}")',
        'raise CorruptData("log", 0, expected=f"entry {index}", got="none")',
        "who reads while the log start moves is told of damage",
        unreachable="a do_work is one moment of simulated time: no log start moves amid a read; "
        "tests/unit/test_log_start_readers.py shows it",
    ),
    mutant(
        "below-the-log-start-is-empty",
        "SAFETY G6",
        f"{EGRESS}._is_within",
        "if bounds.log_start_lsn <= first <= bounds.visible_lsn + 1 and request.last_lsn >= first:",
        "if first <= bounds.visible_lsn + 1 and request.last_lsn >= first:",
        "who asks for what is gone gets nothing and no error",
        Edit(
            f"{EGRESS}._fetch",
            "first_lsn=request.first_lsn,",
            "first_lsn=max(request.first_lsn, bounds.log_start_lsn),",
        ),
    ),
    mutant(
        "full-disks-have-no-room-for-a-config",
        "SAFETY S9, G1",
        "logstore.raft.space:leader_takes",
        "        kept_bytes //= CONFIGS_LEAVE\n",
        "        kept_bytes //= 1\n",
        "cursors use up the room for the CONFIG that a trim needs",
        unreachable="cursors must use up what full disks have before a trim: not in 13 seeds; "
        "tests/simulation/test_full_disks.py finds it",
    ),
    mutant(
        "trim-put-off-until-the-next-snapshot",
        "SAFETY G1",
        "actors.ingress.pending_trims:PendingTrims._decide_again",
        "self._put_off[request_id] = lsn",
        "self._waiting[request_id] = lsn",
        "a trim that had no turn waits for what the others of its turn wait for",
        unreachable="a trim that times out breaks no promise: "
        "`test_a_trim_that_needs_no_other_one_does_not_wait_for_it` finds it",
    ),
    mutant(
        "trim-that-comes-with-a-snapshot-hides-it",
        "SAFETY G1",
        "actors.ingress.pending_trims:PendingTrims._wait",
        "self._look_for_newer()",
        "self._in_the_way = self._newest",
        "trims that wait for a snapshot do not learn of it where another one came with it",
        unreachable="a trim that times out breaks no promise: "
        "`test_a_request_that_comes_with_the_news_does_not_hide_it` finds it",
    ),
    mutant(
        "removed-files-kept-open",
        "SAFETY V7, G6",
        "actors.replicator.bodies:Bodies.close_if_stale",
        "self._log.close()",
        "pass",
        "an idle replicator keeps the space of what was trimmed",
    ),
)
