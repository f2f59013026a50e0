"""Mutants of levels of acknowledgement (SAFETY E10)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

ACK_LEVELS = "actors.ingress.ack_levels"
ADMISSION = "actors.ingress.admission:Admission"
MACHINE = "logstore.client.core.provisional_machine:ProvisionalMachine"
REOPENING = "logstore.client.core.reopening:Reopening"
SENT = "logstore.client.core.sent_batches:SentBatches"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "leader-reports-what-is-not-flushed",
        "SAFETY E10, F9",
        "logstore.raft.leader_flush:report",
        "(flushed := state.persisted) > reported",
        "(flushed := state.log.last_index) > reported",
        "a batch is provisional before the leader's own disk has it",
    ),
    mutant(
        "followers-flush-counts-as-the-leaders",
        "SAFETY E10, F9",
        "logstore.raft.leader_flush:report",
        "(flushed := state.persisted) > reported",
        "(flushed := max(state.persisted, state.commit)) > reported",
        "a batch is provisional because a majority has it, and not this leader",
    ),
    mutant(
        "accepted-is-provisional",
        "SAFETY E10",
        f"{ACK_LEVELS}:FlushWaits.take",
        "waiting[0][0] <= index",
        "waiting[0][0] <= index + 1",
        "a batch is answered with the flush of the entry before it",
    ),
    mutant(
        "commits-are-told-to-every-level",
        "SAFETY E10",
        f"{ACK_LEVELS}:answered_at_commit",
        "    if not unanswered:\n",
        "    if not unanswered or len(unanswered):\n",
        "a producer of level leader or none hears that its batch is committed",
    ),
    mutant(
        "state-makes-commits-told-to-every-level",
        "SAFETY E10",
        "actors.ingress.control:ControlPort._answer_session_state",
        "if session.ack_level == AckLevel.QUORUM:",
        "if session.ack_level:",
        "after SessionState the commits of any level are told on the feed",
    ),
    mutant(
        "full-window-is-refused-at-every-level",
        "SAFETY E10, E7",
        f"{ADMISSION}.take_batch",
        "return UNTOLD[verdict.code]",
        "return self._refused(push, verdict)",
        "a producer that cannot know its window is refused for it, and opens its session again",
    ),
    mutant(
        "held-batch-is-dropped",
        "SAFETY E10",
        "actors.ingress.appends:Appends._offer",
        "        self._held = push, batch\n",
        "        return\n",
        "a batch that finds its window full is lost without a change of leader",
        unreachable="its successors are refused as a gap, which is what a lost message looks like: "
        "`test_a_full_window_holds_the_batch_until_something_is_committed` finds it",
    ),
    mutant(
        "flush-of-an-older-term-is-taken",
        "SAFETY E10, E4",
        f"{ADMISSION}.flushed",
        "return self._flush_waits.take(flushed.index) if flushed.term == self._term else ()",
        "return self._flush_waits.take(flushed.index)",
        "what waits in a newer term is answered by the flush of an older one",
        unreachable="raft sends no Flushed after TermEnded, on one ring: "
        "`test_a_flush_that_is_told_in_another_term_answers_nothing` finds it",
    ),
    mutant(
        "flush-waits-outlive-their-term",
        "SAFETY E10, E4",
        f"{ADMISSION}.end_term",
        "    self._flush_waits.forget()\n",
        "",
        "what a former term left is answered by a flush of the next one",
    ),
    mutant(
        "library-sends-a-batch-twice",
        "SAFETY E10",
        f"{MACHINE}._send",
        "        self._next = None\n        if sent.sent == sent.taken:\n",
        "        self._next = pack if pack.sequence == 7 and self._is_answered else None\n"
        "        if sent.sent == sent.taken:\n",
        "a batch that was sent is sent again under the next sequence",
    ),
    mutant(
        "library-sends-unanswered-batches-again",
        "SAFETY E10",
        f"{MACHINE}._open_again",
        '    self._queue.release(self._give_up("another epoch of the session began"))\n',
        "    if self._pending and self._next is None:\n"
        "        self._next = self._pending.pop(min(self._pending))\n"
        '    self._queue.release(self._give_up("another epoch of the session began"))\n',
        "what had no answer goes to the next leader once more, as a quorum's producer does",
    ),
    mutant(
        "opens-in-doubt-end-with-the-epoch",
        "SAFETY E10",
        f"{REOPENING}.next_epoch",
        "    self._in_doubt -= unanswered\n",
        "    self._in_doubt = 0\n",
        "a producer is fenced by an OPEN of its own that is read late",
        unreachable="a leader reads what is sent to it within an OPEN's timeout, or is deposed: "
        "`test_an_open_that_is_read_late_is_not_taken_for_another_producers` finds it",
    ),
    mutant(
        "first-opens-in-doubt-are-forgotten",
        "SAFETY E10",
        f"{REOPENING}.__init__",
        "    self._in_doubt = min(in_doubt, IN_DOUBT_MAX)\n",
        "    self._in_doubt = 0\n",
        "a producer is fenced by an OPEN of its own that was sent before the one that was granted",
        unreachable="a leader reads what is sent to it within an OPEN's timeout, or is deposed: "
        "`test_a_first_open_that_is_read_late_is_not_taken_for_another_producers` finds it",
    ),
    mutant(
        "open-of-an-ended-term-is-refused-for-certain",
        "SAFETY E10, E8",
        "actors.ingress.control:ControlPort._open_session",
        "HeldAnswer(request_id, reply, lost)",
        "HeldAnswer(request_id, reply)",
        "a producer is fenced by an OPEN of its own that the next leader commits",
        unreachable="seeds seldom end a term between raft's word and the commit of just this OPEN: "
        "`test_the_outcome_of_an_opening_is_unknown_when_the_term_ends_before_its_commit` finds it",
    ),
    mutant(
        "uncommitted-counts-as-stored",
        "SAFETY E10",
        f"{SENT}.on_state",
        "stored = state.next_sequence - uncommitted_rows(state)",
        "stored = state.next_sequence",
        "what a leader has and loses with its term is not counted as possibly lost",
    ),
    mutant(
        "lost-batches-of-an-epoch-are-not-counted",
        "SAFETY E10",
        f"{MACHINE}._open_again",
        "    self._count_lost()\n",
        "",
        "losses at a change of leader are not in the statistics",
    ),
)
