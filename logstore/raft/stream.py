"""One follower's stream of entries, as its replicator runs it (SAFETY W1, W2, W4, W5).

Owns: what to send next and from where, what is in flight, when to begin again. Must not
know sockets, ring memory or files; those are the replicator's. Pure: time and the
WRITTEN cursor are arguments.

Invariants: within one stream id, entries are sent in index order without a gap; a stream id is used
once (raft chooses the first one at `Lead`, every rewind adds one); entries are sent only between
`Lead` and `StopLeading` of one term.

    match <= accepted < next     match: flushed there; accepted: verified there; next: to be sent
                                 (match, next) is in flight and counts against the window
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

import msgspec

from logstore.errors import InvariantViolated
from logstore.format.entry import EntryHeader
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    BulkAnswer,
    Install,
)
from logstore.limits import DESCRIPTORS_KEPT, GROUP_MAX_BYTES
from logstore.model import NO_INDEX, NO_TERM, Index, NodeId, Term
from logstore.raft.effects import Describe, Lead, Rewind, StopLeading
from logstore.raft.log_view import WholeLogStart
from logstore.raft.raft_config import StreamMode

NEVER_NS = 1 << 62


class SendFromRing(msgspec.Struct, frozen=True, gc=False):
    """Send this entry. Its body is in the ring range, or by now only in the files, which hold it
    once WRITTEN is at `persist_seq`."""

    header: EntryHeader
    ring_start: int
    ring_end: int
    persist_seq: int
    stream: int
    commit: Index
    term: Term


class SendFromFile(msgspec.Struct, frozen=True, gc=False):
    """Read the entry at `index` from the files, which hold it, and send it."""

    index: Index
    stream: int
    commit: Index
    term: Term


class SendInstall(msgspec.Struct, frozen=True, gc=False):
    """Send the log start, and nothing else until it is answered."""

    install: Install


class FollowerStream:
    """What `peer` has, and what to send to it next.

    Args:
      mode: `paper`: one unpersisted append; `streaming`: as many as the window takes.
      window_bytes, window_entries: what may be unpersisted at the follower in `streaming` mode. One
        entry always may, however large.
      resend_timeout_ns: begin again if what was sent has had no answer for this long.
    """

    def __init__(
        self,
        peer: NodeId,
        *,
        mode: StreamMode,
        window_bytes: int,
        window_entries: int,
        resend_timeout_ns: int,
    ) -> None:
        self.peer = peer
        self._window_entries = 1 if mode == "paper" else window_entries
        self._window_bytes = window_bytes
        # An entry in the files counts as a full group until it is read, but as a quarter of the
        # window at most: with a small window, entries would otherwise pass one at a time, and a
        # follower that lags would never catch up.
        self._assumed_bytes = min(GROUP_MAX_BYTES, window_bytes // 4)
        self._resend_timeout_ns = resend_timeout_ns
        self._boot: int | None = None
        self.term = NO_TERM
        self.stream = 0
        self.match = NO_INDEX
        self._is_leading = False
        self._commit = NO_INDEX
        self._files_last = NO_INDEX  # the newest entry; in the files once WRITTEN is _files_seq
        self._files_seq = 0
        self._ring_position: int | None = None
        self._described: deque[Describe] = deque()
        self._start = Index(1)  # where raft last ordered this stream to begin
        self._next = self._start
        self._accepted = NO_INDEX
        self._install: WholeLogStart | None = None  # what the peer must answer before anything else
        self._is_install_sent = False
        self._is_rejected = False
        self._heard_ns = 0
        self._in_flight: deque[tuple[Index, int]] = deque()
        self._in_flight_bytes = 0

    # --- orders from raft ---

    def on_lead(self, lead: Lead) -> None:
        """A new term, or a new stream of this term: forget everything but the match."""
        if lead.term < self.term or (lead.term == self.term and lead.stream <= self.stream):
            raise InvariantViolated(f"{lead} after term {self.term}, stream {self.stream}")
        if lead.term > self.term:
            self.match = NO_INDEX
        self.term = lead.term
        self.stream = lead.stream
        self._is_leading = True
        self._commit = lead.commit
        self._files_last, self._files_seq = lead.last_index, lead.persist_seq
        self._ring_position = None
        self._described.clear()
        self._install = lead.install
        self._start = Index(max(lead.next_index, self.match + 1))
        self._reset(self._start)

    def on_describe(self, describe: Describe) -> None:
        """A new entry. Descriptors before it may have been left out: those entries
        are read from the files."""
        if not self._is_leading or describe.term != self.term:
            return
        described, index = self._described, describe.header.index
        if index <= self._files_last:
            return  # the newest descriptor came again
        if described and index != described[-1].header.index + 1:
            described.clear()
        described.append(describe)
        if len(described) > DESCRIPTORS_KEPT:
            described.popleft()
        self._files_last, self._files_seq = index, describe.persist_seq
        self._commit = max(self._commit, describe.commit)
        if describe.ring_end > describe.ring_start:
            self._ring_position = describe.ring_end

    def on_rewind(self, rewind: Rewind) -> None:
        """Raft has resolved a reject. Ignored unless it names the current stream."""
        is_current = self._is_leading and rewind.term == self.term
        if is_current and rewind.stream == self.stream:
            self._start = Index(max(rewind.next_index, self.match + 1))
            self._rewind(self._start)

    def on_stop(self, stop: StopLeading) -> None:
        """Send nothing more of this term."""
        if stop.term >= self.term:
            if stop.peer:  # it left; what comes under its number may be another replica
                self.match = NO_INDEX
            self._is_leading = False
            self._described.clear()
            self._in_flight.clear()

    # --- the follower's answers, and timeouts ---

    def on_answer(self, boot: int, answer: BulkAnswer, now_ns: int) -> list[BulkAnswer]:
        """Take an answer; returns it if raft must know it: rejects of this stream,
        matches, newer terms."""
        if answer.term > self.term:
            return [answer]
        if answer.term < self.term or not self._is_leading:
            return []
        if self._boot is not None and boot > self._boot:
            self._boot = boot
            self._rewind(Index(max(self.match + 1, self._start)))  # what was not flushed is lost
        self._boot = max(boot, self._boot or 0)
        match answer:
            case AppendAccepted():
                if answer.stream == self.stream:
                    self._on_install_answered(answer.index)
                    self._on_accepted(answer.index, now_ns)
                return []
            case AppendPersisted():
                self._on_persisted(answer.index, now_ns)
                return [answer] if answer.index >= self.match else []
            case AppendReject():
                return self._on_reject(answer, now_ns)
            case _:
                assert_never(answer)

    def on_tick(self, now_ns: int) -> None:
        """If appends or their answers were lost, send again from the first entry
        that was not accepted."""
        if now_ns >= self.deadline_ns:
            self._rewind(Index(self._accepted + 1))

    @property
    def deadline_ns(self) -> int:
        """When to begin again; far in the future while nothing waits for an answer."""
        is_waiting = self._is_rejected or self._is_install_sent or self._accepted + 1 < self._next
        if not self._is_leading or not is_waiting:
            return NEVER_NS
        return self._heard_ns + self._resend_timeout_ns

    # --- what to send ---

    def next_send(
        self, written_seq: int, now_ns: int
    ) -> SendFromRing | SendFromFile | SendInstall | None:
        """The next append, counted as sent from now on (`unsend` takes it back), or the log start;
        None: nothing.

        Args:
          written_seq: the writer's WRITTEN cursor, a persist sequence.
        """
        if not self._is_leading or self._is_rejected:
            return None
        if self._install is not None:
            return self._send_install(self._install, now_ns)
        step = self._next_step(written_seq)
        if step is None:
            return None
        size = step.header.body_size if isinstance(step, SendFromRing) else self._assumed_bytes
        if not self._has_room(size):
            return None
        index = self._next
        if self._accepted + 1 == index:
            self._heard_ns = now_ns  # the oldest unanswered append starts the timeout
        self._in_flight.append((index, size))
        self._in_flight_bytes += size
        self._next = Index(index + 1)
        return step

    def waits_for_files(self, written_seq: int) -> bool:
        """Whether the next entry will be in the files once WRITTEN has moved, which rings
        nobody."""
        if not self._is_leading or self._is_rejected or self._install is not None:
            return False
        last, seq = self._in_files
        return self._next <= last and written_seq < seq

    def on_size_known(self, step: SendFromFile, size_bytes: int) -> None:
        """The size of an entry read from the files replaces the assumed one."""
        if self._in_flight and self._in_flight[-1][0] == step.index and step.stream == self.stream:
            index, size = self._in_flight.pop()
            self._in_flight.append((index, size_bytes))
            self._in_flight_bytes += size_bytes - size

    def unsend(self, step: SendFromRing | SendFromFile) -> None:
        """The newest append could not be sent: take it back."""
        index = step.header.index if isinstance(step, SendFromRing) else step.index
        if step.stream != self.stream or not self._in_flight:
            return
        if self._in_flight[-1][0] == index:
            self._in_flight_bytes -= self._in_flight.pop()[1]
            self._next = index

    @property
    def hold_position(self) -> int | None:
        """The ring position below which this stream needs nothing; None: it
        needs nothing of the ring.

        What was sent once is read from the files when it must be sent again.
        """
        if not self._is_leading:
            return None
        described = self._described
        skipped = self._next - described[0].header.index if described else 0
        if skipped >= 0:
            for at in range(skipped, len(described)):
                if described[at].ring_end > described[at].ring_start:
                    return described[at].ring_start
        return self._ring_position

    @property
    def is_empty(self) -> bool:
        """Every entry is sent and acknowledged."""
        return not self._is_leading or self.match >= self._files_last

    # --- inside ---

    def _next_step(self, written_seq: int) -> SendFromRing | SendFromFile | None:
        index, described = self._next, self._described
        first = described[0].header.index if described else None
        if first is not None and first <= index:
            if index > self._files_last:
                return None
            entry = described[index - first]
            if entry.header.index != index:
                raise InvariantViolated(f"entry {entry.header.index} where {index} belongs")
            ring = (entry.ring_start, entry.ring_end, entry.persist_seq)
            return SendFromRing(entry.header, *ring, self.stream, self._commit, self.term)
        last, seq = self._in_files
        if index > last or written_seq < seq:
            return None
        return SendFromFile(index, self.stream, self._commit, self.term)

    @property
    def _in_files(self) -> tuple[Index, int]:
        """What is read from the files: up to which entry, once WRITTEN is what."""
        if not self._described:
            return self._files_last, self._files_seq
        # Persist sequences rise by one with each entry, so what precedes the oldest
        # descriptor has lower ones.
        oldest = self._described[0]
        return Index(oldest.header.index - 1), oldest.persist_seq - 1

    def _has_room(self, size_bytes: int) -> bool:
        flying = len(self._in_flight)
        return not flying or (
            flying < self._window_entries
            and self._in_flight_bytes + size_bytes <= self._window_bytes
        )

    def _send_install(self, start: WholeLogStart, now_ns: int) -> SendInstall | None:
        if self._is_install_sent:
            return None
        self._is_install_sent = True
        self._heard_ns = now_ns
        at = start.position
        fields = (at.index, at.term, at.next_lsn, at.chain)
        amounts = (start.cumulative_bytes, start.timestamp_ns, start.level)
        return SendInstall(Install(self.term, self.stream, *fields, *amounts))

    def _on_install_answered(self, index: Index) -> None:
        if self._install is not None and index >= self._install.position.index:
            self._install, self._is_install_sent = None, False

    def _on_accepted(self, index: Index, now_ns: int) -> None:
        if index <= self._accepted:
            return
        if index > self._files_last:
            raise InvariantViolated(f"node {self.peer} accepted entry {index}, never described")
        self._accepted = index
        self._heard_ns = now_ns
        # An earlier stream of this term had brought the follower further: go on from there.
        self._next = max(self._next, Index(index + 1))

    def _on_persisted(self, index: Index, now_ns: int) -> None:
        if index <= self.match:
            return
        if self._install is not None and self.match < self._install.position.index:
            # A peer that had the entry before says this of entries that it was sent before.
            self._on_install_answered(index)
        self._on_accepted(index, now_ns)
        self.match = index
        while self._in_flight and self._in_flight[0][0] <= index:
            self._in_flight_bytes -= self._in_flight.popleft()[1]
        while self._described and self._described[0].header.index <= index:
            self._described.popleft()

    def _on_reject(self, reject: AppendReject, now_ns: int) -> list[BulkAnswer]:
        if reject.stream != self.stream or self._is_rejected:
            return []
        self._is_rejected = True
        self._heard_ns = now_ns
        return [reject]

    def _rewind(self, next_index: Index) -> None:
        self.stream += 1
        self._reset(next_index)

    def _reset(self, next_index: Index) -> None:
        """The stream begins at `next_index`, with nothing in flight."""
        self._next = next_index
        self._accepted = Index(next_index - 1)
        self._is_rejected = self._is_install_sent = False
        self._heard_ns = 0
        self._in_flight.clear()
        self._in_flight_bytes = 0
