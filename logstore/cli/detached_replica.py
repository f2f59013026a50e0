"""What a detached replica runs: `logstore serve`, which can be told to die with its
parent.

Owns the arguments of that process, nothing else. It is what `cluster up`, the demo, the benchmarks
and the tests start.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from actors.child import die_with_parent
from logstore.cli.exit_status import exit_status_of
from logstore.cli.output import say
from logstore.cli.serve import run_replica
from logstore.errors import LogStoreError


def main() -> int:
    parser = argparse.ArgumentParser(prog="logstore.cli.detached_replica", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the TOML file")
    parser.add_argument("--node", type=int, required=True, help="the node id to run")
    parser.add_argument("--dir", type=Path, required=True, help="its data folder")
    parser.add_argument("--parent", type=int, help="die with this process")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        die_with_parent(arguments.parent)
    try:
        return run_replica(arguments.config, arguments.node, arguments.dir)
    except LogStoreError as error:
        say(f"node {arguments.node} does not start: {error}")
        return exit_status_of(error)


if __name__ == "__main__":
    sys.exit(main())
