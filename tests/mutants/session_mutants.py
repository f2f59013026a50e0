"""Mutants of admission, sessions and acknowledgements (SAFETY E1 to E9)."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

ADMISSION = "actors.ingress.admission:Admission"
CONTROL = "actors.ingress.control"
GENS = "logstore.raft.gens"
PROPOSALS = "actors.ingress.proposals:Proposals"
READS = "actors.ingress.linearizable_reads:LinearizableReads"
ROLE = "logstore.raft.role"
SESSION = "logstore.session.session"
TABLE = "logstore.session.table"

MUTANTS: tuple[Mutant, ...] = (
    # --- duplicates and fences ---
    mutant(
        "batches-in-flight-are-no-duplicates",
        "SAFETY E1, FAULTS K2",
        f"{TABLE}:SessionTable.check",
        "    if sequence < session.next_sequence:\n",
        "    known = session.rows.get(sequence)\n"
        "    in_flight = known is not None and not known.is_committed(self.commit)\n"
        "    if sequence < session.next_sequence and not in_flight:\n",
        "a retry of what is not committed yet is stored again",
    ),
    mutant(
        "batches-below-the-window-are-new",
        "SAFETY E1",
        f"{TABLE}:SessionTable.check",
        "    if sequence < session.next_sequence:\n",
        "    if sequence < session.next_sequence and sequence in session.rows:\n",
        "a retry of a batch that has left its window is stored again",
    ),
    mutant(
        "damaged-push-taken",
        "SAFETY W6, FAULTS X8",
        "actors.ingress.pushes:_read_batch",
        "sizes = verify_batch(frame, start, header, batch_max_bytes=batch_max_bytes)",
        "sizes = BatchSizes(header.count, 0, 0)",
        "a batch whose bytes do not fit its CRC is stored",
    ),
    mutant(
        "gaps-are-filled-later",
        "SAFETY E1, FAULTS K5",
        f"{TABLE}:SessionTable.check",
        "if session.is_dense and sequence > session.next_sequence:",
        "if session.is_dense and sequence > SEQUENCE_MAX:",
        "a dense session takes a batch whose predecessor is missing",
    ),
    mutant(
        "older-producer-epoch-goes-on",
        "SAFETY E2, FAULTS K4",
        f"{TABLE}:SessionTable._fenced",
        "if producer_epoch < session.producer_epoch:",
        "if producer_epoch < 0:",
        "a producer that was replaced is not fenced",
    ),
    mutant(
        "other-bytes-under-a-used-sequence",
        "SAFETY E1, E7",
        f"{TABLE}:_known",
        "if session.is_dense and (row.crc != crc or row.count != count):",
        "if session.is_dense and row.count < 0:",
        "a duplicate is recognised by its sequence number alone",
    ),
    mutant(
        "window-lets-uncommitted-batches-go",
        "SAFETY E1, E7",
        f"{TABLE}:SessionTable.check",
        "if not oldest.is_committed(self.commit):",
        "if oldest.index < 0:",
        "a full window forgets batches whose outcome is open",
        Edit(
            f"{TABLE}:SessionTable.offer",
            "and not 0 < next(iter(session.rows.values())).index <= self.commit",
            "and not 0 < next(iter(session.rows.values())).index",
        ),
        unreachable="the world's producers leave at most a window unresolved (E7), so a full"
        " window's oldest batch is committed",
    ),
    mutant(
        "monotone-session-forgets-its-sequence",
        "SAFETY E1",
        f"{TABLE}:SessionTable.apply_open",
        "next_sequence=old.next_sequence if old is not None and keeps_history else 0",
        "next_sequence=0",
        "the next epoch of a monotone session stores old sequences again",
    ),
    mutant(
        "monotone-producer-passes-over-a-batch",
        "SAFETY E1",
        "logstore.client.core.producer_machine:ProducerMachine._expire",
        "if expired and not self._options.is_dense:",
        "if expired and self._round < 0:",
        "a batch that expired unsent is left out, and counts as committed ever after",
    ),
    mutant(
        "sequence-behind-the-last-one-taken",
        "SAFETY E1",
        f"{TABLE}:SessionTable.offer",
        "        or sequence > SEQUENCE_MAX\n",
        "",
        "any next sequence is accepted, also one that no snapshot can hold",
    ),
    mutant(
        "requests-go-before-appends",
        "SAFETY E6",
        f"{ADMISSION}.may_take_request",
        "is_their_turn and not self._snapshots.is_due",
        "is_their_turn or self._requests_taken >= 0",
        "openings and changes of cursors are accepted while a snapshot is due",
    ),
    mutant(
        "lent-without-a-bound",
        "SAFETY W6",
        f"{PROPOSALS}.room_bytes",
        "min(room_bytes, lendable_bytes)",
        "min(room_bytes, lendable_bytes + (1 << 40))",
        "batches are read as long as a group has room",
    ),
    # --- imports ---
    mutant(
        "imports-taken-anywhere",
        "SAFETY S4, FAULTS K1",
        f"{ADMISSION}.take_import",
        "if origin[3].sequence != end_lsn:",
        "if origin[3].sequence < 0:",
        "an import is appended at any place, as often as it comes",
    ),
    mutant(
        "imports-overlook-what-is-under-way",
        "SAFETY S4, FAULTS K2",
        f"{PROPOSALS}.end_lsn",
        "sum(group.count for group in pending)",
        "sum(group.count for group in pending if group.index)",
        "for imports the log ends at the last entry with LSNs",
    ),
    # --- gens ---
    mutant(
        "admission-stays-open-at-step-down",
        "SAFETY E3",
        f"{ROLE}:_end_leadership",
        '    gens.close(state, "step_down")\n',
        "",
        "a replica that no longer leads goes on assigning indexes",
    ),
    mutant(
        "props-of-a-closed-gen-accepted",
        "SAFETY E3",
        f"{GENS}:try_accept",
        "if not opened.is_open or gen != opened.number:",
        "if gen != opened.number:",
        "after AdmissionClosed the rest of the gen gets indexes",
    ),
    mutant(
        "props-of-any-gen-accepted",
        "SAFETY E3",
        f"{GENS}:try_accept",
        "if not opened.is_open or gen != opened.number:",
        "if not opened.is_open:",
        "a proposal of an older gen takes the place of a newer one",
        unreachable="a term has a second gen only once a handover has timed out, an election"
        " timeout after the first gen ended, or the disk has space again, a second after it had"
        " none. By then raft has read whatever ingress proposed before it heard of that end; one"
        " that slept so long has lost its quorum, and with it the term. What is left is a raft that"
        " sleeps through both words of its writer just after a handover of its own failed, with an"
        " election timeout above a second: none of a million seeds",
    ),
    mutant(
        "gen-closed-after-its-term-ended",
        "SAFETY E3, E4",
        f"{ROLE}:_end_leadership",
        '    gens.close(state, "step_down")\n    state.emit(TermEnded(state.term))\n',
        '    state.emit(TermEnded(state.term))\n    gens.close(state, "step_down")\n',
        "ingress learns of the end before it learns what was accepted",
    ),
    # --- whole batches ---
    mutant(
        "batch-takes-one-lsn",
        "SAFETY S4",
        "actors.ingress.groups:Group.add",
        "self.count += sizes.count",
        "self.count += 1",
        "batches are counted instead of payloads, and the sum is not checked",
        Edit(
            f"{PROPOSALS}.accept",
            "if next_lsn != accepted.first_lsn + group.count:",
            "if next_lsn < accepted.first_lsn + group.count:",
        ),
        Edit(
            f"{PROPOSALS}.accept",
            "if accepted.first_lsn != self._next_lsn:",
            "if accepted.first_lsn > self._next_lsn:",
        ),
    ),
    # --- acknowledgements ---
    mutant(
        "acknowledged-when-accepted",
        "SAFETY E4",
        "actors.ingress.actor:IngressActor._on_raft_message",
        "            self.admission.accept(message)\n",
        "            self.admission.accept(message)\n"
        "            self._acks.acknowledge(self._proposals._accepted[-1].origins)\n",
        "a batch is acknowledged when it has its index",
    ),
    mutant(
        "pending-batches-outlive-their-term",
        "SAFETY E4",
        f"{PROPOSALS}.end_term",
        "    self._accepted.clear()\n",
        "",
        "a Committed of a later term acknowledges batches that were truncated",
        Edit(
            f"{PROPOSALS}.open",
            "    if term != self._term:\n        self._accepted.clear()\n"
            "        self.lent_bytes = 0\n",
            "",
        ),
    ),
    mutant(
        "committed-of-any-term-acknowledges",
        "SAFETY E4",
        f"{ADMISSION}.commit",
        "committed.term != self._term or ",
        "",
        "the term of a Committed is not compared",
        unreachable="raft sends no Committed of a term after its TermEnded, and ingress forgets"
        " what is pending there: the ring keeps their order",
    ),
    mutant(
        "retry-acknowledged-before-its-commit",
        "SAFETY E1, E4",
        f"{ADMISSION}.take_batch",
        "if row.is_committed(self._commit):",
        "if row.first_lsn:",
        "a duplicate is answered as soon as it has LSNs",
    ),
    mutant(
        "row-without-an-index-counts-as-committed",
        "SAFETY E1, E4",
        f"{SESSION}:WindowRow.is_committed",
        "0 < self.index <= commit",
        "self.index <= commit",
        "a retry of what is only proposed is answered with LSN 0",
    ),
    mutant(
        "waiting-retries-outlive-their-gen",
        "SAFETY E4, E5",
        f"{ADMISSION}.end_term",
        "    self.retries.clear()\n",
        "",
        "a retry that waited is answered by a commit of a later term",
    ),
    mutant(
        "session-state-calls-all-committed",
        "SAFETY E9",
        "actors.ingress.session_requests:state_reply",
        "if row.is_committed(commit)",
        "if row.first_lsn",
        "the answer to a producer calls its batches in flight committed",
    ),
    mutant(
        "session-looked-up-without-a-quorum",
        "SAFETY V5",
        f"{READS}.begin",
        "    self._to_raft.send(ReadIndexRequested(READS_OF_INGRESS + request_id))\n",
        "    number = READS_OF_INGRESS + request_id\n"
        "    if type(request).__name__ == 'SessionLookupRequest':\n"
        "        self.on_read_index(ReadIndexAnswered(number, True, 0))\n"
        "    else:\n"
        "        self._to_raft.send(ReadIndexRequested(number))\n",
        "a leader that does not know that it was deposed answers from its table",
    ),
    mutant(
        "session-told-before-its-commit",
        "SAFETY E8, E9",
        f"{READS}._take",
        "    if group is None:\n",
        "    if group is None or type(request).__name__ == 'SessionLookupRequest':\n",
        "a lookup shows an opening, or batches, that are not committed",
    ),
    mutant(
        "session-state-before-the-no-op",
        "SAFETY E9",
        f"{CONTROL}:ControlPort._answer_session_state",
        "if table is None or not admission.is_ready or not admission.takes_batches:",
        "if table is None or not admission.takes_batches:",
        "a leader answers before its no-op is committed",
        unreachable="without a commit index every row is told as unknown, and what the table does"
        " not hold was not acknowledged: this leader's log holds all that is committed",
    ),
    mutant(
        "sequence-without-lsns-stays-given",
        "FAULTS I14",
        "logstore.client.core.producer_machine:ProducerMachine._settle_without_lsns",
        "        self.given.settle(pack.sequence)\n",
        "        pass\n",
        "a producer keeps the number of each batch whose LSNs are known no more",
        unreachable="nothing counts what a client of a seed keeps: "
        "tests/unit/test_client_monotone.py finds it",
    ),
    mutant(
        "session-called-over-before-its-commit",
        "SAFETY E8, E9",
        f"{CONTROL}:ControlPort._deny_session",
        "newest_pending(_ENDED_BY[refused.code])",
        "newest_pending(EntryKind.NOOP)",
        "a producer is told that its session is over when the end is proposed",
    ),
    mutant(
        "session-opened-without-its-commit",
        "SAFETY E8",
        "actors.ingress.pending_requests:Requests.answer_forgotten",
        "    elif request is not None:\n",
        "    elif request is not None and group.producer_id:\n"
        "        self.answer(request.request_id, request.reply)\n"
        "    elif request is not None:\n",
        "an OPEN that was dropped with its gen is answered as done",
    ),
    mutant(
        "session-opened-before-its-commit",
        "SAFETY E8",
        f"{CONTROL}:ControlPort._open_session",
        "        group.request = HeldAnswer(request_id, reply, lost)\n",
        "        group.request = HeldAnswer(request_id, reply, lost)\n"
        "        self._requests.reply(caller, reply)\n",
        "an OPEN is answered when it enters the stream of proposals",
    ),
)
