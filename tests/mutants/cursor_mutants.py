"""Mutants of named cursors (SAFETY E4 to E6, E8, V5)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

CURSORS = "actors.ingress.cursor_requests:CursorRequests"
FOLD = "logstore.session.fold"
TABLE = "logstore.session.cursors:CursorTable"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "cursors-listed-without-a-quorum",
        "SAFETY V5",
        f"{CURSORS}.list",
        "        self._confirm(request_id, request)\n",
        "        self._reads[request_id] = request\n"
        "        answered = ReadIndexAnswered(READS_OF_INGRESS + request_id, True, 0)\n"
        "        self.on_read_index(admission, answered)\n",
        "a leader that was deposed and does not know it lists what it knows",
    ),
    mutant(
        "cursors-listed-before-their-commit",
        "SAFETY E4",
        f"{CURSORS}.on_read_index",
        "    if self._changes:\n",
        "    if self._changes and reply is None:\n",
        "a list, or a refusal, does not wait for the newest change that it saw",
    ),
    mutant(
        "cursor-changed-before-its-commit",
        "SAFETY E4, E8",
        f"{CURSORS}._propose",
        "    admission.take_cursor(table, cursor, request_id)\n",
        "    self._requests.reply(\n"
        "        self._requests.take(request_id), self._changes[request_id].reply\n"
        "    )\n"
        "    admission.take_cursor(table, cursor, request_id)\n",
        "a change is answered when it enters the stream of proposals",
    ),
    mutant(
        "cursor-changed-without-its-commit",
        "SAFETY E4, E8",
        f"{CURSORS}.on_group_done",
        "    elif is_committed:\n",
        "    elif is_committed or group.index:\n",
        "a change whose term ended before its commit is answered as done",
    ),
    mutant(
        "expected-cursor-ignored",
        "FAULTS I6",
        f"{TABLE}.refusal_of",
        "if wish.expected_lsn not in (lsn, ANY_LSN):",
        "if wish.expected_lsn not in (lsn, ANY_LSN) and lsn == NO_LSN:",
        "whoever sets a cursor that there is, sets it",
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
