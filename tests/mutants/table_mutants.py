"""Mutants of the session table as the fold of the log: rebuilding, snapshots, expiry (SAFETY E5 to
E8, Q3)."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

ADMISSION = "actors.ingress.admission:Admission"
EXPIRY = "actors.ingress.expiry:Expiry"
FOLD = "logstore.session.fold"
GENS = "logstore.raft.gens"
REBUILD = "actors.ingress.rebuild:Rebuild"
TABLE = "logstore.session.table"

MUTANTS: tuple[Mutant, ...] = (
    # --- the table is the fold of the log ---
    mutant(
        "table-without-the-uncommitted-tail",
        "SAFETY E5, FAULTS K2",
        f"{GENS}:open_if_allowed",
        "log.last_index, seq",
        "state.commit, seq",
        "a new leader's table ends at the commit index",
    ),
    mutant(
        "rebuilding-before-it-is-written",
        "SAFETY E5",
        f"{REBUILD}._step",
        "if self._slots[Counter.WRITTEN] < self.admit.persist_seq:",
        "if self._slots[Counter.WRITTEN] < 0:",
        "the table is read from files that do not hold the log yet",
    ),
    mutant(
        "rebuilding-steps-over-the-last-entry",
        "SAFETY E5",
        f"{REBUILD}._step",
        "while self.next_index <= self.admit.last_index:",
        "while self.next_index < self.admit.last_index:",
        "the newest entry is not folded",
        Edit(
            f"{REBUILD}._step",
            "if self.next_index <= self.admit.last_index:\n        return False",
            "if self.next_index < self.admit.last_index:\n        return False",
        ),
    ),
    mutant(
        "rebuilding-ends-at-a-missing-file",
        "SAFETY Q3",
        "logstore.storage.log_reader:LogReader.newest_of_kind",
        "if self.refresh():",
        "if self.refresh() or True:",
        "a leader that lacks a file names entry 0 as damaged, admits nothing and leads on",
        unreachable="media of the world lose no whole files: "
        "tests/unit/test_ingress_rebuild.py finds it",
    ),
    mutant(
        "one-reading-is-damage-where-a-file-had-gone",
        "SAFETY Q3",
        f"{ADMISSION}.rebuild",
        "self._damage_seen_at == index",
        "self._damage_seen_at is not None",
        "the first bad reading of a whole entry counts as the second",
        unreachable="a file must go amid the search, and a truncation come amid the walk: not in"
        " 16 seeds; tests/unit/test_ingress_admission.py finds it",
    ),
    mutant(
        "rebuilt-rows-share-an-lsn",
        "SAFETY E5",
        f"{FOLD}:_fold_batches",
        "        lsn = Lsn(lsn + header.count)\n",
        "",
        "duplicates are answered with the LSN of their group's first batch",
    ),
    mutant(
        "snapshot-without-its-windows",
        "SAFETY E6",
        f"{FOLD}:_session_row",
        "            for row in session.rows.values()\n        ),",
        "            for row in ()\n        ),",
        "a SESSION entry forgets which batches are known",
    ),
    mutant(
        "snapshot-of-batches-in-flight",
        "SAFETY E6",
        f"{ADMISSION}.propose",
        "if snapshots.is_under_way or proposals.has_all_lsns:",
        "if snapshots.is_due:",
        "a SESSION entry is taken while batches have no LSNs",
    ),
    mutant(
        "table-outlives-its-gen",
        "SAFETY E5",
        f"{ADMISSION}.close",
        "    self._drop_table()\n",
        "",
        "batches are taken in while admission is closed",
    ),
    mutant(
        "snapshot-without-its-end-is-whole",
        "SAFETY E6",
        f"{REBUILD}._search",
        "if head.is_last:",
        "if head is not None:",
        "the parts of a leader that ended amid them are taken for the table",
        Edit(f"{FOLD}:Fold._take_part", "if part.head.is_last:", "if part is not None:"),
    ),
    mutant(
        "snapshot-part-left-out",
        "SAFETY E6",
        f"{FOLD}:_Parts.load_into",
        "for session in self._sessions.values():",
        "for session in list(self._sessions.values())[:-1]:",
        "the last session of a snapshot is not read back",
    ),
    # --- expiry ---
    mutant(
        "name-of-an-expired-session-forgotten",
        "SAFETY E8",
        f"{TABLE}:SessionTable.apply_expire",
        "if entry.is_kept and _is_kept(session):",
        "if entry.is_kept and not session.name:",
        "opening an expired monotone name starts at sequence 0 without notice",
    ),
    mutant(
        "session-expired-before-its-time",
        "SAFETY E8",
        f"{EXPIRY}.due",
        "before_ns = committed_ns - self._expiry_ns",
        "before_ns = committed_ns - self._expiry_ns // 2",
        "a session ends after half of its time",
    ),
    mutant(
        "duplicates-are-no-sign-of-life",
        "SAFETY E8",
        f"{ADMISSION}.take_batch",
        "    self._expiry.heard_of(table, producer_id, producer_epoch, now_ns)\n",
        "",
        "the session of a producer that sends only what the log has expires",
        unreachable="a producer must send only what is known for as long as sessions last: not in"
        " 12 seeds; `test_a_session_whose_producer_sends_what_is_known_is_not_idle` finds it",
    ),
    mutant(
        "refused-comparisons-are-no-sign-of-life",
        "SAFETY E8",
        "actors.ingress.comparisons:Comparisons.take",
        "        admission.heard_of(producer_id, now_ns)\n",
        "",
        "the session of a producer that always expects too low an LSN expires",
        unreachable="a producer must come too late for as long as sessions last: not in 12 seeds; "
        "`test_a_session_whose_batches_are_all_refused_is_not_idle` finds it",
    ),
    mutant(
        "session-expired-without-an-entry",
        "SAFETY E8, FAULTS K3",
        f"{ADMISSION}.take",
        "return self._add_entry(EntryKind.EXPIRE, encode_expire(entry))",
        "return Group(EntryKind.EXPIRE, [], [])",
        "a leader ends a session by its own clock without an entry in the log",
    ),
    mutant(
        "expired-session-stays-in-the-fold",
        "SAFETY E5, E8",
        f"{FOLD}:Fold.apply",
        "table.apply_expire(session_entries.decode_expire(body))",
        "session_entries.decode_expire(body)",
        "the next leader knows a session that was ended",
    ),
    mutant(
        "expired-session-goes-on",
        "SAFETY E2, E8, FAULTS K3",
        f"{ADMISSION}.take",
        "    table.apply_expire(entry)\n",
        "",
        "batches after the EXPIRE are accepted as new until the gen ends",
        Edit(
            f"{ADMISSION}.take",
            "    self._expiry.used_ns.pop(entry.producer_id, None)\n",
            "    self._expiry.used_ns[entry.producer_id] = 1 << 62\n"
            "    table.get(entry.producer_id).last_used_ns = 0\n",
        ),
    ),
    mutant(
        "named-session-expired",
        "SAFETY E8",
        f"{EXPIRY}.idlest_nameless",
        "if not each.name and used_ns",
        "if used_ns",
        "a session with a name is ended",
    ),
)
