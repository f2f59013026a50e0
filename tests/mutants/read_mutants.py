"""Mutants of reads: what is visible, read indexes, fetches, the tail (SAFETY V3 to V8, C4, Q5)."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

COMMIT = "logstore.raft.commit"
READER = "logstore.storage.log_reader"
READS = "actors.egress.reads"
READ_INDEX = "logstore.raft.read_index"
REQUESTS = "actors.egress.fetch_port"
TAIL = "actors.egress.tail:Tail"
LOG_WORK = "actors.writer.log_work:LogWork"

MUTANTS: tuple[Mutant, ...] = (
    # --- what is visible ---
    mutant(
        "unflushed-entries-are-shown",
        "SAFETY V3",
        f"{COMMIT}:advance_visible",
        "index = min(state.commit, state.persisted)",
        "index = state.commit",
        "a reader is sent to entries that this disk does not hold yet",
    ),
    mutant(
        "uncommitted-entries-are-shown",
        "SAFETY V3",
        f"{COMMIT}:advance_visible",
        "index = min(state.commit, state.persisted)",
        "index = state.persisted",
        "what is flushed here is shown, committed or not",
    ),
    mutant(
        "visible-lsn-one-too-high",
        "SAFETY V3",
        f"{COMMIT}:advance_visible",
        "shown.lsn = Lsn(position.next_lsn - 1)",
        "shown.lsn = Lsn(position.next_lsn)",
        "the next LSN is reported as the last",
    ),
    mutant(
        "visible-moves-with-the-last-index",
        "SAFETY V3",
        "actors.raft.actor:RaftActor._step",
        "self._slots[Counter.VISIBLE_INDEX] = effect.index",
        "self._slots[Counter.VISIBLE_INDEX] = core.last_index",
        "readers are bounded by the last index",
        unreachable="every read is bounded by the visible LSN, too, and entries above the visible"
        " index that hold none of it are never handed out",
    ),
    mutant(
        "ready-before-a-leader-is-heard",
        "SAFETY V4",
        "logstore.raft.state:State.__init__",
        "self.shown = Shown()",
        "self.shown = Shown(is_ready=True)",
        "a restarted replica shows what its records call committed",
        unreachable="the commit index recorded on disk was a true one, so what is shown is"
        " committed; V4 keeps consumers from a replica that is far behind, and they promise"
        " themselves no more than a prefix",
    ),
    mutant(
        "recovered-tail-counts-as-committed",
        "SAFETY S2, V4",
        "logstore.storage.recovery:_commit_floor",
        "Index(min(max(found.commit_known, meta.log_start.index), found.last.header.index))",
        "found.last.header.index",
        "entries that survived a crash count as committed",
    ),
    # --- linearizable reads ---
    mutant(
        "read-answered-before-the-no-op",
        "FAULTS R9, SAFETY V5",
        f"{READ_INDEX}:on_round_begun",
        "    if state.commit < leading.noop_index:\n        return",
        "    if state.commit < 0:\n        return",
        "a new leader answers with a commit index that may be behind the committed ones",
        Edit(
            f"{READ_INDEX}:wants_round",
            "state.commit >= leading.noop_index and ",
            "",
        ),
    ),
    mutant(
        "read-by-lease",
        "FAULTS R10, SAFETY V5",
        f"{READ_INDEX}:on_request",
        "        leading.reads.append(Read(request_id))\n",
        "        leading.reads.append(Read(request_id))\n"
        "        since_ns = state.now_ns - 2 * state.config.election_timeout_ns\n"
        "        peers = leading.progress.values()\n"
        "        heard = 1 + sum(peer.was_heard_since(since_ns) for peer in peers)\n"
        "        is_leased = 2 * heard > len(state.config.voters)\n"
        "        if is_leased and state.commit >= leading.noop_index:\n"
        "            leading.reads.pop()\n"
        "            lsn = Lsn(state.log.recent_position(state.commit).next_lsn - 1)\n"
        "            state.emit(ReadIndexAnswered(request_id, True, lsn))\n",
        "a leader that heard a majority within two election timeouts answers at once",
    ),
    mutant(
        "read-joins-the-round-of-another",
        "FAULTS R11, SAFETY V5",
        f"{REQUESTS}:Requests._take",
        "            self._ask_read_index(ReadIndexRequested(self._last_read_index))\n",
        "            asked = [each.read_index for each in self._waiting if each.read_index]\n"
        "            if asked:\n"
        "                waiting.read_index = asked[0]\n"
        "            else:\n"
        "                self._ask_read_index(ReadIndexRequested(self._last_read_index))\n",
        "a read takes a read index that was requested before it came",
        Edit(
            f"{REQUESTS}:Requests.on_read_index",
            "for waiting in self._waiting:",
            "for waiting in list(self._waiting):",
        ),
        Edit(
            f"{REQUESTS}:Requests.on_read_index",
            "            return\n",
            "            continue\n",
        ),
    ),
    mutant(
        "read-answered-without-a-round",
        "SAFETY V5",
        f"{READ_INDEX}:on_round_answered",
        " or read.needed_round > confirmed",
        "",
        "the round is begun and its replies are not awaited",
    ),
    mutant(
        "round-of-an-older-term-is-answered",
        "FAULTS R11, SAFETY V5",
        "logstore.raft.core:_on_control",
        "following.answer_heartbeat(state, sender, NO_ROUND)",
        "following.answer_heartbeat(state, sender, message.round)",
        "a late heartbeat is answered with the newer term and its own round, which the leader of"
        " both terms counts",
    ),
    mutant(
        "read-index-of-what-is-visible",
        "SAFETY V5, F9",
        f"{READ_INDEX}:on_round_begun",
        "read.lsn = Lsn(position.next_lsn - 1)",
        "read.lsn = state.shown.lsn",
        "a leader whose own flush is late answers with its visible index instead of its commit"
        " index",
    ),
    mutant(
        "read-does-not-wait-for-its-lsn",
        "SAFETY V5",
        f"{REQUESTS}:Requests.on_read_index",
        "waiting.min_lsn = max(waiting.min_lsn, answer.lsn)",
        "waiting.min_lsn = max(waiting.min_lsn, Lsn(0))",
        "the read is served as soon as leadership is confirmed",
    ),
    mutant(
        "linearizable-asked-and-not-done",
        "SAFETY V5",
        f"{REQUESTS}:Requests._take",
        "if request.is_linearizable:",
        "if request.is_linearizable and now_ns < 0:",
        "every replica answers with what it shows",
    ),
    mutant(
        "rounds-outlive-a-pause",
        "SAFETY C4",
        f"{READ_INDEX}:on_pause",
        "        read.needed_round = None\n",
        "        read.needed_round = read.needed_round\n",
        "replies that waited during a pause confirm the reads that waited with them",
        unreachable="the round was begun after the read came, so a majority's replies to it"
        " confirm leadership after that, however long this process slept; C4 is the second lock",
    ),
    # --- fetches and the tail ---
    mutant(
        "map-generation-not-counted",
        "SAFETY V7",
        f"{LOG_WORK}._truncate",
        "self._slots[Counter.MAP_GENERATION] += 1",
        "pass",
        "readers do not learn of a truncation",
        Edit(f"{LOG_WORK}._roll", "self._slots[Counter.MAP_GENERATION] += 1", "pass"),
        unreachable="dead segments are unlinked and kept ones cut before what replaces them can be"
        " visible, so a stale map leads to a short read, and that to a second look",
    ),
    mutant(
        "body-read-without-its-crc",
        "SAFETY Q5",
        f"{READER}:_frame_fault",
        "if computed != entry.body_crc:",
        "if computed < 0:",
        "rotted bytes are served",
    ),
    mutant(
        "spans-above-the-visible-lsn",
        "SAFETY V7",
        "actors.egress.spans_from_records:read_spans",
        "last_lsn = Lsn(min(request.last_lsn, bounds.visible_lsn))",
        "last_lsn = request.last_lsn",
        "spans include the entry after the visible one",
    ),
    mutant(
        "fetch-above-the-visible-lsn",
        "SAFETY V7",
        f"{READS}:read_pieces",
        "    last_lsn = min(last_lsn, bounds.visible_lsn)\n",
        "",
        "a fetch returns entries that are not visible",
        Edit(
            f"{READS}:read_pieces",
            "while pieces.next_lsn <= last_lsn and index <= bounds.visible_index:",
            "while pieces.next_lsn <= last_lsn:",
        ),
    ),
    mutant(
        "fetch-begins-within-a-batch",
        "SAFETY V8, FAULTS K9",
        f"{READS}:_cut",
        "if start is None and lsn + batch.count > first_lsn:",
        "if start is None and lsn >= first_lsn:",
        "a batch that begins below the requested LSN is left out",
    ),
    mutant(
        "no-tip-is-sent",
        "SAFETY V8",
        f"{TAIL}.do_work",
        "        self._send(Tip(bounds.visible_lsn))\n",
        "",
        "a consumer that missed a group does not learn what to fetch",
    ),
    mutant(
        "segment-begins-with-the-lsn-of-the-entry-before",
        "FAULTS R25, SAFETY S6",
        "logstore.storage.segment:header_after",
        "first_lsn=before.header.next_lsn",
        "first_lsn=before.header.first_lsn",
        "the base LSN of a segment ignores the payloads of the last entry",
    ),
    mutant(
        "half-open-pair-keeps-its-descriptor",
        "FAULTS I14",
        f"{READER}:LogReader._open",
        "except OSError:",
        "except FileNotFoundError:",
        "each try of a reader that gets one descriptor, and not the other, keeps the one",
        unreachable="no process of the world runs out of descriptors: "
        "`test_a_pair_of_which_one_file_cannot_be_opened_keeps_no_descriptor` finds it",
    ),
    mutant(
        "fetch-without-a-descriptor-ends-egress",
        "SAFETY M3",
        f"{REQUESTS}:Requests._serve",
        "except OSError as error:",
        "except ModuleNotFoundError as error:",
        "a file that cannot be opened now ends egress, and what shares its process",
        unreachable="no process of the world runs out of descriptors: "
        "`test_what_cannot_be_opened_now_is_asked_for_again` finds it",
    ),
    mutant(
        "damage-at-one-replica-is-damage-at-all",
        "SAFETY Q5",
        "logstore.client.core.replica_reader:ReplicaReader.request",
        "            damaged.add(self.node)\n",
        "            if self.node in damaged:\n"
        "                raise\n"
        "            damaged.add(self.node)\n",
        "a reader that comes back to a damaged replica while others start says that all are",
        unreachable="a consumer must come back to a damaged replica while the others start: not in"
        " 15 seeds; tests/unit/test_core_consumer.py finds it",
    ),
    mutant(
        "poll-passes-what-a-pause-held-back",
        "SAFETY V8",
        "logstore.client.consumer:Consumer.poll",
        "    if not self._unread:\n        return found\n",
        "    if found:\n        return found\n",
        "a poll amid which a pause ends hands on what is newer first",
        unreachable="consumers of a seed run the core; what a pause holds back is kept around it: "
        "tests/unit/test_client_positions.py finds it",
    ),
    mutant(
        "start-by-time-believes-a-follower-that-lags",
        "SAFETY V8",
        "logstore.client.core.consumer_machine:ConsumerMachine.locate",
        "    self._not_before_ns = not_before_ns\n",
        "",
        "a consumer that begins at a time gets what is older",
        unreachable="no consumer of a seed begins at a time: "
        "`test_a_time_start_leaves_out_what_is_older_where_a_follower_lagged` finds it",
    ),
)
