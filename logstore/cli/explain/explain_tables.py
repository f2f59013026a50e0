"""How `logstore explain` shows its answer: a line of what bounds, and four tables.

Owns words and columns, which fit into a terminal of 80 for a cluster of three. Must not measure
anything.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from logstore.cli.explain.breakdown import (
    AWAY,
    MAJORITY,
    PATH_STAGES,
    STAGES,
    TOTAL,
    PathTime,
    StageTime,
)
from logstore.cli.explain.explanation import Explanation
from logstore.cli.explain.utilisation import Traffic
from logstore.config_layout import kind_of

UNKNOWN = "-"
P99_OF_MIN = 100
_OF_LEADER = {
    "ingress": "ingress: its group is formed and proposed",
    "raft": "raft: appended and ordered",
    MAJORITY: "durable on a majority (the next table)",
    "commit": "raft: committed",
    "acknowledgement": "ingress: acknowledged",
    TOTAL: "in all, from ingress to ingress",
}
_OF_PATH = {
    "send": "replicator: sent",
    "network": "network and sockets, both ways",
    "ingress": "ingress: proposed",
    "raft": "raft: appended",
    "writer": "writer: begun",
    "data_flush": "data: written, flushed",
    "records_wait": "record: its turn has come",
    "records_flush": "record: written, flushed",
    "answer": "raft and ingress: answered",
    AWAY: "there and back, not told apart",
    TOTAL: "in all, from being appended",
}


def show(found: Explanation, console: Console) -> None:
    """Everything that is known."""
    if found.bound is not None:
        console.print(found.bound.words, soft_wrap=not console.is_terminal)
    if found.traffic is not None:
        console.print(_traffic_words(found, found.traffic), soft_wrap=not console.is_terminal)
    if found.stages:
        console.print(_stage_table(found))
        console.print(_path_table(found))
    if found.flushes:
        console.print(_flush_table(found))
    console.print(_process_table(found))
    for process, actors in _groups(found).items():
        console.print(f"{process}: {actors}", style="dim", highlight=False)


def _traffic_words(found: Explanation, traffic: Traffic) -> str:
    words = (
        f"node {found.leader} leads in term {found.term}; in {found.seconds:.1f} s: "
        f"{traffic.groups_per_s:,.1f} groups/s of {traffic.payloads_per_group:,.1f} payloads "
        f"({traffic.mb_per_s:,.2f} MB/s), {traffic.groups_in_flight:.1f} of at most "
        f"{traffic.groups_in_flight_max} in flight, {found.sampled} entries sampled"
    )
    if found.wakes_per_group is not None:
        words += f", {found.wakes_per_group:.1f} wake-ups a group"
    return words


def _stage_table(found: Explanation) -> Table:
    table = _table("where an append's time goes", "median ms", f"{_late(found)} ms", "share")
    by_name = {each.stage: each for each in found.stages}
    for name in STAGES:
        time = by_name[name]
        share = f"{time.share:.0%}"
        table.add_row(_OF_LEADER[name], _ms(time.median_ms), _ms(time.p99_ms), share)
    return table


def _path_table(found: Explanation) -> Table:
    """A column for each node: median and p99."""
    title = f"until it is durable there,\nmedian / {_late(found)} ms"
    table = _table(title, *map(_path_words, found.paths))
    by_name = [{each.stage: each for each in path.stages} for path in found.paths]
    for name in PATH_STAGES:
        if name == AWAY and not any(name in each for each in by_name):
            continue
        table.add_row(_OF_PATH[name], *(_cell(each.get(name)) for each in by_name))
    return table


def _late(found: Explanation) -> str:
    """What the column of the slowest shows: of fewer samples the 99th percentile is their most."""
    return "p99" if found.sampled >= P99_OF_MIN else "most"


def _path_words(path: PathTime) -> str:
    role = "leader" if path.is_leader else "follower"
    return f"node {path.node}\n{role}\ndecides {path.decides:.0%}"


def _flush_table(found: Explanation) -> Table:
    table = _table("flushes", "a second", "mean ms", f"{_late(found)} ms", "busy")
    for each in found.flushes:
        name = f"node {each.node}, {each.kind}"
        busy = f"{each.busy:.0%}"
        table.add_row(name, f"{each.per_s:.0f}", _ms(each.mean_ms), _ms(each.p99_ms), busy)
    return table


def _process_table(found: Explanation) -> Table:
    columns = ("busy", "CPU", "turns", "wakes", "bell", "socket", "timer", "empty")
    table = _table("process", *columns)
    for use in found.processes:
        rates = (use.turns, use.wakes, use.bell_wakes, use.socket_wakes, use.timer_wakes)
        table.add_row(
            f"{use.node} {use.process}",
            f"{use.busy:.0%}",
            f"{use.cpu:.0%}",
            *(f"{each:.0f}" for each in (*rates, use.empty_wakes)),
        )
    return table


def _groups(found: Explanation) -> dict[str, str]:
    """What each process runs that runs several actors, in words."""
    return {
        use.process: ", ".join(dict.fromkeys(map(kind_of, use.actors)))
        for use in found.processes
        if len(use.actors) > 1
    }


def _table(title: str, *columns: str) -> Table:
    table = Table()
    table.add_column(title, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _cell(time: StageTime | None) -> str:
    return UNKNOWN if time is None else f"{_ms(time.median_ms)} / {_ms(time.p99_ms)}"


def _ms(value: float) -> str:
    return f"{value:.2f}"
