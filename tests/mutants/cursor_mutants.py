"""Mutants of named cursors (SAFETY E4 to E6, E8, V5)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

CHANGES = "actors.ingress.changes:Changes"
FOLD = "logstore.session.fold"
READS = "actors.ingress.linearizable_reads:LinearizableReads"
REQUESTS = "actors.ingress.pending_requests:Requests"
TABLE = "logstore.session.cursors:CursorTable"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "cursors-listed-without-a-quorum",
        "SAFETY V5",
        f"{READS}.begin",
        "    self._to_raft.send(ReadIndexRequested(READS_OF_INGRESS + request_id))\n",
        "    number = READS_OF_INGRESS + request_id\n"
        "    if type(request).__name__ == 'CursorsRequest':\n"
        "        self.on_read_index(ReadIndexAnswered(number, True, 0))\n"
        "    else:\n"
        "        self._to_raft.send(ReadIndexRequested(number))\n",
        "a leader that does not know that it was deposed lists its table",
    ),
    mutant(
        "cursors-listed-before-their-commit",
        "SAFETY E4",
        f"{READS}._take",
        "    if group is None:\n",
        "    is_of_cursors = type(request).__name__ in ('CursorsRequest', 'SetCursorRequest')\n"
        "    if group is None or is_of_cursors:\n",
        "a list, or a refusal, does not wait for the newest change it is based on",
    ),
    mutant(
        "cursor-changed-before-its-commit",
        "SAFETY E4, E8",
        f"{CHANGES}._propose",
        "    group = self._admission.take(change.entry)\n",
        "    group = self._admission.take(change.entry)\n"
        "    if type(change.entry) is Cursor:\n"
        "        self._requests.answer(request_id, change.reply)\n",
        "a change is answered when it enters the stream of proposals",
    ),
    mutant(
        "cursor-changed-without-its-commit",
        "SAFETY E4, E8",
        f"{REQUESTS}.answer_forgotten",
        "    if request is not None and request.lost and group.index != NO_INDEX:\n",
        "    if group.index and group.kind.name == 'CURSOR' and request is not None:\n"
        "        self.answer(request.request_id, request.reply)\n"
        "    elif request is not None and request.lost and group.index != NO_INDEX:\n",
        "a change whose term ended before its commit is answered as done",
    ),
    mutant(
        "commit-of-a-consumer-drops-the-hold",
        "SAFETY G1",
        "actors.ingress.cursor_requests:would_hold",
        "return request.lsn != NO_LSN and table.cursors.is_held(request.name)",
        "return False",
        "what an operator holds may be trimmed after a consumer's next commit",
        unreachable="no client of the simulator keeps a hold: "
        "`test_a_change_that_keeps_the_hold_takes_it_from_the_stream_of_proposals` finds it",
    ),
    mutant(
        "expected-cursor-ignored",
        "FAULTS I6",
        f"{TABLE}.refusal_of",
        "if request.expected_lsn not in (lsn, ANY_LSN):",
        "if request.expected_lsn not in (lsn, ANY_LSN) and lsn == NO_LSN:",
        "a cursor is set whatever its present value",
    ),
    mutant(
        "cursors-left-out-of-the-snapshot",
        "SAFETY E6",
        f"{FOLD}:snapshot_parts",
        "    table.cursors.rows(),\n",
        "    (),\n",
        "a leader that begins at a SESSION entry knows no cursor set before it",
    ),
    mutant(
        "cursors-not-folded",
        "SAFETY E5",
        f"{FOLD}:Fold.apply",
        "            table.cursors.apply(decode_cursor(body))\n",
        "            decode_cursor(body)\n",
        "a new leader knows the cursors of the last snapshot only",
    ),
)
