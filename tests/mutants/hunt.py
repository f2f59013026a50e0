"""Runs one mutant, or the product itself, against seeds 1, 2, 3, … in a process of its own.

Owns what counts as found. Prints a line of JSON for each seed that begins and one for the outcome,
so that the parent process knows how far the hunt came if it has to kill it.

    python -m tests.mutants.hunt NAME CPU_SECONDS_MAX [SEEDS_MAX]
"""

from __future__ import annotations

import resource
import sys
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import msgspec

import actors.simulation
from actors.simulation.faults.draw import draw_classes
from actors.simulation.faults.script import FaultClass
from actors.simulation.run import run_seed
from tests.mutants.catalogue import CATALOGUE, mutant_named
from tests.mutants.patch import applied

MODULE = "tests.mutants.hunt"
PRODUCT_ITSELF = "none"  # in place of a mutant's name
SEEDS_MAX = 1_000_000
# After the time is up, the last seed may take so long before it is killed.
_LAST_SEED_SECONDS = 60
_SIMULATION = Path(actors.simulation.__file__).parent
_PROJECT = _SIMULATION.parents[1]
_PRODUCT = tuple(str(_PROJECT / package) for package in ("logstore", "actors", "transport"))


class Hunt(msgspec.Struct, frozen=True):
    """How far a hunt came. `caught`: the violation or error of the last seed, "" for none."""

    seeds: int
    cpu_s: float
    caught: str = ""
    is_over: bool = False


def hunt(name: str, *, cpu_seconds_max: float, seeds_max: int = SEEDS_MAX) -> Hunt:
    """Run seeds until one fails, or until time or seeds are used up. The product itself runs each
    seed as every mutant's hunt does, with and without the classes of some."""
    found = Hunt(0, 0.0)
    ways = sorted({each.classes for each in CATALOGUE})
    with ExitStack() as undo:
        if name != PRODUCT_ITSELF:
            hunted = mutant_named(name)
            ways = [hunted.classes]
            undo.enter_context(applied(hunted))
        started_s = time.process_time()
        while not found.is_over:
            _say(Hunt(found.seeds + 1, found.cpu_s))
            complaints = (complaint_of(found.seeds + 1, classes) for classes in ways)
            caught = next(filter(None, complaints), "")
            cpu_s = round(time.process_time() - started_s, 2)
            is_over = bool(caught) or cpu_s >= cpu_seconds_max or found.seeds + 1 >= seeds_max
            found = Hunt(found.seeds + 1, cpu_s, caught, is_over)
    return found


def complaint_of(seed: int, classes: tuple[FaultClass, ...] = ()) -> str:
    """The first violation or error of this seed, with these classes on besides those that it drew,
    in one line; "" if there is none.

    An exception out of the product counts; one of the simulator alone is a bug, and is raised."""
    try:
        return run_seed(seed, classes=(*draw_classes(seed), *classes)).first_complaint
    except Exception as error:
        if not _came_through_product(error.__traceback__):
            raise
        return traceback.format_exception_only(error)[-1].splitlines()[0]


def _came_through_product(trace: TracebackType | None) -> bool:
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]
    return any(
        file.startswith(_PRODUCT) and not file.startswith(str(_SIMULATION)) for file in files
    )


def _say(found: Hunt) -> None:
    print(msgspec.json.encode(found).decode(), flush=True)


def main() -> None:
    name, cpu_seconds_max, *more = sys.argv[1:]
    seeds_max = int(more[0]) if more else SEEDS_MAX
    limit_s = int(float(cpu_seconds_max)) + _LAST_SEED_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    _say(hunt(name, cpu_seconds_max=float(cpu_seconds_max), seeds_max=seeds_max))


if __name__ == "__main__":
    main()
