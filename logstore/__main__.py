"""Where the `logstore` command and `python -m logstore` begin.

Imports nothing before it can say what an interrupt ends: commands take a moment to load.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line; its exit status. Ctrl-C before a command has begun is no traceback."""
    try:
        from logstore.cli.main import main as run
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return run()


if __name__ == "__main__":
    sys.exit(main())
