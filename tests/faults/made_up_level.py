"""Processes of a version that reads other format levels than this one: made up, in them only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from logstore.format.level import NEWEST_LEVEL
from tests.faults.patched_processes import patched

OLD = NEWEST_LEVEL
NEW = NEWEST_LEVEL + 1
_SITE = """
from logstore.format import level

level.LEVELS[{newest}] = "made up for a test"
level.NEWEST_LEVEL = {newest}
level.NEW_LOG_LEVEL = {new_log}
"""


def reading_levels(newest: int, folder: Path) -> AbstractContextManager[None]:
    """What is started meanwhile reads format levels up to `newest`. `folder`: of the test."""
    return patched(f"reads-{newest}", _SITE.format(newest=newest, new_log=OLD), folder)
