"""What a detached replica runs: `logstore serve`, which can be told to die with its parent.

    python -m logstore.cli.detached_replica CONFIG NODE FOLDER [PARENT_PID]

Owns the arguments of that process, nothing else. It is what `cluster up`, the demo, the benchmarks
and the tests start, so it takes what `replica_process` gives, and has no help.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from actors.child import die_with_parent
from logstore.cli.exit_status import exit_status_of
from logstore.cli.run_replica import run_replica
from logstore.errors import LogStoreError


def main(arguments: Sequence[str]) -> int:
    config_path, node, folder, *parent_pid = arguments
    if parent_pid:
        die_with_parent(int(parent_pid[0]))
    try:
        return run_replica(Path(config_path), int(node), Path(folder))
    except LogStoreError as error:
        print(f"node {node} does not start: {error}", file=sys.stderr, flush=True)
        return exit_status_of(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
