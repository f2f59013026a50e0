"""An account book that several programs write, as if there were a single writer.

The log is the book: its state is what all commands in it say, in their order. A program reads the
log, decides by the balances, and appends its command with the LSN that comes next as far as it has
read. The log stores the command only if that is still so. Else another writer was faster: it
reads on, decides again and tries again. So no decision rests on old balances, although no program
waits for another one, and it does not matter how many there are. Nothing makes it fair: who reads
on more slowly than others append may lose many times in a row. The log must hold nothing else: each
payload is read as a command.

    python docs/examples/single_writer.py 127.0.0.1:7100 till-1 deposit ann 100
    python docs/examples/single_writer.py 127.0.0.1:7100 till-2 move ann bob 30
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping

import logstore
from logstore.errors import NextLsnIs, OutcomeUnknown

Command = dict[str, str | int]
Decide = Callable[[Mapping[str, int]], Command | None]


class Book:
    """The balances after every command up to `next_lsn`. No account is ever overdrawn."""

    def __init__(self) -> None:
        self.balances: dict[str, int] = {}
        self.next_lsn = 1

    def apply(self, lsn: int, payload: bytes) -> None:
        """The next command of the log."""
        command = json.loads(payload)
        for account, sign in ((command["from"], -1), (command["to"], 1)):
            if account:
                balance = self.balances.get(account, 0) + sign * command["amount"]
                if balance < 0:
                    raise AssertionError(f"LSN {lsn} overdraws {account}: {command}")
                self.balances[account] = balance
        self.next_lsn = lsn + 1


class BookWriter:
    """One program that writes the book. `name` is its own: a second writer of the same name takes
    the place of the first. `refused`: how often another writer was faster."""

    def __init__(self, log: logstore.LogClient, name: str) -> None:
        self.book = Book()
        self.refused = 0
        self._log = log
        self._options = logstore.ProducerOptions(name=name, mode=logstore.SequenceMode.MONOTONE)
        self._producer = log.producer(self._options)
        self._sequence = self._producer.session.next_sequence

    def append(self, decide: Decide) -> int | None:
        """Append what `decide` makes of the newest balances; the LSN. It is asked again each time
        that others are faster. None: it decided to do nothing, and knew all that was committed."""
        while True:
            command = decide(self.book.balances)
            if command is None:
                end_lsn = self._log.admin.commit_lsn()
                if end_lsn < self.book.next_lsn:
                    return None
                self.read_up_to(end_lsn)
            elif (lsn := self._try_append(json.dumps(command).encode())) is not None:
                return lsn

    def read_up_to(self, lsn: int) -> None:
        """Apply what others have appended."""
        with self._log.consumer(self.book.next_lsn, end_lsn=lsn) as records:
            for record in records:
                self.book.apply(record.lsn, record.payload)

    def close(self) -> None:
        self._producer.close()

    def _try_append(self, payload: bytes) -> int | None:
        """Append it where the book ends; its LSN. None: it is not stored, and what was is read."""
        lsn = self.book.next_lsn
        try:
            self._producer.append_batch(
                [payload], sequence=self._sequence, expected_next_lsn=lsn
            ).result()
        except NextLsnIs as refused:
            self.refused += 1
            self.read_up_to(refused.next_lsn - 1)
            return None  # the sequence is unused: it goes to the next try
        except OutcomeUnknown:
            if not self._was_stored():
                return None
        self._sequence += 1
        self.book.apply(lsn, payload)  # it is there or nowhere
        return lsn

    def _was_stored(self) -> bool:
        """Whether the log has the sequence. To open the name again settles it: what the producer
        before has sent and is not stored by then never is."""
        self._producer.close()
        self._producer = self._log.producer(self._options)
        return self._producer.session.next_sequence > self._sequence


def deposit(account: str, amount: int) -> Decide:
    return lambda _: {"from": "", "to": account, "amount": amount}


def move(source: str, target: str, amount: int) -> Decide:
    """Only if the source has so much."""
    command: Command = {"from": source, "to": target, "amount": amount}
    return lambda balances: command if balances.get(source, 0) >= amount else None


def main(endpoint: str, name: str, what: str, *of: str) -> int:
    decide = deposit(of[0], int(of[1])) if what == "deposit" else move(of[0], of[1], int(of[2]))
    with logstore.connect(endpoint) as log:
        writer = BookWriter(log, name)
        lsn = writer.append(decide)
        writer.close()
        print("refused: not enough" if lsn is None else f"LSN {lsn}", writer.book.balances)
    return 1 if lsn is None else 0


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(
            f"usage: {sys.argv[0]} HOST:PORT NAME deposit ACCOUNT AMOUNT | move FROM TO AMOUNT"
        )
    sys.exit(main(*sys.argv[1:]))
