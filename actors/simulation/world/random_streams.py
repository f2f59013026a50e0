"""Random streams: one `Random` per concern, derived from the seed and the concern's name.

So leaving a fault out of a script, or a longer workload, changes no other stream.
"""

from __future__ import annotations

from random import Random

from crc32c import crc32c


def stream(seed: int, name: str) -> Random:
    """The stream `name` of `seed`; the same under every PYTHONHASHSEED."""
    return Random((seed << 32) | crc32c(name.encode()))
