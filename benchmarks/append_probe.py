"""The probe of a failover: one producer that appends every few milliseconds, whatever comes back.

Owns both of its ends: a process of its own with the public client, and the parent's view of it. The
child writes a record for each acknowledgement; its standard input is its lifeline. Each append is a
batch of its own, so that each has an acknowledgement of its own.

     record: appended_ns i64, acknowledged_ns i64, monotonic, which is one clock for all processes
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import threading
from collections import deque

import msgspec

import logstore
from actors.child import die_with_parent
from logstore.client.clock import milliseconds_until, monotonic_ns
from logstore.errors import Unreachable

RECORD = struct.Struct("<qq")
PAYLOAD_BYTES = 100
# Longer than any failover: an append keeps its place until it is acknowledged.
DELIVERY_TIMEOUT_S = 300.0
CONNECT_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 10.0
RECENT_MAX = 10_000
_LIFELINE = 0


class ProbeSpec(msgspec.Struct, frozen=True):
    """What the child is told, as JSON in its argument."""

    endpoints: list[str]
    every_ms: int
    parent_pid: int


class Acknowledged(msgspec.Struct, frozen=True):
    """One append, in monotonic ns."""

    appended_ns: int
    acknowledged_ns: int


class RecentAcknowledgements:
    """The last RECENT_MAX of them, in the order of the appends. One thread adds, another waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._recent: deque[Acknowledged] = deque(maxlen=RECENT_MAX)
        self._has_ended = False

    def add(self, acknowledged: Acknowledged) -> None:
        with self._changed:
            self._recent.append(acknowledged)
            self._changed.notify_all()

    def end(self) -> None:
        """None will come any more."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_for_first(self, *, sent_after_ns: int, timeout_s: float) -> Acknowledged:
        """The first acknowledgement of an append that was sent after `sent_after_ns`.

        Raises:
          Unreachable: none came in time, or none will.
        """

        def has_come() -> bool:
            return bool(self._recent and self._recent[-1].appended_ns > sent_after_ns)

        with self._changed:
            self._changed.wait_for(lambda: has_come() or self._has_ended, timeout_s)
            if has_come():
                return next(each for each in self._recent if each.appended_ns > sent_after_ns)
            if self._has_ended:
                raise Unreachable("the probe has ended; what it said is above")
        raise Unreachable(f"no append was acknowledged within {timeout_s} s")


class AppendProbe:
    """A running probe; close it, or use it as a context manager."""

    def __init__(self, endpoints: list[str], *, every_ms: int) -> None:
        spec = ProbeSpec(endpoints, every_ms, os.getpid())
        command = [sys.executable, "-m", "benchmarks.append_probe"]
        self._child = subprocess.Popen(
            [*command, msgspec.json.encode(spec).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.acknowledgements = RecentAcknowledgements()
        self._thread = threading.Thread(target=self._read, name="append-probe", daemon=True)
        self._thread.start()

    def __enter__(self) -> AppendProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child and wait for it."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            self._child.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._thread.join()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def _read(self) -> None:
        """The thread that takes in records, until the child closes its end."""
        pipe = self._child.stdout
        while pipe is not None and len(record := pipe.read(RECORD.size)) == RECORD.size:
            self.acknowledgements.add(Acknowledged(*RECORD.unpack(record)))
        self.acknowledgements.end()


def run_probe(spec: ProbeSpec) -> None:
    """Append by the schedule until the parent closes the lifeline."""
    options = logstore.ProducerOptions(
        append_timeout_s=DELIVERY_TIMEOUT_S,
        delivery_timeout_s=DELIVERY_TIMEOUT_S,
        on_ack=_report,
    )
    with logstore.connect(spec.endpoints, timeout=CONNECT_TIMEOUT_S) as client:
        producer = client.producer(options)
        payload = [os.urandom(PAYLOAD_BYTES)]
        lifeline = select.poll()
        lifeline.register(_LIFELINE, select.POLLIN | select.POLLHUP)
        due_ns = monotonic_ns()
        while not lifeline.poll(milliseconds_until(due_ns)):
            producer.append_batch(payload)
            due_ns += spec.every_ms * 1_000_000
        producer.close(CLOSE_TIMEOUT_S / 2)


def _report(_: int, __: int, appended_ns: int, acknowledged_ns: int) -> None:
    os.write(1, RECORD.pack(appended_ns, acknowledged_ns))


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=ProbeSpec)
    die_with_parent(spec.parent_pid)
    run_probe(spec)


if __name__ == "__main__":
    main()
