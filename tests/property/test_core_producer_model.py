"""The core's producer against a played leader: whatever is lost, cut or moved, the log gets each
batch once, in order, and everybody is told what became of his (SAFETY E7, E9)."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from logstore.client.core.connection import Session
from logstore.client.core.producer_machine import MachineOptions, ProducerMachine
from logstore.client.core.task import Task
from logstore.errors import LogStoreError, OutcomeUnknown
from logstore.format.batch import batch_payloads, read_batch_header
from tests.unit.core_stage import PRODUCER, SECOND_NS, World

WINDOW = 4


class PlayedPack:
    """One batch, sealed from the start."""

    def __init__(self, payloads: list[bytes], now_ns: int, deadline_ns: int) -> None:
        self.payloads = payloads
        self.size_bytes = 64
        self.opened_ns = now_ns
        self.deadline_ns = deadline_ns
        self.sequence = -1
        self.expected_next_lsn: int | None = None
        self.batch = b""
        self.outcome: tuple[int, int] | LogStoreError | None = None

    def is_settled(self) -> bool:
        return self.outcome is not None

    def resolve(self, first_lsn: int, count: int) -> None:
        self.outcome = self.outcome or (first_lsn, count)

    def fail(self, error: LogStoreError) -> None:
        self.outcome = self.outcome or error


class PlayedSource:
    """Packs in the order in which they were made."""

    def __init__(self) -> None:
        self.packs: deque[PlayedPack] = deque()
        self.all: list[PlayedPack] = []
        self.size_bytes = 0
        self.refusal: LogStoreError | None = None
        self.most_bytes = 1 << 20

    def append(self, pack: PlayedPack) -> None:
        self.packs.append(pack)
        self.all.append(pack)
        self.size_bytes += pack.size_bytes

    def seal_due(self, opened_before_ns: int) -> None: ...

    def open_since_ns(self) -> int:
        return 0

    def pop_sealed(self) -> PlayedPack | None:
        return self.packs.popleft() if self.packs else None

    def limit_batches(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes

    def pop_expired(self, now_ns: int) -> list[PlayedPack]:
        expired = []
        while self.packs and self.packs[0].deadline_ns <= now_ns:
            expired.append(self.packs.popleft())
        return expired

    def first_deadline_ns(self) -> int:
        return self.packs[0].deadline_ns if self.packs else 0

    def drain(self) -> list[PlayedPack]:
        rest = list(self.packs)
        self.packs.clear()
        return rest

    def snapshot(self) -> list[PlayedPack]:
        return [pack for pack in self.all if not pack.is_settled()]

    def release(self, size_bytes: int) -> None:
        self.size_bytes -= size_bytes
        assert self.size_bytes >= 0

    def refuse(self, error: LogStoreError) -> None:
        self.refusal = error


class Producing:
    """A producer at work in a world."""

    def __init__(
        self, world: World, *, delivery_timeout_s: float = 3_600.0, window: int = WINDOW
    ) -> None:
        self.world = world
        self.source = PlayedSource()
        self._timeout_ns = int(delivery_timeout_s * 1e9)
        self.acked: list[int] = []
        options = MachineOptions(
            linger_s=0.001,
            ack_timeout_s=1.0,
            delivery_timeout_s=delivery_timeout_s,
            is_dense=True,
            on_ack=lambda _, payloads, *__: self.acked.append(payloads),
            on_connected=lambda _: None,
        )
        session = Session(PRODUCER, 1, window, 1 << 22, 1 << 20, 0)
        self.machine = ProducerMachine(world.host, world.routing, session, self.source, options)
        self.task = Task(self.machine.live())

    def append(self) -> PlayedPack:
        world = self.world
        payload = b"%d" % len(self.source.all)
        pack = PlayedPack([payload], world.now_ns, world.now_ns + self._timeout_ns)
        self.source.append(pack)
        return pack

    def run_for(self, seconds: float) -> None:
        until_ns = self.world.now_ns + int(seconds * SECOND_NS)
        while self.world.now_ns < until_ns and not self.task.is_done:
            self.world.work(self.task)
            timer_ns = max(self.task.wait.until_ns, self.world.now_ns + 1)
            self.world.pass_time(min(until_ns, timer_ns))

    def check_window(self) -> None:
        assert len(self.machine._unresolved) <= WINDOW


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6)),
    st.tuples(st.just("commit"), st.integers(1, 3)),
    st.tuples(st.just("acks are lost"), st.booleans()),
    st.tuples(st.just("lead"), st.integers(1, 3)),
    st.tuples(st.just("stop"), st.integers(1, 3)),
    st.tuples(st.just("start"), st.integers(1, 3)),
    st.tuples(st.just("pass"), st.integers(1, 2_500)),
    st.tuples(st.just("wake early"), st.just(0)),
)


def act(world: World, producing: Producing, what: str, number: int) -> None:
    if what == "append":
        for _ in range(number):
            producing.append()
    elif what == "commit":
        world.commit(number)
    elif what == "acks are lost":
        world.loses_acks = bool(number)
    elif what == "lead":
        world.lead(number, keep=number)
    elif what == "stop":
        world.stop(number)
    elif what == "start":
        world.start(number)
    elif what == "pass":
        producing.run_for(number / 1_000)
    elif what == "wake early":
        producing.task.do_work(world.now_ns)


@given(st.lists(STEPS, max_size=40))
def test_every_batch_enters_the_log_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.commits_at_once = False
    producing = Producing(world)
    for what, number in steps:
        act(world, producing, what, number)
        world.work(producing.task)
        producing.check_window()
    world.loses_acks = False
    world.commits_at_once = True
    for node in world.nodes:
        world.start(node)
    until_ns = world.now_ns + 60 * SECOND_NS
    while not all(pack.is_settled() for pack in producing.source.all):
        assert world.now_ns < until_ns
        world.commit()
        producing.run_for(0.5)
    payloads = [batch_payloads(batch, 0, read_batch_header(batch)) for _, batch in world.log]
    assert payloads == [[b"%d" % number] for number in range(len(producing.source.all))]
    outcomes = [pack.outcome for pack in producing.source.all]
    assert outcomes == [(first_lsn, 1) for first_lsn, _ in world.log]
    assert len(producing.acked) == len(outcomes)
    assert producing.source.size_bytes == 0


@given(st.lists(STEPS, max_size=30), st.booleans())
def test_nothing_is_left_without_an_outcome_when_it_ends(
    steps: list[tuple[str, int]], is_stopped: bool
) -> None:
    """And what was told as never sent, or as committed, is so."""
    world = World()
    world.commits_at_once = False
    producing = Producing(world, delivery_timeout_s=1.5)
    for what, number in steps:
        act(world, producing, what, number)
        world.work(producing.task)
    if is_stopped:
        producing.machine.stop()
        producing.run_for(60.0)
        assert producing.task.is_done
    producing.task.close()
    producing.machine.settle_rest(None)
    assert producing.source.refusal is not None
    in_log = {batch: first_lsn for first_lsn, batch in world.log}
    payloads = {batch_payloads(batch, 0, read_batch_header(batch))[0] for _, batch in world.log}
    for number, pack in enumerate(producing.source.all):
        match pack.outcome:
            case (first_lsn, count):
                assert first_lsn in in_log.values()
                assert count == 1
            case OutcomeUnknown():
                pass
            case error:
                assert error is not None
                assert b"%d" % number not in payloads, "it was never sent"
    assert producing.source.size_bytes == 0
