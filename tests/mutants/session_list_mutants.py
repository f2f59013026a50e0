"""Mutants of lists of sessions, and of their end by an operator (SAFETY E4, E8, V5)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

CHANGES = "actors.ingress.changes:Changes"
READS = "actors.ingress.linearizable_reads:LinearizableReads"
REQUESTS = "actors.ingress.pending_requests:Requests"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "sessions-listed-without-a-quorum",
        "SAFETY V5",
        f"{READS}.begin",
        "    self._to_raft.send(ReadIndexRequested(READS_OF_INGRESS + request_id))\n",
        "    number = READS_OF_INGRESS + request_id\n"
        "    if type(request).__name__ == 'SessionsRequest':\n"
        "        self.on_read_index(ReadIndexAnswered(number, True, 0))\n"
        "    else:\n"
        "        self._to_raft.send(ReadIndexRequested(number))\n",
        "a leader that does not know that it was deposed lists its table",
    ),
    mutant(
        "sessions-listed-before-their-commit",
        "SAFETY E4",
        f"{READS}._take",
        "    if group is None:\n",
        "    is_of_sessions = type(request).__name__ in ('SessionsRequest', 'EndSessionRequest')\n"
        "    if group is None or is_of_sessions:\n",
        "a list, or the answer that there is no such session, does not wait for the entries it"
        " is based on",
    ),
    mutant(
        "session-ended-before-its-commit",
        "SAFETY E4, E8",
        f"{CHANGES}._propose",
        "    group = self._admission.take(change.entry)\n",
        "    group = self._admission.take(change.entry)\n"
        "    if type(change.entry) is ExpireEntry:\n"
        "        self._requests.answer(request_id, change.reply)\n",
        "an end is answered when it enters the stream of proposals",
    ),
    mutant(
        "session-ended-without-its-commit",
        "SAFETY E4, E8",
        f"{REQUESTS}.answer_forgotten",
        "    if request is not None and request.lost and group.index != NO_INDEX:\n",
        "    if group.index and group.kind.name == 'EXPIRE' and request is not None:\n"
        "        self.answer(request.request_id, request.reply)\n"
        "    elif request is not None and request.lost and group.index != NO_INDEX:\n",
        "an end whose term was over before its commit is answered as done",
    ),
    mutant(
        "session-ended-twice",
        "SAFETY E5, E8",
        "actors.ingress.admission:Admission.take",
        "    table.apply_expire(entry)\n",
        "    table.decide_end(entry.producer_id)\n",
        "an end leaves the table as it was: the next one is proposed, too",
    ),
)
