"""Format levels: which forms of messages and records every replica of a cluster reads (SAFETY S11).

Owns the newest level of this version, what each level brought, and which kinds of entries raise the
log to a level: an entry of kind 64 + N raises it to level N. It has no body and takes no LSNs. The
kind is in every header, record and frame, so any version that knows levels recognises one that is
too new for it and refuses it by name, without reading anything that it does not know. Must not know
who raises a level, or when.

A form of level N is written and sent only once the entry that raises the log to N is committed.
Older forms are read for ever.
"""

from __future__ import annotations

from logstore.errors import UnsupportedLevel

# What each level brought. To add a form: CONTRIBUTING.md, "A format level".
LEVELS = {
    1: "all that was written and sent before logs had levels",
    2: "TRIM entries, which move the log start; the level in heartbeats",
    3: "compressed batches; OPENs of other acknowledgement levels than quorum; appends that expect"
    " an LSN",
    4: "CONFIG entries, which say who the members of the cluster are",
}
FIRST_LEVEL = 1
TRIM_LEVEL = 2
COMPRESSION_LEVEL = 3
ACK_LEVELS_LEVEL = 3
EXPECTED_LSN_LEVEL = 3
CONFIG_LEVEL = 4
NEWEST_LEVEL = max(LEVELS)
NEW_LOG_LEVEL = 4  # that a new log is raised to; operators raise it further (S11)
LEVEL_MAX = 63
_KIND_BASE = 64
LEVEL_KINDS = range(_KIND_BASE + FIRST_LEVEL + 1, _KIND_BASE + LEVEL_MAX + 1)


def level_kind(level: int) -> int:
    """The kind of the entry that raises the log to `level`, which is above the first."""
    return _KIND_BASE + level


def level_of(kind: int) -> int:
    """The level to which an entry of this kind raises the log; 0: it raises none."""
    return kind - _KIND_BASE if kind in LEVEL_KINDS else 0


def refusal_of(what: str, level: int, *, newest: int) -> str:
    """Why a version that reads levels up to `newest` takes nothing of `what`."""
    return (
        f"{what} is at format level {level}, this version reads levels up to {newest}: start a "
        "newer version"
    )


def check_level(what: str, level: int, *, newest: int) -> None:
    """Refuse `what`, a log or a data folder, if it is above the newest level.

    Raises:
      UnsupportedLevel: it is.
    """
    if level > newest:
        raise UnsupportedLevel(refusal_of(what, level, newest=newest))
