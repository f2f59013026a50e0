"""Changes where and how processes of a replica of this machine run, now and for every later start.

Owns the order: what cannot be had is refused before anything is written; then the config file is
written, which the replica's supervisor follows; then it is looked at what came of it. Must not know
how it is printed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from actors.supervisor.placement import check_placement, layout_on, placements_on
from actors.supervisor.placement_report import PlacementReport, ProcessReport, read_report
from actors.supervisor.restarts import is_vital
from logstore.cli.config_edit import Change, edit_placement, locked_config, replace_file
from logstore.cli.cpu_list import cpu_words, parse_cpus
from logstore.cli.embedded import poll_until
from logstore.config import Config, load_config, parse_config
from logstore.config_layout import REPLICATOR, SUPERVISOR, kind_of
from logstore.config_placement import Placement
from logstore.errors import ConfigError, InvalidRequest, LogStoreError, Unreachable
from logstore.model import NodeId

# After the supervisor has read the file: a process that is just starting is placed when it has.
SETTLE_S = 5.0
_CGROUPS = "/sys/fs/cgroup"
_ONLINE = "/sys/devices/system/cpu/online"


class Outcome(msgspec.Struct, frozen=True):
    """What a process has now. `pending`: what it does not have of what is configured, and what to
    do; empty if it has all. `is_refused`: some of that was to be had at once. `inherited`: what
    [process] says where the entry of the node was taken out; empty if nothing."""

    process: str
    report: ProcessReport
    pending: str
    is_refused: bool
    inherited: str


def change_placement(
    folder: Path,
    config_path: Path,
    node: int,
    processes: Sequence[str],
    change: Change,
    *,
    timeout_s: float,
) -> list[Outcome]:
    """Make `change` for `processes` of the replica `node` that runs in `folder`.

    Args:
      folder: its data folder.
      config_path: the file that it was started with.
      processes: names; `replicator` is all of them.
      change: as `edit_placement` takes it.
      timeout_s: how long the supervisor may take to read the file.

    Raises:
      InvalidRequest, ConfigError: refused; nothing was changed.
      Unreachable: the file was changed, but the replica does not follow it.
    """
    config = load_config(config_path)
    report = _running_report(folder, config_path, config, node)
    # Before names are looked at: those of the file are not yet those of the replica.
    _require_layout(config, report, config_path)
    names = _names(report, processes)
    _check(change, names, report)
    with locked_config(Path(report.config_path)) as target:  # not another name of it
        with open(target, encoding="utf-8", newline="") as file:  # with the ends of its lines
            text = file.read()
        edited = edit_placement(text, node, processes, change)
        try:
            config = parse_config(edited)
            wanted = placements_on(report.machine, config, NodeId(node))
        except ConfigError as error:
            raise ConfigError(
                f"{config_path} would be refused, nothing was changed: {error}"
            ) from error
        _require_layout(config, report, config_path)  # nobody changed it meanwhile
        # Also where it says so already: a process that was moved since takes its place again.
        replace_file(target, edited)
    report = _followed(folder, {name: wanted[name] for name in names}, config_path, timeout_s)
    return [
        _outcome(name, report.processes[name], _inherited(config, node, name, change))
        for name in names
    ]


def _require_layout(config: Config, report: PlacementReport, config_path: Path) -> None:
    layout = layout_on(report.machine, config, NodeId(report.node))
    if {SUPERVISOR, *layout} != set(report.processes):
        raise ConfigError(
            f"{config_path} has other nodes or another layout than this replica runs with, "
            "nothing was changed: restart it first"
        )


def _running_report(folder: Path, config_path: Path, config: Config, node: int) -> PlacementReport:
    """What the replica says of itself, which must be the one that is meant."""
    config.node(node)
    report = read_report(folder)
    if report is None:
        raise InvalidRequest(
            f"no replica runs in {folder}: name its data folder with --dir, or start it; while it "
            f"is down, edit {config_path} by hand"
        )
    if report.node != node:
        raise InvalidRequest(
            f"node {report.node} runs in {folder}, not node {node}: name its folder"
        )
    if not _is_same(Path(report.config_path), config_path):
        raise InvalidRequest(
            f"node {node} was started with {report.config_path}: a change of {config_path} would "
            "not be kept; name that file with --config"
        )
    return report


def _is_same(first: Path, second: Path) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def _names(report: PlacementReport, processes: Sequence[str]) -> list[str]:
    """The processes that are meant, in the order of the report."""
    for process in processes:
        if process not in report.processes and process not in map(kind_of, report.processes):
            raise InvalidRequest(
                f"node {report.node} has no process {process!r}; there are "
                f"{_known_words(report, process)}"
            )
    return [name for name in report.processes if {name, kind_of(name)} & set(processes)]


def _known_words(report: PlacementReport, asked: str) -> str:
    words = ", ".join(report.processes)
    if REPLICATOR in map(kind_of, report.processes):
        words += f", and `{REPLICATOR}` for all of them"
    for process, each in report.processes.items():
        if asked in (*each.actors, *map(kind_of, each.actors)):
            return f"{words}; {asked} runs in {process}"
    return words


def _check(change: Change, names: Sequence[str], report: PlacementReport) -> None:
    if not change:
        raise InvalidRequest("nothing to set: name --cpus, --nice or --io-threads")
    wanted = Placement(cpus=tuple(change.get("cpus") or ()), nice=change.get("nice"))
    for name in names:
        check_placement(wanted, report.machine, f"node {report.node}", name)
    lost = set(wanted.cpus) - _cpus_now(report.processes[SUPERVISOR].pid)
    if lost:
        raise ConfigError(
            f"CPU {min(lost)} was there when the replica started and is not now: it is offline, or "
            "was taken out of the cgroup's cpuset; a restart would refuse it"
        )


def _cpus_now(pid: int) -> set[int]:
    """Those of the cgroup of `pid` that are online, by cgroups of version 2 or 1; all that are
    online where its cgroup cannot be seen from here."""
    group = ""
    with suppress(OSError):
        group = os.fsdecode(Path(f"/proc/{pid}/cpuset").read_bytes()).strip()
    for path in (
        f"{_CGROUPS}{group}/cpuset.cpus.effective",
        f"{_CGROUPS}/cpuset{group}/cpuset.effective_cpus",
    ):
        with suppress(OSError, InvalidRequest):
            return set(parse_cpus(Path(path).read_text(encoding="ascii")))
    return set(parse_cpus(Path(_ONLINE).read_text(encoding="ascii")))


def _followed(
    folder: Path, wanted: dict[str, Placement], config_path: Path, timeout_s: float
) -> PlacementReport:
    """The report once the supervisor has read the file and the processes have what they can."""
    found: PlacementReport | None = None

    def is_read() -> bool:
        nonlocal found
        found = read_report(folder)
        return (
            found is not None
            and not found.refusal  # while it refuses the file, it may want the same by an older one
            and all(found.processes[name].configured == each for name, each in wanted.items())
        )

    if not poll_until(is_read, timeout_s) or found is None:
        why = found.refusal if found is not None else "it has ended"
        raise Unreachable(
            f"{config_path} was changed, but the replica has not followed it for {timeout_s:g} s "
            f"({why or 'does its supervisor run?'}): look at its log; a restart takes the file"
        )

    def is_placed() -> bool:
        return is_read() and not any(_missing(found.processes[name]) for name in wanted)

    poll_until(is_placed, SETTLE_S)
    if found is None:
        raise LogStoreError(f"{config_path} was changed, and the replica has ended meanwhile")
    return found


def _missing(report: ProcessReport) -> list[str]:
    """What a process could have at once and has not."""
    now, configured = report.now, report.configured
    if now is None:
        return []
    found = []
    if now.cpus != configured.cpus:
        found.append(f"CPUs {cpu_words(configured.cpus)}")
    if now.nice != configured.nice:
        found.append(f"nice {configured.nice}")
    return found


def _inherited(config: Config, node: int, process: str, change: Change) -> str:
    """What [process] still says of what was taken out of the node's own table."""
    found = []
    for key in (key for key, value in change.items() if value is None):
        own, shared = getattr(config.node(node), key), getattr(config.process, key)
        for name in dict.fromkeys((process, kind_of(process))):
            if name in shared and own.keys().isdisjoint((process, kind_of(process))):
                found.append(f"{key} = {{{name} = {shared[name]}}}")
                break
    if not found:
        return ""
    return f"[process], which is of every node, still says {', '.join(found)}: change it there"


def _outcome(process: str, report: ProcessReport, inherited: str) -> Outcome:
    now, configured = report.now, report.configured
    missing = _missing(report)
    ends_replica = process == SUPERVISOR or is_vital(report.actors or (process,))
    start = "restart the replica" if ends_replica else f"`kill {report.pid}` does it"
    pending = []
    if missing:
        pending.append(
            f"{' and '.join(missing)} not yet: the replica tries each second, and its log says "
            f"what is in the way; it takes that when it starts again, too ({start})"
        )
    if now is not None and now.io_threads != configured.io_threads:
        pending.append(f"{configured.io_threads} IO threads when it starts again ({start})")
    return Outcome(process, report, "; ".join(pending), bool(missing), inherited)
