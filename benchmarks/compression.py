"""What compression is worth: how much smaller text gets and how long that takes, and what three
replicas take of it where what one sends to another gets 20 MB/s.

Owns the rounds and what is wanted. The text is that of LOGSTORE_EXTRA_INPUT, lines of real logs;
without it, the source of Python's standard library, which packs otherwise: `summary` says which.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarks import compression_load
from benchmarks.compression_load import BATCH_BYTES, WARM_UP_S, batches_of_lines
from benchmarks.load_process import run_load
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.medians import at_least, spread
from benchmarks.saturate import wait_until_equal
from benchmarks.shaped_cluster import ShapedCluster, shaped_cluster
from benchmarks.shaped_network import CLIENT
from logstore.cli.demo.input_text import standard_library
from logstore.errors import InvalidRequest
from logstore.format.codecs import NAMES, NO_COMPRESSION, decompress, make_compressor
from logstore.limits import KIB, MIB

LINK_MB_PER_S = 20.0
TARGET = 3.0  # payloads/s with zstd over those without, of each round
RUN_TIMEOUT_S = 180.0
BATCHES_BYTES = (4 * KIB, BATCH_BYTES, 1 * MIB)
TEXT_BYTES_MAX = 8 * MIB  # of the shipped input
CODEC_SECONDS = 0.5  # of each direction of each row


class CodecRow(msgspec.Struct, frozen=True):
    """A codec alone, on batches of about so many bytes of text. MB are 10**6, without
    compression."""

    compression: str
    batch_bytes: int
    ratio: float
    compress_mb_per_s: float
    decompress_mb_per_s: float


class LoadRow(msgspec.Struct, frozen=True):
    """One load. `stored_ratio`: payload bytes over those that are stored, by the leader's
    counters."""

    round: int
    compression: str
    payloads_per_s: float
    mb_per_s: float
    client_cpu_us_per_payload: float
    stored_ratio: float


def input_files() -> tuple[str, list[Path]]:
    """The text, and what it is."""
    extra = os.environ.get("LOGSTORE_EXTRA_INPUT")
    if extra:
        found = sorted(path for path in Path(extra).rglob("*.log") if path.is_file())
        if not found:
            raise InvalidRequest("LOGSTORE_EXTRA_INPUT: name a folder that has *.log files")
        return "the *.log files of LOGSTORE_EXTRA_INPUT", found
    chosen: list[Path] = []
    size = 0
    for path in standard_library():
        if size < TEXT_BYTES_MAX:
            chosen.append(path)
            size += path.stat().st_size
    return "shipped: the source of Python's standard library", chosen


def measure_codecs(files: Sequence[Path]) -> list[CodecRow]:
    """Ratio and speed of each codec, in one thread."""
    rows = []
    for batch_bytes in BATCHES_BYTES:
        texts = [b"".join(lines) for lines in batches_of_lines(files, batch_bytes)]
        for name in NAMES:
            if name != NO_COMPRESSION:
                rows.append(_measure_codec(name, batch_bytes, texts))
    return rows


def _measure_codec(name: str, batch_bytes: int, texts: Sequence[bytes]) -> CodecRow:
    compressor = make_compressor(name)
    if compressor is None:
        raise InvalidRequest(f"{name} compresses nothing")
    blocks = [compressor.compress(text) for text in texts]
    plain = sum(map(len, texts))

    def compress() -> None:
        for text in texts:
            compressor.compress(text)

    def expand() -> None:
        for block, text in zip(blocks, texts, strict=True):
            decompress(compressor.codec, block, len(text))

    return CodecRow(
        name,
        batch_bytes,
        round(plain / sum(map(len, blocks)), 2),
        round(plain / _seconds_of(compress) / 1e6, 1),
        round(plain / _seconds_of(expand) / 1e6, 1),
    )


def _seconds_of(act: Any) -> float:
    """Of one call, the quickest of as many as fit."""
    quickest, end_s = float("inf"), time.perf_counter() + CODEC_SECONDS
    while time.perf_counter() < end_s or quickest == float("inf"):
        started_s = time.perf_counter()
        act()
        quickest = min(quickest, time.perf_counter() - started_s)
    return quickest


def _measure(site: Site, *, rounds: int, seconds: float, link_mb: float) -> Measured:
    what, files = input_files()
    codecs = measure_codecs(files)
    loads: list[LoadRow] = []
    with shaped_cluster(site.folder, site.say) as cluster:
        cluster.network.shape(int(link_mb * 1e6))
        _load(cluster, 0, NO_COMPRESSION, WARM_UP_S, files)
        for number in range(1, rounds + 1):
            turn = number % len(NAMES)
            for name in (*NAMES[turn:], *NAMES[:turn]):
                loads.append(row := _load(cluster, number, name, seconds, files))
                site.say(
                    f"round {number} of {rounds}: {name}: {row.payloads_per_s:,.0f}/s, "
                    f"{row.mb_per_s:.1f} MB/s of text"
                )
        versions = cluster.network.versions()
    summary = {"input": what, "link_mb_per_s": link_mb, **summarise(codecs, loads)}
    return Measured([*codecs, *loads], summary, versions=versions)


def summarise(codecs: Sequence[CodecRow], loads: Sequence[LoadRow]) -> dict[str, Any]:
    """Of each codec what it does to text, and the loads of each beside those without, of the same
    round."""

    def rates(name: str) -> list[float]:
        return [row.payloads_per_s for row in loads if row.compression == name]

    summary: dict[str, Any] = {}
    for name in NAMES:
        found: dict[str, Any] = {
            f"{row.batch_bytes // KIB} KiB": {
                "ratio": row.ratio,
                "compress_mb_per_s": row.compress_mb_per_s,
                "decompress_mb_per_s": row.decompress_mb_per_s,
            }
            for row in codecs
            if row.compression == name
        }
        summary[name] = {**found, "payloads_per_s": spread(rates(name))}
    over = {
        name: [ours / none for ours, none in zip(rates(name), rates(NO_COMPRESSION), strict=True)]
        for name in NAMES
        if name != NO_COMPRESSION
    }
    summary["lz4 over none"] = spread(over["lz4"])
    summary["zstd over none"] = at_least(TARGET, over["zstd"])
    plain: dict[str, Any] = msgspec.to_builtins(summary)
    return plain


def _load(
    cluster: ShapedCluster, number: int, name: str, seconds: float, files: Sequence[Path]
) -> LoadRow:
    """One load from the client's place, on replicas that all have everything before it."""
    leader = wait_until_equal(cluster.cluster)
    before = _bytes_acknowledged(cluster, leader)
    arguments = [",".join(cluster.cluster.endpoints), name, str(seconds), *map(str, files)]
    command = ["-m", compression_load.__name__, *arguments]
    with cluster.network.entered(CLIENT):
        figures = run_load(name, command, timeout_s=RUN_TIMEOUT_S + seconds)
    after = _bytes_acknowledged(cluster, leader)
    ratio = (after[0] - before[0]) / max(1, after[1] - before[1])
    found = {key: round(value, 3) for key, value in figures.items()}
    return LoadRow(number, name, **found, stored_ratio=round(ratio, 2))


def _bytes_acknowledged(cluster: ShapedCluster, leader: int) -> tuple[int, int]:
    """Payload bytes, without compression and as stored."""
    counters = cluster.cluster.counters(leader)
    return counters["payload_bytes_acknowledged"], counters["stored_bytes_acknowledged"]


COMPRESSION = Measurement(
    name="compression",
    question="What is compression worth, alone and where replicas have 20 MB/s to each other?",
    minutes=4,
    measure=_measure,
    options=(
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option("--seconds", type=click.FloatRange(0.5, 600.0), default=8.0, help="of each load"),
        option("--link-mb", type=click.FloatRange(0.1, 10_000.0), default=LINK_MB_PER_S),
    ),
    quick={"rounds": 1, "seconds": 2.0},
)
