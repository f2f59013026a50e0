"""The producer's bookkeeping against a dumb log: whatever is lost, the log gets each batch once, in
order (SAFETY E7, E9)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore.client.core.unresolved import Unresolved
from logstore.client.future import Pack
from logstore.errors import ErrorCode
from logstore.format.client_messages import ACK_ROW

WINDOW = 4


class DumbLog:
    """A leader's log of one dense producer: `committed` is final, `tail` may be lost."""

    def __init__(self) -> None:
        self.committed: list[bytes] = []
        self.tail: list[bytes] = []

    @property
    def next_sequence(self) -> int:
        return len(self.committed) + len(self.tail)

    def push(self, sequence: int, payload: bytes) -> None:
        if sequence == self.next_sequence:
            self.tail.append(payload)
        else:
            assert sequence > self.next_sequence or self.everything()[sequence] == payload

    def everything(self) -> list[bytes]:
        return self.committed + self.tail

    def rows(self) -> bytes:
        """The window, at most WINDOW sequences, as SessionState tells it."""
        first = max(0, self.next_sequence - WINDOW)
        return b"".join(
            ACK_ROW.pack(sequence, sequence + 1, 1, ErrorCode.OK, 0)
            if sequence < len(self.committed)
            else ACK_ROW.pack(sequence, 0, 0, ErrorCode.OUTCOME_UNKNOWN, 0)
            for sequence in range(first, self.next_sequence)
        )


STEPS = st.sampled_from(["append", "append lost", "commit", "acknowledge", "leader change"])


@given(st.lists(STEPS, max_size=60))
def test_every_batch_enters_the_log_once_and_in_order(steps: list[str]) -> None:
    log = DumbLog()
    unresolved = Unresolved(next_sequence=0, limit=WINDOW, is_dense=True)
    appended: list[bytes] = []
    resolved: dict[int, int] = {}

    def send(pack: Pack) -> None:
        log.push(pack.sequence, pack.payloads[0])

    def resynchronise() -> None:
        outcome = unresolved.reconcile(log.next_sequence, log.rows())
        assert outcome.forgotten == []
        for pack, first_lsn, _ in outcome.committed:
            resolved[pack.sequence] = first_lsn
        while (again := unresolved.next_to_resend()) is not None:
            send(again)

    for step in steps:
        if step.startswith("append") and unresolved.has_room:
            pack = Pack([b"%d" % len(appended)], opened_ns=0, deadline_ns=1)
            unresolved.add(pack)
            appended.append(pack.payloads[0])
            if step == "append":
                send(pack)
        elif step == "commit":
            log.committed, log.tail = log.everything(), []
        elif step == "acknowledge":
            for sequence in range(len(log.committed)):
                if unresolved.pop(sequence) is not None:
                    resolved[sequence] = sequence + 1
        elif step == "leader change":
            log.tail = log.tail[: len(log.tail) // 2]
            resynchronise()
    resynchronise()
    assert log.everything() == appended
    assert all(lsn == sequence + 1 for sequence, lsn in resolved.items())
    assert set(resolved) <= set(range(len(log.committed)))
    assert len(unresolved) <= WINDOW
