"""Reading the configuration: TOML in, a checked `Config` out, and back to TOML.

Owns the words of the decoder's errors. `settings` has the keys, `config_relations` the rules
between them. Opens no socket and looks at no machine: the same file is valid on every host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints
from zlib import crc32

import msgspec

from logstore.config_relations import check_relations
from logstore.errors import ConfigError
from logstore.limits import NODES_MAX
from logstore.settings import (
    PORTS_PER_NODE,
    PROCESS_NAMES,
    RING_AUTO,
    ClusterSettings,
    Config,
    LimitSettings,
    NodeSettings,
    PortOffset,
    ProcessSettings,
    RaftSettings,
    RetentionSettings,
    StorageSettings,
)
from logstore.units import DURATION_UNITS, SIZE_UNITS

__all__ = [
    "Config",
    "NodeSettings",
    "PortOffset",
    "PORTS_PER_NODE",
    "PROCESS_NAMES",
    "joined_config",
    "load_config",
    "parse_config",
    "render_config",
]


def load_config(path: str | Path) -> Config:
    """Read and check the file at `path`.

    Raises:
      ConfigError: the file cannot be read or breaks a rule; names the file, the key and the
        reason.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        return parse_config(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_config(text: str) -> Config:
    """Decode and check TOML `text`.

    Raises:
      ConfigError: no TOML, an unknown key, a bad value or an impossible relation.
    """
    try:
        config = msgspec.toml.decode(text, type=Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error))) from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # Besides its own errors the parser lets through Python's: a number of 5,000 digits, tables
        # nested 1,000 deep. A replica that follows its file must survive them.
        raise ConfigError(f"is not TOML that can be read: {error}") from error
    try:
        check_relations(config)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"has a value that cannot be read: {error}") from error
    return config


def joined_config(config: Config, node: int, others: Sequence[NodeSettings]) -> Config:
    """The configuration of a replica that joins a cluster: `node` as `config` has it, the members
    in place of its other nodes. It forms no cluster of its own.

    Only as many others as a configuration may have; any of them leads to all members.

    Raises:
      ConfigError: together they break a rule, two of them with the same ports for example.
      InvalidRequest: `config` has no such node.
    """
    kept = [each for each in others if each.node != node][: NODES_MAX - 1]
    cluster = msgspec.structs.replace(config.cluster, auto_init=False)
    joined = msgspec.structs.replace(config, cluster=cluster, nodes=[*kept, config.node(node)])
    check_relations(joined)
    return joined


def render_config(config: Config) -> str:
    """TOML text that `parse_config` turns into `config` again, every key written out."""
    tables = msgspec.to_builtins(config)
    lines: list[str] = []
    for name, table in tables.items():
        for row in table if isinstance(table, list) else [table]:
            lines.append(f"[[{name}]]" if isinstance(table, list) else f"[{name}]")
            lines += [f"{key} = {_render_value(value)}" for key, value in row.items()]
            lines.append("")
    return "\n".join(lines)


def limits_digest(config: Config) -> int:
    """Equal for configurations with equal limits, however these are written; never 0. A ring that
    is sized by itself counts as one among three nodes: replicas that joined later know of more
    nodes than those whose configuration names the first ones."""
    bounds, storage = config.limits, config.storage
    is_auto = bounds.ring == RING_AUTO
    sizes = (
        bounds.batch_max_bytes,
        bounds.group_max_bytes,
        config.ring_bytes_min_of(3) if is_auto else config.ring_bytes,
        bounds.bulk_window_bytes,
        storage.segment_bytes,
        storage.segment_records,
    )
    return crc32(repr(sizes).encode()) | 1 << 32


def _render_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML basic string but for DEL, which no checked value holds.
        return msgspec.json.encode(value).decode()
    if isinstance(value, list):
        return "[" + ", ".join(_render_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {_render_value(v)}" for k, v in value.items()) + "}"
    return str(value)


_MSGSPEC_MESSAGE = re.compile(r"(?P<reason>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`")
_QUOTED = [f"Expected `{kind}`, got `str`" for kind in ("int", "float", "bool")]
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`")
_TABLES: dict[str, type[msgspec.Struct]] = {
    "": Config,
    "cluster": ClusterSettings,
    "nodes": NodeSettings,
    "raft": RaftSettings,
    "storage": StorageSettings,
    "limits": LimitSettings,
    "retention": RetentionSettings,
    "process": ProcessSettings,
}


_WHOLLY_DEFAULTED = ("raft", "storage", "limits", "retention", "process")


def _explain(message: str) -> str:
    """A decoder's message as `key: reason`, with the keys there are where one is unknown."""
    match = _MSGSPEC_MESSAGE.fullmatch(message)
    reason, path = (match["reason"], match["path"] or "") if match else (message, "")
    prefix = f"{path}." if path else ""
    if unknown := _UNKNOWN_FIELD.fullmatch(reason):
        known = ", ".join(_TABLES[path.split("[")[0]].__struct_fields__)
        return f"{prefix}{unknown[1]}: unknown key; the keys here are {known}"
    if missing := _MISSING_FIELD.fullmatch(reason):
        return f"{prefix}{missing[1]}: is missing; add it"
    if reason.startswith("Invalid enum value") and (choices := _choices_of(path)):
        return f"{path}: {reason}; write one of {', '.join(choices)}"
    if reason in _QUOTED:
        return f"{path}: {reason}; write it without quotes"
    if example := _example_of(path) if reason.startswith("Expected `str`") else "":
        return f"{path}: {reason}; write it in quotes, {example}"
    return f"{path}: {reason}" if path else reason


def _choices_of(path: str) -> list[str]:
    """What a setting of few words may be, in quotes as it is written; empty for any other."""
    table, _, key = path.partition(".")
    kind = get_type_hints(_TABLES[table.split("[")[0]]).get(key)
    return [f'"{choice}"' for choice in get_args(kind)] if get_origin(kind) is Literal else []


def _example_of(path: str) -> str:
    """A text setting as it may be written, taken from its default; empty if it has none."""
    table, _, key = path.partition(".")
    default = getattr(_TABLES[table](), key, None) if table in _WHOLLY_DEFAULTED else None
    if not isinstance(default, str):
        return ""
    unit = default.lstrip("0123456789")
    kind = "a size " if unit in SIZE_UNITS else "a duration " if unit in DURATION_UNITS else ""
    return f'{kind}such as "{default}"'
