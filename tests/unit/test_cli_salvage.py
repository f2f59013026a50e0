"""`logstore salvage --dry-run`: what is said of a folder, with which status; which folders are
refused. What a cluster takes is in tests/cluster/test_salvage.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logstore.cli.stopped_folder import stopped
from logstore.errors import FolderInUse
from logstore.storage.disk import RealDisk
from logstore.storage.meta_store import META_NAMES
from tests.unit.cli_stage import run
from tests.unit.folder_stage import FolderStage, batch, flip, flip_payload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """LSN 5 to 10, of which 5 to 8 are known to be committed."""
    path = tmp_path / "node-1"
    stage = FolderStage(path, 5)
    stage.append(batch([b"one", b"two"]))
    stage.append(batch([b"three", b"four"]))
    stage.append(batch([b"a payload to find", b"six"]))
    stage.close()
    return path


def test_it_says_what_is_certain_and_what_perhaps(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("salvage", folder, "--dry-run") == 0
    said = capfd.readouterr().err
    assert "committed for certain: LSN 5 to 8, 4 payloads\n" in said
    assert "committed perhaps: LSN 9 to 10, 2 payloads: this folder does not know" in said
    assert "the last entry taken is 3 of term 1" in said
    assert run("salvage", folder, "--dry-run", "--json", "-") == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["certain"]["last_lsn"], told["perhaps"]["first_lsn"]) == (8, 9)
    assert (told["node"], told["batches"], told["imported"]) == (1, 3, None)


def test_only_what_is_certain_may_be_asked_for(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("salvage", folder, "--dry-run", "--certain-only") == 0
    said = capfd.readouterr().err
    assert "perhaps" not in said
    assert "left out from LSN 9, entry 3: it is not known to be committed" in said
    assert "not taken: LSN 9 to 10, 2 payloads, " in said


def test_it_ends_at_damage_with_status_5(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flip_payload(folder, 9, b"a payload to find")
    assert run("salvage", folder, "--dry-run") == 5
    said = capfd.readouterr().err
    assert "it ends before LSN 9, entry 3: 0000000000000001.data at byte" in said
    assert "not taken: LSN 9 to 10, 2 payloads, " in said
    for name in META_NAMES:
        flip(folder, name, 30)
    assert run("salvage", folder, "--dry-run", "--json", "-") == 5
    told = json.loads(capfd.readouterr().out)
    assert (told["node"], told["first_lsn"], len(told["faults"])) == (None, 5, 3)
    assert told["not_taken"]["reason"].endswith("the body of entry 3 is damaged")


def test_what_is_not_known_is_said_so(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for suffix in ("data", "raft"):
        flip(folder, f"{1:016d}.{suffix}", 30)
    assert run("salvage", folder, "--dry-run") == 5
    said = capfd.readouterr().err
    assert "no payload is whole in it; LSN 5 comes next" in said
    assert "both headers of segment 1 are damaged, and it holds entries" in said
    assert "not taken: an unknown number of LSNs from there on" in said


def test_a_beginning_that_nothing_tells_of_is_status_5(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without META and the oldest pair: it was trimmed, or it is lost."""
    stage = FolderStage(tmp_path)
    for number in range(8):
        stage.append(batch([b"%d" % number * 4_000]))
    stage.close()
    for path in [*tmp_path.glob("meta.*"), *tmp_path.glob(f"{1:016d}.*")]:
        path.unlink()
    assert run("salvage", tmp_path, "--dry-run", "--json", "-") == 5
    told = json.loads(capfd.readouterr().out)
    assert (told["is_start_known"], told["not_taken"], told["last_lsn"]) == (False, None, 8)
    assert told["first_lsn"] > 1
    assert run("salvage", tmp_path, "--dry-run") == 5
    assert "what was before was trimmed, or is lost" in capfd.readouterr().err


def test_one_of_to_and_dry_run_is_needed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("salvage", folder) == 2
    assert run("salvage", folder, "--dry-run", "--to", "127.0.0.1:9") == 2
    assert "--to, or give --dry-run" in capfd.readouterr().err
    assert run("salvage", folder.parent, "--dry-run") == 4
    assert "node-N in the folder of a cluster" in capfd.readouterr().err
    assert run("salvage", folder / "lock", "--dry-run") == 2


@pytest.mark.parametrize("is_supervisor", [True, False])
def test_a_folder_in_which_something_works_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], is_supervisor: bool
) -> None:
    """A supervisor's lock, and that of a writer which outlived it, each by itself (M2)."""
    disk = RealDisk()
    if is_supervisor:
        with stopped(folder):
            assert run("salvage", folder, "--dry-run") == 4
    else:
        disk.lock_folder(str(folder))
        assert run("salvage", folder, "--dry-run") == 4
        disk.unlock_folder(str(folder))
    assert f"the replica of node 1 runs in {folder}" in capfd.readouterr().err
    assert run("salvage", folder, "--dry-run") == 0


def test_a_replica_cannot_start_while_its_folder_is_read(folder: Path) -> None:
    with stopped(folder), pytest.raises(FolderInUse):
        RealDisk().lock_folder(str(folder))


def test_a_copy_without_a_lock_is_read_and_gets_none(folder: Path) -> None:
    (folder / "lock").unlink()
    assert run("salvage", folder, "--dry-run") == 0
    assert not (folder / "lock").exists()
