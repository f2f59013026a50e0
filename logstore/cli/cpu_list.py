"""CPU numbers as Linux writes lists of them: `0-3,8`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from logstore.config_relations import CPUS_MAX
from logstore.errors import InvalidRequest

_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def parse_cpus(text: str) -> list[int]:
    """The CPU numbers of a list such as `0-3,8`, rising, each once. Whether a machine has them is
    not asked.

    Raises:
      InvalidRequest: it is no such list, or a range is longer than any machine.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + CPUS_MAX:
            raise InvalidRequest(f"{text!r} is no list of CPUs: write one such as 0-3,8")
        found.update(range(first, last + 1))
    return sorted(found)


def cpu_words(cpus: Iterable[int]) -> str:
    """The list, shortest: `0-3,8`; `none` of none."""
    parts: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts) or "none"
