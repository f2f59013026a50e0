"""`python -m benchmarks NAME`: arguments in, a result file out. `figures` makes a table and plots
of what they leave."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
import msgspec

from actors.simulation.code_name import code_name
from benchmarks.clients import compare_clients
from benchmarks.compare import compare as compare_all
from benchmarks.environment import Document, describe_environment, require_real_file_system
from benchmarks.figures import gather_runs, percents, table_of
from benchmarks.forgetting import measure_forgetting, summarise
from benchmarks.idle import measure_idle
from benchmarks.restart import measure_restarts
from benchmarks.results import Result, write_result
from benchmarks.saturate import Settings
from benchmarks.saturate import saturate as saturate_once
from benchmarks.session_rebuild import measure_sessions
from benchmarks.soak import SoakSettings, soak
from logstore.cli.output import write_json
from logstore.errors import InvalidRequest, LogStoreError
from logstore.limits import BATCH_MAX_BYTES, BATCH_MAX_PAYLOADS, KIB
from logstore.units import parse_size

EXIT_FAILED = 1
EXIT_USAGE = 2
# Header and padding of a batch, and four bytes an offset.
BATCH_OVERHEAD_BYTES = KIB
OFFSET_BYTES = 4
TABLE = "figures.md"
NUMBERS = "figures.json"

_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=lambda: Path(tempfile.gettempdir()),
    help="where the data lies while it runs, on a real disk (default: the system's temporary one)",
)
_json = click.option("--json", "json_path", metavar="FILE", required=True, help="- is stdout")


@click.group()
def benchmarks() -> None:
    """Measurements of a cluster of three replicas on this machine, both flushes on."""


@benchmarks.command("saturate")
@click.option("--payload", type=click.IntRange(0, BATCH_MAX_BYTES), required=True, help="bytes")
@click.option("--batch", type=click.IntRange(1, BATCH_MAX_PAYLOADS), required=True)
@click.option("--window-mb", type=click.FloatRange(0.0, 1_000.0, min_open=True), required=True)
@click.option("--seconds", type=click.FloatRange(0.5, 3_600.0), required=True)
@click.option("--rate", type=click.FloatRange(0.0), default=0.0, help="payloads/s, open loop")
@_folder
@_json
def saturate(
    payload: int,
    batch: int,
    window_mb: float,
    seconds: float,
    rate: float,
    folder: Path,
    json_path: str,
) -> None:
    """One producer as fast as its window lets it, or at a rate."""
    require_real_file_system(folder)
    if batch * (payload + OFFSET_BYTES) + BATCH_OVERHEAD_BYTES > BATCH_MAX_BYTES:
        raise InvalidRequest(
            f"{batch} payloads of {payload} bytes are above the {BATCH_MAX_BYTES} bytes of a "
            "batch: lower --batch or --payload"
        )
    settings = Settings(payload, batch, window_mb, seconds, rate)
    row, samples = saturate_once(settings, folder)
    summary = {name: getattr(row, name) for name in ("payloads_per_s", "mb_per_s", "p50_ms")}
    result = Result("saturate", describe_environment(folder), [row], summary)
    write_result(json_path, result, samples)


@benchmarks.command("idle")
@click.option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=20.0, show_default=True)
@_folder
@_json
def idle(seconds: float, folder: Path, json_path: str) -> None:
    """Processor time of a cluster that nobody uses."""
    require_real_file_system(folder)
    row = measure_idle(seconds, folder)
    result = Result("idle", describe_environment(folder), [row], {"core_share": row.core_share})
    write_result(json_path, result, [row])


@benchmarks.command("sessions")
@click.option("--sessions", type=click.IntRange(1), default=10_000, show_default=True)
def sessions(sessions: int) -> None:
    """Writing down and rebuilding the table of so many sessions, in memory."""
    measure_sessions(sessions)


@benchmarks.command("compare")
@click.option("--pairs", type=click.IntRange(1, 99), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.5, 600.0), default=5.0, show_default=True)
@_folder
@click.option("--json", "json_path", default="benchmarks/results/compare.json", show_default=True)
def compare(pairs: int, seconds: float, folder: Path, json_path: str) -> None:
    """Product and floor in turn, medians of the pairs. LOGSTORE_FLOOR names the floor's script."""
    require_real_file_system(folder)
    found = compare_all(folder, pairs=pairs, seconds=seconds, say=_say)
    rows = [*found.pairs, found.idle]
    result = Result("compare", describe_environment(folder), rows, found.summary)
    write_result(json_path, result, found.samples)
    _say(msgspec.json.format(msgspec.json.encode(found.summary), indent=2).decode())


@benchmarks.command("clients")
@click.option(
    "--against",
    "other",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="another checkout, whose client is compared with this one's",
)
@click.option("--pairs", type=click.IntRange(1, 99), default=15, show_default=True)
@_folder
@click.option("--json", "json_path", default="benchmarks/results/clients.json", show_default=True)
def clients(other: Path, pairs: int, folder: Path, json_path: str) -> None:
    """This client and another checkout's in turn, on one cluster of this checkout."""
    require_real_file_system(folder)
    found = compare_clients(other, folder, pairs=pairs, say=_say)
    environment: Document = {**describe_environment(folder), "commit": code_name()}
    write_result(json_path, Result("clients", environment, [], found.summary), found.runs)
    _say(msgspec.json.format(msgspec.json.encode(found.summary), indent=2).decode())


@benchmarks.command("spark")
@click.option("--mb", "size_mb", type=click.IntRange(10, 100_000), default=400, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 99), default=5, show_default=True)
@_folder
@click.option("--json", "json_path", default="benchmarks/results/spark.json", show_default=True)
def spark(size_mb: int, rounds: int, folder: Path, json_path: str) -> None:
    """Source, archive and sink of Spark (needs the extra `spark`); medians of the rounds."""
    require_real_file_system(folder)
    from benchmarks.spark import measure_spark, table

    found = measure_spark(folder, size_mb=size_mb, rounds=rounds, say=_say)
    environment: Document = {
        **describe_environment(folder),
        **found.versions,
        "commit": code_name(),
        "command": f"python -m benchmarks spark --mb {size_mb} --rounds {rounds}",
    }
    rows = [*found.rounds, *found.loads]
    write_result(json_path, Result("spark", environment, rows, found.summary), found.samples)
    click.echo(table(found.summary))


@benchmarks.command("soak")
@click.option("--minutes", type=click.FloatRange(0.5, 10_000.0), default=45.0, show_default=True)
@click.option("--rate", type=click.FloatRange(1.0), default=5_000.0, show_default=True)
@click.option("--retention", default="2GiB", show_default=True, metavar="SIZE")
@click.option("--segment", default="256MiB", show_default=True, metavar="SIZE")
@click.option("--kill-every", type=click.FloatRange(1.0), default=60.0, show_default=True)
@click.option("--lake/--no-lake", default=True, help="an archive beside it (needs Spark)")
@_folder
@click.option("--json", "json_path", default="benchmarks/results/soak.json", show_default=True)
def soak_command(
    minutes: float,
    rate: float,
    retention: str,
    segment: str,
    kill_every: float,
    lake: bool,
    folder: Path,
    json_path: str,
) -> None:
    """Load, consumers, an archive and kills on a log that forgets; samples and plots beside."""
    require_real_file_system(folder)
    settings = SoakSettings(
        seconds=minutes * 60,
        rate=rate,
        retention_bytes=parse_size(retention, key="--retention"),
        segment_bytes=parse_size(segment, key="--segment"),
        kill_every_s=kill_every,
        has_lake=lake,
    )
    found, samples = soak(settings, folder, say=_say)
    environment: Document = {**describe_environment(folder), "commit": code_name()}
    summary = msgspec.to_builtins(found)
    write_result(json_path, Result("soak", environment, [], summary), samples)
    if json_path != "-":
        from benchmarks.plots import write_soak_plots

        write_soak_plots(samples, Path(json_path).parent)
    _say(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())


@benchmarks.command("forgetting")
@click.option("--rounds", type=click.IntRange(1, 99), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.5, 600.0), default=5.0, show_default=True)
@_folder
@click.option(
    "--json", "json_path", default="benchmarks/results/forgetting.json", show_default=True
)
def forgetting(rounds: int, seconds: float, folder: Path, json_path: str) -> None:
    """What removing segments and bringing back a follower cost producers."""
    require_real_file_system(folder)
    turns = measure_forgetting(folder, rounds=rounds, seconds=seconds, say=_say)
    environment: Document = {**describe_environment(folder), "commit": code_name()}
    summary = summarise(turns)
    write_result(json_path, Result("forgetting", environment, list(turns), summary), turns)
    _say(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())


@benchmarks.command("restart")
@click.option("--entries", type=click.IntRange(1_000), default=5_000_000, show_default=True)
@click.option("--segments", type=click.IntRange(2), default=200, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 99), default=5, show_default=True)
@_folder
@click.option("--json", "json_path", default="benchmarks/results/restart.json", show_default=True)
def restart(entries: int, segments: int, rounds: int, folder: Path, json_path: str) -> None:
    """How much longer a replica takes to start with a long log than with none."""
    require_real_file_system(folder)
    starts, summary = measure_restarts(
        folder, entries=entries, segments=segments, rounds=rounds, say=_say
    )
    environment: Document = {**describe_environment(folder), "commit": code_name()}
    write_result(json_path, Result("restart", environment, list(starts), summary), starts)
    _say(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())


@benchmarks.command("figures")
@click.argument(
    "samples",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    nargs=-1,
    required=True,
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help=f"where {TABLE}, {NUMBERS} and the plots go; those of an earlier call are written anew",
)
def figures(samples: tuple[Path, ...], output: Path) -> None:
    """Make a table and plots of SAMPLES, the .jsonl files that measurements leave."""
    from benchmarks.plots import write_plots

    runs = gather_runs(samples)
    table = table_of(runs)
    output.mkdir(parents=True, exist_ok=True)
    (output / TABLE).write_text(table, encoding="utf-8")
    document = {"percents": percents(), "runs": msgspec.to_builtins(runs)}
    write_json(document, str(output / NUMBERS))
    paths = write_plots(runs, str(output))
    click.echo(table, nl=False)
    _say(f"{output} has {TABLE}, {NUMBERS} and {len(paths)} plots")


def _say(text: str) -> None:
    click.echo(text, err=True)


def main() -> None:
    try:
        benchmarks(prog_name="python -m benchmarks")
    except InvalidRequest as error:
        _say(str(error))
        sys.exit(EXIT_USAGE)
    except LogStoreError as error:
        _say(str(error))
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
