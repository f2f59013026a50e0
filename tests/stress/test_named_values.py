"""Named values of the counters page that one process replaces while another reads them: each read
shows one `publish`, or none.
"""

from __future__ import annotations

import itertools
import select
import subprocess
import sys
from pathlib import Path

import pytest

from transport.counters import create_counters, open_counters

SEEN_MIN = 1_000
LOOKS_EVERY = 100  # publishes between two looks whether to end
# 28 KiB when all are there, so that a read may begin while they are copied.
NAMES = [f"a name of some length {number}" for number in range(1_000)]


@pytest.mark.slow
def test_a_read_never_mixes_two_publishes(tmp_path: Path) -> None:
    page = create_counters(tmp_path / "counters", ["one"], 1)
    other = subprocess.Popen(
        [sys.executable, __file__, str(tmp_path / "counters")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    seen: set[int] = set()
    try:
        while len(seen) < SEEN_MIN and other.poll() is None:
            values = page.published()
            if values:
                (value,) = set(values.values())
                assert len(values) == 1 + value % len(NAMES)
                seen.add(value)
        last, _ = other.communicate()
    finally:
        other.kill()
        other.wait()
    assert other.returncode == 0
    assert len(seen) == SEEN_MIN
    assert set(page.published().values()) == {int(last)}
    page.close()


def publish_until_told(path: str) -> int:
    """Publish until standard input ends; the number of the last one."""
    page = open_counters(path)
    for number in itertools.count():
        page.publish(dict.fromkeys(NAMES[: 1 + number % len(NAMES)], number))
        if number % LOOKS_EVERY == 0 and select.select([sys.stdin], [], [], 0)[0]:
            return number
    raise AssertionError


if __name__ == "__main__":
    print(publish_until_told(sys.argv[1]))
