"""Raw samples of measurements, lines of JSON, as a table and as curves.

Owns the arithmetic. A sample is an acknowledged batch: `at_ms` since the beginning of the run,
`latency_ms`, and how many `payloads`; `figure` and `pair` name what was measured and which run it
was, and may be left out. Every payload of a batch has its latency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.saturate import Samples, weighted_percentiles
from logstore.errors import InvalidRequest

STEP_MS = 100
Floats = npt.NDArray[np.float64]
# In hundredths of a percent: every percent, and the tail that people ask for.
_POINTS = (*range(0, 10_000, 100), 9_950, 9_990, 9_999, 10_000)
_P50, _P99, _P999, _MOST = (_POINTS.index(each) for each in (5_000, 9_900, 9_990, 10_000))


class Run(msgspec.Struct, frozen=True):
    """One run of one figure.

    Attributes:
      file: the samples' file, without folder and suffix.
      seconds: to the last acknowledgement.
      latency_ms: by `percents`.
      rates: payloads a second in each step of a tenth of a second from the beginning on.
    """

    file: str
    figure: str
    pair: int
    samples: int
    payloads: int
    seconds: float
    latency_ms: list[float]
    rates: list[float]

    @property
    def rate(self) -> float:
        """Payloads a second over the whole run."""
        return self.payloads / self.seconds if self.seconds else 0.0


class _Sample(msgspec.Struct, frozen=True, gc=False):
    at_ms: Annotated[float, msgspec.Meta(ge=0)]
    latency_ms: float
    payloads: Annotated[int, msgspec.Meta(ge=1)]
    figure: str = ""
    pair: int = 1


def percents() -> list[float]:
    """Where `Run.latency_ms` was taken, rising from 0 to 100."""
    return [point / 100 for point in _POINTS]


def gather_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in these files, by file, figure and pair.

    Raises:
      InvalidRequest: two files have the same name, which their runs are told by; or a line is no
        sample, and the error names it.
    """
    if len({path.stem for path in paths}) < len(paths):
        raise InvalidRequest("two files have the same name: give them in two calls")
    groups: dict[tuple[str, str, int], list[_Sample]] = {}
    for path in paths:
        for sample in _read(path):
            groups.setdefault((path.stem, sample.figure, sample.pair), []).append(sample)
    return [_run(*key, groups[key]) for key in sorted(groups)]


def table_of(runs: Sequence[Run]) -> str:
    """The runs as a table in Markdown."""
    lines = [
        "| file | figure | run | batches | payloads/s | p50 ms | p99 ms | p99.9 ms | most ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        latencies = " | ".join(f"{run.latency_ms[at]:.2f}" for at in (_P50, _P99, _P999, _MOST))
        lines.append(
            f"| {run.file} | {run.figure or '-'} | {run.pair} | {run.samples} | {run.rate:,.0f} | "
            f"{latencies} |"
        )
    return "\n".join(lines) + "\n"


def _read(path: Path) -> Iterator[_Sample]:
    decoder = msgspec.json.Decoder(_Sample)
    with open(path, "rb") as lines:
        for line in lines:
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InvalidRequest(
                    f"{path.name} has a line that is no sample, {error}: "
                    f"{line.decode(errors='replace').strip()}; wanted are at_ms, latency_ms, "
                    "payloads, and figure and pair if there are several"
                ) from error


def _run(file: str, figure: str, pair: int, samples: Sequence[_Sample]) -> Run:
    at_ms = np.array([sample.at_ms for sample in samples])
    latency_ms = np.array([sample.latency_ms for sample in samples])
    payloads = np.array([sample.payloads for sample in samples], dtype=np.int64)
    return Run(
        file=file,
        figure=figure,
        pair=pair,
        samples=len(samples),
        payloads=int(payloads.sum()),
        seconds=float(at_ms.max()) / 1_000,
        latency_ms=latency_curve(latency_ms, payloads),
        rates=rates_by_step(at_ms, payloads),
    )


def latency_curve(latency_ms: Floats, payloads: Samples) -> list[float]:
    """By `percents`, of batches with so many payloads each."""
    return weighted_percentiles(latency_ms, payloads, [at / 10_000 for at in _POINTS])


def rates_by_step(at_ms: Floats, payloads: Samples) -> list[float]:
    """Payloads a second in each step of STEP_MS, of batches acknowledged at these times."""
    by_step = np.bincount((at_ms // STEP_MS).astype(np.int64), weights=payloads)
    rates: list[float] = (by_step * (1_000 / STEP_MS)).tolist()
    return rates
