"""One fetch of a range of LSNs from one replica, by a process of its own.

Owns both ends of that process: the child, which reads the range and prints what it took, and the
parent, which counts what egress used meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import msgspec
import psutil

import logstore
from actors.child import die_with_parent
from logstore.cli.embedded import EmbeddedCluster
from logstore.errors import LogStoreError

TIMEOUT_S = 120.0


class FetchSpec(msgspec.Struct, frozen=True):
    """What the child is told, as JSON in its argument: payloads [first_lsn, last_lsn] of one
    replica."""

    endpoints: list[str]
    replica: int
    first_lsn: int
    last_lsn: int
    parent_pid: int


class FetchTook(msgspec.Struct, frozen=True):
    """What the child prints."""

    payload_bytes: int
    seconds: float
    cpu_s: float


class Fetch(msgspec.Struct, frozen=True):
    """One fetch. GB are 10**9 payload bytes; processor seconds are of user and kernel."""

    payload_bytes: int
    seconds: float
    client_cpu_s: float
    egress_cpu_s: float

    @property
    def gb_per_s(self) -> float:
        return self.payload_bytes / self.seconds / 1e9

    @property
    def gb_per_core_s(self) -> float:
        """A second of a core is one of egress or of the client."""
        return self.payload_bytes / (self.client_cpu_s + self.egress_cpu_s) / 1e9


def fetch_range(cluster: EmbeddedCluster, node: int, first_lsn: int, last_lsn: int) -> Fetch:
    """Fetch from `node`, which serves nobody else meanwhile.

    Raises:
      LogStoreError: the child failed.
    """
    spec = FetchSpec(cluster.endpoints, node, first_lsn, last_lsn, os.getpid())
    command = [sys.executable, "-m", "benchmarks.range_fetch", msgspec.json.encode(spec).decode()]
    egress = psutil.Process(cluster.pid_of(node, "egress"))
    before = egress.cpu_times()
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    after = egress.cpu_times()
    if done.returncode:
        raise LogStoreError("the fetch failed; what it said is above")
    took = msgspec.json.decode(done.stdout, type=FetchTook)
    used_s = after.user + after.system - before.user - before.system
    return Fetch(took.payload_bytes, took.seconds, took.cpu_s, round(used_s, 3))


def run_fetch(spec: FetchSpec) -> FetchTook:
    """Read the range, asking for the next reply before the last one is looked at."""
    with logstore.connect(spec.endpoints, timeout=TIMEOUT_S) as log:
        log.nodes()  # who they are is known before the clock runs
        with log.reader(replica=spec.replica, reads_ahead=True) as reader:
            began_s, cpu_began_s = time.perf_counter(), time.process_time()
            batches = reader.read(spec.first_lsn, spec.last_lsn)
            payload_bytes = sum(batch.payload_bytes for batch in batches)
            seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_began_s
    return FetchTook(payload_bytes, round(seconds, 4), round(cpu_s, 4))


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=FetchSpec)
    die_with_parent(spec.parent_pid)
    os.write(1, msgspec.json.encode(run_fetch(spec)))


if __name__ == "__main__":
    main()
