"""Calls a command in this process."""

from __future__ import annotations

from pathlib import Path

from logstore.cli.main import main


def run(*arguments: str | Path) -> int:
    try:
        return main([str(each) for each in arguments])
    except SystemExit as exit_:
        return int(exit_.code or 0)
