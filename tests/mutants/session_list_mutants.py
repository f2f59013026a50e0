"""Mutants of lists of sessions, and of their end by an operator (SAFETY E4, E8, V5)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

SESSIONS = "actors.ingress.session_requests:SessionRequests"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "sessions-listed-without-a-quorum",
        "SAFETY V5",
        f"{SESSIONS}.list",
        "        self._confirm(request_id, request)\n",
        "        self._reads[request_id] = request\n"
        "        answered = ReadIndexAnswered(READS_OF_INGRESS + request_id, True, 0)\n"
        "        self.on_read_index(admission, answered)\n",
        "a leader that was deposed and does not know it lists what it knows",
    ),
    mutant(
        "sessions-listed-before-their-commit",
        "SAFETY E4",
        f"{SESSIONS}.on_read_index",
        "    admission.when_committed(tell)\n",
        "    tell(True)\n",
        "a list, or that there is no such session, does not wait for the entries that it saw",
    ),
    mutant(
        "session-ended-before-its-commit",
        "SAFETY E4, E8",
        f"{SESSIONS}.end",
        "            admission.take_expire(table, entry, request_id)\n",
        "            admission.take_expire(table, entry, request_id)\n"
        "            self._requests.reply(\n"
        "                self._requests.take(request_id), DoneReply(entry.producer_id)\n"
        "            )\n",
        "an end is answered when it enters the stream of proposals",
    ),
    mutant(
        "session-ended-without-its-commit",
        "SAFETY E4, E8",
        f"{SESSIONS}.on_group_done",
        "    elif is_committed:\n",
        "    elif is_committed or group.index:\n",
        "an end whose term was over before its commit is answered as done",
    ),
    mutant(
        "session-ended-twice",
        "SAFETY E5, E8",
        "actors.ingress.admission:Admission.take_expire",
        "    table.apply_expire(entry)\n",
        "    table.decide_end(entry.producer_id)\n",
        "an end leaves the table as it was: the next one is proposed, too",
    ),
)
