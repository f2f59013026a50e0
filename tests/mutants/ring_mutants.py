"""Mutants of rings, bells and the account of the payload ring (SAFETY M1, M4, M7, M8, U1)."""

from __future__ import annotations

from actors.simulation.faults.script import FaultClass
from tests.mutants.mutant import Edit, Mutant, mutant

FOLLOWING = "logstore.raft.following"
UNSETTLED = "actors.raft.unsettled_ranges:UnsettledRanges"
OUTBOX = "actors.station:Outbox"
RAFT = "actors.raft.actor:RaftActor"
REPLICATION = "logstore.raft.replication"
RING = "transport.payload_ring"
ROUTES = "actors.raft.routes"

MUTANTS: tuple[Mutant, ...] = (
    # --- each range is settled once ---
    mutant(
        "refused-proposal-keeps-its-range",
        "SAFETY M4, E3",
        f"{REPLICATION}:on_proposed",
        "        state.settle(event.ring_start, event.ring_end)\n        return None\n",
        "        return None\n",
        "the ring bytes of a proposal of a closed gen are never given back",
    ),
    mutant(
        "duplicate-append-keeps-its-range",
        "SAFETY M4",
        f"{FOLLOWING}:_take_entry",
        "        _check_duplicate(state, header)\n"
        "        state.settle(event.ring_start, event.ring_end)\n",
        "        _check_duplicate(state, header)\n",
        "the ring bytes of an append that is held already are never given back",
    ),
    mutant(
        "rejected-append-keeps-its-range",
        "SAFETY M4, W1",
        f"{FOLLOWING}:_reject",
        "    state.settle(event.ring_start, event.ring_end)\n",
        "",
        "the ring bytes of a rejected append are never given back",
    ),
    mutant(
        "append-of-a-dead-stream-keeps-its-range",
        "SAFETY M4, W1",
        f"{FOLLOWING}:on_append",
        "        state.settle(event.ring_start, event.ring_end)\n        return\n"
        "    if state.is_disk_full",
        "        return\n    if state.is_disk_full",
        "the ring bytes of what follows a reject are never given back",
    ),
    mutant(
        "stale-append-keeps-its-range",
        "SAFETY M4",
        "logstore.raft.core:_on_append",
        "    if append.term < state.term:\n"
        "        state.settle(event.ring_start, event.ring_end)\n",
        "    if append.term < state.term:\n",
        "the ring bytes of a deposed leader's append are never given back",
    ),
    mutant(
        "persisted-range-kept",
        "SAFETY M4",
        "logstore.raft.core:_on_persisted",
        "        state.settle(ring_start, ring_end)\n",
        "        continue\n",
        "the ring bytes of what is on disk are never given back",
    ),
    mutant(
        "newest-settled-range-frees-all",
        "SAFETY M4",
        f"{UNSETTLED}.floor",
        "return self._order[0] if self._order else self._floor",
        "return max([self._floor, *(self._ends[start] for start in self._settled)])",
        "a range that is settled out of turn frees older ones",
    ),
    mutant(
        "ring-freed-up-to-its-head",
        "SAFETY M4",
        f"{RAFT}._free_ring",
        "floor = self._unsettled.floor\n",
        "floor = self._freer.head\n",
        "bytes are given back before the writer has them",
    ),
    mutant(
        "ring-written-over-what-is-not-free",
        "SAFETY M4",
        f"{RING}:PayloadRingWriter.try_write",
        "if end > free + size:",
        "if total > size:",
        "ingress reserves beyond FREE + ring size",
    ),
    mutant(
        "holds-are-not-honoured",
        "SAFETY M4",
        f"{RAFT}._free_ring",
        "            floor = min(floor, hold)\n",
        "            floor = max(floor, 0)\n",
        "FREE passes bytes that a replicator still holds",
        unreachable="a HOLD is a request: a copy that came too late is refused and read from the"
        " files, at the price of a read",
    ),
    # --- bells and full rings ---
    mutant(
        "bell-not-rung",
        "SAFETY M7",
        f"{OUTBOX}.flush",
        "        self._bell.ring()\n",
        "",
        "a receiver finds its messages only when something else wakes it",
    ),
    mutant(
        "bell-rung-before-the-news",
        "SAFETY M7",
        f"{OUTBOX}.flush",
        "    while self._spill and self._ring.offer(self._spill[0]):\n"
        "        self._spill.popleft()\n"
        "        self._must_ring = True\n"
        "    if self._must_ring:\n"
        "        self._bell.ring()\n"
        "        self._must_ring = bool(self._spill)\n",
        "    if self._must_ring:\n"
        "        self._bell.ring()\n"
        "        self._must_ring = bool(self._spill)\n"
        "    while self._spill and self._ring.offer(self._spill[0]):\n"
        "        self._spill.popleft()\n",
        "a message that had to wait for room is published without a bell",
    ),
    mutant(
        "egress-not-woken",
        "SAFETY M7",
        f"{ROUTES}:Routes.on_visible_moved",
        "self._has_visible_moved = self._are_readers_waiting",
        "self._has_visible_moved = False",
        "egress does not learn that something became visible",
    ),
    Mutant(
        "dropped-messages-hide-those-behind-them",
        "SAFETY M7",
        "raft parks with messages in a ring of which it has dropped some and cleared the bell",
        (
            Edit(
                "actors.raft.replicator_inbox:ReplicatorInbox.receive",
                "passed if len(received) < limit else passed + self.receive(limit)",
                "passed",
            ),
        ),
        classes=(FaultClass.MEMBERS,),
        unreachable="256 messages must wait while a peer changes: not in 11 seeds; "
        "tests/unit/test_raft_replicator_inbox.py finds it",
    ),
    mutant(
        "message-without-room-dropped",
        "SAFETY M8",
        f"{OUTBOX}._send_whole",
        "        self._spill.append(encoded)\n",
        "",
        "an order that a full ring refused is lost",
    ),
    mutant(
        "messages-overtake-those-that-found-no-room",
        "SAFETY M8",
        f"{OUTBOX}._send_whole",
        "if self._spill or not self._ring.offer(encoded):",
        "if not self._ring.offer(encoded):",
        "a small order passes a large one that waits for room",
    ),
    mutant(
        "long-message-in-one-piece",
        "SAFETY M8",
        f"{OUTBOX}.send_encoded",
        "if len(encoded) > self._ring.message_bytes_max:",
        "if False:",
        "a report that is larger than a ring's message limit kills its sender",
    ),
    mutant(
        "pieces-of-a-message-mixed-up",
        "SAFETY M8",
        "actors.station:Inbox._joined",
        'b"".join(self._pieces)',
        'b"".join(self._pieces[::-1])',
        "the pieces of a long message are joined in another order",
    ),
    mutant(
        "incarnation-not-compared",
        "SAFETY M1",
        "transport.layout:control_slots",
        "(INCARNATION_SLOT, incarnation)",
        "(INCARNATION_SLOT, slots[INCARNATION_SLOT])",
        "a ring of an earlier incarnation is attached",
        unreachable="the supervisor makes new rings for each incarnation, and so does the world:"
        " there is no old one to attach; contract tests attach one",
    ),
    mutant(
        "commit-read-from-a-counter",
        "SAFETY U1, E4",
        "actors.ingress.actor:IngressActor.do_work",
        "    work += self.admission.propose()\n",
        "    from actors.topology import Counter\n"
        "    index = self._station.slots[Counter.COMMIT_INDEX]\n"
        "    committed = effects.Committed(self.admission._term, index)\n"
        "    self._answer_clients(self.admission.commit(committed))\n"
        "    work += self.admission.propose()\n",
        "ingress acknowledges by a shared counter, which carries no term",
        unreachable="what is pending is forgotten at TermEnded, and raft says that on the ring"
        " before another leader can commit anything, so the counter runs ahead of the term only"
        " where ingress has heard of its end",
    ),
)
