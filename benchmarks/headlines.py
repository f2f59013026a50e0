"""What README.md shows of the kept results: a table, and two pictures.

Owns which figures are shown there and in which words. Each figure is taken from a result file; a
result that is not kept has no line. The same results give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from matplotlib.figure import Figure

from benchmarks.charts import plain, size
from benchmarks.fig7c_plots import draw_fig7c
from benchmarks.fig7c_runs import BAR_PAYLOAD
from benchmarks.peers.loads import LOADS, ONE_IN_FLIGHT, Load
from benchmarks.peers.ours import CONTENDER
from benchmarks.peers.peer_plots import are_flushed, draw_peers
from benchmarks.peers.ratios import FAILOVER, START, by_load, by_system
from benchmarks.peers.rounds import Row
from benchmarks.peers.timed_run import Run
from benchmarks.results import RESULTS, Result, read_result
from logstore.errors import InvalidRequest

README = Path("README.md")
PICTURES = Path("docs/pictures")
BEGIN, END = "<!-- figures: made by `python -m benchmarks report` -->", "<!-- end of figures -->"
_PICTURES: Mapping[str, tuple[str, Callable[[Result, Sequence[Any]], Mapping[str, Figure]]]] = {
    "peers-1-kib-singles": ("peers", draw_peers),
    "fig7c-shaped": ("fig7c", draw_fig7c),
}
# As README names them, first where the words beside them say what is flushed, then where none do.
_NATS = "NATS JetStream"
_SYSTEMS = {"nats-always": _NATS, "nats": _NATS, "kafka": "Kafka", "etcd": "etcd"}
_ALONE = {**_SYSTEMS, "nats-always": f"{_NATS} with flush"}


class Line(msgspec.Struct, frozen=True):
    """One line of the table: what was measured, of this log, and what it is held against."""

    what: str
    ours: str
    beside: str


def pictures_of(root: Path) -> dict[str, Figure]:
    """By the stems of their files below PICTURES, those whose results are kept."""
    found = {}
    for stem, (name, draw) in _PICTURES.items():
        result = _kept(root, name)
        if result is not None and (figure := draw(result, []).get(stem)) is not None:
            found[stem] = figure
    return found


def readme_with_figures(text: str, root: Path) -> str:
    """README's text with the table and the pictures of what is kept below `root`.

    Raises:
      InvalidRequest: the marks between which they stand are not there, each once.
    """
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1 or text.count(BEGIN) != 1:
        raise InvalidRequest(f"{README} needs the lines {BEGIN} and {END}, once each")
    block = "\n".join([BEGIN, *_table(root), *_picture_lines(root), END])
    return pattern.sub(lambda _: block, text)


def _table(root: Path) -> Iterator[str]:
    yield "| what | logstore | beside it |"
    yield "|---|---|---|"
    for name, lines in _LINES.items():
        if (result := _kept(root, name)) is not None:
            for line in lines(result):
                yield f"| {line.what} | {line.ours} | {line.beside} |"


def _picture_lines(root: Path) -> Iterator[str]:
    for stem, figure in pictures_of(root).items():
        yield ""
        yield f"![{figure.axes[0].get_title()}]({PICTURES}/{stem}.svg)"


def _kept(root: Path, name: str) -> Result | None:
    path = root / RESULTS / f"{name}.json"
    return read_result(path) if path.exists() else None


# --- the lines of each result ---


def _peers(result: Result) -> Iterator[Line]:
    rows = msgspec.convert(result.rows, list[Row])
    found = by_load(rows)
    for load in LOADS:
        contenders = found.get(load.name, {})
        if CONTENDER in contenders:
            yield _load_line(load, contenders)
    of_systems = by_system(rows)
    for what, name in (
        ("three nodes from nothing to the first acknowledgement", START),
        ("the leader killed: until appends go on", FAILOVER),
    ):
        medians = {system: median(values) for system, values in of_systems[name].items()}
        if CONTENDER in medians:
            others = {
                _ALONE.get(each, each): medians[each] for each in medians if each != CONTENDER
            }
            beside = ", ".join(f"{name} {plain(each)}" for name, each in others.items())
            yield Line(what, f"{plain(medians[CONTENDER])} s", beside)


def _load_line(load: Load, contenders: Mapping[str, Sequence[Run]]) -> Line:
    mine = contenders[CONTENDER]
    told, unit = _told(mine)
    beside = []
    for is_flushed, words in ((True, "flushed"), (False, "in page caches")):
        best = _best_of_each_system(contenders, is_flushed=is_flushed)
        if best:
            each = [f"{name} {_told(runs)[0]}" for name, runs in best.items()]
            beside.append(f"{words}: {', '.join(each)}")
    what = f"{load.name}, p50" if mine[0].is_for_latency else f"{load.name}, payloads/s"
    if load is ONE_IN_FLIGHT:
        what = f"one append of {size(load.payload_bytes)} in flight, p50"
    return Line(what, f"{told}{unit}", "; ".join(beside))


def _told(runs: Sequence[Run]) -> tuple[str, str]:
    """The figure that counts for this load, and its unit."""
    if runs[0].is_for_latency:
        return plain(median(run.p50_ms for run in runs)), " ms"
    return plain(median(run.payloads_per_s for run in runs)), ""


def _best_of_each_system(
    contenders: Mapping[str, Sequence[Run]], *, is_flushed: bool
) -> dict[str, Sequence[Run]]:
    """Of several settings of one system, the one that does best here."""
    best: dict[str, Sequence[Run]] = {}
    for name, runs in contenders.items():
        system = _system(runs[0].system)
        if name == CONTENDER or are_flushed(runs) != is_flushed:
            continue
        if system not in best or _is_better(runs, best[system]):
            best[system] = runs
    return dict(sorted(best.items()))


def _is_better(one: Sequence[Run], other: Sequence[Run]) -> bool:
    if one[0].is_for_latency:
        return median(run.p50_ms for run in one) < median(run.p50_ms for run in other)
    return median(run.payloads_per_s for run in one) > median(run.payloads_per_s for run in other)


def _system(name: str) -> str:
    return _SYSTEMS.get(name, name)


def _fig7a(result: Result) -> Iterator[Line]:
    """Of the count that has a target."""
    bars = [each for each in result.summary.values() if isinstance(each, dict) and "target" in each]
    if bars:
        ratios = [each["measured"] for each in bars]
        yield Line(
            "bytes written to disk over a design that writes payloads twice, payloads from 512 B",
            f"{min(ratios):.3f} to {max(ratios):.3f}",
            "paper: about one half",
        )


def _fig7b(result: Result) -> Iterator[Line]:
    apart = result.summary["between_sizes"]["measured"]
    yield Line(
        "10,000/s in atomic batches of 1 to 1,024: throughput of the sizes differs by",
        f"{plain(100 * apart)} %",
        "paper: constant",
    )


def _fig7c(result: Result) -> Iterator[Line]:
    found = result.summary.get(f"shaped, {size(BAR_PAYLOAD)}, over a bare stream")
    line = result.summary.get(f"shaped, {size(BAR_PAYLOAD)}")
    if found and line:
        yield Line(
            f"links of {plain(result.summary['link_mb_per_s'])} MB/s, payloads of "
            f"{size(BAR_PAYLOAD)}",
            f"{plain(line['saturated_mb_per_s']['median'])} MB/s, {found['measured']:.3f} of a "
            "bare stream",
            f"paper: {plain(result.summary['paper_mb_per_s'])} MB/s, 0.77",
        )


def _fig7d(result: Result) -> Iterator[Line]:
    for name, found in result.summary.items():
        if name != "failed":
            share = 100 * found["acknowledged_over_offered"]
            yield Line(f"{name} offered: acknowledged", f"{share:.1f} %", "")


_LINES: Mapping[str, Callable[[Result], Iterator[Line]]] = {
    "peers": _peers,
    "fig7a": _fig7a,
    "fig7b": _fig7b,
    "fig7c": _fig7c,
    "fig7d": _fig7d,
}
