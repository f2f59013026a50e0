"""A mutation of the shipped writer for tests of the tests: data files are never flushed.

Child processes find a `sitecustomize` on their PYTHONPATH that turns fdatasync of `.data` files
into nothing; no line of the product knows of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_SITE = """
import os

_real = os.fdatasync


def _skipping(descriptor):
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    if not os.readlink(f"/proc/self/fd/{number}").endswith(".data"):
        _real(descriptor)


os.fdatasync = _skipping
"""


def skip_data_flushes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process started from now on flushes Raft files and META, but no data file."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(site))
