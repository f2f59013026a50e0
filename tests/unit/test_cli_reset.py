"""`logstore reset`: a folder is moved aside and never deleted; what is refused leaves it alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from logstore.cli import stopped_folder
from logstore.cli.stopped_folder import stopped
from logstore.storage.meta_store import META_NAMES
from tests.unit.cli_stage import run
from tests.unit.folder_stage import FolderStage, batch, flip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Node 1's, with a log."""
    path = tmp_path / "logstore-data" / "node-1"
    stage = FolderStage(path)
    stage.append(batch([b"one"]))
    stage.close()
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_folder_gets_a_name_with_the_time_and_keeps_all_it_has(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder)
    assert run("reset", "--node", "1", "--dir", folder) == 0
    assert not folder.exists()
    [aside] = folder.parent.iterdir()
    assert re.fullmatch(r"node-1\.aside-\d{8}T\d{6}Z", aside.name)
    assert contents(aside) == before
    said = capfd.readouterr().err
    assert f"{folder} is {aside} now; nothing is deleted" in said
    assert "it takes no part" in said
    assert run("reset", "--node", "1", "--dir", folder) == 2, "there is nothing any more"
    assert run("salvage", aside, "--dry-run") == 0


def test_a_replica_whose_meta_is_lost_is_what_it_is_for(folder: Path) -> None:
    for name in META_NAMES:
        flip(folder, name, 30)
    assert run("reset", "--node", "1", "--dir", folder) == 0


@pytest.mark.parametrize("parent", ["logstore-data", "logstore-cluster"])
def test_the_folder_is_found_where_serve_and_cluster_up_have_it(
    folder: Path,
    parent: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    site = folder.parent.parent
    monkeypatch.chdir(site)
    folder.parent.rename(site / parent)
    assert run("reset", "--node", "1", "--json", "-") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["folder"] == str(site / parent / "node-1")
    assert Path(told["aside"]).is_dir()
    assert run("reset", "--node", "1") == 2
    assert "there is neither logstore-data/node-1 nor logstore-cluster/node-1" in (
        capfd.readouterr().err
    )


def test_the_folder_of_a_cluster_may_be_named(folder: Path) -> None:
    assert run("reset", "--node", "1", "--dir", folder.parent) == 0
    assert not folder.exists()


def test_a_node_that_the_cluster_does_not_have_is_named(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("reset", "--node", "9", "--dir", folder.parent) == 2
    said = capfd.readouterr().err
    assert said == f"error: the cluster in {folder.parent} has no node 9: it has 1\n"


def test_of_two_folders_one_has_to_be_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site = folder.parent.parent
    monkeypatch.chdir(site)
    (site / "logstore-cluster" / "node-1").mkdir(parents=True)
    assert run("reset", "--node", "1") == 2
    assert "name one of them with --dir" in capfd.readouterr().err
    assert folder.exists()


def test_what_is_refused_is_left_alone(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder)
    with stopped(folder):
        assert run("reset", "--node", "1", "--dir", folder) == 4
    assert "stop it first" in capfd.readouterr().err
    assert run("reset", "--node", "2", "--dir", folder) == 4
    assert "is node 1's, not node 2's" in capfd.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "lock").touch()
    assert run("reset", "--node", "1", "--dir", empty) == 2
    assert "there is nothing to move" in capfd.readouterr().err
    assert run("reset", "--node", "1", "--dir", tmp_path / "nowhere") == 2
    assert run("reset", "--dir", folder) == 2
    assert contents(folder) == before


def test_a_name_that_is_taken_is_never_written_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An empty folder would give way to a rename without a word."""
    monkeypatch.setattr(stopped_folder, "wall_ns", lambda: 1_795_000_000 * 10**9)
    aside = folder.with_name("node-1.aside-20261118T110640Z")
    aside.mkdir()
    assert run("reset", "--node", "1", "--dir", folder) == 4
    assert f"{aside} is there already" in capfd.readouterr().err
    assert folder.exists()


def test_a_folder_that_cannot_be_moved_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Path, target: Path) -> None:
        raise OSError(16, "Device or resource busy", str(target))

    monkeypatch.setattr(Path, "rename", refuse)
    assert run("reset", "--node", "1", "--dir", folder) == 4
    assert "where a file system is mounted" in capfd.readouterr().err


def test_a_link_to_a_folder_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The link was renamed, and the next start made a folder in its place, on another disk."""
    link = folder.parent.parent / "node-1"
    link.symlink_to(folder)
    before = contents(folder)
    assert run("reset", "--node", "1", "--dir", link) == 4
    said = capfd.readouterr().err
    assert f"{link} is a symbolic link to {folder}" in said
    assert "make an empty folder" in said
    assert link.is_symlink()
    assert contents(folder) == before
