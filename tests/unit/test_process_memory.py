"""What the allocator of a replica's process does with freed memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROUNDS = 50
BUFFERS = 40
BUFFER_BYTES = 100_000
ROUND_PAGES = BUFFERS * BUFFER_BYTES // 4_096
CHILD = f"""
import ctypes, resource, sys
from transport.process_memory import give_back_memory, keep_freed_memory, private_bytes
if sys.argv[1] == "kept":
    keep_freed_memory()
def fill():
    return [b"x" * {BUFFER_BYTES} for _ in range({BUFFERS})]
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    fill()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
held = private_bytes()
give_back_memory()
print(hasattr(ctypes.CDLL(None), "mallopt"), faults, held - private_bytes())
"""


def run_child(word: str) -> tuple[int, int]:
    """The faults of all rounds, and the bytes that were given back in the end."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, word], stdout=subprocess.PIPE, check=True, text=True
    )
    has_parameters, faults, given_back = done.stdout.split()
    if has_parameters == "False":
        pytest.skip("this system's allocator has no mallopt")
    return int(faults), int(given_back)


def test_buffers_that_come_and_go_are_not_faulted_in_again() -> None:
    faults, given_back = run_child("kept")
    assert faults < ROUND_PAGES, "less than a fault for each page of one round"
    assert given_back >= BUFFERS * BUFFER_BYTES // 2, "and it can still be given back"


def test_it_is_not_so_by_default() -> None:
    faults, _ = run_child("as it is")
    assert faults > ROUNDS * ROUND_PAGES // 4
