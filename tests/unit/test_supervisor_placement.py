"""Placement on this machine: what is refused, who follows the config file, what is reported."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread, get_native_id

import msgspec
import pytest

from actors import thread_placement
from actors.supervisor.placement import Machine, look_at_machine, placements_on
from actors.supervisor.placement_file import PlacementFile
from actors.supervisor.placement_keeper import PlacementKeeper
from actors.supervisor.placement_report import encode_report, read_report
from actors.thread_placement import cpus_and_nice, lowest_nice, place_threads
from logstore.config import parse_config
from logstore.config_placement import Placement
from logstore.errors import ConfigError
from logstore.model import NodeId

TEXT = """
[cluster]
name = "placed"
[[nodes]]
node = 1
port = 7100
[[nodes]]
node = 2
port = 7110
[process]
mode = "processes"
cpus = {writer = [0]}
nice = {writer = 3}
"""
NODE = NodeId(1)
HERE = cpus_and_nice(os.getpid())
MACHINE = Machine(cpus=(0, 1, 2), nice=0, nice_min=0)


# --- what this machine can do ---


def test_what_the_file_leaves_open_is_filled_in_from_the_machine() -> None:
    placements = placements_on(MACHINE, parse_config(TEXT), NODE)
    assert placements["writer"] == Placement(cpus=(0,), nice=3, io_threads=0)
    assert placements["replicator-2"] == Placement(cpus=(0, 1, 2), nice=0, io_threads=1)


def test_a_child_of_a_pinned_supervisor_may_run_anywhere() -> None:
    config = parse_config(TEXT.replace("writer = [0]", "supervisor = [1]"))
    placements = placements_on(MACHINE, config, NODE)
    assert placements["supervisor"].cpus == (1,)
    assert placements["egress"].cpus == (0, 1, 2)


def test_a_cpu_that_the_machine_lacks_is_refused_by_name() -> None:
    config = parse_config(TEXT.replace("writer = [0]", "replicator-2 = [3]"))
    with pytest.raises(
        ConfigError, match=r"node 1: cpus of replicator-2: no CPU 3 here.*\[0, 1, 2"
    ):
        placements_on(MACHINE, config, NODE)


def test_a_niceness_that_nobody_here_may_set_is_refused_with_what_would_allow_it() -> None:
    config = parse_config(TEXT.replace("writer = 3", "writer = -5"))
    with pytest.raises(ConfigError, match=r"nice of writer: -5 .* 0 is the lowest.*LimitNICE=-5"):
        placements_on(MACHINE, config, NODE)
    allowed = msgspec.structs.replace(MACHINE, nice_min=-5)
    assert placements_on(allowed, config, NODE)["writer"].nice == -5


def test_looking_at_the_machine_changes_nothing_of_this_process() -> None:
    machine = look_at_machine()
    assert cpus_and_nice(os.getpid()) == HERE == (machine.cpus, machine.nice)
    assert machine.nice_min <= machine.nice


def test_the_lowest_niceness_is_the_first_that_the_kernel_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse_below_minus_7(_which: int, _who: int, nice: int) -> None:
        if nice < -7:
            raise PermissionError("no right to it")

    monkeypatch.setattr(thread_placement.os, "getpriority", lambda *_: 4)
    monkeypatch.setattr(thread_placement.os, "setpriority", refuse_below_minus_7)
    assert lowest_nice() == -7


# --- threads ---


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A second thread of this process; its id."""
    began, ends, ids = Event(), Event(), []

    def sleep() -> None:
        ids.append(get_native_id())
        began.set()
        ends.wait()

    thread = Thread(target=sleep)
    thread.start()
    began.wait()
    yield ids[0]
    ends.set()
    thread.join()


def test_threads_that_run_already_are_placed_too(sleeper: int) -> None:
    """The kernel would place the main thread only: a writer's flush thread would stay."""
    one = (HERE[0][0],)
    try:
        place_threads(os.getpid(), Placement(cpus=one))
        assert cpus_and_nice(os.getpid())[0] == one
        assert cpus_and_nice(sleeper)[0] == one
    finally:
        place_threads(os.getpid(), Placement(cpus=HERE[0]))
    assert cpus_and_nice(sleeper) == HERE


def test_a_thread_that_refuses_keeps_no_other_from_its_niceness(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(_which: int, thread: int, _nice: int) -> None:
        asked.append(thread)
        raise PermissionError("no right to it")

    monkeypatch.setattr(thread_placement.os, "setpriority", refuse)
    with pytest.raises(PermissionError):
        place_threads(os.getpid(), Placement(nice=-20))
    assert {os.getpid(), sleeper} <= set(asked)
    assert len(asked) == len(set(asked)), "each once"


def test_threads_that_are_started_meanwhile_take_the_niceness_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was started by a thread that had the old niceness has the old one."""
    looks = iter([["1", "2"], ["1", "2", "3"], ["1", "2", "3"]])
    placed: list[int] = []
    monkeypatch.setattr(thread_placement.os, "listdir", lambda _: next(looks))
    monkeypatch.setattr(
        thread_placement.os, "setpriority", lambda _which, thread, _nice: placed.append(thread)
    )
    place_threads(1, Placement(nice=3))
    assert placed == [1, 2, 3]


def test_cpus_are_taken_even_if_the_niceness_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError("no right to it")

    monkeypatch.setattr(thread_placement.os, "setpriority", refuse)
    one = (HERE[0][0],)
    try:
        with pytest.raises(PermissionError):
            place_threads(os.getpid(), Placement(cpus=one, nice=-20))
        assert cpus_and_nice(os.getpid())[0] == one
    finally:
        place_threads(os.getpid(), Placement(cpus=HERE[0]))


# --- the file, while a replica runs ---


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(TEXT)
    return path


def write(path: Path, text: str) -> None:
    """As a file of its own: one that is written twice within a tick of the file system's clock may
    look unchanged."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


@pytest.fixture
def file(config_path: Path) -> PlacementFile:
    return PlacementFile(parse_config(TEXT), NODE, MACHINE, config_path)


def test_a_changed_file_is_followed(file: PlacementFile, config_path: Path) -> None:
    file.look()
    write(config_path, TEXT.replace("writer = [0]", "writer = [0, 1]"))
    assert file.of("writer").cpus == (0,)
    file.look()
    assert file.of("writer").cpus == (0, 1)


def test_a_node_that_is_added_to_the_file_changes_nothing_here(
    file: PlacementFile, config_path: Path
) -> None:
    file.look()
    before = dict(file.placements)
    write(config_path, TEXT + "[[nodes]]\nnode = 4\nport = 7140\n")
    assert file.look()
    assert (file.placements, file.refusal) == (before, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("writer = [0]", "writer = [9]"), "no CPU 9 here"),
        ("[cluster", "is not TOML that can be read"),
        (TEXT.replace("node = 1", "node = 7"), "no node 1"),
        (
            TEXT.replace("node = 2", "node = 3"),
            "other nodes or another layout than",
        ),
        (TEXT.replace('"placed"', '"another"'), "has another cluster"),
        (TEXT.replace("port = 7110", f"port = {'9' * 5_000}"), "is not TOML that can be read"),
        (f"a = {'[' * 3_000}", "is not TOML that can be read"),
        (TEXT + f'[retention]\nbytes = "{"9" * 5_000}B"\n', "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_had_changes_nothing_and_is_reported_until_it_is_mended(
    file: PlacementFile, config_path: Path, text: str | None, why: str
) -> None:
    file.look()
    before = dict(file.placements)
    config_path.unlink()
    if text is not None:
        write(config_path, text)
    file.look()
    assert file.placements == before
    assert why in file.refusal
    write(config_path, TEXT.replace("writer = 3", "writer = 4"))
    file.look()
    assert (file.refusal, file.of("writer").nice) == ("", 4)


def test_a_refusal_that_quotes_the_file_is_bounded(file: PlacementFile, config_path: Path) -> None:
    write(config_path, f"{TEXT}{'a' * 2_000_000} = 1\n")
    file.look()
    assert "unknown key" not in file.refusal
    assert len(file.refusal) == 1_000


class _Moves:
    """Instead of the kernel: who was placed, and where."""

    def __init__(self) -> None:
        self.made: list[tuple[int, tuple[int, ...], int | None]] = []

    def __call__(self, pid: int, placement: Placement) -> None:
        self.made.append((pid, placement.cpus, placement.nice))


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> _Moves:
    moves = _Moves()
    monkeypatch.setattr("actors.supervisor.placement_keeper.place_threads", moves)
    return moves


@pytest.fixture
def keeper(file: PlacementFile, tmp_path: Path, moves: _Moves) -> Iterator[PlacementKeeper]:
    keeper = PlacementKeeper(file, NODE, tmp_path)
    keeper.place_supervisor()
    moves.made.clear()
    yield keeper
    keeper.close()


WRITER = os.getpid()


def test_a_running_process_moves_when_it_has_begun_and_when_the_file_changes_and_only_then(
    keeper: PlacementKeeper, config_path: Path, moves: _Moves
) -> None:
    keeper.begin("writer")
    keeper.keep({"writer": WRITER}, {"writer": 5})
    keeper.keep({"writer": WRITER}, {"writer": 5})
    assert moves.made == [(WRITER, (0,), 3)]
    moves.made.clear()
    write(config_path, TEXT.replace("writer = [0]", "writer = [1]"))
    keeper.keep({"writer": WRITER}, {"writer": 6})
    keeper.keep({"writer": WRITER}, {"writer": 7})
    assert moves.made == [(os.getpid(), (0, 1, 2), 0), (WRITER, (1,), 3)]  # the supervisor, too


def test_a_file_that_is_written_again_brings_back_what_was_moved_since(
    keeper: PlacementKeeper, config_path: Path, moves: _Moves
) -> None:
    """What `logstore placement set` does with values that the file has already."""
    keeper.begin("writer")
    write(config_path, TEXT)
    keeper.keep({"writer": WRITER}, {"writer": 6})
    assert (WRITER, (0,), 3) in moves.made


def test_a_process_that_the_kernel_does_not_let_move_is_tried_again(
    keeper: PlacementKeeper,
    config_path: Path,
    moves: _Moves,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(pid: int, placement: Placement) -> None:
        raise OSError(errno.EINVAL, "no such CPU just now")

    keeper.begin("writer")
    write(config_path, TEXT)
    with monkeypatch.context() as patch:
        patch.setattr("actors.supervisor.placement_keeper.place_threads", refuse)
        for _ in range(3):
            keeper.keep({"writer": WRITER}, {"writer": 6})
    said = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == 2, "once for the writer, once for the supervisor"
    keeper.keep({"writer": WRITER}, {"writer": 7})
    assert (WRITER, (0,), 3) in moves.made


def test_a_supervisor_that_is_not_placed_when_it_starts_is_tried_again(
    file: PlacementFile, tmp_path: Path, moves: _Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, placement: Placement) -> None:
        raise OSError(errno.EINVAL, "no such CPU just now")

    keeper = PlacementKeeper(file, NODE, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("actors.supervisor.placement_keeper.place_threads", refuse)
        keeper.place_supervisor()
    for _ in range(2):
        keeper.keep({}, {})
    assert moves.made == [(os.getpid(), (0, 1, 2), 0)]
    keeper.close()


def test_a_process_that_has_not_begun_its_loop_is_moved_once_it_has(
    keeper: PlacementKeeper, config_path: Path, moves: _Moves
) -> None:
    """Before, it would take what it was started with afterwards."""
    keeper.begin("writer")
    write(config_path, TEXT.replace("writer = [0]", "writer = [1]"))
    keeper.keep({"writer": WRITER}, {"writer": 0})
    assert (WRITER, (1,), 3) not in moves.made
    keeper.keep({"writer": WRITER}, {"writer": 1})
    assert (WRITER, (1,), 3) in moves.made


def test_a_process_that_is_started_again_takes_what_the_file_says_then(
    keeper: PlacementKeeper, config_path: Path
) -> None:
    assert keeper.begin("writer").cpus == (0,)
    write(config_path, TEXT.replace("writer = [0]", "writer = [2]"))
    assert keeper.begin("writer").cpus == (2,)


def test_io_threads_are_reported_as_they_are_until_the_next_start(
    keeper: PlacementKeeper, config_path: Path
) -> None:
    keeper.begin("egress")
    write(config_path, TEXT + "io_threads = {egress = 4}\n")
    egress = keeper.keep({"egress": WRITER}, {"egress": 9}).processes["egress"]
    assert egress.now is not None
    assert (egress.now.io_threads, egress.configured.io_threads) == (1, 4)
    keeper.begin("egress")
    egress = keeper.keep({"egress": WRITER}, {"egress": 1}).processes["egress"]
    assert egress.now is not None
    assert egress.now.io_threads == 4


def test_the_report_has_what_the_kernel_says_and_none_of_a_process_that_does_not_run(
    keeper: PlacementKeeper,
) -> None:
    keeper.begin("writer")
    report = keeper.keep({"writer": WRITER}, {"writer": 1})
    writer, raft = report.processes["writer"], report.processes["raft"]
    assert writer.now is not None
    assert (writer.pid, writer.now.cpus, writer.now.nice) == (WRITER, *HERE)
    assert writer.configured.nice == 3
    assert (raft.pid, raft.now) == (0, None)


def test_the_report_is_read_through_the_data_folder_and_gone_with_its_owner(
    file: PlacementFile, config_path: Path, tmp_path: Path, moves: _Moves
) -> None:
    keeper = PlacementKeeper(file, NODE, tmp_path)
    keeper.place_supervisor()
    assert read_report(tmp_path) is None  # nothing was reported yet
    first = keeper.keep({}, {})
    assert read_report(tmp_path) == first
    assert first.config_path == str(config_path)
    for text in (TEXT.replace("writer = [0]", "writer = [0, 1]"), TEXT):  # longer, shorter
        write(config_path, text)
        report = keeper.keep({}, {})
        assert read_report(tmp_path) == report
    keeper.close()
    assert read_report(tmp_path) is None


def test_no_names_of_files_leave_the_machine(keeper: PlacementKeeper, config_path: Path) -> None:
    write(config_path, "[cluster")
    report = keeper.keep({}, {})
    assert str(config_path) in report.refusal
    assert str(config_path).encode() not in encode_report(report)
    assert b"its configuration: is not TOML that can be read" in encode_report(report)


def test_a_path_of_any_bytes_is_reported(
    tmp_path: Path, moves: _Moves, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.toml")
    path.write_text(TEXT)
    keeper = PlacementKeeper(PlacementFile(parse_config(TEXT), NODE, MACHINE, path), NODE, tmp_path)
    keeper.place_supervisor()
    assert keeper.keep({}, {}).config_path.endswith("caf\\udce9.toml")
    path.write_text("[cluster")
    report = keeper.keep({}, {})
    assert "caf\\udce9.toml" in report.refusal
    assert caplog.text.encode()
    assert b".toml" not in encode_report(report)
    keeper.close()


def test_a_link_that_leads_to_another_file_is_no_report(tmp_path: Path) -> None:
    """After a kill, the pid and its descriptors may be another process'."""
    reader, writer = os.pipe()
    (tmp_path / "placement").symlink_to(f"/proc/{os.getpid()}/fd/{reader}")
    assert read_report(tmp_path) is None
    os.write(writer, b"x")
    assert os.read(reader, 1) == b"x", "nothing was taken out of the pipe"
    os.close(reader)
    os.close(writer)
