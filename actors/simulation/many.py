"""Runs many seeds in parallel processes, in any order, each seed once.

Owns the pool, how seeds are distributed, and when it ends: after a number of seeds, after a time,
or at Ctrl-C. Must not know what a seed does. Processes exchange numbers, strings and JSON only.

Invariants: one process runs a whole seed; a result does not depend on the number of jobs; no job
outlives the process that started the pool.
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

RUNNER = "actors.simulation.run:run_seed"
# A seed takes about a second: small pieces end soon, and hide the cost of passing them.
SEEDS_A_PIECE = 4
PIECES_A_JOB = 2  # so that no job waits for its next piece
_LOOK_S = 0.2  # how often the clock is read while jobs run


class JobDiedError(LogStoreError):
    """A process that ran seeds died, perhaps for lack of memory: use one job."""


class Stop(Protocol):
    """Set once, read between two seeds: an Event of multiprocessing or threading."""

    def is_set(self) -> bool: ...


class RunOptions(msgspec.Struct, frozen=True):
    """The arguments that all seeds share. `runner`: "module:function", which jobs import."""

    replicas: int | None = None
    classes: tuple[FaultClass, ...] | None = None
    runner: str = RUNNER


def run_many(
    options: RunOptions,
    first_seed: int,
    *,
    seeds: int | None,
    seconds: float | None,
    jobs: int,
    on_result: Callable[[SeedResult], None],
    now_s: Callable[[], float] = time.monotonic,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Run seeds from `first_seed` on and pass on each result as it comes.

    Args:
      seeds: how many; None: as many as there is time for.
      seconds: after which no seed begins; None: no limit.
      jobs: 1: in this process; else in so many processes.
      look: called several times a second; an exception of it ends the run.

    Raises:
      JobDiedError: a process died.
    """
    end_s = None if seconds is None else now_s() + seconds
    numbers = count(first_seed) if seeds is None else iter(range(first_seed, first_seed + seeds))

    def is_late() -> bool:
        return end_s is not None and now_s() >= end_s

    if jobs == 1:
        with code_loaded(options):
            for seed in numbers:
                look()
                if is_late():
                    return
                on_result(run_one(options, seed))
    else:
        _run_in_processes(
            options, numbers, jobs=jobs, is_late=is_late, on_result=on_result, look=look
        )


def run_one(
    options: RunOptions,
    seed: int,
    *,
    script: Script | None = None,
    trace: Callable[[str], None] | None = None,
) -> SeedResult:
    """Run one seed, or `script`, in this process; an exception becomes its result."""
    runner = _runner(options.runner)
    started_s = time.perf_counter()
    try:
        return runner(
            seed, replicas=options.replicas, classes=options.classes, script=script, trace=trace
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
        gc.collect()  # a world is full of cycles


@contextmanager
def code_loaded(options: RunOptions) -> Iterator[None]:
    """Load all code; collections then skip the objects that this made."""
    _load_code(options.runner)
    try:
        yield
    finally:
        gc.unfreeze()


def _runner(name: str) -> Callable[..., SeedResult]:
    module, _, function = name.partition(":")
    runner: Callable[..., SeedResult] = getattr(importlib.import_module(module), function)
    return runner


def _load_code(runner: str) -> None:
    _runner(runner)
    gc.collect()
    gc.freeze()


# --- in processes ---

_stop: Stop | None = None


def _begin_job(parent_pid: int, stop: Stop, runner: str) -> None:
    """Ctrl-C reaches every process of the terminal, but a job ends by `stop` alone."""
    global _stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent_pid)
    _stop = stop
    _load_code(runner)


def _run_piece(options_json: bytes, seeds: Sequence[int]) -> bytes:
    """The results of seeds that ran before the stop."""
    options = msgspec.json.decode(options_json, type=RunOptions)
    results = []
    for seed in seeds:
        if _stop is not None and _stop.is_set():
            break
        results.append(run_one(options, seed))
    return msgspec.json.encode(results)


def _run_in_processes(
    options: RunOptions,
    numbers: Iterator[int],
    *,
    jobs: int,
    is_late: Callable[[], bool],
    on_result: Callable[[SeedResult], None],
    look: Callable[[], None],
) -> None:
    context = get_context("spawn")
    stop = context.Event()
    options_json = msgspec.json.encode(options)
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=context,
        initializer=_begin_job,
        initargs=(os.getpid(), stop, options.runner),
    )
    under_way: dict[Future[bytes], tuple[int, ...]] = {}
    try:
        while True:
            look()
            while len(under_way) < jobs * PIECES_A_JOB and not is_late():
                piece = tuple(islice(numbers, SEEDS_A_PIECE))
                if not piece:
                    break
                under_way[pool.submit(_run_piece, options_json, piece)] = piece
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
        # A job reads it between two seeds: without it, jobs would finish their pieces.
        stop.set()
        pool.shutdown(cancel_futures=True)


def _results(future: Future[bytes], piece: tuple[int, ...]) -> list[SeedResult]:
    try:
        return msgspec.json.decode(future.result(), type=list[SeedResult])
    except BrokenProcessPool as error:
        raise JobDiedError(
            f"a job died, perhaps of seeds {piece[0]} to {piece[-1]}: run them with --jobs 1"
        ) from error
