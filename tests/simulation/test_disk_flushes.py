"""A flush of the simulated disk takes effect when it ends, by the clock of the process that
flushes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.medium import DiskLatency
from actors.simulation.disk.view import DiskView
from actors.simulation.oracle.durability import DiskDurability
from logstore.errors import WriteFailed
from logstore.limits import SECTOR_BYTES

FLUSH_NS = 1_000
WRITE_NS = 10
PATH = "/f/a"
OLD, NEW, NEWEST = (bytes([byte]) * SECTOR_BYTES for byte in b"onN")


class WorldClock:
    """The world's clock and that of one process, which is `busy_ns` ahead while it runs."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.busy_ns = 0

    @property
    def local_now_ns(self) -> int:
        return self.now_ns + self.busy_ns

    def charge(self, cost_ns: int) -> None:
        self.busy_ns += cost_ns

    def pass_to(self, at_ns: int) -> None:
        """The process has run; the world goes on."""
        self.now_ns, self.busy_ns = at_ns, 0


class Bench:
    """A disk with one process on it and the file `PATH`, which is durable with `OLD` in it."""

    def __init__(self) -> None:
        self.clock = WorldClock()
        self.disk = SimulatedDisk(clock=self.clock)
        self.view: DiskView = self.disk.view(self.clock.charge, self.clock)
        self.handle = self.view.create(PATH)
        self.view.write(self.handle, 0, [OLD])
        self.view.flush(self.handle)
        self.view.sync_folder("/f")
        self.disk.latency = DiskLatency(
            Random(0), write_ns=WRITE_NS, flush_min_ns=FLUSH_NS, flush_max_ns=FLUSH_NS
        )

    def write(self, content: bytes, sector: int = 0) -> None:
        self.view.write(self.handle, sector * SECTOR_BYTES, [content])

    def flush(self) -> None:
        self.view.flush(self.handle)

    @property
    def is_durable(self) -> bool:
        return self.disk.is_durable(PATH, 0, SECTOR_BYTES)

    def power_cut(self, seed: int = 0) -> None:
        self.disk.drop_after(self.clock.now_ns)
        self.view.kill()
        self.disk.power_cut(Random(seed), garble=False)


def left_by_power_cuts(make: Callable[[], Bench], *, sector: int = 0) -> set[bytes]:
    """What the sector may be afterwards, in the page cache and on the medium alike."""
    found = set()
    for seed in range(60):
        bench = make()
        bench.power_cut(seed)
        content = bench.disk.durable_bytes(PATH, sector * SECTOR_BYTES, SECTOR_BYTES)
        after = bench.disk.view(bench.clock.charge, bench.clock)
        assert after.read(after.open_read(PATH), sector * SECTOR_BYTES, SECTOR_BYTES) == content
        found.add(content)
    return found


def test_what_a_flush_was_given_is_durable_when_it_ends() -> None:
    bench = Bench()
    bench.write(NEW)
    bench.flush()
    end_ns = bench.clock.local_now_ns
    bench.clock.pass_to(end_ns - 1)
    assert not bench.is_durable
    assert bench.disk.durable_bytes(PATH, 0, SECTOR_BYTES) == OLD
    bench.clock.pass_to(end_ns)
    assert bench.is_durable
    assert bench.disk.durable_bytes(PATH, 0, SECTOR_BYTES) == NEW


def test_a_running_process_reads_the_disk_at_its_own_time() -> None:
    bench = Bench()
    bench.write(NEW)
    bench.flush()
    end_ns = bench.clock.local_now_ns
    bench.clock.pass_to(end_ns - 5)
    assert not bench.is_durable
    bench.clock.charge(5)
    assert bench.is_durable


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_power_cut_in_a_flush_leaves_any_version(part: int) -> None:
    def make() -> Bench:
        bench = Bench()
        bench.write(NEW)
        bench.flush()
        bench.clock.pass_to((WRITE_NS, WRITE_NS + FLUSH_NS // 2, WRITE_NS + FLUSH_NS)[part])
        return bench

    assert left_by_power_cuts(make) == ({OLD, NEW} if part < 2 else {NEW})


def test_a_write_in_a_flush_is_not_part_of_it() -> None:
    def make() -> Bench:
        bench = Bench()
        bench.write(NEW)
        bench.flush()
        end_ns = bench.clock.local_now_ns
        bench.clock.pass_to(end_ns - 5 * WRITE_NS)
        bench.write(NEWEST)  # another thread of the process
        bench.clock.pass_to(end_ns - 1)
        return bench

    assert left_by_power_cuts(make) == {OLD, NEW, NEWEST}

    def make_ended() -> Bench:
        bench = make()
        bench.clock.pass_to(bench.clock.now_ns + 1)
        assert not bench.is_durable
        return bench

    assert left_by_power_cuts(make_ended) == {NEW, NEWEST}


def test_what_a_process_does_after_a_flush_has_not_happened_in_it() -> None:
    def make() -> Bench:
        bench = Bench()
        bench.write(NEW)
        bench.flush()
        bench.write(NEW, 1)
        bench.clock.pass_to(FLUSH_NS // 2)
        return bench

    assert left_by_power_cuts(make, sector=1) == {b""}  # the file never grew

    def make_ended() -> Bench:
        bench = make()
        bench.clock.pass_to(FLUSH_NS + 2 * WRITE_NS)
        return bench

    assert left_by_power_cuts(make_ended) == {NEW}
    assert left_by_power_cuts(make_ended, sector=1) == {b"", bytes(SECTOR_BYTES), NEW}


def test_names_land_with_the_flush_of_their_folder() -> None:
    bench = Bench()
    bench.view.create("/f/b")
    bench.view.sync_folder("/f")
    end_ns = bench.clock.local_now_ns
    bench.clock.pass_to(end_ns - 5 * WRITE_NS)
    bench.view.create("/f/c")
    bench.view.unlink("/f/b")
    assert "/f/b" not in bench.disk.durable_paths()
    bench.clock.pass_to(end_ns)
    assert "/f/b" in bench.disk.durable_paths()
    assert "/f/c" not in bench.disk.durable_paths()
    bench.view.sync_folder("/f")
    bench.clock.pass_to(bench.clock.local_now_ns)
    assert bench.disk.durable_paths() == ["/f/a", "/f/c"]


def test_a_power_cut_takes_back_names_of_later() -> None:
    for seed in range(20):
        bench = Bench()
        bench.write(NEW)
        bench.flush()
        bench.view.create("/f/b")
        bench.view.unlink(PATH)
        bench.clock.pass_to(FLUSH_NS // 2)
        bench.power_cut(seed)
        assert bench.disk.paths() == [PATH]


def test_a_process_that_is_killed_ends_what_it_was_doing() -> None:
    bench = Bench()
    bench.write(NEW)
    bench.flush()
    bench.write(NEWEST)
    bench.clock.pass_to(FLUSH_NS // 2)
    bench.view.kill()
    assert bench.disk.durable_bytes(PATH, 0, SECTOR_BYTES) == NEW
    assert not bench.is_durable


def test_a_process_that_dies_in_a_flush_has_done_all_before_it() -> None:
    bench = Bench()

    def die(what: str, path: str) -> None:
        raise KeyboardInterrupt

    bench.write(NEW)
    bench.flush()
    bench.write(NEWEST)
    bench.view.on_call = die
    with pytest.raises(KeyboardInterrupt):
        bench.flush()
    bench.clock.busy_ns = 0
    assert bench.disk.durable_bytes(PATH, 0, SECTOR_BYTES) == NEW
    assert not bench.is_durable
    bench.power_cut()
    assert bench.disk.durable_bytes(PATH, 0, SECTOR_BYTES) in (NEW, NEWEST)


def test_a_flush_that_fails_leaves_clean_pages_of_all_that_was_under_way() -> None:
    bench = Bench()
    bench.write(NEW)
    bench.flush()
    bench.write(NEWEST)
    bench.disk.fail_next("flush", PATH)
    with pytest.raises(WriteFailed):
        bench.flush()
    bench.flush()
    bench.clock.pass_to(bench.clock.local_now_ns)
    assert not bench.is_durable
    assert bench.view.read(bench.handle, 0, 1) == b"N"
    bench.view.drop_cache(bench.handle)
    assert bench.view.read(bench.handle, 0, 1) == b"n"


def test_a_device_that_begins_to_lie_in_a_flush_has_it_in_its_cache() -> None:
    bench = Bench()
    bench.write(NEW)
    bench.flush()
    bench.disk.begin_lying()
    assert not bench.disk.has_lies
    bench.clock.pass_to(bench.clock.local_now_ns)
    assert bench.disk.has_lies
    assert bench.disk.is_durable(PATH, 0, SECTOR_BYTES, counting_lies=True)
    assert not bench.is_durable


def test_another_process_reads_the_disk_at_its_own_time() -> None:
    bench = Bench()
    reader = bench.disk.view(bench.clock.charge, bench.clock)
    handle = reader.open_read(PATH)

    def seen() -> bytes:
        return reader.read(handle, 0, 3 * SECTOR_BYTES)

    bench.write(NEW)
    bench.flush()
    bench.write(NEWEST)
    bench.write(NEW, 1)
    assert bench.view.read(bench.handle, 0, 3 * SECTOR_BYTES) == NEWEST + NEW
    bench.clock.pass_to(FLUSH_NS // 2)
    assert seen() == NEW
    bench.clock.pass_to(FLUSH_NS + 2 * WRITE_NS)
    assert seen() == NEWEST
    bench.clock.pass_to(FLUSH_NS + 3 * WRITE_NS)
    assert seen() == NEWEST + NEW


def test_what_is_cut_off_later_is_still_read() -> None:
    bench = Bench()
    reader = bench.disk.view(bench.clock.charge, bench.clock)
    handle = reader.open_read(PATH)
    bench.write(NEW, 1)
    bench.flush()
    bench.view.truncate(bench.handle, 100)
    bench.clock.pass_to(FLUSH_NS // 2)
    assert reader.read(handle, 0, 9_999) == OLD + NEW
    bench.clock.pass_to(2 * FLUSH_NS)
    assert reader.read(handle, 0, 9_999) == OLD[:100]


def test_a_flush_is_seen_under_way_until_its_end_and_asking_ends_none() -> None:
    bench = Bench()
    durability = DiskDurability(lambda _: bench.disk, lambda _: "/f", lambda _: False)
    bench.write(NEW)
    bench.flush()
    begin_ns = bench.clock.now_ns
    assert durability.flushed_after(1, begin_ns) == [PATH]
    assert durability.flushed_after(1, bench.clock.local_now_ns - 1) == [PATH]
    assert durability.flushed_after(1, bench.clock.local_now_ns) == []
    assert bench.disk.deferred.has_any


def test_a_flush_of_a_dead_process_is_not_of_the_incarnation_that_follows() -> None:
    bench = Bench()
    durability = DiskDurability(lambda _: bench.disk, lambda _: "/f", lambda _: False)
    begin_ns = bench.clock.now_ns
    bench.write(NEW)
    bench.flush()
    durability.started(1)
    assert durability.flushed_after(1, begin_ns) == []
    bench.write(NEWEST)
    bench.flush()
    assert durability.flushed_after(1, begin_ns) == [PATH]
