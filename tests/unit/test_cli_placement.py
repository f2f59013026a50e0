"""`logstore placement set`: what is refused, and that a file keeps what people wrote."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from actors.supervisor.placement import Machine, placements_on
from actors.supervisor.placement_report import PlacementReport, ProcessReport, ReportLink
from logstore.cli import placement_change
from logstore.cli.config_edit import edit_placement, locked_config, replace_file
from logstore.cli.exit_status import ExitStatus
from logstore.cli.trouble import placement_words
from logstore.config import parse_config
from logstore.config_layout import layout_of
from logstore.errors import InvalidRequest
from logstore.model import NodeId
from tests.unit.cli_stage import run

TEXT = """\
# Ours, since spring.

[cluster]
name = "placed"   # as on the door

[[nodes]]
node = 1
port = 7100
cpus = { raft = [1], ingress = [0] }  # measured

[[nodes]]  # the second one
node = 2
port = 7110

[process]
mode = "processes"
"""
MACHINE = Machine(cpus=(0, 1), nice=0, nice_min=-5)
Captured = pytest.CaptureFixture[str]
FIRST = "[[nodes]]\nnode = 1\nport = 7100\n"


# --- the file ---


def test_an_edit_keeps_comments_order_and_the_other_nodes() -> None:
    edited = edit_placement(TEXT, 2, ["writer"], {"cpus": [0, 1], "nice": -5})
    added = "port = 7110\ncpus = {writer = [0, 1]}\nnice = {writer = -5}\n"
    assert edited == TEXT.replace("port = 7110\n", added)


def test_an_edit_changes_one_process_of_a_line_that_is_there() -> None:
    edited = edit_placement(TEXT, 1, ["raft", "egress"], {"cpus": [0]})
    assert parse_config(edited).node(1).cpus == {"raft": [0], "ingress": [0], "egress": [0]}
    assert "# measured" in edited


def test_default_takes_an_entry_out_and_an_empty_table_with_it() -> None:
    edited = edit_placement(TEXT, 1, ["raft"], {"cpus": None, "nice": None})
    assert parse_config(edited).node(1).cpus == {"ingress": [0]}
    edited = edit_placement(edited, 1, ["ingress"], {"cpus": None})
    assert "cpus" not in edited
    assert edit_placement(edited, 1, ["ingress"], {"cpus": None}) == edited


def test_tables_that_are_written_out_are_edited_too() -> None:
    text = TEXT.replace("port = 7110\n", "port = 7110\n[nodes.nice]\nraft = 1\n")
    edited = edit_placement(text, 2, ["writer"], {"nice": 2, "io_threads": None})
    assert parse_config(edited).node(2).nice == {"raft": 1, "writer": 2}


def test_all_replicators_are_those_that_are_named_one_by_one_too() -> None:
    text = TEXT.replace("raft = [1]", "replicator-2 = [1], raft = [1]")
    edited = edit_placement(text, 1, ["replicator"], {"cpus": [0]})
    assert parse_config(edited).node(1).cpus == {"raft": [1], "ingress": [0], "replicator": [0]}
    edited = edit_placement(text, 1, ["replicator"], {"cpus": None})
    assert parse_config(edited).node(1).cpus == {"raft": [1], "ingress": [0]}


def test_comments_stay_above_the_table_they_are_about() -> None:
    text = TEXT.replace("[process]", "# how it runs\n[process]")
    edited = edit_placement(text, 2, ["writer"], {"nice": 3})
    assert "port = 7110\nnice = {writer = 3}\n\n# how it runs\n[process]" in edited


@pytest.mark.parametrize(
    "nodes",
    [
        "nodes = [{node = 1, port = 7100}, {node = 2, port = 7110}]\n",
        f"{FIRST}[nodes.cpus]\nraft=[1]\n[[nodes]]\nnode = 2\nport = 7110\n",
        f"{FIRST}cpus.raft = [1]\n[[nodes]]\nnode = 2\nport = 7110 # last",
    ],
)
@pytest.mark.parametrize("node", [1, 2])
def test_every_form_of_a_table_takes_an_entry(nodes: str, node: int) -> None:
    text = f'{nodes}\n[cluster]\nname = "x"\n'
    before = parse_config(text).node(node)
    after = parse_config(edit_placement(text, node, ["writer"], {"cpus": [0], "nice": 2}))
    assert after.node(node).cpus == {**before.cpus, "writer": [0]}
    assert after.node(node).nice == {"writer": 2}


def test_lines_end_as_they_did(played: PlayedReplica) -> None:
    played.path.write_bytes(TEXT.replace("\n", "\r\n").encode())
    assert played.set("writer", "--nice", "-5") == ExitStatus.DONE
    lines = played.path.read_bytes().splitlines(keepends=True)
    assert [line for line in lines if not line.endswith(b"\r\n")] == [b"nice = {writer = -5}\n"]


def test_a_full_disk_changes_nothing_and_says_so(
    played: PlayedReplica, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("logstore.cli.config_edit.flush_path", refuse)
    assert played.set("writer", "--nice", "-5") == ExitStatus.USAGE
    said = capsys.readouterr().err
    assert "cluster.toml cannot be written, nothing was changed: No space left" in said
    assert played.path.read_text() == TEXT
    assert sorted(os.listdir(played.path.parent)) == ["cluster.toml", "node-2"]


def test_a_folder_that_cannot_be_flushed_is_said_once_the_file_is_changed(
    played: PlayedReplica, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse_folders(path: Path) -> None:
        if path.is_dir():
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("logstore.cli.config_edit.flush_path", refuse_folders)
    assert played.set("writer", "--nice", "-5") == ExitStatus.USAGE
    said = capsys.readouterr().err
    assert "cluster.toml was changed, but may be the old one after a power failure" in said
    assert parse_config(played.path.read_text()).node(2).nice == {"writer": -5}


def test_a_folder_that_cannot_be_locked_is_named(
    played: PlayedReplica, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("logstore.cli.config_edit.fcntl.flock", refuse)
    assert played.set("writer", "--nice", "-5") == ExitStatus.USAGE
    said = capsys.readouterr().err
    assert "cluster.toml cannot be locked, nothing was changed: No locks available" in said
    assert played.path.read_text() == TEXT


def test_what_the_file_says_already_is_written_again(played: PlayedReplica) -> None:
    """So that the supervisor gives a process its place again that was moved since."""
    assert played.set("writer", "--nice", "-5") == ExitStatus.DONE
    before = played.path.read_text(), played.path.stat().st_ino
    assert played.set("writer", "--nice", "-5") == ExitStatus.DONE
    assert played.path.read_text() == before[0]
    assert played.path.stat().st_ino != before[1]


def test_nobody_is_told_to_kill_the_supervisor(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    played.cpus_stay = True
    assert played.set("supervisor", "--cpus", "1") == ExitStatus.NO
    said = capsys.readouterr().err
    assert "supervisor: CPUs 1 not yet" in said
    assert "when it starts again, too (restart the replica)" in said


def test_a_file_is_replaced_whole_with_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(TEXT)
    path.chmod(0o640)
    replace_file(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["cluster.toml"]


def test_the_group_of_a_file_is_kept_where_its_owner_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int]] = []

    def refuse_owners(_file: int, owner: int, group: int) -> None:
        if owner != -1:
            raise PermissionError("only root gives files away")
        given.append((owner, group))

    path = tmp_path / "cluster.toml"
    path.write_text(TEXT)
    monkeypatch.setattr("logstore.cli.config_edit.os.fchown", refuse_owners)
    replace_file(path, "new")
    assert given == [(-1, path.stat().st_gid)]
    assert path.read_text() == "new"


def test_two_commands_do_not_change_one_file_at_a_time(tmp_path: Path) -> None:
    link, path = tmp_path / "link.toml", tmp_path / "real" / "cluster.toml"
    path.parent.mkdir()
    path.write_text(TEXT)
    link.symlink_to(path)
    with locked_config(link) as target:
        assert target == path
        with pytest.raises(InvalidRequest, match="try again"), locked_config(path):
            raise AssertionError("both may change it")
    with locked_config(path):
        pass


# --- set, on a replica that is played ---


class PlayedReplica:
    """A supervisor that follows its file when it is looked at; `obeys`: whether it does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "cluster.toml"
        self.path.write_text(TEXT)
        self.folder = folder / "node-2"
        self.folder.mkdir()
        self._link = ReportLink(self.folder)
        self._started = placements_on(MACHINE, parse_config(TEXT), NodeId(2))
        self.pid = os.getpid()
        self.obeys = True
        self.refusal = ""
        self.nice_stays = False
        self.cpus_stay = False
        self.follow()

    def follow(self) -> None:
        """What happens within a second of a change."""
        config = parse_config(self.path.read_text() if self.obeys else TEXT)
        processes, layout = {}, layout_of(config, 2)
        for number, (name, wanted) in enumerate(placements_on(MACHINE, config, NodeId(2)).items()):
            now = msgspec.structs.replace(
                wanted, io_threads=self._started.get(name, wanted).io_threads
            )
            if self.nice_stays:
                now = msgspec.structs.replace(now, nice=0)
            if self.cpus_stay:
                now = msgspec.structs.replace(now, cpus=MACHINE.cpus)
            pid, actors = 100 + number if number else self.pid, layout.get(name, ())
            processes[name] = ProcessReport(pid, now, wanted, actors)
        self._link.write(PlacementReport(2, MACHINE, self.refusal, processes, str(self.path)))

    def set(self, *arguments: str) -> int:
        own = ("--config", self.path, "--node", "2", "--dir", self.folder)
        return run("placement", "set", *arguments, *own)

    def close(self) -> None:
        self._link.close()


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedReplica]:
    replica = PlayedReplica(tmp_path)

    def look_twice(is_true: Callable[[], bool], _timeout_s: float) -> bool:
        replica.follow()
        return is_true()

    monkeypatch.setattr(placement_change, "poll_until", look_twice)
    online = replica.folder / "online"
    online.write_text("0-1\n")
    monkeypatch.setattr(placement_change, "_CGROUPS", str(replica.folder))
    monkeypatch.setattr(placement_change, "_ONLINE", str(online))
    yield replica
    replica.close()


def test_what_is_set_is_kept_in_the_file(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played.set("writer", "replicator", "--cpus", "1", "--nice", "-5") == ExitStatus.DONE
    node = parse_config(played.path.read_text()).node(2)
    assert node.cpus == {"writer": [1], "replicator": [1]}
    assert node.nice == {"writer": -5, "replicator": -5}
    said = capsys.readouterr()
    assert "replicator-1" in said.out
    assert "egress" not in said.out
    assert played.set("writer", "--cpus", "default", "--nice", "default") == ExitStatus.DONE
    assert parse_config(played.path.read_text()).node(2).cpus == {"replicator": [1]}


def test_default_says_what_the_table_of_every_node_still_says(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TEXT.replace("[process]", "[process]\nnice = {replicator = 3, raft = 4}")
    assert config != TEXT
    played.path.write_text(config)
    assert played.set("replicator", "--nice", "5") == ExitStatus.DONE
    assert "still says" not in capsys.readouterr().err
    assert played.set("replicator", "raft", "--nice", "default") == ExitStatus.DONE
    said = capsys.readouterr().err
    assert (
        "replicator-1: [process], which is of every node, still says nice = {replicator = " in said
    )
    assert "raft: [process], which is of every node, still says nice = {raft = 4}: change" in said


def test_io_threads_are_said_to_wait_for_the_next_start(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played.set("egress", "ingress", "--io-threads", "2") == ExitStatus.DONE
    said = capsys.readouterr().err
    assert "egress: 2 IO threads when it starts again (`kill 104` does it)" in said
    assert "ingress: 2 IO threads when it starts again (restart the replica)" in said


def test_what_a_process_does_not_take_yet_is_said_to_be_tried_on(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    played.nice_stays = True
    assert played.set("writer", "--nice", "-5") == ExitStatus.NO
    said = capsys.readouterr().err
    assert "writer: nice -5 not yet: the replica tries each second" in said
    assert "when it starts again, too (restart the replica)" in said
    assert played.set("egress", "--nice", "-5", "--io-threads", "2") == ExitStatus.NO
    said = capsys.readouterr().err
    assert "egress: nice -5 not yet" in said
    assert "; 2 IO threads when it starts again (`kill 104` does it)" in said


def test_a_replica_that_does_not_follow_is_unreachable(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    played.obeys = False
    assert played.set("writer", "--cpus", "1") == ExitStatus.UNREACHABLE
    assert "was changed, but the replica has not followed it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("writer", "--cpus", "4096"), r"no CPU 4096 here; this process may use [0, 1]"),
        (("writer", "--cpus", "0-7"), r"no CPU 2 here"),
        (("writer", "--cpus", "x"), r"'x' is no list of CPUs"),
        (("writer", "--nice", "-6"), r"-6 is not allowed here, -5 is the lowest"),
        (("writer", "--nice", "20"), r"20 is not in the range"),
        (("supervisor", "--nice", "1"), r"nice -n"),
        (("raft", "--io-threads", "2"), r"has no ZeroMQ sockets"),
        (("egress", "--io-threads", "9"), r"9 is not in the range"),
        (("disk", "--cpus", "1"), r"no process 'disk'; there are supervisor, writer"),
        (("replicator-2", "--cpus", "1"), r"no process 'replicator-2'"),
        (("writer",), r"nothing to set: name --cpus, --nice or --io-threads"),
    ],
)
def test_the_impossible_is_refused_and_nothing_is_changed(
    played: PlayedReplica,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    why: str,
) -> None:
    assert played.set(*arguments) == ExitStatus.USAGE
    assert why in capsys.readouterr().err
    assert played.path.read_text() == TEXT


@pytest.mark.parametrize(
    "name", ["{group}/cpuset.cpus.effective", "cpuset/{group}/cpuset.effective_cpus"]
)
def test_a_cpu_that_the_cgroup_has_lost_since_the_start_is_refused(
    played: PlayedReplica,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """The kernel would refuse it, and the replica would not start again with it in its file."""
    group = Path(f"/proc/{played.pid}/cpuset").read_text().strip().lstrip("/")
    now = Path(f"{tmp_path}/{name.format(group=group)}")
    now.parent.mkdir(parents=True, exist_ok=True)
    now.write_text("0\n")
    monkeypatch.setattr(placement_change, "_CGROUPS", str(tmp_path))
    assert played.set("writer", "--cpus", "0-1") == ExitStatus.USAGE
    said = capsys.readouterr().err
    assert "CPU 1 was there when the replica started and is not now" in said
    assert played.path.read_text() == TEXT
    assert played.set("writer", "--cpus", "0") == ExitStatus.DONE


def test_a_cpu_that_is_offline_is_refused_where_no_cgroup_is_seen(
    played: PlayedReplica,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    online = tmp_path / "online"
    online.write_text("0,2-3\n")
    monkeypatch.setattr(placement_change, "_ONLINE", str(online))
    assert played.set("writer", "--cpus", "1") == ExitStatus.USAGE
    assert "it is offline" in capsys.readouterr().err


def test_a_change_that_takes_a_spinning_process_its_cpu_is_refused(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    spinning = TEXT.replace("port = 7110", "port = 7110\ncpus = {raft = [1]}")
    spinning += 'spin = ["raft"]\n'
    played.path.write_text(spinning)
    assert played.set("writer", "--cpus", "0-1") == ExitStatus.USAGE
    assert "'raft' has no CPU of its own on node 2" in capsys.readouterr().err
    assert played.path.read_text() == spinning


def test_another_node_another_file_and_another_folder_are_refused(
    played: PlayedReplica, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text(TEXT)
    own = ("placement", "set", "writer", "--cpus", "1")
    for config, node, folder, why in (
        (played.path, "1", played.folder, "node 2 runs in"),
        (played.path, "3", played.folder, "no node 3"),
        (copy, "2", played.folder, "was started with"),
        (played.path, "2", tmp_path, "no replica runs in"),
    ):
        status = run(*own, "--config", config, "--node", node, "--dir", folder)
        assert status == ExitStatus.USAGE
        assert why in capsys.readouterr().err
    assert played.path.read_text() == TEXT


def test_a_file_with_other_nodes_than_those_that_run_is_not_changed(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    in_groups = TEXT.replace("raft = [1], ", "").replace("ingress = [0]", "shared = [0]")
    for other, processes in (
        (TEXT.replace("node = 1", "node = 3"), ("writer", "replicator")),
        # those of the replica, of the file, and of neither
        (in_groups.replace('"processes"', '"shared"'), ("writer", "raft", "shared", "nobody")),
    ):
        played.path.write_text(other)
        for process in processes:
            assert played.set(process, "--nice", "-5") == ExitStatus.USAGE
            assert "has other nodes or another layout than this replica" in capsys.readouterr().err
        assert played.path.read_text() == other


def test_a_replica_that_refuses_the_file_has_not_followed_it(
    played: PlayedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the value that it has by an older file already, which looks as if it had."""
    played.refusal = "has another cluster"
    played.follow()
    assert played.set("writer", "--nice", "default") == ExitStatus.UNREACHABLE
    assert "(has another cluster)" in capsys.readouterr().err


def test_a_second_name_of_the_file_stays_a_name_of_it_no_longer(
    played: PlayedReplica, tmp_path: Path
) -> None:
    """The name that the replica follows gets the change, whichever one was given."""
    second = tmp_path / "second.toml"
    os.link(played.path, second)
    own = ("--config", second, "--node", "2", "--dir", played.folder)
    assert run("placement", "set", "writer", "--nice", "-5", *own) == ExitStatus.DONE
    assert parse_config(played.path.read_text()).node(2).nice == {"writer": -5}
    assert second.read_text() == TEXT


def test_an_actor_of_a_group_is_refused_by_name(played: PlayedReplica, capsys: Captured) -> None:
    text = TEXT.replace("{ raft = [1], ingress = [0] }", "{ shared = [1] }")
    played.path.write_text(text.replace('mode = "processes"', 'mode = "shared"'))
    played.follow()
    assert played.set("raft", "--cpus", "1") == ExitStatus.USAGE
    assert "there are supervisor, writer, shared; raft runs in shared" in capsys.readouterr().err


# --- words of the status ---


def test_a_status_says_who_is_not_where_the_configuration_says() -> None:
    as_configured = {"cpus": [0, 1], "nice": 0, "io_threads": 1, "spin": False}
    report = {"pid": 7, "now": as_configured, "configured": as_configured}
    row = {"placement": {"refusal": "", "processes": {"egress": report}}}
    assert placement_words(row) == ""
    assert placement_words({"placement": None}) == ""
    wanted = {"cpus": [1], "nice": -5, "io_threads": 2, "spin": True}
    row = {
        "placement": {
            "refusal": "no CPU 9",
            "processes": {"egress": report | {"configured": wanted}},
        }
    }
    assert placement_words(row) == (
        "the placement in its configuration is not taken: no CPU 9; egress has CPUs 0-1, niceness "
        "0, 1 IO threads, parking; its configuration says CPUs 1, niceness -5, 2 IO threads, "
        "spinning"
    )
    stopped = report | {"now": None, "configured": wanted}
    assert placement_words({"placement": {"processes": {"egress": stopped}}}) == ""
