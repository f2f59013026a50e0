"""Every measurement there is, in the order of the list.

Owns their options and how what a module measures becomes a result; what is measured and how, each
module says itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from benchmarks.ack_latency import ACK_LEVELS
from benchmarks.aio_client import AIO
from benchmarks.clients import compare_clients
from benchmarks.cluster_start import START
from benchmarks.compare import compare
from benchmarks.compression import COMPRESSION
from benchmarks.dealer_appends import DEALER
from benchmarks.explain_cost import EXPLAIN_COST
from benchmarks.fig7a import FIG7A
from benchmarks.fig7b import FIG7B
from benchmarks.fig7c import FIG7C
from benchmarks.fig7d import FIG7D
from benchmarks.forgetting import measure_forgetting
from benchmarks.forgetting import summarise as summarise_forgetting
from benchmarks.idle import measure_idle
from benchmarks.latency import LATENCY
from benchmarks.layout_sweep import PLACEMENT
from benchmarks.leader_failover import FAILOVER
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.members import MEMBERS
from benchmarks.peers.side_by_side import PEERS
from benchmarks.readers import READS
from benchmarks.restart import measure_restarts
from benchmarks.restart_in_cluster import draw_returns, measure_returns
from benchmarks.restart_in_cluster import summarise as summarise_returns
from benchmarks.results import Result
from benchmarks.saturate import Settings
from benchmarks.saturate import saturate as saturate_once
from benchmarks.session_rebuild import measure_sessions
from benchmarks.soak import SoakSettings, soak
from benchmarks.soak_plots import draw_soak
from logstore.errors import InvalidRequest
from logstore.limits import BATCH_MAX_BYTES, BATCH_MAX_PAYLOADS, KIB
from logstore.units import parse_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Header and padding of a batch, and four bytes an offset.
BATCH_OVERHEAD_BYTES = KIB
OFFSET_BYTES = 4
_SECONDS = click.FloatRange(0.5, 3_600.0)
_ROUNDS = click.IntRange(1, 99)


def _saturate(
    site: Site, *, payload: int, batch: int, window_mb: float, seconds: float, rate: float
) -> Measured:
    if batch * (payload + OFFSET_BYTES) + BATCH_OVERHEAD_BYTES > BATCH_MAX_BYTES:
        raise InvalidRequest(
            f"{batch} payloads of {payload} bytes are above the {BATCH_MAX_BYTES} bytes of a "
            "batch: lower --batch or --payload"
        )
    row, samples = saturate_once(Settings(payload, batch, window_mb, seconds, rate), site.folder)
    summary = {name: getattr(row, name) for name in ("payloads_per_s", "mb_per_s", "p50_ms")}
    return Measured([row], summary, samples)


def _idle(site: Site, *, seconds: float) -> Measured:
    row = measure_idle(seconds, site.folder)
    summary = {"core_share": row.core_share, "pss_total_mb": row.pss_total_mb}
    return Measured([row], summary, [row])


def _sessions(_: Site, *, sessions: int) -> Measured:
    rows = measure_sessions(sessions)
    return Measured(rows, {row.what: {"ms": row.ms, "longest_ms": row.longest_ms} for row in rows})


def _compare(site: Site, *, pairs: int, seconds: float) -> Measured:
    found = compare(site.folder, pairs=pairs, seconds=seconds, say=site.say)
    return Measured([*found.pairs, found.idle], found.summary, found.samples)


def _clients(site: Site, *, other: Path, pairs: int) -> Measured:
    found = compare_clients(other, site.folder, pairs=pairs, say=site.say)
    return Measured([], found.summary, found.runs)


def _spark(site: Site, *, size_mb: int, rounds: int) -> Measured:
    from benchmarks.spark import measure_spark  # pyspark is in an environment of its own

    found = measure_spark(site.folder, size_mb=size_mb, rounds=rounds, say=site.say)
    return Measured([*found.rounds, *found.loads], found.summary, found.samples, found.versions)


def _soak(
    site: Site,
    *,
    minutes: float,
    rate: float,
    retention: str,
    segment: str,
    kill_every: float,
    lake: bool,
) -> Measured:
    settings = SoakSettings(
        seconds=minutes * 60,
        rate=rate,
        retention_bytes=parse_size(retention, key="--retention"),
        segment_bytes=parse_size(segment, key="--segment"),
        kill_every_s=kill_every,
        has_lake=lake,
    )
    found, samples = soak(settings, site.folder, say=site.say)
    return Measured([], msgspec.to_builtins(found), samples)


def _forgetting(site: Site, *, rounds: int, seconds: float) -> Measured:
    turns = measure_forgetting(site.folder, rounds=rounds, seconds=seconds, say=site.say)
    return Measured(turns, summarise_forgetting(turns), turns)


def _restart(
    site: Site, *, entries: int, segments: int, small_mib: int, large_mib: int, rounds: int
) -> Measured:
    starts, summary = measure_restarts(
        site.folder, entries=entries, segments=segments, rounds=rounds, say=site.say
    )
    sizes_mib = (small_mib, large_mib)
    returns = measure_returns(site.folder, sizes_mib, rounds=rounds, say=site.say)
    rows = [*starts, *returns]
    return Measured(rows, {**summary, **summarise_returns(returns)}, rows)


def _draw_restart(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    return draw_returns(result.summary)


def _rounds(default: int, name: str = "--rounds") -> click.Option:
    return option(name, type=_ROUNDS, default=default)


def _seconds(default: float) -> click.Option:
    return option("--seconds", type=_SECONDS, default=default)


MEASUREMENTS: tuple[Measurement, ...] = (
    Measurement(
        "saturate",
        "How much one producer appends as fast as its window lets it, or at a rate whatever comes "
        "back.",
        0.2,
        _saturate,
        [
            option("--payload", type=click.IntRange(0, BATCH_MAX_BYTES), default=1_024),
            option("--batch", type=click.IntRange(1, BATCH_MAX_PAYLOADS), default=1),
            option("--window-mb", type=click.FloatRange(0.0, 1e3, min_open=True), default=2.0),
            _seconds(5.0),
            option("--rate", type=click.FloatRange(0.0), default=0.0, help="payloads/s; 0: no"),
        ],
        {"seconds": 1.0},
    ),
    Measurement(
        "idle",
        "How much of a core, and of the memory, a cluster takes that nobody uses.",
        0.5,
        _idle,
        [_seconds(20.0)],
        {"seconds": 5.0},
    ),
    Measurement(
        "sessions",
        "How long writing down and rebuilding the table of so many sessions takes.",
        0.1,
        _sessions,
        [option("--sessions", type=click.IntRange(1), default=10_000)],
        {"sessions": 1_000},
    ),
    Measurement(
        "compare",
        "How fast is it beside a bare pipeline without consensus? LOGSTORE_FLOOR names the "
        "script of that.",
        5,
        _compare,
        [_rounds(5, "--pairs"), _seconds(5.0)],
        {"pairs": 1, "seconds": 1.0},
    ),
    Measurement(
        "clients",
        "Is this client quicker than another checkout's, on one cluster of this checkout?",
        15,
        _clients,
        [
            option(
                "--against",
                "other",
                type=click.Path(exists=True, file_okay=False, path_type=Path),
                required=True,
                metavar="CHECKOUT",
            ),
            _rounds(15, "--pairs"),
        ],
        {"pairs": 1},
    ),
    Measurement(
        "spark",
        "How fast are Spark's source, archive and sink (needs the extra `spark`)?",
        6,
        _spark,
        [option("--mb", "size_mb", type=click.IntRange(10, 100_000), default=400), _rounds(5)],
        {"size_mb": 50, "rounds": 1},
    ),
    Measurement(
        "soak",
        "Does a log that forgets go on for long, flat, with nothing lost, under load, consumers, "
        "an archive and kills?",
        50,
        _soak,
        [
            option("--minutes", type=click.FloatRange(0.5, 10_000.0), default=45.0),
            option("--rate", type=click.FloatRange(1.0), default=5_000.0),
            option("--retention", default="2GiB", metavar="SIZE"),
            option("--segment", default="256MiB", metavar="SIZE"),
            option("--kill-every", type=click.FloatRange(1.0), default=60.0),
            option("--lake/--no-lake", default=True, help="an archive beside it (needs Spark)"),
        ],
        {
            "minutes": 1.0,
            "retention": "64MiB",
            "segment": "16MiB",
            "kill_every": 15.0,
            "lake": False,
        },
        draw_soak,
    ),
    Measurement(
        "forgetting",
        "What do removing segments and bringing back a follower cost producers, and how quick is "
        "that follower?",
        15,
        _forgetting,
        [_rounds(5), _seconds(5.0)],
        {"rounds": 1, "seconds": 2.0},
    ),
    Measurement(
        "restart",
        "How much longer does a replica take to start with a long log than with none, and how long "
        "is a killed follower away?",
        15,
        _restart,
        [
            option("--entries", type=click.IntRange(1_000), default=5_000_000),
            option("--segments", type=click.IntRange(2), default=200),
            option("--small-mib", type=click.IntRange(1), default=102),
            option("--large-mib", type=click.IntRange(1), default=2_048),
            _rounds(5),
        ],
        {"entries": 20_000, "segments": 4, "small_mib": 8, "large_mib": 64, "rounds": 1},
        _draw_restart,
    ),
    FIG7A,
    FIG7B,
    FIG7C,
    FIG7D,
    PLACEMENT,
    PEERS,
    LATENCY,
    FAILOVER,
    START,
    READS,
    AIO,
    ACK_LEVELS,
    MEMBERS,
    COMPRESSION,
    DEALER,
    EXPLAIN_COST,
)
