"""`logstore salvage`: what one replica's folder still holds, into a fresh cluster (SAFETY L8)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import json_option, timeout_option
from logstore.cli.output import Bar, say, write_json
from logstore.cli.salvage_target import Imported, SalvageTarget
from logstore.cli.stopped_folder import stopped
from logstore.client.client import connect
from logstore.client.digest import BatchDigest
from logstore.errors import ImportRefused, LogStoreError
from logstore.storage.disk import RealDisk
from logstore.storage.folder_log import FolderLog, read_folder_log
from logstore.storage.whole_entries import WholeBatch, WholeEntries


@click.command()
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    "--to",
    "endpoints",
    metavar="HOST:PORT[,…]",
    help="control ports of the fresh cluster; it is formed if it waits for `logstore init`",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="only say what DIR holds")
@click.option(
    "--certain-only",
    is_flag=True,
    help="leave out what DIR does not know to be committed",
)
@timeout_option
@json_option
def salvage(
    folder: Path,
    endpoints: str | None,
    is_dry_run: bool,
    certain_only: bool,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Import what is whole in DIR, the data folder of a stopped replica, into a fresh cluster, at
    the same LSNs. For a cluster that has lost a majority of its disks: while a majority is left,
    start that instead, for it has all that was acknowledged and this folder may not.

    Entries are taken in order, up to the first one that is damaged or missing. DIR is not changed.
    It says which LSNs were committed for certain, and which perhaps: those may never have been
    acknowledged. If it is broken off, run it again: what is there already is compared.

    Exit status 4 if the cluster is not fresh, or a replica runs in DIR; 5 if it ended at damage, or
    if what was before the first LSN is not known.
    """
    if is_dry_run == (endpoints is not None):
        raise click.UsageError("name the fresh cluster with --to, or give --dry-run: one of them")
    with stopped(folder):
        log = read_folder_log(RealDisk(), str(folder.resolve()))
        walk = WholeEntries(RealDisk(), log, certain_only=certain_only)
        digest = BatchDigest()
        imported = None
        with Bar("salvage", _size_bytes(log)) as bar:
            batches = _counted(walk.batches(), digest, bar)
            if endpoints is None:
                for _ in batches:
                    pass
            else:
                with connect(endpoints, timeout=timeout_s) as client, _going_on():
                    imported = SalvageTarget(client, endpoints, log).fill(batches)
    if json_path is not None:
        write_json(_document(log, walk, digest, imported), json_path)
    else:
        _say(log, walk, digest, imported)
    is_damaged = walk.not_taken is not None and walk.not_taken.is_damage
    if is_damaged or not log.is_start_known:
        sys.exit(ExitStatus.DAMAGED)


def _size_bytes(log: FolderLog) -> int | None:
    if log.newest is None or not log.is_end_known or log.base_bytes is None:
        return None
    return log.newest.cumulative_bytes - log.base_bytes


def _counted(batches: Iterator[WholeBatch], digest: BatchDigest, bar: Bar) -> Iterator[WholeBatch]:
    for batch in batches:
        digest.add(batch.first_lsn, batch.count, batch.data)
        bar.set(digest.size_bytes)
        yield batch


@contextmanager
def _going_on() -> Iterator[None]:
    """Say what is to be done after an end half way that another run can mend."""
    try:
        yield
    except KeyboardInterrupt:
        _say_go_on()
        raise
    except ImportRefused:
        raise
    except LogStoreError:
        _say_go_on()
        raise


def _say_go_on() -> None:
    say(
        "what is imported stays: once that is mended, run the same command again: it compares what "
        "is there, and goes on"
    )


# --- what is said ---


def _ranges(log: FolderLog, walk: WholeEntries) -> list[dict[str, int] | None]:
    """The LSNs taken that are committed for certain, and those that perhaps are."""
    certain_lsn = walk.certain_lsn
    return [_range(log.first_lsn, certain_lsn), _range(certain_lsn + 1, walk.last_lsn)]


def _range(first_lsn: int, last_lsn: int) -> dict[str, int] | None:
    if last_lsn < first_lsn:
        return None
    payloads = last_lsn - first_lsn + 1
    return {"first_lsn": first_lsn, "last_lsn": last_lsn, "payloads": payloads}


def _document(
    log: FolderLog, walk: WholeEntries, digest: BatchDigest, imported: Imported | None
) -> dict[str, Any]:
    certain, perhaps = _ranges(log, walk)
    not_taken = walk.not_taken
    rest = None
    if not_taken is not None:
        rest = {**msgspec.to_builtins(not_taken), "payloads": not_taken.payloads}
    return {
        "folder": log.folder,
        "node": log.node or None,
        "cluster_id": log.cluster_id.hex(),
        "first_lsn": log.first_lsn,
        "last_lsn": walk.last_lsn,
        "is_start_known": log.is_start_known,
        "certain": certain,
        "perhaps": perhaps,
        "not_taken": rest,
        "has_torn_tail": walk.has_torn_tail,
        "last_index": walk.last.header.index,
        "last_term": walk.last.header.term,
        "batches": digest.batches,
        "payloads": digest.payloads,
        "size_bytes": digest.size_bytes,
        "digest": digest.hexdigest(),
        "faults": log.faults,
        "imported": msgspec.to_builtins(imported),
    }


def _say(
    log: FolderLog, walk: WholeEntries, digest: BatchDigest, imported: Imported | None
) -> None:
    for fault in log.faults:
        say(f"damaged: {fault}")
    certain, perhaps = _ranges(log, walk)
    if certain:
        say(f"committed for certain: {_words(certain)}")
    if perhaps:
        say(
            f"committed perhaps: {_words(perhaps)}: this folder does not know whether it was "
            "acknowledged"
        )
    if not certain and not perhaps:
        say(f"no payload is whole in it; LSN {log.first_lsn} comes next")
    _say_end(walk)
    last = walk.last.header
    say(
        f"the last entry taken is {last.index} of term {last.term}: of two replicas' folders, the "
        "one with the higher term, or in one term the higher entry, has all that was committed of "
        "what the other has"
    )
    if imported is None:
        return
    present = imported.present_lsn - log.first_lsn + 1
    before = f", {present} of them since before" if present > 0 else ""
    say(f"{imported.endpoints} holds {digest.payloads} payloads of it{before}")
    say(f"compare its replicas with `logstore verify --endpoint {imported.endpoints}`")
    say("producers open new sessions there, and cursors must be set again: neither is imported")


def _say_end(walk: WholeEntries) -> None:
    rest = walk.not_taken
    if rest is None:
        if walk.has_torn_tail:
            say("bytes after it are of an entry that a crash tore: never acknowledged by it")
        return
    end = "it ends before" if rest.is_damage else "left out from"
    say(f"{end} LSN {rest.lsn}, entry {rest.index}: {rest.reason}")
    if rest.last_lsn is None:
        say("not taken: an unknown number of LSNs from there on")
        return
    size = "an unknown number of" if rest.size_bytes is None else rest.size_bytes
    if rest.payloads:
        say(f"not taken: LSN {rest.lsn} to {rest.last_lsn}, {rest.payloads} payloads, {size} bytes")
    else:
        say("not taken: no payloads that a record tells of")


def _words(found: dict[str, int]) -> str:
    return f"LSN {found['first_lsn']} to {found['last_lsn']}, {found['payloads']} payloads"
