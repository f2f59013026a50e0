"""A load in a process of its own, which prints what it measured as one line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from logstore.errors import LogStoreError


def run_load(
    what: str,
    command: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """What the load printed. `command` follows the interpreter; `what` names the run in errors.

    Raises:
      LogStoreError: it failed; with the end of what it said.
    """
    done = subprocess.run(
        [sys.executable, *command],
        env=environment,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise LogStoreError(f"{what}: {done.stderr.decode()[-500:]}")
    return json.loads(done.stdout)
