"""Mutants of terms, votes, elections and transfers (SAFETY C1, C2, V6, Q2, S8, S9, W8)."""

from __future__ import annotations

from tests.mutants.mutant import Constant, Edit, Mutant, mutant

CORE = "logstore.raft.core"
ELECTION = "logstore.raft.election"
META = "logstore.raft.term_and_vote:TermAndVote"
ROLE = "logstore.raft.role"
STATE = "logstore.raft.state:State"
TRANSFER = "logstore.raft.transfer"

MUTANTS: tuple[Mutant, ...] = (
    # --- votes and terms are durable before they are sent ---
    mutant(
        "vote-answered-before-its-save-is-ordered",
        "FAULTS R2, SAFETY C1",
        f"{META}.is_durable",
        "not self._saves and not self._is_dirty",
        "not self._saves",
        "a vote leaves in the step that casts it",
    ),
    mutant(
        "vote-answered-while-its-save-is-under-way",
        "FAULTS R2, SAFETY C1",
        f"{META}.is_durable",
        "not self._saves and not self._is_dirty",
        "not self._is_dirty",
        "what is asked again during the save is answered at once",
    ),
    mutant(
        "any-save-releases-all-answers",
        "FAULTS R2, SAFETY C1",
        f"{META}.on_persisted",
        "while self._withheld and self._withheld[0][0] <= seq:",
        "while self._withheld:",
        "the end of an older save releases answers that wait for a newer one",
    ),
    mutant(
        "vote-not-written",
        "FAULTS R2, SAFETY S8",
        "actors.writer.folder:Folder.save_vote",
        "term=term, vote=vote)",
        "term=term, vote=NodeId(0))",
        "META keeps the term and loses the vote",
    ),
    mutant(
        "term-written-only-with-a-vote",
        "FAULTS R3, SAFETY C1",
        "actors.writer.folder:Folder.save_vote",
        "    meta = self._opened_meta()\n",
        "    meta = self._opened_meta()\n    if not vote:\n        return\n",
        "a crash loses a term in which the replica did not vote",
    ),
    mutant(
        "append-answered-before-its-term-is-durable",
        "FAULTS R3, SAFETY C1",
        "logstore.raft.following:on_append",
        "if append.term > state.meta.durable_term:",
        "if append.term < state.term:",
        "appends of a new term are taken and answered while META is being written",
        Edit(
            "logstore.raft.commit:repeat_match_report",
            "    state.answer(state.leader, AppendPersisted(state.term, match))",
            "    from logstore.raft.effects import Answer\n\n"
            "    state.emit(Answer(state.leader, AppendPersisted(state.term, match)))",
        ),
    ),
    mutant(
        "append-taken-before-its-term-is-durable",
        "FAULTS R3, SAFETY F6",
        "logstore.raft.following:on_append",
        "if append.term > state.meta.durable_term:",
        "if append.term < state.term:",
        "appends of a new term reach the writer while META is being written",
        unreachable="the answers are withheld until the term is durable (TermAndVote.withhold), and"
        " recovery raises META's term to the last entry's; what was truncated before a crash was"
        " of a leader that a majority had already left",
    ),
    mutant(
        "vote-erased-at-step-down",
        "FAULTS R4, SAFETY C1",
        f"{ROLE}:step_down",
        "    state.set_leader(NO_NODE)\n",
        "    state.set_leader(NO_NODE)\n    state.meta.enter_term(state.term)\n",
        "a leader that steps down may vote again in its term",
    ),
    mutant(
        "two-votes-in-a-term",
        "SAFETY C1",
        f"{ELECTION}:on_vote_request",
        "state.may_vote_for(sender, uuid)\n        and ",
        "",
        "every up-to-date candidate of the term gets a vote",
    ),
    mutant(
        "vote-for-whoever-asks",
        "SAFETY C1",
        f"{ELECTION}:_is_up_to_date",
        "(last_term, last_index) >= (last.term, last.index)",
        "last_term >= 0",
        "a candidate's log is not compared with the voter's",
    ),
    mutant(
        "longest-log-wins",
        "SAFETY C1",
        f"{ELECTION}:_is_up_to_date",
        "(last_term, last_index) >= (last.term, last.index)",
        "last_index >= last.index",
        "lengths are compared without terms: a stale suffix beats committed entries",
    ),
    mutant(
        "vote-of-an-earlier-term-counts",
        "FAULTS N16, SAFETY C1",
        f"{ELECTION}:on_vote_reply",
        " or reply.term != state.term",
        "",
        "a late vote of another election makes a leader",
    ),
    mutant(
        "half-is-a-majority",
        "SAFETY V1",
        "logstore.raft.quorum:majority",
        "voters // 2 + 1",
        "voters // 2",
        "two sets of voters without a common member decide",
    ),
    mutant(
        "majority-of-an-even-cluster",
        "FAULTS R22",
        "logstore.raft.quorum:majority",
        "voters // 2 + 1",
        "(voters + 1) // 2",
        "two of four are a majority",
        unreachable="simulated clusters have three or five voters, and for odd numbers both"
        " formulas agree; unit tests hold the even ones",
    ),
    mutant(
        "faulty-tail-hides-from-the-voter",
        "SAFETY Q2",
        f"{ELECTION}:_is_up_to_date",
        "last = state.log.last\n",
        "last = state.log.position(state.persisted) or state.log.last\n",
        "a voter compares with its last whole entry, and forgets what it had acknowledged",
    ),
    # --- when elections begin and end ---
    mutant(
        "elections-begin-on-common-ticks",
        "FAULTS R18",
        f"{STATE}._draw_election_deadline",
        "least_ns + self.random.randrange(least_ns)",
        "2 * least_ns - self.now_ns % least_ns",
        "all candidates begin at the same time, so the vote is split again and again",
    ),
    mutant(
        "any-term-is-believed",
        "FAULTS R19",
        f"{CORE}:_is_credible",
        "if term > state.term + TERM_JUMP_MAX:",
        "if term < 0:",
        "a rogue peer inflates terms",
        unreachable="every peer of the simulation runs this code: no message has a term that"
        " elections have not reached; unit tests send one",
    ),
    Mutant(
        "terms-jump-by-one-only",
        "FAULTS R19",
        "a replica that missed two elections drops what the cluster says, and stays behind",
        (Constant(f"{CORE}:TERM_JUMP_MAX", 1),),
    ),
    mutant(
        "no-check-quorum",
        "SAFETY V6, FAULTS N1",
        "logstore.raft.replication:step_down_without_quorum",
        "if has_quorum_contact(state, leading):",
        "if state.leading is leading:",
        "a leader without contact to a majority goes on leading",
    ),
    mutant(
        "votes-while-a-leader-is-heard",
        "SAFETY C1, FAULTS N10",
        f"{CORE}:_on_control",
        "not message.is_transfer and election.is_sticky(state)",
        "not message.is_transfer and state.term < 0",
        "a vote request raises the term of a replica that hears its leader",
    ),
    mutant(
        "pre-votes-while-a-leader-is-heard",
        "SAFETY C1, FAULTS N3",
        f"{ELECTION}:on_pre_vote_request",
        "        and not is_sticky(state)\n",
        "",
        "a replica that was cut off gets votes for an election that the cluster does not need",
    ),
    mutant(
        "lost-connection-begins-a-campaign",
        "SAFETY C1",
        f"{ELECTION}:on_connection_lost",
        "    campaign.quick_rounds = QUICK_ROUNDS\n",
        "    _campaign(state, is_transfer=False)\n    return\n",
        "without a pre-vote one broken connection deposes a leader that the others hear",
    ),
    mutant(
        "any-lost-connection-lifts-stickiness",
        "SAFETY C1",
        f"{ELECTION}:on_connection_lost",
        "peer != state.leader",
        "state.leader == NO_NODE",
        "a replica that hears its leader grants a pre-vote, because another peer is gone",
    ),
    mutant(
        "leader-without-progress-leads-on",
        "SAFETY V6",
        "logstore.raft.stall:give_up_if_stalled",
        "if state.now_ns - leading.progressed_ns <= patience_ns:",
        "if state.now_ns >= 0:",
        "its entries are lost, and its heartbeats keep all others followers",
    ),
    mutant(
        "full-disks-count-as-lost-appends",
        "SAFETY V6, S9",
        "logstore.raft.stall:give_up_if_stalled",
        "if space.lacks_space(state, leading):",
        "if state.now_ns < 0:",
        "a leader under full followers steps down, and no reads are served until there is space",
    ),
    mutant(
        "damaged-leader-keeps-its-place",
        "SAFETY Q3",
        f"{TRANSFER}:advance",
        "if why:",
        "if state.now_ns < 0:",
        "undamaged replicas that lack its damaged entry follow it for ever",
        Edit(
            "logstore.raft.stall:give_up_if_stalled",
            "    doublings =",
            "    if state.has_uncommitted_fault:\n        return False\n    doublings =",
        ),
    ),
    # --- transfer ---
    mutant(
        "transfer-never-ends",
        "FAULTS R17, SAFETY C2",
        f"{TRANSFER}:advance",
        "if state.now_ns >= transfer.deadline_ns:",
        "if state.now_ns < 0:",
        "a leader whose target died waits for ever, with admission closed",
    ),
    mutant(
        "transfer-ends-without-reopening",
        "FAULTS R17, SAFETY C2",
        f"{TRANSFER}:advance",
        "        gens.open_if_allowed(state)\n",
        "",
        "a leader that kept its term accepts nothing any more",
    ),
    mutant(
        "timeout-now-before-the-target-is-level",
        "SAFETY C2",
        f"{TRANSFER}:advance",
        "elif leading.progress[transfer.target].match == state.log.last_index:",
        "elif transfer.target in leading.progress:",
        "the target campaigns with a shorter log",
        unreachable="voters refuse a log that is behind theirs; only one election is lost",
    ),
    # --- a broken connection to the leader ---
    mutant(
        "message-of-the-leader-leaves-the-hint",
        "SAFETY C1",
        "logstore.raft.following:follow_leader",
        "    state.campaign.quick_rounds, state.campaign.given_up_ns = 0, NEVER_NS\n",
        "    state.campaign.quick_rounds = 0\n",
        "a replica that lost a connection once grants pre-votes against a leader that it hears",
    ),
    mutant(
        "candidate-tries-again-without-a-pre-vote",
        "SAFETY C1",
        "logstore.raft.election:on_election_timeout",
        "        _ask_for_votes(state)\n",
        "        _campaign(state, is_transfer=False)\n",
        "a candidate whose votes are slow raises its term with each quick round",
    ),
    # --- heartbeats, full disks ---
    mutant(
        "heartbeats-for-who-lags-only",
        "SAFETY W8",
        "logstore.raft.replication:send_heartbeats",
        "        _send_heartbeat(state, progress, round_=leading.round)\n",
        "        if progress.match < state.log.last_index:\n"
        "            _send_heartbeat(state, progress, round_=leading.round)\n",
        "a follower that has all entries gets no heartbeats",
    ),
    mutant(
        "full-disk-never-ends",
        "SAFETY S9",
        "logstore.raft.space:record",
        "    state.is_disk_full = changed.is_full\n",
        "    state.is_disk_full = state.is_disk_full or changed.is_full\n",
        "a replica whose disk was full once accepts no bulk any more, though there is space",
    ),
)
