"""Mutants of recovery: what is flushed, what each record and frame is taken for (SAFETY section 4,
S10).
"""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

RECOVERY = "logstore.storage.recovery"
FOLDER_SCAN = "logstore.storage.folder_scan"
VERDICT = "logstore.storage.verdict"
WALK = f"{VERDICT}:_Walk"
SEALED = "logstore.storage.sealed"
BOOTSTRAP = "logstore.raft.bootstrap:Bootstrap"

MUTANTS: tuple[Mutant, ...] = (
    # --- who may come back ---
    mutant(
        "lost-disk-comes-back-in-place",
        "SAFETY L1, FAULTS D21",
        f"{BOOTSTRAP}._join_if_formed",
        "state=ReplicaState.LEARNER",
        "state=ReplicaState.VOTER",
        "an empty replica joins a cluster that votes already, under the number of an old voter",
    ),
    mutant(
        "cluster-born-without-all",
        "SAFETY L2",
        f"{BOOTSTRAP}._begin_if_all_answered",
        "if len(answers) < len(self._peers):",
        "if len(answers) < len(self._peers) // 2:",
        "a majority makes a cluster; who comes later has no log and is taken for a lost disk",
        Edit(
            f"{BOOTSTRAP}._finish_if_all_prepared",
            "len(self._prepared) == len(self._peers)",
            "len(self._prepared) >= len(self._peers) // 2",
        ),
    ),
    mutant(
        "first-nonce-kept-for-good",
        "SAFETY L2",
        f"{BOOTSTRAP}._on_prepare",
        "elif wanted.nonce > newest.nonce:",
        "elif newest.state == ReplicaState.EMPTY:",
        "a prepared replica accepts no newer nonce: a coordinator that starts again never ends",
    ),
    mutant(
        "folder-of-another-node-opened",
        "SAFETY L3, FAULTS O3",
        "logstore.storage.recovery:_recover_under",
        "if meta.node != node:",
        "if not meta.node:",
        "a data folder copied from another node is opened under this node's number",
        unreachable="an operator must copy a folder, and no fault of the world does: disks rot and"
        " are lost; unit tests open a folder under another node's number",
    ),
    mutant(
        "folder-of-another-node-named-for-ever",
        "SAFETY L3",
        f"{BOOTSTRAP}.on_message",
        "if self.refusal and sender == self._refused_by:",
        "if False:",
        "a copied folder keeps a node out of the bootstrap also after another has replaced it",
        unreachable="an operator must copy a folder, and no fault of the world does: "
        "tests/unit/test_raft_bootstrap.py finds it",
    ),
    mutant(
        "folders-of-two-clusters-named-for-ever",
        "SAFETY L3",
        f"{BOOTSTRAP}._forget_refusal_of_several",
        "if self._refused_by == NO_NODE:",
        "if False:",
        "nodes of different clusters stay the reason after they were emptied",
        unreachable="a world has one cluster: tests/unit/test_raft_bootstrap.py finds it",
    ),
    # --- before anything is read ---
    mutant(
        "recovery-flushes-nothing",
        "SAFETY section 4",
        f"{FOLDER_SCAN}:_flush_and_drop_caches",
        "            if number >= newest:\n                disk.flush(handle)\n",
        "",
        "what a killed writer left in the page cache counts as durable",
    ),
    mutant(
        "recovery-flushes-only-what-has-no-header",
        "SAFETY section 4",
        f"{FOLDER_SCAN}:_flush_and_drop_caches",
        "if number >= newest:",
        "if number > newest:",
        "the newest pair counts as flushed, as the older ones are",
    ),
    mutant(
        "recovery-trusts-the-page-cache",
        "SAFETY F5, FAULTS D25",
        f"{FOLDER_SCAN}:_flush_and_drop_caches",
        "            disk.drop_cache(handle)\n",
        "",
        "pages that a failed flush did not write are read as if they were durable",
    ),
    mutant(
        "meta-read-from-the-page-cache",
        "SAFETY F5, S8",
        "logstore.storage.meta_store:read_meta",
        "        disk.drop_cache(handle)\n",
        "",
        "a META page that a failed flush did not write is read as if it were durable",
    ),
    mutant(
        "half-opened-pair-left-alone",
        "SAFETY section 4",
        f"{FOLDER_SCAN}:scan_folder",
        "        lacking = _roles_without_header(disk, folder, header)\n",
        "        lacking = []\n",
        "a header that is missing is not written from its twin",
    ),
    mutant(
        "folder-used-without-its-lock",
        "SAFETY M2",
        f"{RECOVERY}:recover",
        "    disk.lock_folder(folder)\n",
        "",
        "two writers may have one folder open",
        unreachable="the world starts a writer only when the one before it is gone; tests on real"
        " processes start two",
    ),
    # --- the table ---
    mutant(
        "orphans-not-adopted",
        "SAFETY section 4",
        f"{WALK}._adopt",
        "    last = found.last\n",
        "    if index:\n        return False\n    last = found.last\n",
        "a whole frame without its record is damage, or torn",
    ),
    mutant(
        "adopted-records-not-flushed",
        "SAFETY section 4",
        f"{RECOVERY}:_write_records_durable",
        "            disk.flush(handle)\n",
        "",
        "raft starts on records that are in the page cache",
    ),
    mutant(
        "adopted-records-not-written",
        "SAFETY section 4",
        f"{RECOVERY}:_recover_log",
        "    _write_records_durable(disk, folder, found.rebuilt, scan)\n",
        "",
        "an adopted entry never gets its record",
    ),
    mutant(
        "log-cut-at-the-first-bad-checksum",
        "SAFETY section 4, F2",
        f"{WALK}.run",
        "if record is not None:",
        "if record is not None and not self._frame_fault(record):",
        "damage is treated as a torn tail",
        Edit(f"{WALK}.run", "if index > evidence:", "if index >= 0:"),
    ),
    # --- summaries of sealed pairs ---
    mutant(
        "summary-believed-without-its-records",
        "SAFETY section 4",
        f"{SEALED}:proved_records",
        "        or crc32(raw) != summary.records_crc\n",
        "",
        "damaged records of a sealed pair count as whole",
    ),
    mutant(
        "summary-without-terms",
        "SAFETY section 4",
        f"{SEALED}:Summing.take",
        "if not self._term_starts or self._term_starts[-1][1] != term:",
        "if not self._term_starts:",
        "a sealed pair has the term of its first entry",
    ),
    mutant(
        "summary-without-trims",
        "SAFETY section 4, G4",
        f"{SEALED}:Summing.take",
        "self._trims.append(index)",
        "pass",
        "a TRIM that a start finds in a sealed pair is forgotten",
        unreachable="a start must find a TRIM in a sealed pair that META does not know: not in 44 "
        "seeds; tests/unit/test_storage_sealed_start.py shows it",
    ),
    mutant(
        "summary-without-levels",
        "SAFETY section 4, S11",
        f"{SEALED}:Summing.take",
        "self._levels.append((index, level_of(kind)))",
        "pass",
        "a level that a start finds in a sealed pair is forgotten",
    ),
    mutant(
        "summary-without-the-commit-index",
        "SAFETY section 4, F8",
        f"{SEALED}:Summing.take",
        "if commit_known > self._commit_known:",
        "if commit_known > 1 << 62:",
        "what the records of a sealed pair say is committed is forgotten",
        unreachable="what the newest pair says is committed lies above it: not in 45 seeds; "
        "tests/unit/test_storage_sealed_start.py shows it",
    ),
    mutant(
        "summary-without-the-order-of-records",
        "SAFETY section 4",
        f"{SEALED}:proved_records",
        "        or crc32(raw) != summary.records_crc\n",
        "        or any(crc32c(raw[at : at + RECORD_SIZE - 4], crc32c(header.segment_uuid))\n"
        "            != int.from_bytes(raw[at + RECORD_SIZE - 4 : at + RECORD_SIZE], 'little')\n"
        "            for at in range(0, len(raw), RECORD_SIZE))\n",
        "records of a sealed pair are whole each by itself, in whatever order",
        unreachable="the world's media damage sectors and do not exchange them;"
        " tests/unit/test_storage_sealed_start.py exchanges two records",
    ),
    mutant(
        "damage-is-not-looked-for",
        "SAFETY section 4, F2",
        f"{WALK}._judge_record",
        "    fault = self._frame_fault(record)\n",
        '    fault = ""\n',
        "an entry counts as whole by its record alone",
    ),
    mutant(
        "evidence-after-a-gap-ignored",
        "SAFETY section 4",
        f"{WALK}.run",
        "if index > evidence:",
        "if index >= 0:",
        "a bad record with good ones after it is treated as the end of the log",
    ),
    mutant(
        "log-cut-at-the-commit-index-known",
        "SAFETY section 4, FAULTS R1",
        f"{RECOVERY}:_recover_log",
        "    _remove_dead(disk, folder, scan)\n",
        "    floor = _commit_floor(store.meta, found)\n"
        "    if found.last.header.index > floor and not found.faulty:\n"
        "        writer.truncate(Index(floor + 1))\n"
        "        found.last = writer.last\n"
        "        found.term_runs = [run for run in found.term_runs if run[0] <= floor]\n"
        "    _remove_dead(disk, folder, scan)\n",
        "a replica restarts with what it knew to be committed (Kafka before KIP-101)",
    ),
    mutant(
        "torn-tail-built-upon",
        "SAFETY S7, section 4",
        f"{RECOVERY}:_recover_log",
        "if found.has_torn_tail and",
        "if found.has_torn_tail and found.faulty and",
        "the next entry is written over what was torn",
        Edit(f"{RECOVERY}:_log_state", "has_torn_tail=found.has_torn_tail", "has_torn_tail=False"),
    ),
    mutant(
        "torn-tail-waits-for-space-to-start",
        "SAFETY S9",
        f"{RECOVERY}:_recover_log",
        "if found.has_torn_tail and writer.prepare_spare():",
        "if found.has_torn_tail:",
        "a replica with a torn tail and a full disk takes no part until there is space",
    ),
    mutant(
        "appended-behind-a-torn-tail",
        "SAFETY S7, S9",
        "logstore.storage.log_writer:LogWriter.needs_roll",
        "    if self._has_torn_tail:\n        return True\n",
        "",
        "while the discard waits for space, entries are written over what was torn",
        Edit(
            "actors.writer.log_work:LogWork._maintain_spare",
            "if log.has_torn_tail and",
            "if log.has_torn_tail and now_ns < 0 and",
        ),
    ),
    mutant(
        "orphans-of-any-lineage-adopted",
        "SAFETY S3, section 4",
        f"{WALK}._adopt",
        "        if header.prev_chain != last.chain or header.prev_term != last.header.term:\n"
        "            continue\n",
        "",
        "a frame is adopted without checking which entry it follows",
        unreachable="a truncation and a torn tail both open a new segment, whose uuid is in every"
        " CRC's seed: no frame of another lineage is whole in it",
    ),
    mutant(
        "named-segment-missing-unnoticed",
        "SAFETY S10",
        "logstore.storage.segment_map:_named_segments",
        "        if before:\n",
        "        if before < 0:\n",
        "a live segment whose files are gone is not noticed",
        unreachable="the world's media damage sectors and never lose whole files: the log's"
        " names are durable before anything in them is; tests remove files",
    ),
    mutant(
        "unreadable-segment-taken-for-an-empty-one",
        "SAFETY S10, Q5",
        f"{FOLDER_SCAN}:check_holds_no_entry",
        'unreadable=b"?"',
        'unreadable=b"\\0"',
        "a segment of which the device refuses to read every sector is removed as a spare",
        unreachable="the world's media damage one header of a segment at most;"
        " tests/unit/test_storage_recovery.py makes all of one unreadable",
    ),
    mutant(
        "lost-records-taken-for-unwritten-ones",
        "SAFETY section 4, FAULTS D12",
        "logstore.storage.torn_tail:has_torn_tail",
        "if disk.size(raft) < place + RECORD_SIZE:",
        "if place < 0:",
        "without the newest Raft file's tail an entry that is damaged is discarded as torn",
        unreachable="the world's media damage sectors and never cut files;"
        " tests/unit/test_storage_recovery.py cuts one",
    ),
    mutant(
        "raft-file-made-again-with-space-for-lost-records",
        "SAFETY section 4, FAULTS D12",
        f"{FOLDER_SCAN}:_write_header",
        "is_filled = is_newest and role == FileRole.DATA",
        "is_filled = is_newest",
        "the records that were lost with the newest Raft file look unwritten",
        unreachable="the world's media damage sectors and never lose whole files;"
        " tests/unit/test_storage_recovery.py removes one",
    ),
    mutant(
        "unreadable-records-taken-for-unwritten-ones",
        "SAFETY section 4, Q5",
        "logstore.storage.torn_tail:has_torn_tail",
        "if refused.raft_end > place or not _is_readable(disk, raft, place, tick=tick):",
        "if place < 0:",
        "newest entries of which neither records nor frames can be read are discarded as torn",
        unreachable="a loss that nothing proves takes two faults, which the world spares;"
        " tests/unit/test_storage_recovery.py makes both files unreadable",
    ),
    mutant(
        "vote-kept-when-the-log-raises-the-term",
        "SAFETY section 4",
        f"{RECOVERY}:_recover_log",
        "term=found.last.header.term, vote=NO_NODE))",
        "term=found.last.header.term, vote=store.meta.vote))",
        "a vote of an older term counts in the newer one",
        unreachable="no entry is written before its term is durable in META (C1), so recovery"
        " never finds a higher one; the rule is for a META that was lost and replaced",
    ),
)
