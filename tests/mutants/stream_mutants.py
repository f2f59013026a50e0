"""Mutants of streams and replicators: what is sent to whom, from where (SAFETY W1 to W7, M3)."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

BODIES = "actors.replicator.bodies:Bodies"
BULK = "actors.ingress.bulk:PeerBulk"
FOLLOWING = "logstore.raft.following"
RAFT = "actors.raft.actor:RaftActor"
REPLICATION = "logstore.raft.replication"
ROUTES = "actors.raft.routes"
STREAM = "logstore.raft.stream:FollowerStream"

MUTANTS: tuple[Mutant, ...] = (
    # --- a stream's life ---
    mutant(
        "match-outlives-its-term",
        "SAFETY W2",
        f"{STREAM}.on_lead",
        "    if lead.term > self.term:\n        self.match = NO_INDEX\n",
        "",
        "what matched in an older term counts as matched in this one",
    ),
    mutant(
        "stream-ids-used-again",
        "SAFETY W1",
        f"{REPLICATION}:begin_stream",
        "    state.lead_count += 1\n",
        "    state.lead_count = max(1, state.lead_count)\n",
        "a new stream of a term has the id of the one before",
    ),
    mutant(
        "stale-append-rejected-under-its-stream",
        "SAFETY W1",
        f"{FOLLOWING}:answer_stale",
        "AppendReject(state.term, NO_STREAM, ",
        "AppendReject(state.term, stream, ",
        "an append of an older term is rejected in the newer one, under an id that the same leader"
        " may use there again",
    ),
    mutant(
        "restart-of-a-peer-unnoticed",
        "SAFETY W1",
        "logstore.raft.progress:Progress.has_restarted",
        "return known is not None and boot > known",
        "return False",
        "entries that a restarted peer had accepted and lost are never sent again",
        Edit(
            f"{STREAM}.on_answer",
            "if self._boot is not None and boot > self._boot:",
            "if self._boot is not None and boot < 0:",
        ),
    ),
    mutant(
        "boot-counter-stands-still",
        "SAFETY S8, W1",
        "logstore.storage.recovery:_recover_under",
        "boot_counter=meta.boot_counter + 1",
        "boot_counter=meta.boot_counter",
        "answers of two incarnations of a peer look alike",
    ),
    mutant(
        "silence-is-not-watched",
        "SAFETY W1",
        f"{STREAM}.deadline_ns",
        "return self._heard_ns + self._resend_timeout_ns",
        "return NEVER_NS",
        "appends that were lost on the way are not sent again",
    ),
    mutant(
        "reject-leads-nowhere",
        "SAFETY W2",
        f"{REPLICATION}:_on_reject",
        "max(_agreeing_index(state, reject), progress.match) + 1",
        "reject.prev_index + 1",
        "after a reject the stream begins where it was rejected",
    ),
    mutant(
        "rewind-steps-over-an-entry",
        "SAFETY W5, W2",
        f"{REPLICATION}:_agreeing_index",
        "return Index(max(min(index, reject.prev_index - 1), log.start.index))",
        "return Index(max(min(index + 1, reject.prev_index), log.start.index))",
        "the last index where two logs agree is assumed one too high",
    ),
    mutant(
        "late-reject-stops-the-stream",
        "SAFETY W1",
        f"{STREAM}._on_reject",
        "reject.stream != self.stream or self._is_rejected",
        "self._is_rejected",
        "a reject of an older stream stops the newer one",
        unreachable="raft's Rewind names the rejected stream and is dropped, and the resend timer"
        " begins again after an election timeout: slower, not wrong",
    ),
    mutant(
        "stop-leading-unheard",
        "SAFETY W4",
        f"{STREAM}.on_stop",
        "        self._is_leading = False\n",
        "",
        "a replicator goes on sending the entries of a term that is over",
    ),
    mutant(
        "new-replicator-gets-no-orders",
        "SAFETY M3, W4",
        f"{RAFT}._begin_stream",
        "        self._step(core, ReplicatorGone(peer))\n",
        "        return\n",
        "a restarted replicator gets no order to lead",
    ),
    mutant(
        "descriptor-without-room-forgotten",
        "SAFETY M8, W4",
        f"{ROUTES}:ReplicatorRoute.describe",
        "        self._newest_descriptor = described\n",
        "        self._newest_descriptor = None\n",
        "a replicator whose ring was full never learns where the log ends",
    ),
    # --- where bodies come from ---
    mutant(
        "damage-of-a-described-entry-unreported",
        "SAFETY Q3, Q5",
        f"{BODIES}._from_files",
        "isinstance(step, SendFromFile) or written_seq >= step.persist_seq",
        "isinstance(step, SendFromFile)",
        "what is damaged in the files stays unknown while its descriptor is kept",
        unreachable="the ring must go round before a follower is sent an entry that rots meanwhile:"
        " tests/unit/test_replicator_damage.py finds it",
    ),
    mutant(
        "files-read-before-they-are-written",
        "SAFETY W4",
        f"{STREAM}._next_step",
        "if index > last or written_seq < seq:",
        "if index > last:",
        "an entry is read from the files before WRITTEN says that it is there",
    ),
    mutant(
        "entry-from-the-files-not-compared",
        "SAFETY W5",
        f"{BODIES}._from_files",
        "if isinstance(step, SendFromRing) and header != step.header:",
        "if isinstance(step, SendFromRing) and header.index != step.header.index:",
        "the entry that the files have at an index is sent in place of the described one",
        unreachable="ring bytes are given back once they are flushed, so as long as the term lasts"
        " the files hold the very entry; whoever is deposed may find its successor's there, which"
        " followers drop if it is of a newer term (U2) and may have if it is of an older one: it is"
        " named by its own term, index and chain, whoever sends it",
    ),
    mutant(
        "ring-copy-not-checked",
        "SAFETY M4, FAULTS S7",
        f"{BODIES}.of",
        "if body is not None and crc32c(body) == header.body_crc:",
        "if body is not None:",
        "a body whose ring bytes were overwritten meanwhile is sent",
        Edit(
            "transport.payload_ring:PayloadRingReader.copy_out",
            "    if slots[RESERVED] > limit:\n        return None\n",
            "",
        ),
        Edit(
            "transport.payload_ring:PayloadRingReader.copy_out",
            "return copy if slots[RESERVED] <= limit else None",
            "return copy",
        ),
    ),
    mutant(
        "ring-copy-checked-by-its-crc-only",
        "SAFETY M4",
        "transport.payload_ring:PayloadRingReader.copy_out",
        "return copy if slots[RESERVED] <= limit else None",
        "return copy",
        "RESERVED is not read again after the copy",
        unreachable="the CRC of the copy says the same, but for one overwrite in 2**32",
    ),
    # --- what a follower takes ---
    mutant(
        "accepted-frames-dropped-in-every-term",
        "SAFETY W1",
        f"{BULK}._is_stale",
        "(append.term, append.stream) == (accepted.term, accepted.stream)",
        "True",
        "a new leader's appends are dropped up to what the old one had accepted",
    ),
    mutant(
        "stale-suffix-need-not-be-copied",
        "SAFETY W1, V2",
        f"{FOLLOWING}:_answer_accepted",
        "StreamAccepted(state.term, stream, state.verified, False)",
        "StreamAccepted(state.term, stream, state.log.last_index, False)",
        "ingress drops the very entries that would replace a stale suffix",
        unreachable="the replicator hears Accepted of the verified index only, so its resend timer"
        " begins another stream right there; ingress knows nothing of that stream, takes its first"
        " entry, and the conflict removes the suffix: slower by a timeout, not wrong",
    ),
    mutant(
        "dead-stream-for-ever",
        "SAFETY W1",
        f"{FOLLOWING}:_takes_stream",
        "following.stream, following.is_dead = stream, False",
        "following.stream = stream",
        "a stream that follows a rejected one is dead too",
    ),
    # --- lanes ---
    mutant(
        "control-waits-for-room",
        "SAFETY W7",
        "actors.ingress.actor:IngressActor.do_work",
        "work += self._peer_control.do_work()",
        "work += 0 if self._peer_bulk.is_held_back else self._peer_control.do_work()",
        "while an append waits for room in the payload ring, votes and heartbeats wait, too",
    ),
    mutant(
        "replicator-speaks-for-leaders-only",
        "SAFETY W7",
        "actors.replicator.actor:ReplicatorActor._on_command",
        "case Send():\n            self._send_control(message.message)",
        "case Send():\n            if self._stream.term:\n"
        "                self._send_control(message.message)",
        "a replica that never led sends nothing, not even votes",
    ),
    mutant(
        "bulk-body-not-checked",
        "SAFETY W6, M6",
        f"{BULK}._check",
        "if body is not None and crc32c(body) != append.header.body_crc:",
        "if body is not None and append.header.body_size < 0:",
        "a damaged body is taken from a peer",
        unreachable="the wires of the world damage nothing (TCP's checksum), and a replicator"
        " checks what it sends; unit tests damage bodies",
    ),
)
