"""One load on one cluster that runs, measured: what its row says.

Owns the course of a run: warm up, look, measure, look, wait for the outcomes. Figures are made the
same way for every system, of the samples that its client wrote.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from benchmarks.figures import latency_curve, rates_by_step
from benchmarks.load import SAMPLE_FIELDS
from benchmarks.peers.kernel_usage import Look, look, pss_mb, write_back, written_bytes
from benchmarks.peers.line_process import LineProcess
from benchmarks.peers.loads import Way
from benchmarks.peers.peer import Peer
from benchmarks.peers.servers import NODES
from benchmarks.saturate import Samples, weighted_percentile
from logstore.cli.embedded import poll_until
from logstore.client.clock import monotonic_ns
from logstore.errors import Unreachable

BEGIN_TIMEOUT_S = 60.0
OUTCOMES_TIMEOUT_S = 120.0
# The load must not end before the second look.
MORE_S = 0.2


class Run(msgspec.Struct, frozen=True, tag="run", tag_field="kind"):
    """One run. MB are 10**6 payload bytes, rates count acknowledged payloads.

    Attributes:
      contender: the system with its settings.
      in_flight: appends in flight at most, with a schedule nothing that binds.
      errors: appends that were refused or had no outcome, ours in payloads; `error` the first of
        their reasons. A run that has any counts in no figure.
      p50_ms: from when the window let a payload in, with a rate from when it was due, until its
        acknowledgement; over payloads. `p99_ms`: the same.
      server_cpu_s_per_million: processor seconds of all server processes, over a million payloads;
        `client_...`: of the client.
      server_cores: processors that all servers kept busy; `client_cores`: the client;
        `other_cores`: whatever else ran on the machine.
      disk_bytes_per_payload_byte: written by all servers in the whole run, over the payload bytes
        acknowledged in it and the number of nodes.
      pss_mb: of all servers at the end of the run.
    """

    round: int
    system: str
    contender: str
    load: str
    durability: str
    payload_bytes: int
    batch: int
    window_bytes: int
    rate: float
    seconds: float
    in_flight: int
    errors: int
    error: str
    payloads_per_s: float
    mb_per_s: float
    p50_ms: float
    p99_ms: float
    server_cpu_s_per_million: float
    client_cpu_s_per_million: float
    server_cores: float
    client_cores: float
    other_cores: float
    disk_bytes_per_payload_byte: float
    pss_mb: float

    @property
    def is_for_latency(self) -> bool:
        """Whether the figure of this load is its latency: what it takes is given, or follows."""
        return self.rate > 0 or self.window_bytes <= self.payload_bytes


class Curve(msgspec.Struct, frozen=True):
    """The raw side of a run, by the same names.

    Attributes:
      latency_ms: by `benchmarks.figures.percents()`, over payloads.
      rates: payloads a second in each tenth of a second.
    """

    round: int
    contender: str
    load: str
    payloads: int
    latency_ms: list[float]
    rates: list[float]


class Report(msgspec.Struct, frozen=True):
    """What a client says at the end."""

    errors: int = 0
    error: str = ""
    in_flight: int = 0


class Observed(msgspec.Struct, frozen=True):
    """What is known after a run: a look at the beginning and one at the end of what counts, all
    samples, and bytes written from before the load until every node has all of it."""

    first: Look
    second: Look
    samples: Samples
    report: Report
    written: int
    pss_mb: float

    @property
    def acknowledged_inside(self) -> Samples:
        """What was acknowledged between the looks: rates count it."""
        return self._inside(0)

    def timed(self, way: Way) -> Samples:
        """Whose latency counts. By a schedule it is what was due between the looks, however late it
        was acknowledged: what waits at the end is in it."""
        return self._inside(1 if way.load.rate else 0)

    def _inside(self, column: int) -> Samples:
        at_ns = self.samples[:, column]
        return self.samples[(at_ns >= self.first.at_ns) & (at_ns < self.second.at_ns)]


def run_timed(
    peer: Peer, way: Way, *, system: str, round_: int, warm_s: float, seconds: float, folder: Path
) -> tuple[Run, Curve]:
    """Run once; samples lie in the folder meanwhile.

    Raises:
      LogStoreError: the load did not run through.
    """
    write_back()  # what a load before this one only left in the page cache
    observed = _observe(peer, way, warm_s, seconds, folder / "samples")
    if not len(observed.acknowledged_inside) or not len(observed.timed(way)):
        raise Unreachable(f"nothing was acknowledged in time; {observed.report.error}")
    return (
        make_row(way, observed, system=system, round_=round_, seconds=seconds),
        _make_curve(way, observed, round_),
    )


def _observe(peer: Peer, way: Way, warm_s: float, seconds: float, path: Path) -> Observed:
    path.unlink(missing_ok=True)
    pids = peer.pids()
    leader = peer.wait_in_step()  # no node catches up with an earlier run in this one
    written = written_bytes(pids)
    client = peer.begin_load(way, warm_s + seconds + MORE_S, path)
    start_ns = int(client.hear(BEGIN_TIMEOUT_S)) + int(warm_s * 1e9)
    _wait_until(start_ns)
    first = look(pids, client.pid)
    _wait_until(start_ns + int(seconds * 1e9))
    second = look(pids, client.pid)
    report = _hear_report(client)
    if peer.pids() != pids:
        raise Unreachable("a server process was started again while it was measured")
    if (now := peer.wait_in_step()) != leader:
        raise Unreachable(f"node {now} leads instead of node {leader} after the run")
    samples = np.fromfile(path, dtype=np.int64).reshape(-1, len(SAMPLE_FIELDS))
    if not len(samples):
        raise Unreachable(f"nothing was acknowledged; {report.error or 'no reason was told'}")
    return Observed(
        first=first,
        second=second,
        samples=samples,
        report=report,
        written=written_bytes(pids) - written,
        pss_mb=pss_mb(pids),
    )


def _wait_until(at_ns: int) -> None:
    left_s = max(0.0, (at_ns - monotonic_ns()) / 1e9)
    poll_until(lambda: monotonic_ns() >= at_ns, left_s, look_ms=1_000)


def _hear_report(client: LineProcess) -> Report:
    """A client that says none has ended, and had no errors."""
    line = client.hear_or_end(OUTCOMES_TIMEOUT_S)
    try:
        return msgspec.json.decode(line, type=Report) if line else Report()
    except msgspec.DecodeError as error:
        raise Unreachable(f"the load reported {line!r}: {error}") from error


def make_row(way: Way, observed: Observed, *, system: str, round_: int, seconds: float) -> Run:
    """The figures."""
    inside, timed = observed.acknowledged_inside, observed.timed(way)
    first, second, load = observed.first, observed.second, way.load
    took_s = (second.at_ns - first.at_ns) / 1e9
    payloads = int(inside[:, 2].sum())
    latency_ms = (timed[:, 0] - timed[:, 1]) / 1e6
    servers_s, client_s = second.servers_s - first.servers_s, second.client_s - first.client_s
    others_s = second.machine_s - first.machine_s - servers_s - client_s
    all_bytes = int(observed.samples[:, 2].sum()) * load.payload_bytes
    return Run(
        round=round_,
        system=system,
        contender=way.contender,
        load=load.name,
        durability=way.durability,
        payload_bytes=load.payload_bytes,
        batch=load.batch,
        window_bytes=load.window_bytes,
        rate=load.rate,
        seconds=seconds,
        in_flight=observed.report.in_flight or _room(way),
        errors=observed.report.errors,
        error=observed.report.error,
        payloads_per_s=round(payloads / took_s, 1),
        mb_per_s=round(payloads * load.payload_bytes / took_s / 1e6, 3),
        p50_ms=weighted_percentile(latency_ms, timed[:, 2], 0.50),
        p99_ms=weighted_percentile(latency_ms, timed[:, 2], 0.99),
        server_cpu_s_per_million=round(servers_s / max(1, payloads) * 1e6, 2),
        client_cpu_s_per_million=round(client_s / max(1, payloads) * 1e6, 2),
        server_cores=round(servers_s / took_s, 3),
        client_cores=round(client_s / took_s, 3),
        other_cores=round(max(0.0, others_s) / took_s, 3),
        disk_bytes_per_payload_byte=round(observed.written / all_bytes / len(NODES), 3),
        pss_mb=observed.pss_mb,
    )


def _room(way: Way) -> int:
    return max(1, way.load.window_bytes // (way.load.payload_bytes * way.load.batch))


def _make_curve(way: Way, observed: Observed, round_: int) -> Curve:
    inside, timed = observed.acknowledged_inside, observed.timed(way)
    latency_ms = (timed[:, 0] - timed[:, 1]) / 1e6
    at_ms = (inside[:, 0] - observed.first.at_ns) / 1e6
    return Curve(
        round=round_,
        contender=way.contender,
        load=way.load.name,
        payloads=int(inside[:, 2].sum()),
        latency_ms=latency_curve(latency_ms, timed[:, 2]),
        rates=rates_by_step(at_ms, inside[:, 2]),
    )
