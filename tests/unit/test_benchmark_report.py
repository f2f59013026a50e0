"""What measurements have in common as commands, and the page of their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from benchmarks.charts import Axis, Line, line_chart, plain, size
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.registry import MEASUREMENTS
from benchmarks.report import PAGE, Table, page_of, tables_of
from benchmarks.results import RESULTS, Result, read_result, read_samples, write_result
from logstore.errors import InvalidRequest
from tests.tidy.repository import ROOT

MACHINE = {
    "cpu_count": 2, "memory_mb": 24_000, "file_system": "ext4", "kernel": "6.1", "python": "3.11"
}  # fmt: skip


def measured(site: Site, *, runs: int, seconds: float) -> Measured:
    assert site.folder.is_dir()
    rows = [{"seconds": seconds}] * runs
    return Measured(rows, {"runs": runs}, samples=[{"at_ms": 1}], versions={"peer": "1.2"})


def drawn(result: Result, samples: list[Any]) -> dict[str, Any]:
    lines = [Line("a", [1, 2], [result.summary["runs"], len(samples)])]
    return {"made-up": line_chart("Made up", Axis("x"), Axis("y"), lines)}


MADE_UP = Measurement(
    "made-up",
    "What is it?",
    1,
    measured,
    [option("--runs", type=int, default=5), option("--seconds", type=float, default=9.0)],
    {"runs": 2, "seconds": 0.5},
    drawn,
)


def run(*arguments: str) -> None:
    MADE_UP.command().main(list(arguments), standalone_mode=False)


def test_a_result_tells_how_it_was_made_and_has_samples_and_plots(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    run("--dir", ".", "--json", str(path), "--plot", str(tmp_path / "plots"), "--runs", "3")
    result = read_result(path)
    assert (result.name, result.summary, len(result.rows)) == ("made-up", {"runs": 3}, 3)
    assert result.commit
    assert result.environment["peer"] == "1.2"
    assert result.environment["command"] == (
        "python -m benchmarks made-up --runs 3 --seconds 9.0"
    )  # fmt: skip
    assert read_samples(path) == [{"at_ms": 1}]
    assert {each.name for each in (tmp_path / "plots").iterdir()} == {"made-up.svg", "made-up.png"}


def test_a_quick_look_goes_to_stdout_and_keeps_what_was_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("--dir", ".", "--quick", "--runs", "4")
    result = msgspec.json.decode(capsys.readouterr().out, type=Result)
    assert result.rows == [{"seconds": 0.5}] * 4
    assert result.environment["command"].endswith("--runs 4 --seconds 0.5 --quick")
    monkeypatch.chdir(tmp_path)
    run("--dir", str(ROOT), "--runs", "1")
    assert not (tmp_path / RESULTS).exists(), "a smaller run replaces no kept result"
    run("--dir", str(ROOT))
    assert (tmp_path / RESULTS / "made-up.json").exists()


@pytest.mark.parametrize("target", ["it.jsonl", "folder", "file/it.json"])
def test_where_a_result_cannot_be_written_is_refused_before_it_is_measured(
    target: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match=target):
        run("--dir", str(ROOT), "--json", str(tmp_path / target))


def test_a_result_of_code_that_was_changed_meanwhile_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["abc", "def"])
    monkeypatch.setattr("benchmarks.measurement.code_name", lambda: next(names))
    run("--dir", str(ROOT), "--json", str(tmp_path / "it.json"))
    assert read_result(tmp_path / "it.json").commit == "abc+"


def test_a_folder_in_memory_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="tmpfs"):
        run("--dir", "/dev/shm")


def test_without_samples_none_of_an_earlier_result_are_left(tmp_path: Path) -> None:
    path, result = tmp_path / "it.json", Result("it", {}, "c", [], {})
    write_result(str(path), result, [{"at_ms": 1}])
    write_result(str(path), result, [])
    assert [each.name for each in tmp_path.iterdir()] == ["it.json"]
    assert read_samples(path) == []


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    path.write_text('{"name": "it"}', encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"it\.json is no result"):
        read_result(path)


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda each: each.name)
def test_quick_values_are_those_of_options(measurement: Measurement) -> None:
    options = {each.name for each in measurement.options}
    assert set(measurement.quick) <= options
    assert measurement.question.endswith((".", "?"))
    with click.Context(measurement.command()) as context:
        assert "--quick" in measurement.command().get_help(context)


def test_a_summary_becomes_tables_of_lines_with_the_same_columns() -> None:
    summary = {
        "a_b": {"mb_per_s": 12.34, "is_reached": True, "of": {"median_s": 0.0512}},
        "lines": 12_345,
        "c": {"mb_per_s": 1_234.5, "is_reached": False, "of": {"median_s": 2.0}},
        "ratios": [1.0, 2.5],
    }
    assert tables_of(summary) == [
        Table(
            ["mb/s", "is reached", "of, median s"],
            [("a b", ["12.3", "yes", "0.051"]), ("c", ["1,234", "no", "2"])],
        ),
        Table([""], [("lines", ["12,345"]), ("ratios", ["1, 2.5"])]),
    ]


def test_the_page_has_what_is_kept_with_its_charts_and_escapes_it(tmp_path: Path) -> None:
    path = tmp_path / RESULTS / "made-up.json"
    result = Result("made-up", MACHINE | {"command": "measure <it>"}, "abc", [], {"runs": 3})
    write_result(str(path), result, [{}])
    page = page_of([MADE_UP, *MEASUREMENTS], tmp_path)
    assert page == page_of([MADE_UP], tmp_path)
    assert page.count("<h2") == page.count("<svg") == 1
    assert "measure &lt;it&gt;" in page
    assert "2 cores, 24 GB, ext4" in page


@pytest.mark.long
@pytest.mark.slow
def test_the_kept_page_is_made_of_the_kept_results() -> None:
    """`python -m benchmarks report` makes it."""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page_of(MEASUREMENTS, ROOT)


def test_figures_are_written_as_people_write_them() -> None:
    values = (0, 0.0512, 0.5, 1.0, 2.654, 12.34, 99.96, 121_912.4)
    assert [plain(value) for value in values] == [
        "0", "0.051", "0.5", "1", "2.65", "12.3", "100", "121,912"
    ]  # fmt: skip
    assert [size(value) for value in (128, 1_024, 16_384, 1 << 20)] == [
        "128 B", "1 KiB", "16 KiB", "1 MiB"
    ]  # fmt: skip
