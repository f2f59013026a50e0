"""Many seeds, side by side in processes of their own, in any order, each result once.

Owns the pool, how seeds are dealt out and how it ends: after so many seeds, at a time, or at
Ctrl-C. Must not know what a seed is about. Nothing but numbers, words and JSON crosses a process.

Invariants: a seed is run in one process from beginning to end; the answer to a seed does not depend
on the jobs; nobody outlives whoever started the pool.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import count, islice
from multiprocessing import get_context
from typing import Protocol

import msgspec

from actors.child import die_with_parent
from actors.simulation.faults.script import FaultClass, Script
from actors.simulation.result import SeedResult
from logstore.errors import LogStoreError

# "module:function"; a job imports it by this name.
RUNNER = "actors.simulation.run:run_seed"
# A seed takes about a second: small pieces end soon and still hide the way between processes.
SEEDS_A_PIECE = 4
# Dealt out ahead, so that no job waits for the next piece.
PIECES_A_JOB = 2
# The least that is waited for before looking at the clock again.
_LOOK_S = 0.2


class JobDiedError(LogStoreError):
    """A process that ran seeds is gone, for want of memory perhaps: run them with one job."""


class Stop(Protocol):
    """Set once; asked between two seeds. A multiprocessing Event, or one of threading's."""

    def is_set(self) -> bool: ...


class Order(msgspec.Struct, frozen=True):
    """What is run: the arguments that all seeds share."""

    replicas: int | None = None
    classes: tuple[FaultClass, ...] | None = None
    runner: str = RUNNER


def run_many(
    order: Order,
    first_seed: int,
    *,
    seeds: int | None,
    seconds: float | None,
    jobs: int,
    on_result: Callable[[SeedResult], None],
    now_s: Callable[[], float] = time.monotonic,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Run seeds from `first_seed` on and hand over each result as it comes.

    Args:
      seeds: how many; None: as many as there is time for.
      seconds: what begins later than this is not run; None: no limit.
      jobs: 1 runs them here, more in as many processes.
      look: called several times a second, between seeds or while jobs run; what it raises ends all.

    Raises:
      JobDiedError: a process died.
    """
    end_s = None if seconds is None else now_s() + seconds
    numbers = count(first_seed) if seeds is None else iter(range(first_seed, first_seed + seeds))

    def is_late() -> bool:
        return end_s is not None and now_s() >= end_s

    if jobs == 1:
        with prepared(order):
            for seed in numbers:
                look()
                if is_late():
                    return
                on_result(run_one(order, seed))
    else:
        _run_in_processes(
            order, numbers, jobs=jobs, is_late=is_late, on_result=on_result, look=look
        )


def run_one(
    order: Order,
    seed: int,
    *,
    script: Script | None = None,
    trace: Callable[[str], None] | None = None,
) -> SeedResult:
    """One seed here, or `script` in its place; whatever it raises is its result."""
    runner = _runner(order.runner)
    started_s = time.perf_counter()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return runner(
            seed, replicas=order.replicas, classes=order.classes, script=script, trace=trace
        )
    except Exception:
        return SeedResult(
            seed=seed,
            simulated_ns=0,
            wall_s=time.perf_counter() - started_s,
            events=0,
            appends_acknowledged=0,
            violations=(),
            faults_injected={},
            reached={},
            event_hash="",
            error=traceback.format_exc(),
        )
    finally:
        if was_enabled:
            gc.enable()
        gc.collect()  # a world is full of cycles, and gone


@contextmanager
def prepared(order: Order) -> Iterator[None]:
    """All code is loaded; what that made is no garbage, so no collection looks at it."""
    _prepare(order.runner)
    try:
        yield
    finally:
        gc.unfreeze()


def _runner(name: str) -> Callable[..., SeedResult]:
    module, _, function = name.partition(":")
    runner: Callable[..., SeedResult] = getattr(importlib.import_module(module), function)
    return runner


def _prepare(runner: str) -> None:
    _runner(runner)
    gc.collect()
    gc.freeze()


# --- in processes ---

_stop: Stop | None = None


def _begin_job(parent_pid: int, stop: Stop, runner: str) -> None:
    """Ctrl-C reaches every process of the terminal; the parent's word counts, through `stop`."""
    global _stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent_pid)
    _stop = stop
    _prepare(runner)


def _run_piece(order_json: bytes, seeds: Sequence[int]) -> bytes:
    """Results of the seeds that were run before the stop."""
    order = msgspec.json.decode(order_json, type=Order)
    results = []
    for seed in seeds:
        if _stop is not None and _stop.is_set():
            break
        results.append(run_one(order, seed))
    return msgspec.json.encode(results)


def _run_in_processes(
    order: Order,
    numbers: Iterator[int],
    *,
    jobs: int,
    is_late: Callable[[], bool],
    on_result: Callable[[SeedResult], None],
    look: Callable[[], None],
) -> None:
    context = get_context("spawn")
    stop = context.Event()
    order_json = msgspec.json.encode(order)
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=context,
        initializer=_begin_job,
        initargs=(os.getpid(), stop, order.runner),
    )
    under_way: dict[Future[bytes], tuple[int, ...]] = {}
    try:
        while True:
            look()
            while len(under_way) < jobs * PIECES_A_JOB and not is_late():
                piece = tuple(islice(numbers, SEEDS_A_PIECE))
                if not piece:
                    break
                under_way[pool.submit(_run_piece, order_json, piece)] = piece
            if not under_way:
                return
            done, _ = wait(under_way, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if is_late():
                stop.set()
            for future in done:
                piece = under_way.pop(future)
                for result in _results(future, piece):
                    on_result(result)
    finally:
        # Ends the seeds under way, not just the ones to come: a job looks between two seeds.
        stop.set()
        pool.shutdown(cancel_futures=True)


def _results(future: Future[bytes], piece: tuple[int, ...]) -> list[SeedResult]:
    try:
        return msgspec.json.decode(future.result(), type=list[SeedResult])
    except BrokenProcessPool as error:
        raise JobDiedError(
            f"a job died, perhaps of seeds {piece[0]} to {piece[-1]}: run them with --jobs 1"
        ) from error
