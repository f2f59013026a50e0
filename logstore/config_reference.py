"""The reference of the configuration, made from the docstrings of `settings`.

Run as `python -m logstore.config_reference` (`make reference`) it writes `configs/README.md`. A
test holds that file to what this makes, so the two cannot drift apart.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec

from logstore.errors import InvariantViolated
from logstore.settings import (
    ClusterSettings,
    LimitSettings,
    NodeSettings,
    ProcessSettings,
    RaftSettings,
    RetentionSettings,
    StorageSettings,
)
from logstore.units import DURATION_UNITS, SIZE_UNITS

TABLES: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    ("[cluster]", ClusterSettings),
    ("[[nodes]]", NodeSettings),
    ("[raft]", RaftSettings),
    ("[storage]", StorageSettings),
    ("[limits]", LimitSettings),
    ("[retention]", RetentionSettings),
    ("[process]", ProcessSettings),
)
_INTRODUCTION = """\
# Configuration

One TOML file describes a cluster; every replica and tool reads the same one. Where a node has a
file of its own, `[process]` and the node's `cpus`, `nice` and `io_threads` may differ, all else is
the same. Unknown keys, bad units and impossible relations are refused at start, with the key and
the reason.

| file | what it is |
|---|---|
| `cluster-3.toml` | three replicas on this machine; the default of the command line |
| `single.toml` | one replica, all its actors in one process beside its supervisor |
| `placement-2.toml`, `-4`, `-8`, `-16` | three machines of so many cores, processes pinned |
| `placement.md` | the reasons for these layouts, and what to look at before one is used |

A size is a number and one of {sizes}; a duration a number and one of
{durations}. The unit is never left out.

This file is made by `make reference` from the docstrings in `logstore/settings.py`.
"""
_ENTRY = re.compile(r"^  (\w+): (.*(?:\n    .*)*)", re.MULTILINE)


def render_reference() -> str:
    """The whole text of `configs/README.md`."""
    introduction = _INTRODUCTION.format(
        sizes=", ".join(SIZE_UNITS), durations=", ".join(DURATION_UNITS)
    )
    return "\n".join([introduction, *(_render_table(head, table) for head, table in TABLES)])


def _render_table(head: str, table: type[msgspec.Struct]) -> str:
    summary, _, attributes = inspect.cleandoc(table.__doc__ or "").partition("\n\nAttributes:\n")
    meanings = {name: " ".join(text.split()) for name, text in _ENTRY.findall(attributes)}
    lines = [f"## `{head}`", "", summary, "", "| key | default | meaning |", "|---|---|---|"]
    fields = msgspec.structs.fields(table)
    if [field.name for field in fields] != list(meanings):
        raise InvariantViolated(f"{table.__name__}: Attributes must explain every key, in order")
    lines += [
        f"| `{field.name}` | {_render_default(field)} | {meanings[field.name]} |"
        for field in fields
    ]
    return "\n".join([*lines, ""])


def _render_default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return f"`{msgspec.json.encode(default).decode()}`"


def main() -> None:
    """Write the reference where the project keeps it."""
    path = Path(__file__).resolve().parent.parent / "configs" / "README.md"
    path.write_text(render_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
