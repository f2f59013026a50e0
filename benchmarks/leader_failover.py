"""How long appends stand still when the leader is struck, and what that time goes to.

Owns the faults' turns and what is told of them. One method for all: a producer appends every few
milliseconds whatever comes back, and the time runs from the fault to the first acknowledgement of
an append that was sent after it. A fault strikes between two looks at the clock: the time counts
from the earlier one, the append was sent after the later one. Then the fault is undone, and the
next one waits until all replicas are there and show the same, and for a while that is drawn, so
that faults fall anywhere between two heartbeats.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import cycle, islice
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

from actors.real_clock import RealClock
from benchmarks.append_probe import Acknowledged, AppendProbe
from benchmarks.failover_split import PARTS, Split, read_moments, split
from benchmarks.leader_faults import KINDS, LINK, REPLICAS, Kind, Struck, StruckCluster
from benchmarks.measurement import Measured, Measurement, Site, option, without_paths
from benchmarks.results import Result
from benchmarks.saturate import weighted_percentile
from benchmarks.switched_network import CLIENT, SwitchedNetwork, why_no_switch
from logstore.cli.embedded import poll_until
from logstore.client.clock import monotonic_ns
from logstore.errors import LogStoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

APPEND_EVERY_MS = 5
FIRST_TIMEOUT_S = 60.0
P99_OF_MIN = 100  # of fewer, it is their maximum
FAILED_IN_A_ROW_MAX = 3  # each takes minutes: a machine on which all fail is not asked 200 times
SETTLE_S = (0.3, 1.3)  # beyond a heartbeat, so that the leader's silence begins anywhere in one
NS_PER_MS = 1_000_000


class FailoverRow(msgspec.Struct, frozen=True):
    """One fault.

    Attributes:
      entries: in the leader's log when it struck.
      new_leader: 0 if the leader did not change.
      total_ms: from the fault to the first acknowledgement, the sum of the four parts.
      whole_s: from undoing it until all was well.
      skipped: why this kind was not measured; then all figures are 0.
      failed: why appends did not go on, or the cluster did not become whole; then figures are 0.
    """

    number: int
    kind: str
    leader: int = 0
    entries: int = 0
    new_leader: int = 0
    total_ms: float = 0.0
    detect_ms: float = 0.0
    elect_ms: float = 0.0
    admit_ms: float = 0.0
    client_ms: float = 0.0
    whole_s: float = 0.0
    skipped: str = ""
    failed: str = ""


def measure_failovers(
    folder: Path, *, faults: int, seed: int, say: Callable[[str], None]
) -> list[FailoverRow]:
    """Strike the leader `faults` times, a kind after the other. After a fault that is not survived
    a new cluster takes the next one; a cluster that does not start fails that one, too. After
    FAILED_IN_A_ROW_MAX of them nothing more is measured.

    Raises:
      LogStoreError: none was survived.
    """
    random = Random(seed)
    why_not = why_no_switch()
    kinds = [kind for kind in KINDS if kind.strikes != LINK or not why_not]
    rows = [FailoverRow(0, kind.name, skipped=why_not) for kind in KINDS if kind not in kinds]
    for row in rows:
        say(f"{row.kind} is skipped: {row.skipped}")
    wanted = deque(enumerate(islice(cycle(kinds), faults), 1))
    failed_in_a_row = survived = 0
    while wanted and failed_in_a_row < FAILED_IN_A_ROW_MAX:
        try:
            with _struck_cluster(folder, random, has_network=not why_not) as (cluster, probe):
                while wanted:
                    row = _measure(cluster, probe, *wanted[0], random)
                    rows.append(row)
                    wanted.popleft()
                    failed_in_a_row, survived = 0, survived + 1
                    say(
                        f"{row.number} of {faults}, {row.kind}: {row.total_ms:,.0f} ms, "
                        f"whole again after {row.whole_s:.1f} s"
                    )
        except (LogStoreError, OSError) as error:
            say(f"FAILED: {error}")
            if wanted:
                number, kind = wanted.popleft()
                rows.append(FailoverRow(number, kind.name, failed=without_paths(error, folder)))
            failed_in_a_row += 1
    if not survived:
        raise LogStoreError(f"no fault was survived; the last one: {rows[-1].failed}")
    unmeasured = f"not measured, as {FAILED_IN_A_ROW_MAX} in a row had failed"
    return rows + [FailoverRow(number, kind.name, failed=unmeasured) for number, kind in wanted]


def summarise(rows: Sequence[FailoverRow]) -> dict[str, Any]:
    """For each kind, and for all that had another leader after it: how often it struck, median and
    most of the whole, its p99 where there are P99_OF_MIN, and the medians of its parts."""
    measured = [row for row in rows if not row.skipped and not row.failed]
    summary: dict[str, Any] = {
        kind: _figures([row for row in measured if row.kind == kind])
        for kind in dict.fromkeys(row.kind for row in measured)
    }
    if changed := [row for row in measured if row.new_leader]:
        summary["every change of leader"] = _figures(changed)
    summary |= {row.kind: {"skipped": row.skipped} for row in rows if row.skipped}
    failed = [f"{row.number}, {row.kind}: {row.failed}" for row in rows if row.failed]
    return {**summary, "failed": failed}


def _figures(rows: Sequence[FailoverRow]) -> dict[str, Any]:
    totals = np.array([row.total_ms for row in rows])
    ones = np.ones(len(rows), dtype=np.int64)
    return {
        "faults": len(rows),
        "leader_changes": sum(bool(row.new_leader) for row in rows),
        "median_ms": round(median(totals.tolist()), 3),
        **({"p99_ms": weighted_percentile(totals, ones, 0.99)} if len(rows) >= P99_OF_MIN else {}),
        "most_ms": float(totals.max()),
        **{part: round(median(getattr(row, part) for row in rows), 3) for part in PARTS},
        "whole_s": round(median(row.whole_s for row in rows), 3),
    }


# --- one fault ---


def _measure(
    cluster: StruckCluster, probe: AppendProbe, number: int, kind: Kind, random: Random
) -> FailoverRow:
    poll_until(lambda: False, random.uniform(*SETTLE_S), look_ms=1_000)
    clock, sizes = RealClock(), cluster.log_sizes()
    struck = cluster.strike(kind)
    first = probe.acknowledgements.wait_for_first(
        sent_after_ns=struck.after_ns, timeout_s=FIRST_TIMEOUT_S
    )
    to_wall_ns = clock.wall_ns() - clock.monotonic_ns()
    moments = read_moments(cluster.said_since(sizes))
    parts = split(struck.before_ns + to_wall_ns, first.acknowledged_ns + to_wall_ns, moments)
    began_ns = monotonic_ns()
    cluster.make_whole(struck)
    probe.acknowledgements.wait_for_first(sent_after_ns=monotonic_ns(), timeout_s=FIRST_TIMEOUT_S)
    whole_s = round((monotonic_ns() - began_ns) / 1e9, 3)
    return make_row(number, struck, first, parts, whole_s=whole_s)


def make_row(
    number: int, struck: Struck, first: Acknowledged, parts: Split, *, whole_s: float
) -> FailoverRow:
    return FailoverRow(
        number=number,
        kind=struck.kind.name,
        leader=struck.node,
        entries=struck.entries,
        total_ms=round((first.acknowledged_ns - struck.before_ns) / NS_PER_MS, 3),
        whole_s=whole_s,
        **msgspec.structs.asdict(parts),
    )


@contextmanager
def _struck_cluster(
    folder: Path, random: Random, *, has_network: bool
) -> Iterator[tuple[StruckCluster, AppendProbe]]:
    """A whole cluster under the probe's appends, and the probe."""
    with (
        tempfile.TemporaryDirectory(prefix="failover-", dir=folder) as own,
        _network(has_network) as network,
        StruckCluster(Path(own), network, random) as cluster,
    ):
        cluster.wait_until_whole()
        with nullcontext() if network is None else network.entered(CLIENT):
            probe = AppendProbe(cluster.endpoints, every_ms=APPEND_EVERY_MS)
        with probe:
            probe.acknowledgements.wait_for_first(sent_after_ns=0, timeout_s=FIRST_TIMEOUT_S)
            yield cluster, probe


@contextmanager
def _network(has_network: bool) -> Iterator[SwitchedNetwork | None]:
    if not has_network:
        yield None
        return
    with SwitchedNetwork(range(1, REPLICAS + 1)) as network:
        yield network


# --- the measurement ---


def _measure_all(site: Site, *, faults: int, seed: int) -> Measured:
    rows = measure_failovers(site.folder, faults=faults, seed=seed, say=site.say)
    return Measured(rows, summarise(rows))


def draw_failover(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """For each kind of fault a bar of the parts' medians, with the whole's median and most."""
    from benchmarks.charts import plain, stacked_bar_chart

    found = {
        kind: each
        for kind, each in result.summary.items()
        if isinstance(each, dict) and "faults" in each
    }
    return {
        "failover": stacked_bar_chart(
            "Fault of the leader until appends are acknowledged again",
            "ms, medians of the parts",
            {
                kind: {part.removesuffix("_ms"): each[part] for part in PARTS}
                for kind, each in found.items()
            },
            notes={
                kind: f"{plain(each['median_ms'])}, at most {plain(each['most_ms'])}"
                for kind, each in found.items()
            },
        )
    }


FAILOVER = Measurement(
    "failover",
    "How long do appends stand still when the leader is killed, whole or in part, stopped or cut "
    "off?",
    12,
    _measure_all,
    [
        option("--faults", type=click.IntRange(1), default=200),
        option("--seed", type=int, default=1),
    ],
    {"faults": len(KINDS)},
    draw_failover,
)
