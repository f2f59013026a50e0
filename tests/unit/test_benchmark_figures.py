"""Raw samples of measurements as numbers and plots."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from benchmarks.__main__ import NUMBERS, TABLE, benchmarks
from benchmarks.figures import gather_runs, percents, table_of
from logstore.errors import InvalidRequest
from tests.tidy.repository import ROOT


def write(path: Path, samples: list[dict[str, object]]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in samples))
    return path


def sample(at_ms: float, latency_ms: float, payloads: int, **names: object) -> dict[str, object]:
    return names | {"at_ms": at_ms, "latency_ms": latency_ms, "payloads": payloads}


def test_runs_are_told_apart_and_latencies_count_by_payload(tmp_path: Path) -> None:
    one = write(
        tmp_path / "one.jsonl",
        [
            sample(50, 1.0, 90, figure="f", pair=1),
            sample(260, 9.0, 10, figure="f", pair=1),
            sample(10, 5.0, 1, figure="f", pair=2),
            sample(10, 7.0, 1, figure="g", pair=1),
        ],
    )
    two = write(tmp_path / "two.jsonl", [sample(1_000, 3.0, 7)])
    runs = gather_runs([two, one])
    assert [(run.file, run.figure, run.pair, run.samples) for run in runs] == [
        ("one", "f", 1, 2), ("one", "f", 2, 1), ("one", "g", 1, 1), ("two", "", 1, 1),
    ]  # fmt: skip
    first = runs[0]
    assert (first.payloads, first.seconds, first.rates) == (100, 0.26, [900.0, 0.0, 100.0])
    by_percent = dict(zip(percents(), first.latency_ms, strict=True))
    assert (by_percent[50.0], by_percent[89.0], by_percent[99.0]) == (1.0, 1.0, 9.0)
    assert (by_percent[0.0], by_percent[100.0]) == (1.0, 9.0)
    assert round(runs[3].rate) == 7
    assert "| one | f | 1 | 2 | 385 | 1.00 | 9.00 | 9.00 | 9.00 |" in table_of(runs).splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        '{"at_ms": 1, "latency_ms": 2}',
        '{"at_ms": -1, "latency_ms": 2, "payloads": 1}',
        '{"at_ms": 1, "latency_ms": 2, "payloads": 0}',
    ],
)
def test_a_line_that_is_no_sample_is_shown(tmp_path: Path, line: str) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(f'{{"at_ms": 1, "latency_ms": 2, "payloads": 1}}\n{line}\n', encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"odd\.jsonl has a line that is no sample") as refused:
        gather_runs([path])
    assert f": {line}; wanted are at_ms" in str(refused.value)


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="the same name"):
        gather_runs([Path("a/x.jsonl"), Path("b/x.jsonl")])


@pytest.mark.long
@pytest.mark.slow
def test_the_command_makes_the_same_files_of_the_kept_results_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ROOT / "benchmarks" / "results" / "compare.jsonl"
    runs = []
    for name in ("one", "two"):
        output = tmp_path / name
        benchmarks(["figures", str(kept), "--output", str(output)], standalone_mode=False)
        runs.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert runs[0] == runs[1]
    told = capsys.readouterr()
    assert "| compare | 64 x 1 KiB batches | 5 |" in told.out
    assert told.out.encode() == 2 * runs[0][TABLE]
    assert "and 6 plots" in told.err
    assert len(msgspec.json.decode(runs[0][NUMBERS])["runs"]) == 15
    plots = [data for name, data in runs[0].items() if name.endswith(".svg")]
    assert len(plots) == 6
    for plot in plots:
        assert ElementTree.fromstring(plot).tag.endswith("svg")
