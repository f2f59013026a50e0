"""Processes of this version in which a module is changed: those that are started meanwhile.

Every Python process imports `sitecustomize` at its start; those that are started inside `patched`
find one that runs the given lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def patched(name: str, lines: str, folder: Path) -> Iterator[None]:
    """What is started meanwhile runs `lines` first. `folder`: of the test; `name`: in it."""
    site = folder / name
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(lines)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), *([before] if before else [])])
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
