"""`logstore pipeline archive`: the log into a lake, once or continuously."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import msgspec

from logstore.cli.interrupts import Interrupts
from logstore.cli.options import endpoint_option, json_option, timeout_option
from logstore.cli.output import Bar, say, write_json
from logstore.cli.pipeline.lazy_spark import spark_options, spark_session
from logstore.spark.archive import DEFAULT_CURSOR, Archive, ArchiveOptions, check_file_bytes
from logstore.spark.lake import LakeWriter
from logstore.spark.lake_manifest import LakeFile
from logstore.units import parse_duration, parse_size


@click.command()
@click.argument("lake", type=click.Path(file_okay=False, resolve_path=True))
@click.option("--once", is_flag=True, help="end where the log ended when this began")
@click.option(
    "--every",
    default="1min",
    show_default=True,
    metavar="DURATION",
    help="pause between two passes; each pass with news makes a file at least",
)
@click.option(
    "--file-size",
    default="128MiB",
    show_default=True,
    metavar="SIZE",
    help="of the log, before compression, in one file",
)
@click.option(
    "--cursor",
    default=DEFAULT_CURSOR,
    show_default=True,
    metavar="NAME",
    help="the log's cursor for this lake; it holds what the lake does not have yet",
)
@click.option(
    "--replica",
    default="any",
    show_default=True,
    metavar="WHICH",
    help="whom to read: any (followers first), leader, follower or a node id",
)
@click.option(
    "--adopt",
    "adopts",
    is_flag=True,
    help="go on with the lake that this cluster was restored from, once that is proved",
)
@endpoint_option
@timeout_option
@spark_options
@json_option
def archive(
    lake: str,
    once: bool,
    every: str,
    file_size: str,
    cursor: str,
    replica: str,
    adopts: bool,
    endpoints: str,
    timeout_s: float,
    master: str,
    conf: tuple[str, ...],
    json_path: str | None,
) -> None:
    """Copy the log into the folder LAKE, from where it ends; without --once for ever.

    A file counts once the manifest names it, and only then the cursor moves. Exit status 4 if the
    cursor is another lake's.
    """
    every_s = parse_duration(every, key="--every") / 1e9
    file_bytes = check_file_bytes(parse_size(file_size, key="--file-size"))
    with (
        LakeWriter(lake) as writer,
        spark_session("archive", master, conf) as spark,
        Interrupts() as interrupts,
    ):
        options = ArchiveOptions(
            endpoints=endpoints,
            replica=replica,
            cursor=cursor,
            file_bytes=file_bytes,
            timeout_s=timeout_s,
            adopts=adopts,
        )
        work = Archive(spark, writer, options)
        manifest = work.begin()
        first_lsn = manifest.next_lsn
        files = _pass(work, interrupts)
        while not once:
            with interrupts.allowed():
                time.sleep(every_s)
            _pass(work, interrupts)
        last_lsn = files[-1].last_lsn if files else first_lsn - 1
    if json_path is not None:
        document = {"first_lsn": first_lsn, "last_lsn": last_lsn}
        write_json(document | {"files": msgspec.to_builtins(files)}, json_path)
    elif not files:
        say(f"nothing to archive after LSN {last_lsn}")


def _pass(work: Archive, interrupts: Interrupts) -> list[LakeFile]:
    """Archive what there is now; its files."""
    head_lsn = work.head_lsn()
    found: list[LakeFile] = []
    done_bytes = 0
    with Bar("archive", work.pending_bytes(head_lsn)) as bar:
        for files in work.rounds(head_lsn):
            found += files
            done_bytes += sum(file.batch_bytes for file in files)
            bar.set(done_bytes)
            interrupts.look()
    if found:
        say(_words(found))
    return found


def _words(files: Sequence[LakeFile]) -> str:
    stored = sum(file.file_bytes for file in files) / 1e6
    batches = sum(file.batch_bytes for file in files) / 1e6
    return (
        f"LSN {files[0].first_lsn} to {files[-1].last_lsn} archived: {len(files)} files, "
        f"{stored:.1f} MB for {batches:.1f} MB of the log"
    )
