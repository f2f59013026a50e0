"""A process' view of the simulated disk: what is shared, what dies with it, what calls cost."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.medium import DiskLatency
from actors.simulation.disk.view import DiskView
from logstore.errors import DiskFull, FolderInUse, InvariantViolated, WriteFailed
from logstore.storage.disk import Disk
from tests.contracts import test_disk_contract as contract

CONTRACT = {name: each for name, each in vars(contract).items() if name.startswith("test_")}


class Killed(BaseException):
    """What a hook raises to end a process."""


def free(cost_ns: int) -> None:
    """A process whose calls cost nothing."""


class PlaceOfViews(contract.Place):
    """The contract's place, where each process has a view of its own."""

    def __init__(self) -> None:
        self.simulated = SimulatedDisk()
        super().__init__(self.simulated.view(free), "/folder")

    def other(self) -> Disk:
        return self.simulated.view(free)


def test_the_contract_has_tests() -> None:
    assert len(CONTRACT) >= 10


@pytest.mark.parametrize("name", CONTRACT)
def test_a_view_keeps_the_contract_of_the_port(name: str) -> None:
    check: Callable[[Any], None] = CONTRACT[name]
    place = PlaceOfViews()
    check(place)
    assert isinstance(place.disk, DiskView)


def test_two_views_see_each_others_writes_at_once() -> None:
    disk = SimulatedDisk()
    writer, reader = disk.view(free), disk.view(free)
    writing = writer.create("/f/a")
    reading = reader.open_read("/f/a")
    writer.write(writing, 510, [b"abcd"])
    assert reader.read(reading, 509, 6) == b"\0abcd"
    writer.truncate(writing, 512)
    assert (reader.size(reading), reader.read(reading, 510, 9)) == (512, b"ab")
    assert reader.list_folder("/f") == ["a"]
    writer.unlink("/f/a")
    assert reader.list_folder("/f") == []
    assert reader.read(reading, 510, 2) == b"ab"


def test_handles_belong_to_one_view() -> None:
    disk = SimulatedDisk()
    one, two = disk.view(free), disk.view(free)
    handle = one.create("/f/a")
    with pytest.raises(InvariantViolated, match="not open"):
        two.read(handle, 0, 1)
    one.close(handle)
    with pytest.raises(InvariantViolated, match="not open"):
        one.read(handle, 0, 1)


def test_a_locked_folder_is_free_when_its_holder_is_killed() -> None:
    """SAFETY M2."""
    disk = SimulatedDisk()
    one, two = disk.view(free), disk.view(free)
    one.lock_folder("/f")
    with pytest.raises(FolderInUse, match="in use"):
        two.lock_folder("/f")
    two.unlock_folder("/f")
    with pytest.raises(FolderInUse, match="in use"):
        two.lock_folder("/f")
    one.kill()
    two.lock_folder("/f")
    assert list(two.locks) == ["/f"]
    with pytest.raises(FolderInUse, match="in use"):
        disk.view(free).lock_folder("/f")


def test_a_folder_without_space_for_its_lock_is_not_locked() -> None:
    """The lock is on a file: a process that could not make it has nothing to let go of."""
    disk = SimulatedDisk(capacity_bytes=0)
    one = disk.view(free)
    with pytest.raises(DiskFull):
        one.lock_folder("/f")
    disk.free_space()
    one.lock_folder("/f")
    assert list(one.locks) == ["/f"]


def test_a_kill_loses_nothing_but_handles_and_locks() -> None:
    disk = SimulatedDisk()
    one, two = disk.view(free), disk.view(free)
    handle = one.create("/f/a")
    reading = two.open_read("/f/a")
    one.write(handle, 0, [b"unflushed"])
    one.kill()
    one.kill()
    assert two.read(reading, 0, 9) == b"unflushed"
    assert not disk.is_durable("/f/a", 0, 9)
    one.close(handle)
    with pytest.raises(InvariantViolated, match="not open"):
        one.write(handle, 0, [b"late"])
    with pytest.raises(InvariantViolated, match="dead process"):
        one.open_read("/f/a")
    for change in (
        lambda: one.create("/f/b"), lambda: one.unlink("/f/a"), lambda: one.sync_folder("/f"),
        lambda: one.lock_folder("/f"),
    ):  # fmt: skip
        with pytest.raises(InvariantViolated, match="dead process"):
            change()
    assert two.list_folder("/f") == ["a"]


def test_the_hook_of_a_view_sees_its_changing_calls_and_no_other() -> None:
    disk = SimulatedDisk()
    one, two = disk.view(free), disk.view(free)
    calls: list[tuple[str, str]] = []
    one.on_call = lambda what, path: calls.append((what, path))
    handle = one.create("/f/a")
    one.allocate(handle, 100)
    one.write(handle, 0, [b"x"])
    one.read(handle, 0, 1)
    one.flush(handle)
    one.truncate(handle, 10)
    one.sync_folder("/f")
    two.close(two.create("/f/b"))
    one.unlink("/f/a")
    one.unlink("/f/nothing")
    assert [what for what, _ in calls] == [
        "create", "allocate", "write", "flush", "truncate", "sync_folder", "unlink",
    ]  # fmt: skip
    assert {path for _, path in calls} == {"/f/a", "/f"}


@pytest.mark.parametrize(
    "what", ["create", "write", "flush", "allocate", "truncate", "unlink", "sync_folder"]
)
def test_a_process_that_its_hook_kills_changes_nothing_more(what: str) -> None:
    """Not even by the clean-up that an exception runs on its way out."""
    disk = SimulatedDisk()
    view = disk.view(free)
    handle = view.create("/f/a")
    view.write(handle, 0, [b"before"])

    def die(called: str, path: str) -> None:
        if called == what:
            view.kill()
            raise Killed

    view.on_call = die
    before = disk.fingerprint()
    acts: dict[str, Callable[[], object]] = {
        "create": lambda: view.create("/f/b"),
        "write": lambda: view.write(handle, 0, [b"after!"]),
        "flush": lambda: view.flush(handle),
        "allocate": lambda: view.allocate(handle, 5_000),
        "truncate": lambda: view.truncate(handle, 1),
        "unlink": lambda: view.unlink("/f/a"),
        "sync_folder": lambda: view.sync_folder("/f"),
    }
    with pytest.raises(Killed):
        acts[what]()
    for clean_up in ("create", "unlink", "sync_folder"):
        with pytest.raises(Killed):
            acts[clean_up]()
    view.close(handle)
    assert disk.fingerprint() == before
    assert disk.durable_paths() == []
    assert not disk.is_durable("/f/a", 0, 6)


def test_a_hook_that_kills_without_raising_ends_the_call_too() -> None:
    disk = SimulatedDisk()
    view = disk.view(free)
    handle = view.create("/f/a")
    view.on_call = lambda what, path: view.kill()
    with pytest.raises(InvariantViolated, match="dead process"):
        view.write(handle, 0, [b"late"])
    assert disk.content("/f/a") == {}


def test_an_operating_error_from_the_hook_is_an_error_not_a_death() -> None:
    disk = SimulatedDisk()
    view = disk.view(free)
    handle = view.create("/f/a")
    view.write(handle, 0, [b"x"])
    view.sync_folder("/f")

    def fail(what: str, path: str) -> None:
        raise WriteFailed("injected")

    view.on_call = fail
    with pytest.raises(WriteFailed, match="injected"):
        view.flush(handle)
    view.on_call = None
    view.flush(handle)
    assert disk.durable_bytes("/f/a", 0, 1) != b"x"
    view.write(handle, 0, [b"y"])
    view.flush(handle)
    assert disk.durable_bytes("/f/a", 0, 1) == b"y"


def test_calls_cost_what_the_latency_says() -> None:
    disk = SimulatedDisk()
    disk.latency = DiskLatency(Random(1), write_ns=7, flush_min_ns=100, flush_max_ns=200, read_ns=3)
    costs: list[int] = []
    view = disk.view(costs.append)
    handle = view.create("/f/a")
    view.write(handle, 0, [b"x"])
    view.read(handle, 0, 1)
    assert costs == [7, 7, 3]
    costs.clear()
    for _ in range(300):
        view.flush(handle)
    view.sync_folder("/f")
    assert 100 <= min(costs) < 110
    assert 190 < max(costs) <= 200


def test_a_failed_flush_costs_as_much_as_a_good_one() -> None:
    disk = SimulatedDisk()
    disk.latency = DiskLatency(Random(1), write_ns=0, flush_min_ns=50, flush_max_ns=50)
    costs: list[int] = []
    view = disk.view(costs.append)
    handle = view.create("/f/a")
    costs.clear()
    disk.fail_next("flush", "/a")
    with pytest.raises(WriteFailed):
        view.flush(handle)
    assert costs == [50]


def test_the_same_random_gives_the_same_latencies() -> None:
    def drawn() -> list[int]:
        latency = DiskLatency(Random(9), write_ns=0, flush_min_ns=10, flush_max_ns=10_000)
        return [latency.flush_ns() for _ in range(20)]

    assert drawn() == drawn()
    assert len(set(drawn())) > 10


def test_a_stalled_disk_flushes_slowly_until_it_is_unstalled() -> None:
    disk = SimulatedDisk()
    disk.latency = DiskLatency(Random(1), write_ns=1, flush_min_ns=10, flush_max_ns=10)
    costs: list[int] = []
    view = disk.view(costs.append)
    handle = view.create("/f/a")
    disk.stall(5_000)
    view.write(handle, 0, [b"x"])
    view.flush(handle)
    view.sync_folder("/f")
    disk.end_stalls()
    view.flush(handle)
    assert costs == [1, 1, 5_010, 5_010, 10]


def test_a_fork_is_without_the_views_and_locks_of_the_first() -> None:
    disk = SimulatedDisk()
    view = disk.view(free)
    view.lock_folder("/f")
    handle = view.create(os.path.join("/f", "a"))
    view.write(handle, 0, [b"x"])
    fork = disk.fork()
    view.write(handle, 0, [b"y"])
    other = fork.view(free)
    other.lock_folder("/f")
    assert other.read(other.open_read("/f/a"), 0, 1) == b"x"
    with pytest.raises(FolderInUse):
        disk.view(free).lock_folder("/f")


def test_reads_are_heard_of() -> None:
    disk = SimulatedDisk()
    view = disk.view(free)
    heard: list[tuple[str, int, bytes]] = []
    handle = view.create("/f/a")
    view.write(handle, 0, [b"abc"])
    view.on_read = lambda *each: heard.append(each)
    view.read(handle, 1, 9)
    assert heard == [("/f/a", 1, b"bc")]
