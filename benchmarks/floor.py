"""The floor that the product is compared with: a bare pipeline of the same shape, a script of its
own.

Owns how it is found (LOGSTORE_FLOOR names the script) and called. It is no part of this repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec

from logstore.cli.free_ports import find_free_ports
from logstore.errors import InvalidRequest, Unreachable

FLOOR_VARIABLE = "LOGSTORE_FLOOR"
FLOOR_PORTS = 16  # it listens on its first port and up to twelve above
PATIENCE_S = 90.0


class FloorRow(msgspec.Struct, frozen=True):
    """What the script prints."""

    frame_bytes: int
    fsync: bool
    window_mb: float
    frames_per_s: float
    mb_per_s: float
    p50_ms: float
    p99_ms: float


def find_floor() -> Path:
    """The script.

    Raises:
        InvalidRequest: LOGSTORE_FLOOR is not set, or names no file.
    """
    name = os.environ.get(FLOOR_VARIABLE, "")
    if not name or not Path(name).is_file():
        raise InvalidRequest(
            f"{FLOOR_VARIABLE} must name the script of the bare pipeline (bare_pipeline.py), which "
            f"the figures are compared with; it is {name!r}"
        )
    return Path(name)


def run_floor(
    script: Path, folder: Path, *, frame_bytes: int, window_mb: float, seconds: float
) -> FloorRow:
    """Run it once.

    Raises:
        Unreachable: it failed or did not end.
    """
    command = [sys.executable, str(script), "--json", "--dir", str(folder)]
    command += ["--frame", str(frame_bytes), "--window-mb", str(window_mb)]
    command += ["--seconds", str(seconds), "--port", str(_find_port())]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=seconds + PATIENCE_S, check=True
        )
        return msgspec.json.decode(done.stdout, type=FloorRow)
    except (subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise Unreachable(f"the floor did not run through: {error}") from error


def _find_port() -> int:
    return find_free_ports(1, Random(os.urandom(8)), run=FLOOR_PORTS)[0]
