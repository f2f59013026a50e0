"""Figure 7c of "Designing an Efficient Replicated Log Store with Consensus Protocol" (eBay,
HotCloud'19): payloads offered a second, in several sizes, against what is acknowledged, where what
one node sends to another gets 87 MB/s.

Owns the course of the sweep and its stop rule. One cluster takes all runs. In each round every size
is measured over unshaped and over shaped links, in turn; what is shaped is every directed stream
between two nodes, by itself, and nothing between client and nodes. Offered rates rise to the
paper's 128,000/s, and on until two in a row are acknowledged to less than nine tenths; each round
goes at least as far as those before it. Then a closed loop says what is acknowledged at saturation,
and a bare stream, of frames as large as replication's were, what a link carries.

Payloads are appended one at a time by one producer, which packs them, with at most WINDOW_MB
unacknowledged: beyond saturation an open loop is late, and does not grow in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import click
import msgspec

from benchmarks.charts import plain, size
from benchmarks.fig7c_plots import draw_fig7c
from benchmarks.fig7c_runs import (
    BAR_PAYLOAD,
    LINK_MB_PER_S,
    LINKS,
    Links,
    LoadRun,
    Run,
    StreamRun,
    load_run,
    summarise,
)
from benchmarks.measurement import (
    Measured,
    Measurement,
    Site,
    numbers_option,
    option,
    parse_numbers,
)
from benchmarks.saturate import Settings, named_samples, thinned
from benchmarks.shaped_cluster import ShapedCluster, shaped_cluster
from logstore.limits import KIB, MIB

PAYLOADS = (128, 512, KIB, 4 * KIB, 16 * KIB)
RATE_MIN, RATE_MAX = 1_000, 4_096_000  # payloads/s
PAPER_RATE = 128_000  # payloads/s, as far as the paper goes
WINDOW_MB = 16.0
SATURATED_IN_A_ROW = 2
SAMPLES_MAX = 200  # of a run, evenly spread over it
# A new cluster's first gigabyte needs pages of the page cache that later ones find.
WARM_UP = Settings(payload=KIB, batch=64, window_mb=WINDOW_MB, seconds=4.0)


class Plan(msgspec.Struct, frozen=True):
    """What is measured. `step`: from one offered rate to the next; `seconds`: of each run."""

    payloads: tuple[int, ...]
    step: int
    rounds: int
    seconds: float
    link_mb_per_s: float


def measure_fig7c(
    site: Site, *, payloads: str, step: int, rounds: int, seconds: float, link_mb: float
) -> Measured:
    """All rounds on one cluster.

    Raises:
      InvalidRequest: not root, or tools are missing; or `payloads` are no sizes.
      LogStoreError: a run failed.
    """
    sizes = parse_numbers(payloads, key="--payloads", most=MIB)
    plan = Plan(sizes, step, rounds, seconds, link_mb)
    with shaped_cluster(site.folder, site.say) as cluster:
        sweep = Sweep(cluster, plan, site.say)
        cluster.load(WARM_UP)
        for number in range(1, rounds + 1):
            sweep.measure_round(number)
        versions = cluster.network.versions()
    summary = summarise(sweep.runs, link_mb_per_s=link_mb)
    return Measured(sweep.runs, summary, sweep.samples, versions)


class Sweep:
    """The runs so far, in their order, and samples of them."""

    def __init__(self, cluster: ShapedCluster, plan: Plan, say: Callable[[str], None]) -> None:
        self.runs: list[Run] = []
        self.samples: list[dict[str, object]] = []
        self._cluster = cluster
        self._plan = plan
        self._say = say
        self._steps: dict[tuple[Links, int], int] = {}  # rates that a round has offered, at most

    def measure_round(self, number: int) -> None:
        """Every size, unshaped and shaped: which of them comes first changes with the round."""
        for payload in self._plan.payloads:
            for links in LINKS if number % 2 else LINKS[::-1]:
                if links == "shaped":
                    self._cluster.network.shape(int(self._plan.link_mb_per_s * 1e6))
                else:
                    self._cluster.network.unshape()
                self._measure(number, links, payload)

    def _measure(self, number: int, links: Links, payload: int) -> None:
        def offer(rate: float) -> LoadRun:
            return self._load(number, links, payload, rate)

        rates = list(rates_from(self._plan.step))
        paper_steps = sum(rate <= PAPER_RATE for rate in rates)
        steps_min = max(paper_steps, self._steps.get((links, payload), 0))
        found = offer_until_saturated(offer, rates, steps_min=steps_min)
        self._steps[links, payload] = len(found)
        saturated = offer(0.0)
        row = self._cluster.stream(frame_bytes=saturated.group_bytes, seconds=self._plan.seconds)
        self.runs.append(StreamRun(number, links, payload, row.frame_bytes, row.mb_per_s))
        told = f"bare stream of {size(row.frame_bytes)} frames: {row.mb_per_s:.1f} MB/s"
        self._tell(number, f"{links}, {told}")

    def _load(self, number: int, links: Links, payload: int, rate: float) -> LoadRun:
        settings = Settings(payload, 1, WINDOW_MB, self._plan.seconds, rate)
        (row, samples), attempts = self._cluster.load(settings)
        run = load_run(number, links, row, attempts)
        self.runs.append(run)
        name = f"{links}, {size(payload)}, {f'{rate:,.0f}/s offered' if rate else 'closed loop'}"
        self.samples += named_samples(name, number, thinned(samples, SAMPLES_MAX))
        self._tell(
            number,
            f"{name}: {run.payloads_per_s:,.0f}/s, {run.mb_per_s:.1f} MB/s, "
            f"p99 {plain(run.p99_ms)} ms",
        )
        return run

    def _tell(self, number: int, text: str) -> None:
        self._say(f"round {number} of {self._plan.rounds}: {text}")


def offer_until_saturated(
    offer: Callable[[float], LoadRun], rates: Iterable[float], *, steps_min: int
) -> list[LoadRun]:
    """Offer rising rates, `steps_min` of them at least, until SATURATED_IN_A_ROW were too much, one
    after the other."""
    runs: list[LoadRun] = []
    in_a_row = 0
    for rate in rates:
        runs.append(offer(rate))
        in_a_row = in_a_row + 1 if runs[-1].is_saturated else 0
        if in_a_row >= SATURATED_IN_A_ROW and len(runs) >= steps_min:
            break
    return runs


def rates_from(step: int) -> Iterator[float]:
    """RATE_MIN times the powers of `step`, as long as it is no more than RATE_MAX."""
    rate = RATE_MIN
    while rate <= RATE_MAX:
        yield float(rate)
        rate *= step


FIG7C = Measurement(
    "fig7c",
    "How much is acknowledged of what is offered, by payload size, where links between nodes are "
    "fast and where each stream gets 87 MB/s (needs root, ip and tc)?",
    55,
    measure_fig7c,
    [
        numbers_option("--payloads", PAYLOADS, "sizes of payloads in bytes"),
        option(
            "--step",
            type=click.IntRange(2, 64),
            default=2,
            help=f"from one offered rate to the next, from {RATE_MIN:,}/s on",
        ),
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=3.0),
        option(
            "--link-mb",
            type=click.FloatRange(1.0, 10_000.0),
            default=LINK_MB_PER_S,
            help="MB/s of each directed stream between two nodes, headers included",
        ),
    ],
    {"payloads": str(BAR_PAYLOAD), "step": 8, "rounds": 1, "seconds": 0.5},
    draw_fig7c,
)
