"""The disk's fast queries against slow ones: a byte string, and the whole set of crash states."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import WriteFailed
from logstore.limits import SECTOR_BYTES
from tests.crash.crash_states import crash_states

PATH = "/f/a"
SIZE_MAX = 2 * SECTOR_BYTES
STATES_MAX = 3_000

offsets = st.sampled_from([0, 1, 300, 511, 512, 700, 1_000])
sizes = st.sampled_from([1, 12, 24, 212, 512])
acts = st.one_of(
    st.tuples(st.just("write"), offsets, sizes),
    st.tuples(st.just("truncate"), st.sampled_from([0, 5, 512, 600, SIZE_MAX]), st.just(0)),
    st.tuples(st.just("allocate"), st.sampled_from([5, 512, 600, SIZE_MAX]), st.just(0)),
    st.tuples(
        st.sampled_from(["flush", "flush", "lie", "tell_truth", "fail", "drop"]),
        st.just(0),
        st.just(0),
    ),
)


class Model:
    """The disk beside a byte string that should read the same."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.handle = self.disk.create(PATH)
        self.content = bytearray(b"." * SIZE_MAX)
        self.disk.write(self.handle, 0, [self.content])
        self.disk.flush(self.handle)
        self.disk.sync_folder("/f")
        self.is_unsure = False  # a flush failed: only `drop` shows what the device has
        self._next = 0

    def act(self, what: str, at: int, size: int) -> None:
        disk, handle = self.disk, self.handle
        match what:
            case "write":
                self._next += 1
                disk.write(handle, at, [bytes([self._next]) * size])
                self._resize(max(len(self.content), at + size))
                self.content[at : at + size] = bytes([self._next]) * size
            case "truncate":
                disk.truncate(handle, at)
                self._resize(at)
            case "allocate":
                disk.allocate(handle, at)
                self._resize(max(len(self.content), at))
            case "flush":
                disk.flush(handle)
            case "lie":
                disk.begin_lying()
            case "tell_truth":
                disk.end_lying()
            case "fail":
                disk.fail_next("flush", PATH)
                with pytest.raises(WriteFailed):
                    disk.flush(handle)
                self.is_unsure = True
            case "drop":
                disk.drop_cache(handle)
                if self.is_unsure:
                    self.content = bytearray(disk.read(handle, 0, 4 * SIZE_MAX))
                    self.is_unsure = False

    def _resize(self, size: int) -> None:
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def states(self) -> list[bytes] | None:
        """What a power cut may leave of the file; None if there are too many states."""
        found = list(crash_states(self.disk, states_max=STATES_MAX, random=Random(1)))
        if len(found) == STATES_MAX:
            return None
        return [state.read(state.open_read(PATH), 0, 4 * SIZE_MAX) for state in found]


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=st.lists(acts, max_size=10), seed=st.integers(0, 1_000))
def test_the_disk_agrees_with_a_byte_string_and_with_its_crash_states(
    script: list[tuple[str, int, int]], seed: int
) -> None:
    model = Model()
    for act in script:
        model.act(*act)
        disk, content = model.disk, bytes(model.content)
        assert disk.read(model.handle, 0, 4 * SIZE_MAX) == content
        assert disk.size(model.handle) == len(content)
    states = model.states()
    if states is None:
        return
    for offset in (0, 300, 512, 700):
        for size in (1, 12, 300):
            expected = bytes(model.content[offset : offset + size])
            if len(expected) == size:
                certain = all(state[offset : offset + size] == expected for state in states)
                assert model.disk.is_durable(PATH, offset, size) == certain
    fork = model.disk.fork()
    fork.kill_process()
    fork.power_cut(Random(seed), garble=False)
    left = fork.durable_bytes(PATH, 0, 4 * SIZE_MAX)
    assert left in states
    handle = fork.open_write(PATH)
    assert fork.read(handle, 0, 4 * SIZE_MAX) == left
    fork.allocate(handle, 4 * SIZE_MAX)
    assert fork.read(handle, 0, 4 * SIZE_MAX) == left.ljust(4 * SIZE_MAX, b"\0")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(script=st.lists(acts, max_size=12))
def test_an_honest_flush_makes_the_medium_what_is_read(
    script: list[tuple[str, int, int]],
) -> None:
    model = Model()
    for what, at, size in script:
        if what != "fail":
            model.act(what, at, size)
    model.disk.end_lying()
    model.disk.flush(model.handle)
    content = bytes(model.content)
    assert model.disk.durable_bytes(PATH, 0, 4 * SIZE_MAX) == content
    assert set(model.states() or []) == {content}
    assert model.disk.is_durable(PATH, 0, len(content))
