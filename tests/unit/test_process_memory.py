"""What the allocator of a replica's process does with freed memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROUNDS = 50
PAGE_BYTES = 4_096
CHILD = f"""
import ctypes, resource, sys
from transport.process_memory import give_back_memory, keep_freed_memory, private_bytes
if sys.argv[1] == "kept":
    keep_freed_memory()
buffer_bytes, buffers = int(sys.argv[2]), int(sys.argv[3])
def fill():
    return [b"x" * buffer_bytes for _ in range(buffers)]
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    fill()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
held = private_bytes()
give_back_memory()
print(hasattr(ctypes.CDLL(None), "mallopt"), faults, held - private_bytes())
"""


def run_child(word: str, buffer_bytes: int, buffers: int) -> tuple[int, int]:
    """The faults of all rounds, and the bytes that were given back in the end."""
    arguments = [sys.executable, "-c", CHILD, word, str(buffer_bytes), str(buffers)]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, check=True, text=True)
    has_parameters, faults, given_back = done.stdout.split()
    if has_parameters == "False":
        pytest.skip("this system's allocator has no mallopt")
    return int(faults), int(given_back)


@pytest.mark.parametrize(
    ("buffer_bytes", "buffers"), [(100_000, 40), (4 << 20, 1), ((16 << 20) + (64 << 10), 1)]
)
def test_buffers_that_come_and_go_are_not_faulted_in_again(buffer_bytes: int, buffers: int) -> None:
    faults, given_back = run_child("kept", buffer_bytes, buffers)
    round_bytes = buffer_bytes * buffers
    assert faults < round_bytes // PAGE_BYTES, "less than a fault for each page of one round"
    assert given_back >= round_bytes // 2, "and it can still be given back"


def test_it_is_not_so_by_default() -> None:
    faults, _ = run_child("as it is", 100_000, 40)
    assert faults > ROUNDS * 40 * 100_000 // PAGE_BYTES // 4
