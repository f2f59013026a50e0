"""The shared counters for Prometheus.

Owns the metrics' names, and which of them may fall, since Prometheus treats a counter and a gauge
differently. `topology.Counter` says what each means, which is its help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from actors.real_clock import RealClock
from actors.topology import (
    CLOCK,
    PROCESS_GAUGES,
    SKEW_ZERO_MS,
    SPARE_NAMES,
    Counter,
    clock_slot,
    served_slot,
)
from logstore.model import NodeId

# Metrics that may fall or stand for a state; the others only grow within an incarnation.
GAUGES = frozenset(
    {
        Counter.VISIBLE,
        Counter.VISIBLE_INDEX,
        Counter.LOG_START_LSN,
        Counter.IS_LEADER,
        Counter.TERM,
        Counter.COMMIT_INDEX,
        Counter.LAST_INDEX,
        Counter.DISK_FULL,
        Counter.FLUSHED_LOST,
        Counter.FORMAT_LEVEL,
        Counter.AGE_TRIMS_OFF,
        Counter.RETENTION_OFF,
        Counter.RING_TOO_SMALL,
        Counter.SESSIONS,
        Counter.SESSION_NAMES_KEPT,
        Counter.CLIENT_BYTES_LENT,
        Counter.INGRESS_CONNECTIONS,
        Counter.INGRESS_CONNECTIONS_MAX,
        Counter.EGRESS_CONNECTIONS,
        Counter.EGRESS_CONNECTIONS_MAX,
    }
)
_CPU_PER_PERMILLE = 0.001
_SECONDS = 1e-9  # per nanosecond
# What a process' loop publishes (`actors.loop_usage`): the metric's name, its unit, and its help.
_USAGE = {
    "bell_wakes": ("bell_wakes", 1, "parks of a process that its bell ended"),
    "socket_wakes": ("socket_wakes", 1, "parks of a process that a socket ended"),
    "timer_wakes": ("timer_wakes", 1, "parks of a process that a timer ended"),
    "empty_wakes": ("empty_wakes", 1, "parks of a process after which there was nothing to do"),
    "idle_ns": (
        "idle_seconds",
        _SECONDS,
        "time in which a process was parked, or spun without work",
    ),
    "cpu_ns": ("cpu_seconds", _SECONDS, "processor time of a process"),
    "run_ns": ("loop_cpu_seconds", _SECONDS, "processor time of the thread of a process' loop"),
    "wait_ns": (
        "loop_wait_seconds",
        _SECONDS,
        "time in which the thread of a process' loop wanted a processor and had none",
    ),
}
_CLOCK = RealClock()
# Values that the leader's ingress publishes (`actors.ingress.lags`): what, and after a dot of whom.
# The metric's name, the label for whom, if any, and its help. A wait is published as a stamp.
_LAGS = {
    f"{kind}_{value}": (f"logstore_{kind}_{measure}", label, f"{text} {whom}")
    for kind, label, whom in (
        ("follower_lag", "of", "follower `of` lacks"),
        ("cursor_lag", "cursor", "`cursor` lacks"),
        ("log", "held_by", "the log holds; `held_by`: the lowest cursor that holds some of it"),
    )
    for value, measure, text in (
        ("payloads", "payloads", "payloads that the leader shows and"),
        ("bytes", "bytes", "bytes of the entries from the oldest payload on that"),
        ("since_ns", "seconds", "how long ago the leader accepted the oldest payload that"),
    )
} | {
    "follower_silent_since_ns": (
        "logstore_follower_silent_seconds",
        "of",
        "for how long the leader has not heard follower `of`, at most since it leads",
    ),
    "cursors": ("logstore_cursors", "", "named cursors of the log"),
    "cursors_left_out": (
        "logstore_cursors_left_out",
        "",
        "cursors of which there are no lags here",
    ),
}


def _is_lag(key: str) -> bool:
    """Whether a leader's ingress published it; a process may have the name of one without a dot."""
    name, dot, _ = key.partition(".")
    return name in _LAGS and bool(dot) == bool(_LAGS[name][1])


def _without_idle_spares(values: Mapping[str, int]) -> dict[str, int]:
    """Without spare replicators that do not run; the clock of whom one serves under its number."""
    found = dict(values)
    for spare in SPARE_NAMES:
        clock, served = found.pop(clock_slot(spare), 0), found.pop(served_slot(spare), 0)
        if not found.get(f"{spare}.pid"):
            found = {key: each for key, each in found.items() if not key.startswith(f"{spare}.")}
        if served:
            found[clock_slot(NodeId(served))] = clock
    return found


class CounterCollector(Collector):
    """Reads the counters at each scrape; gauges of processes have the process as a label."""

    def __init__(
        self, node: int, read: Callable[[], Mapping[str, int]], wall_ns: Callable[[], int]
    ) -> None:
        self._node = str(node)
        self._read = read
        self._wall_ns = wall_ns

    def collect(self) -> Iterator[Metric]:
        read = self._read()
        lags = {key: value for key, value in read.items() if _is_lag(key)}
        values = _without_idle_spares(
            {key: value for key, value in read.items() if key not in lags}
        )
        for counter in Counter:
            name = counter.name.lower()
            if name not in values:
                continue
            family: CounterMetricFamily | GaugeMetricFamily
            if counter in GAUGES:
                family = GaugeMetricFamily(f"logstore_{name}", counter.meaning, labels=["node"])
            else:
                family = CounterMetricFamily(f"logstore_{name}", counter.meaning, labels=["node"])
            # The visible slot holds LSN + 1; 0 means "not ready".
            value = max(0, values[name] - 1) if counter is Counter.VISIBLE else values[name]
            family.add_metric([self._node], value)
            yield family
        yield from self._process_gauges(values)
        yield from self._process_usage(values)
        yield self._clocks(values)
        yield from self._lags(lags)

    def _clocks(self, values: Mapping[str, int]) -> Metric:
        family = GaugeMetricFamily(
            "logstore_clock_skew_seconds",
            "how far the clock of node `of` is ahead of a majority's, by its leader",
            labels=["node", "of"],
        )
        for key, value in values.items():
            kind, _, node = key.partition(".")
            if kind == CLOCK and node.isdigit() and value:  # a process may have that name
                family.add_metric([self._node, node], (value - SKEW_ZERO_MS) / 1_000)
        return family

    def _lags(self, values: Mapping[str, int]) -> Iterator[Metric]:
        """A leader's rows; other replicas have none."""
        now_ns = self._wall_ns()
        for name, (metric, label, text) in _LAGS.items():
            family = GaugeMetricFamily(metric, text, labels=["node", label] if label else ["node"])
            for key, value in values.items():
                found, _, whom = key.partition(".")
                if found != name:
                    continue
                is_stamp = name.endswith("_since_ns")
                waited_s = max(0, now_ns - value) / 1e9 if value else 0.0
                labels = [self._node, whom] if label else [self._node]
                family.add_metric(labels, waited_s if is_stamp else value)
            yield family

    def _process_gauges(self, values: Mapping[str, int]) -> Iterator[Metric]:
        for gauge in PROCESS_GAUGES:
            name = "cpu_cores" if gauge == "cpu_permille" else gauge
            family = GaugeMetricFamily(
                f"logstore_process_{name}", f"{name} of a process", labels=["node", "process"]
            )
            scale = _CPU_PER_PERMILLE if gauge == "cpu_permille" else 1
            for key, value in values.items():
                process, _, found = key.rpartition(".")
                if found == gauge:
                    family.add_metric([self._node, process], value * scale)
            yield family

    def _process_usage(self, values: Mapping[str, int]) -> Iterator[Metric]:
        """Of the processes that have published some."""
        measured = [
            key.removesuffix(".measured_ns")
            for key, value in values.items()
            if key.endswith(".measured_ns") and value
        ]
        for name, (metric, unit, text) in _USAGE.items():
            family = CounterMetricFamily(
                f"logstore_process_{metric}", text, labels=["node", "process"]
            )
            for process in measured:
                family.add_metric([self._node, process], values[f"{process}.{name}"] * unit)
            yield family


def make_renderer(
    node: int,
    read: Callable[[], Mapping[str, int]],
    wall_ns: Callable[[], int] = _CLOCK.wall_ns,
) -> Callable[[], tuple[str, bytes]]:
    """What an HttpListener serves: (content type, text) of the counters that `read` returns."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(CounterCollector(node, read, wall_ns))
    return lambda: (CONTENT_TYPE_LATEST, generate_latest(registry))
