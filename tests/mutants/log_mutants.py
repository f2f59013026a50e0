"""Mutants of the log: counting, matching, truncating, what a persist proves (SAFETY V1, V2, F4)."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

COMMIT = "logstore.raft.commit"
FOLLOWING = "logstore.raft.following"
FAULTY = "logstore.raft.faulty:FaultyEntries"
LOG = "logstore.raft.log_view:EntryLog"
PERSIST = "logstore.raft.persist:PersistQueue"
REPLICATION = "logstore.raft.replication"
STATE = "logstore.raft.state:State"

MUTANTS: tuple[Mutant, ...] = (
    # --- the leader counts ---
    mutant(
        "old-term-entry-committed-by-counting",
        "FAULTS R1, SAFETY V1",
        f"{REPLICATION}:commit_by_counting",
        "if candidate <= state.commit or state.log.term_at(candidate) != state.term:",
        "if candidate <= state.commit:",
        "figure 8: a majority holds an entry of an old term, and a later leader removes it",
    ),
    mutant(
        "leader-counts-itself-before-its-flush",
        "FAULTS R23, SAFETY F9",
        f"{REPLICATION}:commit_by_counting",
        "matches[state.config.node] = state.persisted",
        "matches[state.config.node] = state.log.last_index",
        "an entry the leader has only in memory counts",
    ),
    mutant(
        "one-copy-too-few-commits",
        "FAULTS R22, SAFETY V1",
        "logstore.raft.quorum:majority_value",
        "descending[majority(len(descending)) - 1]",
        "descending[max(0, majority(len(descending)) - 2)]",
        "the sorted list is read one place too high",
    ),
    mutant(
        "new-leader-commits-its-tail",
        "FAULTS R9, SAFETY V1",
        f"{REPLICATION}:begin_leading",
        "    send_heartbeats(state, leading)\n",
        "    state.shown.is_ready = True\n"
        "    commit.raise_commit(state, min(state.persisted, Index(noop_index - 1)))\n"
        "    send_heartbeats(state, leading)\n",
        "the winner's entries count as committed before its no-op is",
    ),
    mutant(
        "accepted-counts-as-persisted",
        "SAFETY W1, F1",
        f"{FOLLOWING}:_answer_accepted",
        "    commit.report_match(state)\n",
        "    commit.repeat_match_report(state, state.verified)\n",
        "a follower answers Persisted when it has verified, before its flush",
    ),
    mutant(
        "no-op-takes-an-lsn",
        "FAULTS R25, SAFETY S4",
        "logstore.format.entry:EntryHeader.next_lsn",
        "self.first_lsn + self.count",
        "self.first_lsn + max(1, self.count)",
        "entries without payloads leave a gap in the LSNs",
    ),
    mutant(
        "leader-skips-an-lsn",
        "FAULTS R25, SAFETY S4",
        f"{REPLICATION}:append_entry",
        "        first_lsn=last.next_lsn,\n",
        "        first_lsn=last.next_lsn if count else last.next_lsn + 1,\n",
        "an entry without payloads begins one LSN too high, and the log does not check it",
        Edit(
            f"{LOG}.append",
            "(header.index, header.prev_term, header.first_lsn, header.prev_chain) != (\n"
            "        last.index + 1, last.term, last.next_lsn, last.chain,\n",
            "(header.index, header.prev_term, header.prev_chain) != (\n"
            "        last.index + 1, last.term, last.chain,\n",
        ),
    ),
    mutant(
        "group-told-of-the-lsns-behind-it",
        "SAFETY S4",
        f"{REPLICATION}:on_proposed",
        "            header.first_lsn,\n",
        "            header.next_lsn,\n",
        "batches get the LSNs of the next group",
    ),
    mutant(
        "time-goes-back-with-the-clock",
        "SAFETY G2",
        "logstore.raft.clocks:stamp_ns",
        "max(previous_ns, min(wall_ns, counted_ns + CLOCK_AHEAD_MAX_NS))",
        "min(wall_ns, counted_ns + CLOCK_AHEAD_MAX_NS)",
        "stamps follow the leader's clock, also when it goes back",
    ),
    mutant(
        "leaders-clock-counts-whatever-it-says",
        "SAFETY G2",
        "logstore.raft.clocks:stamp_ns",
        "min(wall_ns, counted_ns + CLOCK_AHEAD_MAX_NS)",
        "wall_ns",
        "one clock that is hours ahead sets every later stamp",
    ),
    # --- the follower matches ---
    mutant(
        "commit-not-clamped-to-what-is-verified",
        "FAULTS R5, SAFETY V2",
        f"{COMMIT}:follow_commit",
        "min(leader_commit, state.verified)",
        "min(leader_commit, state.log.last_index)",
        "a stale suffix is shown as committed",
    ),
    mutant(
        "match-is-all-that-is-persisted",
        "FAULTS R6, SAFETY F4",
        f"{STATE}.claimed_match",
        "min(self.persisted, self.verified)",
        "self.persisted",
        "a stale suffix is claimed as replicated",
    ),
    mutant(
        "accepted-is-the-last-index",
        "FAULTS R6, SAFETY W1",
        f"{FOLLOWING}:_answer_accepted",
        "AppendAccepted(state.term, stream, state.verified)",
        "AppendAccepted(state.term, stream, state.log.last_index)",
        "the stream goes on after a stale suffix",
    ),
    mutant(
        "heartbeat-verifies-the-whole-log",
        "SAFETY V2",
        f"{FOLLOWING}:on_heartbeat",
        "    if is_settled and prev.index > state.verified and _matches(state, prev):\n"
        "        state.verified = prev.index\n",
        "    if is_settled and _matches(state, prev):\n"
        "        state.verified = state.log.last_index\n",
        "entries after the heartbeat's prev tuple count as verified, too",
    ),
    mutant(
        "verified-outlives-its-term",
        "SAFETY V2",
        f"{STATE}.enter_term",
        "    self.verified = self.commit\n",
        "",
        "what an older leader verified counts for the new one",
    ),
    mutant(
        "matching-append-truncates",
        "FAULTS R7, SAFETY W3",
        f"{FOLLOWING}:_take_entry",
        "if _is_held(state, header):",
        "if _is_held(state, header) and header.index == log.last_index:",
        "an old append that matches removes the entries after it",
    ),
    mutant(
        "prev-below-the-log-start-is-refused",
        "FAULTS R8, SAFETY G3",
        f"{FOLLOWING}:_matches",
        "    if prev.index < log.start.index:\n        return True\n",
        "    if prev.index < log.start.index:\n        return False\n",
        "a follower that trimmed further than its leader never matches",
        unreachable="no log start moves until TRIM is built: no index is below it",
    ),
    mutant(
        "conflict-taken-for-a-duplicate",
        "SAFETY W3, S3",
        f"{FOLLOWING}:_is_held",
        "header.index <= log.start.index or _has_term(state, header.index, header.term)",
        "True",
        "an entry counts as held by its index alone",
    ),
    mutant(
        "terms-of-the-previous-entry-not-compared",
        "SAFETY S3",
        f"{FOLLOWING}:_matches",
        "if not _has_term(state, prev.index, prev.term):",
        "if prev.term == 0 and prev.index:",
        "an append is accepted after any entry",
    ),
    mutant(
        "truncation-below-the-commit-index",
        "SAFETY F8",
        f"{FOLLOWING}:_truncate",
        "if kept.index < state.commit:",
        "if kept.index < 0:",
        "the guard of committed entries is gone",
        unreachable="the guard only speaks when another rule is broken: no sound leader conflicts"
        " there",
    ),
    mutant(
        "term-runs-survive-truncation",
        "SAFETY M9, W3",
        f"{LOG}.truncate",
        "    while self._run_firsts and self._run_firsts[-1] >= first_index:\n"
        "        self._run_firsts.pop()\n"
        "        self._run_terms.pop()\n",
        "",
        "entries have the terms of the truncated ones that they replace",
    ),
    mutant(
        "no-rows-are-kept",
        "SAFETY M9",
        f"{LOG}.drop_rows",
        "min(durable_commit, self.last.index - kept)",
        "(durable_commit + 1)",
        "the newest rows are dropped from memory, too, with the last entry's",
    ),
    # --- what a persist proves ---
    mutant(
        "outstanding-persists-not-clipped",
        "FAULTS R24, SAFETY F4",
        f"{PERSIST}.truncate",
        "request.last_index = min(request.last_index, kept)",
        "request.last_index = max(request.last_index, kept)",
        "the answer to a flush proves the entry that replaced the flushed one",
    ),
    mutant(
        "persisted-survives-truncation",
        "FAULTS R24, SAFETY F4",
        f"{PERSIST}.truncate",
        "    self.persisted = min(self.persisted, kept)\n",
        "",
        "what replaces a flushed entry counts as flushed",
    ),
    mutant(
        "one-answer-proves-every-persist",
        "SAFETY F4",
        f"{PERSIST}.on_persisted",
        "while self._outstanding and self._outstanding[0].seq <= seq:",
        "while self._outstanding:",
        "Persisted(seq) is taken for the newest request",
    ),
    mutant(
        "damage-does-not-cap",
        "SAFETY Q1",
        f"{FAULTY}.cap",
        "return persisted if first is None else min(persisted, Index(first - 1))",
        "return persisted",
        "a replica claims an entry that it knows to be damaged",
    ),
    mutant(
        "damage-outlives-truncation",
        "SAFETY Q1",
        f"{FOLLOWING}:_truncate",
        "    state.faulty.truncate(first_index)\n",
        "",
        "the entry that replaced a damaged one counts as damaged",
    ),
    # --- leadership ends ---
    mutant(
        "follower-with-damage-campaigns-at-once",
        "SAFETY Q3",
        f"{STATE}._draw_election_deadline",
        "if self.faulty or self.is_disk_full:",
        "if self.is_disk_full:",
        "a damaged replica does not wait for the others to campaign",
        unreachable="it only prefers whole leaders: admission stays closed on a damaged one, and"
        " it hands over (gens.may_open, transfer.begin_if_disk_is_unfit)",
    ),
    mutant(
        "append-of-a-term-above-its-message",
        "SAFETY U2",
        "logstore.raft.core:_on_append",
        "header.prev_term <= header.term <= append.term",
        "header.prev_term <= header.term",
        "an entry may claim a term that its sender has not reached",
        Edit(
            "actors.ingress.bulk:PeerBulk._check",
            "        or append.header.term > append.term  # U2\n",
            "",
        ),
        unreachable="no sender of the world builds such an append; unit tests do",
    ),
)
