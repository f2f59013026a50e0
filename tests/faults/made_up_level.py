"""Processes of a version that reads other format levels than this one: made up, in them only.

Every Python process imports `sitecustomize` at its start; those that are started inside
`reading_levels` find one that names the newest level.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logstore.format.level import NEWEST_LEVEL

OLD = NEWEST_LEVEL
NEW = NEWEST_LEVEL + 1
_SITE = """
from logstore.format import level

level.LEVELS[{newest}] = "made up for a test"
level.NEWEST_LEVEL = {newest}
"""


@contextmanager
def reading_levels(newest: int, folder: Path) -> Iterator[None]:
    """What is started meanwhile reads format levels up to `newest`. `folder`: of the test."""
    site = folder / f"reads-{newest}"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE.format(newest=newest))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), *([before] if before else [])])
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
