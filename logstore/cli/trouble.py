"""What a replica says in its status that an operator must mend, in words.

Must not know who prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logstore.cli.cpu_list import cpu_words
from logstore.client.status import UNREACHABLE, voter_rows
from logstore.errors import CorruptData
from logstore.format.level import refusal_of
from logstore.limits import CLOCK_AHEAD_MAX_NS, MIB
from logstore.raft.quorum import majority

# What `logstore.config.limits_digest` is made of: all that replicas know of each other's.
COMPARED_LIMITS = (
    "batch_max, group_max, ring and bulk_window of [limits], segment and segment_records of "
    "[storage]"
)
DAMAGE_RUNBOOK = "see docs/runbooks/disk-lost.md"
DISK_FULL_WORDS = "its disk is full: free some space, or trim the log (`logstore trim`)"


def trouble_of(row: dict[str, Any]) -> str:
    """Why a replica takes no part, or takes no appends, or what else is wrong; empty if nothing
    is."""
    full = DISK_FULL_WORDS if row.get("is_disk_full") else ""
    empty = ""
    if row.get("state") == "empty" and not (row.get("refusal") or row.get("damage")):
        empty = (
            "runs, and is part of no cluster yet: `logstore init` forms it where auto_init = "
            "false, else it forms once every node answers; if the others have one, it asks them "
            "for a place"
        )
    parts = (
        row.get("damage"),
        row.get("refusal"),
        _level_words(row),
        full,
        empty,
        _clock_words(row),
        _retention_words(row),
        _crowd(row),
        _limits_words(row),
    )
    return "; ".join(filter(None, parts))


def install_words(row: dict[str, Any]) -> str:
    """How far a replica is that got the leader's log start; empty if it did not, or caught up."""
    install = row.get("install")
    if not install:
        return ""
    left, lsn = install["bytes_left"], install["next_lsn"]
    what = "an unknown number of bytes" if left is None else f"{left / MIB:.1f} MiB"
    begun = "drops its log to start" if row.get("is_installing") else "started"
    return (
        f"{begun} over at the leader's log start, because it had fallen behind it: LSN "
        f"{lsn or '?'} comes next, {what} to go"
    )


def placement_words(row: dict[str, Any]) -> str:
    """Which processes do not run where and how their configuration says; empty if all do."""
    placement = row.get("placement") or {}
    refusal = placement.get("refusal")
    parts = [f"the placement in its configuration is not taken: {refusal}"] if refusal else []
    for name, report in placement.get("processes", {}).items():
        now, wanted = report["now"], report["configured"]
        if now and now != wanted:
            differing = [key for key in wanted if now.get(key) != wanted[key]]
            has, should_have = _placed_words(now, differing), _placed_words(wanted, differing)
            parts.append(f"{name} has {has}; its configuration says {should_have}")
    return "; ".join(parts)


def troubles_of(status: dict[str, Any]) -> str:
    """What is wrong with the replicas that answered, each by its node."""
    rows = ((row["node"], trouble_of(row)) for row in status["nodes"])
    return "; ".join(f"node {node}: {trouble}" for node, trouble in rows if trouble)


def leaderless_words(status: dict[str, Any]) -> str:
    """Which nodes do not answer, where there is no leader; else empty, as where all answer."""
    voters = voter_rows(status["nodes"])
    silent = [row["node"] for row in voters if row["role"] == UNREACHABLE]
    return silent_words(silent, len(voters)) if silent and not status.get("leader") else ""


def damage_words(damaged: list[int], nodes: int) -> list[str]:
    """What to do about these replicas, of so many, which have damaged entries."""
    if not damaged:
        return []
    if len(damaged) == 1 and nodes > 1:
        node = damaged[0]
        return [
            f"node {node}: damaged: if `logstore verify` shows no damage of the others, stop it, "
            f"`logstore reset --node {node}`, and start it: {DAMAGE_RUNBOOK}"
        ]
    return [
        f"damaged: node {', '.join(map(str, damaged))}: keep every folder as it is; `logstore "
        f"salvage` says what is whole in one: {DAMAGE_RUNBOOK}"
    ]


@contextmanager
def other_replica_named(replica: int | None, option: str) -> Iterator[None]:
    """Damage that is met where `option` names the replica to read: another one may be whole."""
    try:
        yield
    except CorruptData as error:
        if replica is not None:
            error.args = (
                f"node {replica}: {error}; another replica may have it whole: leave out {option}",
            )
        raise


def places_words(status: dict[str, Any]) -> list[str]:
    """Places that are reserved, and replicas that answered where the client was told to ask, and
    are no members: removed, or yet to join."""
    words = [
        f"node {each['node']} has a place at {each['host']}:{each['port']}, and has not joined"
        for each in status.get("reserved", ())
    ]
    for each in status.get("others", ()):
        said = f"node {each['node']} at {each['host']}:{each['port']} is no member"
        words.append(f"{said}: {each['refusal']}" if each.get("refusal") else said)
    return words


def silent_words(silent: list[int], nodes: int) -> str:
    """That these of so many nodes do not answer, and whether too few are left for a leader."""
    words = f"nodes without an answer: {', '.join(map(str, silent))}"
    needed = majority(nodes)
    if nodes - len(silent) >= needed:
        return words
    return f"{words} (a leader needs {needed} of {nodes})"


def unheard_words(row: dict[str, Any], lag: dict[str, Any]) -> str:
    """For how long the leader has not heard a replica that does not answer here; empty if it
    answers, or if there is no leader to say so."""
    if row["role"] != UNREACHABLE:
        return ""
    for follower in lag.get("followers", ()):
        if follower["node"] == row["node"]:
            return (
                f"does not answer; the leader has not heard it for "
                f"{follower['silent_seconds']:.1f} s"
            )
    return ""


def standing_of(row: dict[str, Any], leader: int) -> str:
    """What a replica does in a cluster that `leader` leads, in words that follow its name."""
    if row["role"] == UNREACHABLE:
        return "does not answer"
    trouble = trouble_of(row)
    if row["node"] == leader:
        words = "leads"
    elif row.get("damage") or row.get("refusal") or row.get("state") == "empty":
        return f"takes no part ({trouble})"
    else:
        words = "follows"
    return f"{words} ({trouble})" if trouble else words


def _placed_words(placed: dict[str, Any], keys: list[str]) -> str:
    words = {
        "cpus": f"CPUs {cpu_words(placed.get('cpus', ()))}",
        "nice": f"niceness {placed.get('nice')}",
        "io_threads": f"{placed.get('io_threads')} IO threads",
        "spin": "spinning" if placed.get("spin") else "parking",
    }
    return ", ".join(words[key] for key in keys if key in words)


def _level_words(row: dict[str, Any]) -> str:
    """Whether the leader's log is too new for a replica's version."""
    level = row.get("refused_level")
    if not level:
        return ""
    return "takes no entries: " + refusal_of("the leader's log", level, newest=row["newest_level"])


def _clock_words(row: dict[str, Any]) -> str:
    """Whose clocks are off by more than a second, as the leader knows."""
    skews = row.get("clock_skew_ms") or {}
    off = [
        f"node {node} by {skew_ms / 1_000:+.1f} s"
        for node, skew_ms in skews.items()
        if abs(skew_ms) > CLOCK_AHEAD_MAX_NS // 1_000_000
    ]
    return f"clocks are off (set them right): {', '.join(off)}" if off else ""


def _retention_words(row: dict[str, Any]) -> str:
    """Whether the leader does not give up what its [retention] says (S11, G2)."""
    counters = row.get("counters", {})
    if counters.get("retention_off"):
        return "nothing is given up, its log's format level is too low: run `logstore upgrade`"
    if not counters.get("age_trims_off"):
        return ""
    return (
        "nothing is given up for its age: its wall clock was set by more than a minute since it "
        "leads, or the newest entry's time is ahead of it: set the clocks right, its log says more"
    )


def _limits_words(row: dict[str, Any]) -> str:
    """Limits that differ between replicas, and what follows from it."""
    words = []
    if needed := row.get("counters", {}).get("ring_too_small", 0):
        words.append(
            f"its payload ring takes no entry of {needed} bytes, so it stays behind: raise `ring`"
        )
    if others := row.get("other_limits"):
        nodes = ", ".join(map(str, others))
        words.append(
            f"its limits are not those of node {nodes}: compare {COMPARED_LIMITS} in their "
            "configurations"
        )
    return "; ".join(words)


def _crowd(row: dict[str, Any]) -> str:
    """Whether one of its processes takes no more connections, and how many it takes."""
    counters = row.get("counters", {})
    for process in ("ingress", "egress"):
        most = counters.get(f"{process}_connections_max", 0)
        if most and counters.get(f"{process}_connections", 0) >= most:
            return f"{process} has {most} connections and takes no more: close some"
    return ""
