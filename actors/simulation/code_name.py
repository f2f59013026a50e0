"""The name of the code that ran, for published figures."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

_TIMEOUT_S = 10


def code_name() -> str:
    """The commit of the checkout, "+" if files were changed since; without one, the package's
    version."""
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return version("logstore")
    commit = _git(here.parent, "rev-parse", "HEAD")
    if commit is None:
        return version("logstore")
    changes = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if changes else commit


def _git(folder: Path, *words: str) -> str | None:
    """The output of git; None if there is no git or it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
