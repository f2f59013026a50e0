"""A consumer of the virtual world: every committed payload from a place on, in order (SAFETY V8).

Owns the cursor, which outlives the replica that is read. Subscribe, welcome, Tip, fetch to the Tip,
splice; only contiguous LSNs are handed on, and whatever shows an LSN above the expected one makes
it fetch. Moves to another replica when this one is silent or damaged, and now and then for no
reason.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import Delivered, Subscribed
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Answer, Asker
from actors.simulation.clients.host import MESSAGES_PER_WORK, MS_NS, ClientHost
from actors.simulation.clients.pieces import Served, check_fetched, served_batches
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    FetchReply,
    FetchRequest,
    TailGroup,
    TailNotice,
    Tip,
    WatermarksReply,
    WatermarksRequest,
    Welcome,
)
from logstore.limits import MESSAGE_MAX_BYTES
from logstore.model import Lsn
from logstore.settings import PortOffset
from transport import link

SILENCE_NS = 3_500 * MS_NS  # a Tip comes every second
_PAUSE_NS = (20 * MS_NS, 300 * MS_NS)
_LATER = frozenset({ErrorCode.NOT_READY, ErrorCode.TIMED_OUT, ErrorCode.OVERLOADED})


class ConsumerOptions(msgspec.Struct, frozen=True):
    """`first_lsn` 0: from what is committed later. `move_every_ns` is a mean."""

    first_lsn: int
    fetch_max_bytes: int
    move_every_ns: int


def draw_options(host: ClientHost) -> ConsumerOptions:
    random = host.random
    return ConsumerOptions(
        first_lsn=host.first_lsn if random.random() < 0.7 else 0,
        fetch_max_bytes=1 << random.randrange(6, 17),
        move_every_ns=random.randrange(3_000, 20_000) * MS_NS,
    )


class Consumer:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost, options: ConsumerOptions) -> None:
        self.host = host
        self.options = options
        self.wire = Wire(host)
        self.node = 0
        self.next_lsn = 0  # the cursor; 0: not known yet where to begin
        self._feed: Any = None
        self._asker: Asker | None = None
        self._shown_lsn = 0
        self._heard_ns = 0
        self._move_ns = 0
        self._ask_ns = 0  # not before
        self._asked_lsn = 0

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

    # --- an actor's words ---

    def on_start(self) -> None:
        if self.options.first_lsn:
            self._begin_at(self.options.first_lsn)

    def do_work(self, now_ns: int) -> int:
        """Everything that is there and due; 0, since nothing is left then."""
        if self._feed is None or now_ns >= self._move_ns:
            self._move(now_ns)
        self._read_feed(now_ns)
        self._read_answer(now_ns)
        if now_ns - self._heard_ns >= SILENCE_NS:
            self.wire.count("silences")
            self._move(now_ns)
        self._ask(now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        sockets = [] if self._feed is None else [self._feed]
        if self._asker is not None:
            sockets.append(self._asker.socket)
        return sockets

    def next_timer_ns(self) -> int:
        timer_ns = min(self._heard_ns + SILENCE_NS, self._move_ns)
        asker = self._asker
        if asker is not None and asker.is_waiting:
            return min(timer_ns, asker.next_timer_ns())
        return min(timer_ns, self._ask_ns) if self._wants_to_ask() else timer_ns

    def on_close(self) -> None:
        for socket in self.wait_on():
            socket.close(0)
        self._feed = self._asker = None

    # --- the replica that is read ---

    def _move(self, now_ns: int) -> None:
        """To another replica; the cursor stays."""
        self.on_close()
        host = self.host
        self.wire.count("moves")
        self.node = host.any_node(but=self.node)
        self._feed = host.links.sub_connect(
            host.endpoint(self.node, PortOffset.TAIL),
            topics=(b"",),
            message_size_max=MESSAGE_MAX_BYTES,
        )
        self._asker = Asker(self.wire, self.node, PortOffset.FETCH)
        self._shown_lsn = 0
        self._heard_ns = now_ns
        self._ask_ns = now_ns
        mean_ns = self.options.move_every_ns
        self._move_ns = now_ns + int(host.random.expovariate(1.0) * mean_ns) + MS_NS

    def _read_feed(self, now_ns: int) -> None:
        """Hand on what continues the log, learn of what there is to fetch. Hot."""
        for _ in range(MESSAGES_PER_WORK):
            frames = link.try_receive(self._feed)
            if frames is None:
                return
            decoded = self.wire.decode(frames[0])
            if decoded is None:
                continue
            self._heard_ns = now_ns
            message = decoded[1]
            if type(message) is TailGroup:
                self._take_group(message, frames)
            elif type(message) is TailNotice:
                self._shown_lsn = max(self._shown_lsn, message.last_lsn)
            elif isinstance(message, Tip | Welcome):
                self._shown_lsn = max(self._shown_lsn, message.visible_lsn)
            else:
                self.wire.violated(Invariant.I11, f"{message} on the tail feed")

    def _take_group(self, group: TailGroup, frames: list[bytes]) -> None:
        more = frames[1] if len(frames) == 2 else b""
        batches = served_batches(self.wire, self.node, more, pieces=1)
        if not batches:
            return
        last_lsn = batches[-1].next_lsn - 1
        if last_lsn > group.visible_lsn:
            text = f"node {self.node} shows {group.visible_lsn}, and publishes LSN {last_lsn}"
            self.wire.violated(Invariant.I8, text)
        self._shown_lsn = max(self._shown_lsn, last_lsn)
        if self.next_lsn and batches[0].first_lsn <= self.next_lsn:
            self._hand_on(batches, "from-feed")

    # --- fetching ---

    def _wants_to_ask(self) -> bool:
        return self.next_lsn == 0 or self._shown_lsn >= self.next_lsn

    def _ask(self, now_ns: int) -> None:
        asker = self._asker
        if asker is None or asker.is_waiting or now_ns < self._ask_ns or not self._wants_to_ask():
            return
        if self.next_lsn == 0:
            asker.ask(WatermarksRequest(Lsn(0), 0, False), WatermarksReply, now_ns)
            return
        self._asked_lsn = self.next_lsn
        first_lsn, last_lsn = Lsn(self.next_lsn), Lsn(self._shown_lsn)
        max_bytes = self.options.fetch_max_bytes
        request = FetchRequest(first_lsn, last_lsn, Lsn(0), max_bytes, 0, False)
        asker.ask(request, FetchReply, now_ns)

    def _read_answer(self, now_ns: int) -> None:
        asker = self._asker
        if asker is None:
            return
        answer = asker.poll(now_ns)
        if answer is None:
            if asker.is_late(now_ns):
                self.wire.count("late")
                self._move(now_ns)
            return
        self._heard_ns = now_ns
        message = answer.message
        if isinstance(message, ErrorReply):
            self._refused(message, now_ns)
        elif isinstance(message, WatermarksReply):
            if self.next_lsn == 0:
                self._begin_at(message.visible_lsn + 1)
        else:
            self._take_fetched(answer)

    def _take_fetched(self, answer: Answer) -> None:
        reply: FetchReply = answer.message
        batches = served_batches(self.wire, self.node, answer.more, pieces=reply.pieces)
        if batches is None:
            return
        check_fetched(self.wire, self.node, reply, batches, first_lsn=self._asked_lsn)
        self._shown_lsn = max(reply.visible_lsn, self._shown_lsn if batches else 0)
        if batches and batches[0].first_lsn <= self.next_lsn:
            self._hand_on(batches, "from-fetch")

    def _refused(self, error: ErrorReply, now_ns: int) -> None:
        self._ask_ns = now_ns + self.host.random.randrange(*_PAUSE_NS)
        if error.code in _LATER:
            return
        if error.code == ErrorCode.CORRUPT_DATA:
            self.wire.count("corrupt-data")
            self._move(now_ns)
        elif error.code == ErrorCode.OUT_OF_RANGE:
            if error.first <= self.next_lsn <= error.last + 1:
                text = f"LSN {self.next_lsn} is out of [{error.first}, {error.last}]"
                self.wire.violated(Invariant.I5, text)
            elif self.next_lsn < error.first:
                text = f"LSN {self.next_lsn} is gone: node {self.node} begins at {error.first}"
                self.wire.violated(Invariant.I19, text)
            self._shown_lsn = error.last  # it lags behind the replica that was read before
        else:
            self.wire.violated(Invariant.I11, f"a fetch was refused with {error}")

    # --- the cursor ---

    def _begin_at(self, lsn: int) -> None:
        self.next_lsn = lsn
        self.host.tell(Subscribed(self.host.name, lsn))

    def _hand_on(self, batches: list[Served], where: str) -> None:
        """What is new of contiguous batches that begin at or below the cursor."""
        host = self.host
        for each in batches:
            if each.next_lsn <= self.next_lsn:
                continue
            if each.first_lsn < self.next_lsn:
                text = f"the cursor {self.next_lsn} lies within a batch at {each.first_lsn}"
                self.wire.violated(Invariant.I4, text)
            host.tell(Delivered(host.name, self.node, each.first_lsn, each.batch))
            self.wire.count(where)
            self.next_lsn = each.next_lsn
