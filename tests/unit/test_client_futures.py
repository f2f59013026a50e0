"""Packs and their futures: waiting without an outcome leaves nothing behind, limits of a pack."""

from __future__ import annotations

import sys
import threading
from collections import deque
from functools import partial

import pytest

from logstore.client import append_queue
from logstore.client.append_queue import AppendQueue, QueueLimits
from logstore.client.future import AppendFuture, Pack
from logstore.errors import NotCommitted, Overloaded
from logstore.format.batch import encode_batch
from logstore.limits import BATCH_WALL_BYTES


def test_a_wait_that_ends_without_an_outcome_leaves_nothing_behind() -> None:
    pack = Pack([b"x"], opened_ns=0, deadline_ns=1)
    future = AppendFuture(pack, 0, False)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            future.result(0)
    held = {id(value) for name in Pack.__slots__ for value in _leaves(getattr(pack, name))}
    for _ in range(3):
        with pytest.raises(TimeoutError):
            future.result(0)
    assert {id(value) for name in Pack.__slots__ for value in _leaves(getattr(pack, name))} == held


def _leaves(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else [value]


def test_everybody_who_waits_hears_of_the_outcome() -> None:
    pack = Pack([b"x"], opened_ns=0, deadline_ns=1)
    found: list[int] = []
    waiting = [
        threading.Thread(target=lambda: found.append(AppendFuture(pack, 0, True).result(30).first))
        for _ in range(4)
    ]
    for thread in waiting:
        thread.start()
    pack.resolve(7, 1)
    for thread in waiting:
        thread.join()
    assert found == [7] * 4


def _traceback_length(error: BaseException | None) -> int:
    length, traceback = 0, error.__traceback__ if error else None
    while traceback is not None:
        length, traceback = length + 1, traceback.tb_next
    return length


def test_an_error_that_is_raised_again_and_again_keeps_no_frames() -> None:
    """A failed batch has one error for all of its payloads."""
    pack = Pack([b"x"] * 50, opened_ns=0, deadline_ns=1)
    error = NotCommitted("too late")
    pack.fail(error)
    queue = _queue(1_000)
    queue.refuse(error)
    for position in range(50):
        with pytest.raises(NotCommitted):
            AppendFuture(pack, position, False).result(0)
        with pytest.raises(NotCommitted):
            queue.append(b"y")
    assert _traceback_length(error) < 10


def test_a_callback_that_exits_keeps_no_outcome_from_the_others() -> None:
    pack = Pack([b"x", b"y"], opened_ns=0, deadline_ns=1)
    heard: list[AppendFuture] = []
    AppendFuture(pack, 0, False).add_done_callback(lambda _: sys.exit(1))
    AppendFuture(pack, 1, False).add_done_callback(heard.append)
    pack.resolve(1, 2)
    assert len(heard) == 1


def test_a_callback_that_raises_is_logged_however_late_it_comes() -> None:
    """Where the outcome was known already, the caller got what its callback raised."""
    pack = Pack([b"x"], opened_ns=0, deadline_ns=1)
    pack.resolve(1, 1)
    AppendFuture(pack, 0, False).add_done_callback(lambda _: 1 // 0)


def _queue(
    pack_bytes: int, *, window_bytes: int = 1 << 30, append_timeout_s: float = 1.0
) -> AppendQueue:
    limits = QueueLimits(
        window_bytes=window_bytes,
        pack_bytes=pack_bytes,
        batch_max_bytes=BATCH_WALL_BYTES,
        append_timeout_s=append_timeout_s,
        delivery_timeout_s=1,
    )
    return AppendQueue(limits, ring=lambda: None)


def test_a_pack_of_empty_payloads_is_a_batch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `batch_max` 16 MiB four million of them fit by their bytes, one million by number."""
    monkeypatch.setattr(append_queue, "BATCH_MAX_PAYLOADS", 100)
    queue = _queue(BATCH_WALL_BYTES)
    for _ in range(250):
        queue.append(b"")
    queue.snapshot()
    counts = []
    while (pack := queue.pop_sealed()) is not None:
        counts.append(len(pack.payloads))
    assert sum(counts) == 250
    assert max(counts) <= 100


def test_whole_batches_fit_into_the_window() -> None:
    """Their headers were not counted for the batch that an append begins (SAFETY W6)."""
    queue = _queue(1_000, window_bytes=1_000, append_timeout_s=0.001)
    queue.append_batch([bytes(400)], sequence=-1)
    with pytest.raises(Overloaded):
        queue.append_batch([bytes(530)], sequence=-1)
    queue.append_batch([bytes(400)], sequence=-1)
    batches = [
        encode_batch(pack.payloads, producer_id=1, producer_epoch=1, sequence=0, timestamp_ns=0)
        for pack in queue.snapshot()
    ]
    assert sum(map(len, batches)) <= 1_000


class Interrupted(deque[Pack]):
    """Ctrl-C, right after something was put in."""

    def append(self, pack: Pack) -> None:
        super().append(pack)
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["_sealed", "_unsettled"])
@pytest.mark.parametrize("is_batch", [False, True])
def test_an_interrupted_append_leaves_nothing_that_is_never_settled(
    name: str, is_batch: bool
) -> None:
    """A pack that was waited for, but was never to be sent, held `flush` and `close` up."""
    queue = _queue(100, window_bytes=10_000)
    queue.append(b"open")
    setattr(queue, name, Interrupted(getattr(queue, name)))
    payload = bytes(90)
    append = partial(queue.append_batch, sequence=-1) if is_batch else queue.append
    with pytest.raises(KeyboardInterrupt):
        append([payload] if is_batch else payload)
    setattr(queue, name, deque(getattr(queue, name)))
    queue.append_batch([b"y"], sequence=-1)
    sent = []
    while (pack := queue.pop_sealed()) is not None:
        sent.append(pack)
        pack.resolve(1, 1)
    queue.release(sum(pack.size_bytes for pack in sent))
    assert len(sent) == len(set(sent)) >= 2
    assert all(pack.payloads for pack in sent)
    assert queue.snapshot() == []
    assert queue._size_bytes == 0
