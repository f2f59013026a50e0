"""Named values of the counters page that one process replaces while another reads them: each read
shows one `publish`, or none.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from transport.counters import create_counters, open_counters

PUBLISHED = 20_000
# 28 KiB when all are there, so that a read may begin while they are copied.
NAMES = [f"a name of some length {number}" for number in range(1_000)]


@pytest.mark.slow
def test_a_read_never_mixes_two_publishes(tmp_path: Path) -> None:
    page = create_counters(tmp_path / "counters", ["one"], 1)
    other = subprocess.Popen([sys.executable, __file__, str(tmp_path / "counters")])
    seen: set[int] = set()
    reads = 0
    try:
        while other.poll() is None:
            values = page.published()
            if values:
                (value,) = set(values.values())
                assert len(values) == 1 + value % len(NAMES)
                seen.add(value)
                reads += 1
    finally:
        other.kill()
        other.wait()
    print(f"{reads} reads saw {len(seen)} of {PUBLISHED} publishes")
    assert other.returncode == 0
    assert len(seen) > 100
    assert set(page.published().values()) == {PUBLISHED - 1}
    page.close()


def publish_all(path: str) -> None:
    page = open_counters(path)
    for number in range(PUBLISHED):
        page.publish(dict.fromkeys(NAMES[: 1 + number % len(NAMES)], number))


if __name__ == "__main__":
    publish_all(sys.argv[1])
