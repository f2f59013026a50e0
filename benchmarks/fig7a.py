"""Figure 7a of the log sharing paper: what payloads cost on disk, over a naive design that writes
each of them twice.

Owns the runs of both kinds of replicas, in turn, and what is counted in each: bytes that the kernel
accounts to the writers, bytes that reach the block device, and blocks that the folders hold. What
the naive replicas write, `naive` says. So little is offered that each batch is flushed by itself on
both sides: the kernel counts whole pages, and larger groups would share them.

Bytes to disk count from before the load until every replica shows the last payload, warm-up
included. Space is what the folders hold after an orderly stop; segments that are allocated and not
full yet are a part of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import click
import msgspec
from matplotlib.figure import Figure

from benchmarks.charts import Axis, line_chart, line_of_runs, size
from benchmarks.measurement import (
    Measured,
    Measurement,
    Site,
    numbers_option,
    option,
    parse_numbers,
)
from benchmarks.medians import at_most, spread
from benchmarks.naive import copied_bytes, naive_replicas
from benchmarks.results import Result
from benchmarks.saturate import (
    REPLICAS,
    Row,
    Settings,
    measure_load,
    temporary_cluster,
    try_again,
)
from benchmarks.usage import allocated_bytes, device_bytes_written
from logstore.cli.embedded import EmbeddedCluster, make_config
from logstore.config import Config
from logstore.errors import LogStoreError, Unreachable
from logstore.limits import BATCH_MAX_BYTES, KIB, MIB
from logstore.settings import StorageSettings

OURS, NAIVE = "ours", "naive"
PAYLOADS = (128, 512, 1_024, 4_096, 16_384)
BATCHES_KIB = (64, 256)
WINDOW_MB = 16.0
# Several segments in each run, which ends in the middle of one, since space is allocated by
# segment. Of the shape that ships: a record of 128 bytes for each 2 KiB of data.
SEGMENT_BYTES = 32 * MIB
SEGMENT_RECORDS = SEGMENT_BYTES // (2 * KIB)
PAPER = 0.5  # "about one half"
TARGET = 0.51
# The others say the same by construction: a second copy of all bytes, a second file as large.
TARGET_COUNT = "written"
TARGET_PAYLOAD_MIN = 512
TARGET_BATCH_MIN = 64 * KIB
COUNTED = {
    "written": "written by the writers",
    "given": "given to write calls",
    "device": "to the device, by anyone",
    "space": "space of the folders",
}


class Case(msgspec.Struct, frozen=True):
    """Payloads of one size in batches of one size, in bytes."""

    payload: int
    batch_bytes: int

    @property
    def name(self) -> str:
        return f"{size(self.payload)} in {size(self.batch_bytes)}"

    @property
    def has_target(self) -> bool:
        return self.payload >= TARGET_PAYLOAD_MIN and self.batch_bytes >= TARGET_BATCH_MIN

    def settings(self, mb_per_s: float, seconds: float) -> Settings:
        """The load that offers them."""
        batch = self.batch_bytes // self.payload
        rate = mb_per_s * 1e6 / self.payload
        return Settings(self.payload, batch, WINDOW_MB, seconds, rate, may_pack=False)


class NodeBytes(msgspec.Struct, frozen=True):
    """What one replica wrote in one run.

    Attributes:
      written: of `write_bytes` in /proc/PID/io of its writer: pages that it made dirty, so whole
        ones. What the file system adds, such as its journal, is not in it.
      given: bytes that its writer gave to write calls.
      space: allocated blocks of its folder, whether they are written or not.
      copied: size of the second copies.
    """

    side: str
    round: int
    case: Case
    node: int
    written: int
    given: int
    space: int
    copied: int


class Run(msgspec.Struct, frozen=True):
    """One run of one side. Bytes are of all replicas together.

    Attributes:
      attempts: 1, unless leadership changed while it was measured.
      payload_bytes: acknowledged in the whole run; every replica stores them.
      flush_bytes: payload bytes of one flush group of the leader, on average.
      device: bytes written to the block device below the folder, whoever wrote them: the file
        system's journal and other processes count. None: the device is not known.
      load: what was offered and acknowledged in the measured seconds.
    """

    side: str
    round: int
    case: Case
    attempts: int
    payload_bytes: int
    flush_bytes: int
    written: int
    given: int
    device: int | None
    space: int
    load: Row

    def per_payload_byte(self, what: str) -> float | None:
        """Of "written", "given", "device" or "space", per replica."""
        found: int | None = getattr(self, what)
        return None if found is None else found / (self.payload_bytes * REPLICAS)


def measure_fig7a(
    site: Site,
    *,
    payloads: str,
    batches_kib: str,
    mb_per_s: float,
    seconds: float,
    rounds: int,
) -> Measured:
    """Every case on both sides, `rounds` times, the sides in turn.

    Raises:
      InvalidRequest: a list is none, or a batch cannot have this size.
      LogStoreError: a run failed, or a side had not the disk that it was to have.
    """
    cases = _cases(payloads, batches_kib)
    runs: list[Run] = []
    samples: list[NodeBytes] = []
    for number in range(1, rounds + 1):
        sides = (OURS, NAIVE) if number % 2 else (NAIVE, OURS)
        for case in cases:
            settings = case.settings(mb_per_s, seconds)
            for side in sides:
                once = partial(_run, side, number, case, settings, site.folder)
                (run, nodes), attempts = try_again(once, site.say)
                runs.append(msgspec.structs.replace(run, attempts=attempts))
                samples += nodes
            site.say(f"round {number} of {rounds}, {case.name}: {_ratios(runs[-2:])}")
    return Measured(runs, summarise(runs), samples)


def _cases(payloads: str, batches_kib: str) -> list[Case]:
    batches = parse_numbers(batches_kib, key="--batches-kib", most=BATCH_MAX_BYTES // 2 // KIB)
    sizes = parse_numbers(payloads, key="--payloads", most=min(batches) * KIB)
    return [Case(each, kib * KIB) for kib in batches for each in sizes]


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """For each case and each thing that is counted: ours over naive, with its target if it has one,
    and the medians of both sides per payload byte."""
    summary: dict[str, Any] = {"paper": PAPER}
    for case in dict.fromkeys(run.case for run in runs):
        mine = [run for run in runs if run.case == case]
        for what in COUNTED:
            name = f"{case.name}, {what}"
            if not (ratios := _ratios_of(mine, what)):
                summary[name] = "it is not known which device holds the folder"
                continue
            has_target = what == TARGET_COUNT and case.has_target
            found = at_most(TARGET, ratios) if has_target else spread(ratios)
            summary[name] = {
                **msgspec.to_builtins(found),
                "ours_per_payload_byte": spread(_per_payload_byte(mine, OURS, what)).median,
                "naive_per_payload_byte": spread(_per_payload_byte(mine, NAIVE, what)).median,
            }
    return summary


def _per_payload_byte(runs: Sequence[Run], side: str, what: str) -> list[float]:
    """Of the runs of a side, if it is known; per replica."""
    found = (run.per_payload_byte(what) for run in runs if run.side == side)
    return [each for each in found if each is not None]


def _ratios_of(runs: Sequence[Run], what: str) -> list[float]:
    """Ours over naive by round, where it is known."""
    return [ratio for each in _pairs(runs) if (ratio := each[what]) is not None]


def _pairs(runs: Sequence[Run]) -> Iterator[dict[str, float | None]]:
    """Ours over naive, round by round."""
    for _, both in groupby(sorted(runs, key=lambda run: run.round), lambda run: run.round):
        yield _ratios(list(both))


def _ratios(both: Sequence[Run]) -> dict[str, float | None]:
    by_side = {run.side: run for run in both}
    ratios: dict[str, float | None] = {}
    for what in COUNTED:
        ours, naive = (by_side[side].per_payload_byte(what) for side in (OURS, NAIVE))
        ratios[what] = round(ours / naive, 4) if ours is not None and naive else None
    return ratios


# --- one run ---


def _run(
    side: str, number: int, case: Case, settings: Settings, folder: Path
) -> tuple[Run, list[NodeBytes]]:
    with temporary_cluster(folder, _config()) as cluster:
        with naive_replicas(cluster.folder) if side == NAIVE else nullcontext():
            cluster.start_all()
        leader = cluster.wait_for_leader()
        before, device_before = _written(cluster), device_bytes_written(cluster.folder)
        counted = cluster.counters(leader)
        load, _ = measure_load(settings, cluster, leader, cluster.folder / "samples")
        last_lsn = cluster.visible_lsn(leader)
        for node in cluster.nodes:
            cluster.wait_until_visible(node, last_lsn)
        after, device_after = _written(cluster), device_bytes_written(cluster.folder)
        counters = {name: value - counted[name] for name, value in cluster.counters(leader).items()}
        if not cluster.stop_all():
            raise Unreachable("a replica did not stop by itself")
        nodes = []
        for node in cluster.nodes:
            written = after[node].written - before[node].written
            given = after[node].given - before[node].given
            own = cluster.node_folder(node)
            space, copied = allocated_bytes(own), copied_bytes(own)
            nodes.append(NodeBytes(side, number, case, node, written, given, space, copied))
    if any((each.copied > 0) != (side == NAIVE) for each in nodes):
        raise LogStoreError(f"the replicas of a run that was to be {side} have another disk")
    payload_bytes = counters["payload_bytes_acknowledged"]
    run = Run(
        side=side,
        round=number,
        case=case,
        attempts=1,
        payload_bytes=payload_bytes,
        flush_bytes=2 * payload_bytes // max(1, counters["flushes"]),  # two flushes a group
        written=sum(each.written for each in nodes),
        given=sum(each.given for each in nodes),
        device=None
        if device_before is None or device_after is None
        else device_after - device_before,
        space=sum(each.space for each in nodes),
        load=load,
    )
    return run, nodes


def _config() -> Config:
    storage = StorageSettings(segment=f"{SEGMENT_BYTES // MIB}MiB", segment_records=SEGMENT_RECORDS)
    config = make_config(REPLICAS, Random(os.urandom(8)))
    return msgspec.structs.replace(config, storage=storage)


class _WriterBytes(NamedTuple):
    written: int
    given: int


def _written(cluster: EmbeddedCluster) -> dict[int, _WriterBytes]:
    """By node: what its writer wrote so far."""
    processes = cluster.all_processes()
    found = {}
    for node in cluster.nodes:
        counts = processes[f"{node}.writer"].io_counters()
        found[node] = _WriterBytes(counts.write_bytes, counts.write_chars)
    return found


# --- plots ---


def draw_fig7a(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """For each size of batches: ours over naive, and what both write, by the size of payloads."""
    figures: dict[str, Figure] = {}
    runs = msgspec.convert(result.rows, list[Run])
    for batch_bytes in dict.fromkeys(run.case.batch_bytes for run in runs):
        mine = _by_payload([run for run in runs if run.case.batch_bytes == batch_bytes])
        stem = f"fig7a-{batch_bytes // KIB}-kib"
        title = f"batches of {size(batch_bytes)}"
        x = Axis("payload size", ticks=list(mine), is_log=True)
        ratios = {
            name: {each: _ratios_of(runs_of, what) for each, runs_of in mine.items()}
            for what, name in COUNTED.items()
        }
        written = {
            side: {
                each: _per_payload_byte(runs_of, side, "written") for each, runs_of in mine.items()
            }
            for side in (OURS, NAIVE)
        }
        over_naive = [
            line_of_runs(name, each) for name, each in ratios.items() if all(each.values())
        ]
        figures[f"{stem}-over-naive"] = line_chart(
            f"Disk bytes over those of a naive design, {title}",
            x,
            Axis(
                "ours / naive",
                from_zero=False,
                most=max(0.54, *(max(line.high) for line in over_naive)),
            ),
            over_naive,
            references={f"paper: about {PAPER}": PAPER, f"at most {TARGET}": TARGET},
        )
        figures[f"{stem}-per-payload-byte"] = line_chart(
            f"Bytes that writers write, {title}",
            x,
            Axis("bytes written / payload bytes", most=2.5),
            [line_of_runs(side, each) for side, each in written.items()],
            references={"payloads once": 1.0, "twice": 2.0},
        )
    return figures


def _by_payload(runs: Sequence[Run]) -> dict[int, list[Run]]:
    sizes = sorted({run.case.payload for run in runs})
    return {each: [run for run in runs if run.case.payload == each] for each in sizes}


FIG7A = Measurement(
    "fig7a",
    "How many bytes and how much space payloads take on disk, over a naive design that writes "
    "them twice (figure 7a of the log sharing paper).",
    18,
    measure_fig7a,
    [
        numbers_option("--payloads", PAYLOADS, "sizes of payloads in bytes"),
        numbers_option("--batches-kib", BATCHES_KIB, "sizes of batches in KiB"),
        option(
            "--mb-per-s",
            type=click.FloatRange(0.1),
            default=12.0,
            help="payload bytes offered, in 10**6 a second",
        ),
        option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=7.0),
        option("--rounds", type=click.IntRange(1, 99), default=3),
    ],
    {"payloads": "1024,16384", "batches_kib": "64", "seconds": 1.0, "rounds": 1},
    draw_fig7a,
)
