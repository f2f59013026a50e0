"""The runs of figure 7c and what they say: points of the figure, saturation, the bar.

Owns their arithmetic. Must not know how a run goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal, TypeAlias

import msgspec

from benchmarks.charts import size
from benchmarks.medians import Spread, spread
from benchmarks.saturate import Row
from logstore.limits import GROUP_MAX_BYTES, KIB

Links: TypeAlias = Literal["unshaped", "shaped"]
LINKS: tuple[Links, Links] = ("unshaped", "shaped")
SATURATED_BELOW = 0.9  # of what was offered
# The paper's hosts exchange 87 MB/s; its log takes 67 of them, with payloads of 4 KiB.
LINK_MB_PER_S, PAPER_MB_PER_S = 87.0, 67.0
BAR_PAYLOAD, BAR_TARGET = 4 * KIB, 0.95


class LoadRun(msgspec.Struct, frozen=True, tag_field="what", tag="load"):
    """One load.

    Attributes:
      offered: payloads/s; 0: the closed loop, which says what is acknowledged at saturation.
      payload: its bytes.
      cores: processor seconds a second, of the replicas' processes and the client's;
        `client_cores` of the client alone: at 1 it, not the log, is what ends the line, and what
        was offered beyond was not appended.
      attempts: 1, unless the run was made again.
    """

    round: int
    links: Links
    payload: int
    offered: float
    payloads_per_s: float
    mb_per_s: float
    p50_ms: float
    p99_ms: float
    payloads_per_group: float
    cores: float
    client_cores: float
    attempts: int

    @property
    def is_saturated(self) -> bool:
        """Whether clearly less was acknowledged than offered."""
        return self.payloads_per_s < SATURATED_BELOW * self.offered

    @property
    def group_bytes(self) -> int:
        """About what one message of replication carried."""
        group = int(self.payloads_per_group * self.payload)
        return max(self.payload, min(group, GROUP_MAX_BYTES))


class StreamRun(msgspec.Struct, frozen=True, tag_field="what", tag="bare stream"):
    """One bare stream, right after the closed loop with payloads of this size."""

    round: int
    links: Links
    payload: int
    frame_bytes: int
    mb_per_s: float


Run: TypeAlias = LoadRun | StreamRun


class Point(msgspec.Struct, frozen=True):
    """One offered rate, payloads/s. Latencies are medians of the runs' percentiles."""

    offered: float
    mb_per_s: Spread
    p50_ms: float
    p99_ms: float
    is_saturated: bool


def load_run(number: int, links: Links, row: Row, attempts: int) -> LoadRun:
    """What is kept of a load."""
    return LoadRun(
        round=number,
        links=links,
        payload=row.payload,
        offered=row.rate,
        payloads_per_s=row.payloads_per_s,
        mb_per_s=row.mb_per_s,
        p50_ms=row.p50_ms,
        p99_ms=row.p99_ms,
        payloads_per_group=row.payloads_per_group,
        cores=round(sum(row.cpu_s.values()) / row.seconds, 3),
        client_cores=round(row.cpu_s["client"] / row.seconds, 3),
        attempts=attempts,
    )


def runs_of(rows: Sequence[Mapping[str, Any]]) -> list[Run]:
    """The runs in the rows of a result that was read."""
    return msgspec.convert(rows, list[Run])


def payloads_of(runs: Sequence[Run]) -> list[int]:
    """The sizes that were measured, ascending."""
    return sorted({run.payload for run in runs})


def points_of(runs: Sequence[Run], links: Links, payload: int) -> list[Point]:
    """The offered rates of one line of the figure, ascending, as far as most rounds went."""
    by_rate: dict[float, list[LoadRun]] = {}
    for run in _of(runs, links, payload):
        if isinstance(run, LoadRun) and run.offered:
            by_rate.setdefault(run.offered, []).append(run)
    rounds = max(map(len, by_rate.values()), default=0)
    return [
        _point(rate, by_rate[rate]) for rate in sorted(by_rate) if 2 * len(by_rate[rate]) > rounds
    ]


def at_saturation(runs: Sequence[Run], links: Links, payload: int) -> dict[int, float]:
    """MB/s acknowledged in the closed loop, by round."""
    return {
        run.round: run.mb_per_s
        for run in _of(runs, links, payload)
        if isinstance(run, LoadRun) and not run.offered
    }


def bare(runs: Sequence[Run], links: Links, payload: int) -> dict[int, float]:
    """MB/s of the bare streams, by round."""
    return {
        run.round: run.mb_per_s for run in _of(runs, links, payload) if isinstance(run, StreamRun)
    }


def summarise(runs: Sequence[Run], *, link_mb_per_s: float) -> dict[str, Any]:
    """The bar, if its payload was measured; then for all links and payloads what is acknowledged at
    saturation, what a bare stream carries, and the one over the other."""
    summary: dict[str, Any] = {"link_mb_per_s": link_mb_per_s, "paper_mb_per_s": PAPER_MB_PER_S}
    if BAR_PAYLOAD in payloads_of(runs):
        ratios = _ratios(runs, "shaped", BAR_PAYLOAD)
        measured = median(ratios)
        summary[f"shaped, {size(BAR_PAYLOAD)}, over a bare stream"] = {
            "measured": measured,
            "low": min(ratios),
            "high": max(ratios),
            "target": BAR_TARGET,
            "is_reached": measured >= BAR_TARGET,
            "paper": round(PAPER_MB_PER_S / LINK_MB_PER_S, 2),
        }
    for links in LINKS:
        for payload in payloads_of(runs):
            summary[f"{links}, {size(payload)}"] = {
                "saturated_mb_per_s": spread(list(at_saturation(runs, links, payload).values())),
                "bare_stream_mb_per_s": spread(list(bare(runs, links, payload).values())),
                "over_bare_stream": round(median(_ratios(runs, links, payload)), 4),
            }
    return summary


def _of(runs: Sequence[Run], links: Links, payload: int) -> list[Run]:
    return [run for run in runs if (run.links, run.payload) == (links, payload)]


def _ratios(runs: Sequence[Run], links: Links, payload: int) -> list[float]:
    """Saturation over the bare stream of the same round."""
    streams = bare(runs, links, payload)
    saturated = at_saturation(runs, links, payload)
    return [round(saturated[number] / streams[number], 4) for number in sorted(saturated)]


def _point(rate: float, runs: Sequence[LoadRun]) -> Point:
    return Point(
        offered=rate,
        mb_per_s=spread([run.mb_per_s for run in runs]),
        p50_ms=median(run.p50_ms for run in runs),
        p99_ms=median(run.p99_ms for run in runs),
        is_saturated=median(run.payloads_per_s for run in runs) < SATURATED_BELOW * rate,
    )
