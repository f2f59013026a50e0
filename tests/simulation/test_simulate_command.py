"""`logstore simulate` with a stand-in for the run of a seed: dealing out, adding up, replaying."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from actors.simulation.faults.draw import draw_script
from actors.simulation.faults.script import FaultClass, FaultKind, Script
from actors.simulation.many import JobDiedError, RunOptions, run_many
from actors.simulation.oracle.reach import MUST_REACH, NOT_BUILT, Reach
from actors.simulation.result import SeedResult, Totals
from logstore.cli import simulate, simulate_report
from logstore.cli.main import main
from tests.simulation import fake_run

RUNNER = "tests.simulation.fake_run:run_seed"
ORDER = RunOptions(runner=RUNNER)
KILLS = "kill-replica,power-cut"


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(simulate, "RUNNER", RUNNER)
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> int:
    try:
        return main(["simulate", *words])
    except SystemExit as exit_:
        return int(exit_.code or 0)


def results(first_seed: int, seeds: int, *, jobs: int = 1) -> list[SeedResult]:
    found: list[SeedResult] = []
    run_many(ORDER, first_seed, seeds=seeds, seconds=None, jobs=jobs, on_result=found.append)
    return found


# --- many seeds ---


def test_seeds_are_run_in_order_and_once_by_one_job() -> None:
    assert [each.seed for each in results(7, 20)] == list(range(7, 27))


@pytest.mark.slow
def test_several_jobs_give_the_same_results_as_one() -> None:
    by_seed = sorted(results(1, 30, jobs=3), key=lambda each: each.seed)
    assert by_seed == results(1, 30)


def test_time_ends_a_run_without_a_number_of_seeds() -> None:
    found: list[SeedResult] = []
    times = iter([0.0, 1.0, 2.0, 59.0, 60.0, 61.0])
    run_many(
        ORDER, 1, seeds=None, seconds=60.0, jobs=1, on_result=found.append,
        now_s=lambda: next(times),
    )  # fmt: skip
    assert [each.seed for each in found] == [1, 2, 3]


def test_a_seed_that_raises_is_a_result_with_its_traceback() -> None:
    (result,) = results(fake_run.RAISES, 1)
    assert result.has_failed
    assert "ArithmeticError: the world is broken" in result.error
    assert result.first_complaint == "error: ArithmeticError: the world is broken"


@pytest.mark.slow
def test_a_job_that_dies_is_named_with_its_seeds() -> None:
    with pytest.raises(JobDiedError, match=r"seeds \d+ to \d+"):
        results(fake_run.DIES, 4, jobs=2)


def test_results_add_up() -> None:
    totals = Totals(commit="here")
    for result in [*results(26, 1), *results(fake_run.RAISES, 1), *results(13, 1)]:
        totals.add(result)
    totals = totals.in_order()
    assert (totals.seeds, totals.simulated_s, totals.events) == (3, 60.0, 2_000)
    assert totals.appends_acknowledged == 20
    assert [each.seed for each in totals.violations] == sorted(
        each.seed for each in totals.violations
    )
    assert any(each.invariant == "error" for each in totals.violations)
    expected = sum(
        fault.kind is FaultKind.KILL_REPLICA
        for seed in (26, 13)
        for fault in draw_script(seed, replicas=None, classes=None).faults
    )
    assert totals.faults_injected["kill-replica"] == expected > 0


# --- the command ---


def test_a_clean_run_ends_with_0_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--first-seed", "1", "--seeds", "10", "--jobs", "1") == 0
    out = capsys.readouterr().out
    assert "appends acknowledged" in out
    assert Reach.FIGURE_EIGHT.value[:20] in out


def test_the_object_has_the_keys_that_are_promised(tmp_path: Path) -> None:
    assert run("--seeds", "3", "--jobs", "1", "--json", "all.json") == 0
    document = json.loads((tmp_path / "all.json").read_bytes())
    assert set(document) == {
        "seeds", "simulated_s", "excused_s", "wall_s", "events", "appends_acknowledged",
        "violations", "faults_injected", "reached", "commit",
    }  # fmt: skip
    assert document["seeds"] == 3
    assert document["simulated_s"] == 90.0
    assert document["violations"] == []
    assert document["commit"]


def test_the_object_on_stdout_is_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--first-seed", "13", "--seeds", "1", "--jobs", "1", "--faults", KILLS)
    assert run(*words, "--no-shrink", "--json", "-") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["seeds"] == 1
    assert "--replay 13" in captured.err


def test_a_failing_seed_prints_one_line_that_replays_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--first-seed", "10", "--seeds", "6", "--jobs", "1", "--replicas", "5")
    assert run(*words, "--faults", KILLS, "--no-shrink") == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "--replay" in line]
    (line,) = lines
    command, _, comment = line.partition("  # ")
    assert command == f"logstore simulate --replay 13 --replicas 5 --faults {KILLS}"
    assert comment == "I3: node 5 differs"
    assert run(*command.split()[2:]) == 1


def test_a_replay_writes_the_trace_and_fails_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--replay", "13", "--faults", KILLS, "--trace", "trace.txt") == 1
    faults = draw_script(
        13, replicas=None, classes=(FaultClass.KILL_REPLICA, FaultClass.POWER_CUT)
    ).faults
    lines = (tmp_path / "trace.txt").read_text().splitlines()
    assert lines == [f"fault {fault.kind}" for fault in faults]
    captured = capsys.readouterr().err
    assert "5.000000 s I3: node" in captured
    assert "event hash 0000000d" in captured


@pytest.mark.slow
def test_the_shrunk_script_is_written_named_and_fails_when_it_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--first-seed", "13", "--seeds", "1", "--jobs", "1", "--faults", KILLS) == 1
    path = tmp_path / "simulate-13.script.json"
    script = msgspec.json.decode(path.read_bytes(), type=Script)
    assert [fault.kind for fault in script.faults] == [FaultKind.KILL_REPLICA]
    assert "logstore simulate --script simulate-13.script.json" in capsys.readouterr().err
    assert run("--script", path.name) == 1


def test_under_trace_the_shrunk_script_lies_beside_the_trace(tmp_path: Path) -> None:
    assert run("--replay", "13", "--faults", KILLS, "--trace", "trace.txt", "--shrink") == 1
    assert (tmp_path / "trace.txt.script.json").is_file()


def test_one_seed_of_each_kind_of_failure_is_shrunk(tmp_path: Path) -> None:
    first = str(fake_run.BREAKS_I7)
    assert run("--first-seed", first, "--seeds", "30", "--jobs", "1", "--faults", KILLS) == 1
    shrunk = sorted(path.name for path in tmp_path.iterdir())
    i3 = next(seed for seed in range(5_000, 5_030) if seed % 13 == 0)
    assert shrunk == ["simulate-5000.script.json", f"simulate-{i3}.script.json"]


@pytest.mark.parametrize(
    "words",
    [
        ("--seeds", "3", "--minutes", "1"),
        ("--seeds", "0"),
        ("--minutes", "0"),
        ("--jobs", "0"),
        ("--replicas", "4"),
        ("--faults", "gremlins"),
        ("--faults", ""),
        ("--trace", "trace.txt"),
        ("--replay", "1", "--seeds", "2"),
        ("--replay", "1", "--minutes", "2"),
        ("--replay", "-1"),
        ("--script", "nothing-there.json"),
        ("ward",),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(words: tuple[str, ...]) -> None:
    assert run(*words) == 2


def test_a_file_that_holds_no_script_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text('{"seed": "one"}')
    assert run("--script", "wrong.json") == 2


def test_named_classes_are_those_that_strike(tmp_path: Path) -> None:
    assert run("--replay", "1", "--faults", "rot, partition", "--json", "one.json") == 0
    kinds = set(json.loads((tmp_path / "one.json").read_bytes())["faults_injected"])
    own = {"partition", "rot"}
    # a restart after rot, a handover, and slow flushes before rot
    assert own <= kinds <= own | {"kill-replica", "transfer", "disk-stall"}


# --- must-reach ---


def totals_of(seeds: int, reached: dict[str, int]) -> Totals:
    return Totals(commit="here", seeds=seeds, reached=reached)


def test_nothing_must_be_met_by_few_seeds_or_by_chosen_faults() -> None:
    assert simulate_report.must_reach_missing(totals_of(9_999, {}), is_limited=False) == []
    assert simulate_report.must_reach_missing(totals_of(10_000, {}), is_limited=True) == []


def test_ten_thousand_seeds_must_have_met_everything_that_is_built() -> None:
    met = {each.name: 1 for each in MUST_REACH}
    assert simulate_report.must_reach_missing(totals_of(10_000, met), is_limited=False) == []
    del met[Reach.FIGURE_EIGHT.name]
    missing = simulate_report.must_reach_missing(totals_of(10_000, met), is_limited=False)
    assert missing == [Reach.FIGURE_EIGHT]
    assert not set(MUST_REACH) & set(NOT_BUILT)
    assert set(MUST_REACH) | set(NOT_BUILT) == set(Reach)


def test_a_situation_never_met_ends_the_command_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulate_report, "MUST_REACH_SEEDS", 3)
    assert run("--seeds", "3", "--jobs", "1") == 1
    assert "never met: SEQUENCE_REUSED" in capsys.readouterr().err


# --- the end ---


@pytest.mark.slow
def test_ctrl_c_ends_all_jobs_and_still_says_what_was_found(tmp_path: Path) -> None:
    code = (
        "import sys; from logstore.cli import simulate; from logstore.cli.main import main; "
        f"simulate.RUNNER = {RUNNER!r}; sys.exit(main(['simulate', '--minutes', '9', '--jobs', "
        f"'2', '--faults', {KILLS!r}, '--no-shrink', '--json', 'all.json']))"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {code}"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as command:
        assert command.stderr is not None
        line = command.stderr.readline()  # of the first seed that failed
        jobs = psutil.Process(command.pid).children(recursive=True)
        command.send_signal(signal.SIGINT)
        rest = command.stderr.read()
        assert (command.wait(60), rest) == (130, rest)
    assert "--replay" in line
    assert len(jobs) >= 2
    _, alive = psutil.wait_procs(jobs, timeout=30)
    assert not alive
    assert json.loads((tmp_path / "all.json").read_bytes())["seeds"] > 0
