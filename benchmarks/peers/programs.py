"""The peers' programs: where tools/build-peers.sh puts them, which are missing, their versions.

Owns that folder's layout. Must not know how a peer is started.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from logstore.errors import LogStoreError

HERE = Path(__file__).parent
INPUTS = HERE / "programs"
BIN = HERE / "bin"
_TIMEOUT_S = 60.0


def missing(peer: str, *needed: str) -> str:
    """Why a peer's programs are not all in BIN, as pinned; "": they are. Where the last build
    failed, what is there is of an older one."""
    reason = BIN / f"{peer}.missing"
    if reason.exists():
        return reason.read_text(encoding="utf-8").strip()
    if all((BIN / name).exists() for name in needed):
        return ""
    return "not built: run tools/build-peers.sh"


def filled(template: Path, values: Mapping[str, object]) -> str:
    """A configuration file with its @NAMES@ filled in."""
    text = template.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def said_version(*command: str) -> str:
    """The first version number in what a command says, "2.15.2" for example.

    Raises:
      LogStoreError: it says none.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if found := re.search(r"\d+\.\d+\.\d+", done.stdout + done.stderr):
        return found.group()
    raise LogStoreError(f"{Path(command[0]).name} does not tell its version")


def pinned_version(folder: str, module: str) -> str:
    """What a go.mod in INPUTS requires of a module.

    Raises:
      LogStoreError: nothing.
    """
    text = (INPUTS / folder / "go.mod").read_text(encoding="utf-8")
    if found := re.search(rf"^\s*{re.escape(module)} v(\S+)", text, re.MULTILINE):
        return found.group(1)
    raise LogStoreError(f"{folder}/go.mod requires no {module}")
