"""Replicas that take a SESSION snapshot every 64 KiB, above which no TRIM reaches (SAFETY G1): a
test's log can be trimmed after moments."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import logstore
from logstore.errors import OutOfRange
from logstore.limits import KIB
from tests.faults.patched_processes import patched

EVERY_BYTES = 64 * KIB
_SITE = f"""
from logstore import limits

limits.SNAPSHOT_EVERY_BYTES = {EVERY_BYTES}
"""
FILLERS_MAX = 20


def frequent_snapshots(folder: Path) -> AbstractContextManager[None]:
    """For what is started meanwhile. `folder`: of the test."""
    return patched("frequent-snapshots", _SITE, folder)


def append_snapshot(log: logstore.LogClient) -> None:
    """Append until a snapshot of the sessions lies above what is committed now."""
    wanted = log.admin.commit_lsn() + 1
    with log.producer() as producer:
        for _ in range(FILLERS_MAX):
            producer.append_batch([bytes(EVERY_BYTES)]).result(timeout=60)
            try:
                log.admin.trim(log.admin.commit_lsn() + 1_000_000)
            except OutOfRange as bounds:
                if bounds.last >= wanted:
                    return
    raise AssertionError(f"no snapshot above LSN {wanted}")
