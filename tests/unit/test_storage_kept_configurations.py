"""Which configurations a start finds in the log, and when it knows that it may lack one."""

from __future__ import annotations

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.format.configuration_body import Configuration, Member, encode_configuration
from logstore.format.group import FRAME_HEADER_SIZE
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import NO_RANGE, EntryKind, Index, IndexRange, NodeId
from logstore.storage import kept_configurations as kept_configurations_module
from logstore.storage import verdict
from logstore.storage.kept_configurations import KeptConfigurations, kept_configurations
from logstore.storage.log_reader import LogReader
from logstore.storage.segment import segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial

FIRST = 4096 // SECTOR_BYTES  # the sector where frames and records begin
NONE = KeptConfigurations((), NO_RANGE)


def configuration(number: int) -> Configuration:
    return Configuration(number, (Member(NodeId(1), bytes([7] * 16), "node-1", 7100),))


def log_of() -> StorageTrial:
    """A log of one entry."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8])
    return trial


def add_config(trial: StorageTrial, number: int, *, commit: int = 0) -> Index:
    """A CONFIG entry whose record says that entries up to `commit` are committed; its index."""
    body = encode_configuration(configuration(number))
    trial.commit_body(EntryKind.CONFIG, body, commit=commit)
    return trial.writer.last.header.index


def kept(trial: StorageTrial) -> KeptConfigurations:
    """What the next start finds."""
    trial.restart()
    reader = LogReader(trial.disk, FOLDER)
    try:
        return kept_configurations(reader, trial.recovered)
    finally:
        reader.close()


def flip(trial: StorageTrial, role: FileRole, position: int) -> None:
    """One bit of the only pair."""
    path = segment_path(FOLDER, 1, role)
    number, place = divmod(position, SECTOR_BYTES)
    sector = bytearray(trial.disk.content(path)[number])
    sector[place] ^= 4
    trial.disk.damage(path, number, bytes(sector))


def damage_body(trial: StorageTrial, index: Index) -> None:
    record = LogReader(trial.disk, FOLDER).record(index)
    flip(trial, FileRole.DATA, record.frame_offset + FRAME_HEADER_SIZE)


def lose(trial: StorageTrial, index: Index) -> None:
    """The entry's record and its frame."""
    record = LogReader(trial.disk, FOLDER).record(index)
    flip(trial, FileRole.DATA, record.frame_offset)
    flip(trial, FileRole.RAFT, FIRST * SECTOR_BYTES + (index - 1) * RECORD_SIZE + 8)


def test_a_log_without_any_lacks_none() -> None:
    assert kept(log_of()) == NONE


@pytest.mark.parametrize(("has_config", "hidden"), [(False, NO_RANGE), (True, (2, 2))])
def test_damage_hides_one_where_only_meta_knows_of_it(has_config: bool, hidden: IndexRange) -> None:
    trial = log_of()
    lost = add_config(trial, 1)
    if has_config:
        trial.know_config()
    trial.commit(1, [8], commit=lost)
    lose(trial, lost)
    assert kept(trial) == KeptConfigurations((), hidden)


def test_the_newest_committed_one_and_those_above_it_are_found() -> None:
    trial = log_of()
    indexes = [add_config(trial, 1), add_config(trial, 2), add_config(trial, 3, commit=3)]
    found = kept(trial)
    assert found.found == ((indexes[1], configuration(2)), (indexes[2], configuration(3)))
    assert found.hidden == NO_RANGE


@pytest.mark.parametrize("short_cuts", ["summary", "array", "none"])
def test_those_of_sealed_pairs_are_found(short_cuts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = log_of()
    index = add_config(trial, 1)
    for _ in range(2):
        trial.writer.roll()
        trial.commit(1, [8, 8], commit=2)
    if short_cuts != "summary":
        monkeypatch.setattr(verdict, "read_summary", lambda *_args: None)
    if short_cuts == "none":
        monkeypatch.setattr(verdict, "whole_records", lambda *_args, **_named: None)
    assert kept(trial) == KeptConfigurations(((index, configuration(1)),), NO_RANGE)


def test_an_older_one_that_names_this_replica_is_known_of() -> None:
    """SAFETY C9: it was a member, and was removed if the newest one does not name it."""
    trial = log_of()
    trial.restart()
    assert trial.recovered is not None
    own = Member(NodeId(2), trial.recovered.meta.meta.replica_uuid, "node-2", 7100)
    named = Configuration(2, configuration(1).voters, learners=(own,))
    add_config(trial, 1)
    body = encode_configuration(named)
    trial.commit_body(EntryKind.CONFIG, body, commit=0)
    at_named = trial.writer.last.header.index
    assert not kept(trial).was_named, "it is not known to be committed"
    newest = add_config(trial, 3, commit=at_named)
    assert kept(trial).was_named
    trial.commit(1, [8], commit=newest)
    found = kept(trial)
    assert (found.found, found.was_named) == (((newest, configuration(3)),), True)
    damage_body(trial, at_named)
    assert not kept(trial).was_named


def test_a_truncated_one_is_gone() -> None:
    trial = log_of()
    index = add_config(trial, 1)
    trial.truncate(index)
    trial.commit(2, [8])
    assert kept(trial) == NONE


def test_one_whose_body_is_damaged_is_hidden_until_a_newer_one_is_committed() -> None:
    trial = log_of()
    older, damaged = add_config(trial, 1), add_config(trial, 2, commit=2)
    damage_body(trial, damaged)
    assert kept(trial) == KeptConfigurations(((older, configuration(1)),), (damaged, damaged))
    newer = add_config(trial, 3)
    assert kept(trial).hidden == (damaged, damaged), "a truncation may bring the older one back"
    trial.commit(1, [8], commit=newer)
    assert kept(trial) == KeptConfigurations(((newer, configuration(3)),), NO_RANGE)


def test_an_entry_of_which_nothing_is_left_may_be_one() -> None:
    trial = log_of()
    index = add_config(trial, 1)
    trial.commit(1, [8])
    lost = trial.writer.last.header.index
    trial.commit(1, [8], commit=index)
    lose(trial, lost)
    assert kept(trial) == KeptConfigurations(((index, configuration(1)),), (lost, lost))
    newer = add_config(trial, 2)
    damage_body(trial, newer)
    assert kept(trial).hidden == (lost, newer)


def test_more_damage_than_is_searched_may_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_configurations_module, "_SEARCHED_MAX", 2)
    trial = log_of()
    index = add_config(trial, 1)
    trial.commit(1, [8] * 6, commit=index)
    for damaged in range(index + 1, index + 7):
        damage_body(trial, Index(damaged))
    assert kept(trial).hidden == (index + 3, index + 4)


def test_damaged_payloads_are_none() -> None:
    trial = log_of()
    index = add_config(trial, 1)
    trial.commit(1, [8])
    payload = trial.writer.last.header.index
    trial.commit(1, [8], commit=index)
    damage_body(trial, payload)
    assert kept(trial) == KeptConfigurations(((index, configuration(1)),), NO_RANGE)
    assert [each.first for each in trial.recovered.faulty] == [payload]


def test_a_log_without_any_hides_none() -> None:
    trial = log_of()
    trial.commit(1, [8])
    lose(trial, Index(2))
    trial.commit(1, [8])
    assert kept(trial) == NONE
    assert trial.recovered.faulty
