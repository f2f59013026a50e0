"""What the tidy tests look at: the files that are, or are about to be, in the repository."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("logstore", "actors", "transport", "benchmarks")


@cache
def tracked() -> tuple[Path, ...]:
    """Every file git has or would add, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (Path(line) for line in listing.stdout.splitlines())
    return tuple(sorted({path for path in paths if (ROOT / path).is_file()}))


@cache
def python_files() -> tuple[Path, ...]:
    return tuple(path for path in tracked() if path.suffix == ".py")


@cache
def text_of(path: Path) -> str:
    """Text of a tracked file; "" for what is no text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


def module_name(path: Path) -> str:
    """Dotted name of a Python file: `logstore/raft/core.py` is logstore.raft.core."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
