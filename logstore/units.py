"""Sizes and durations as operators write them: a number and a unit. Knows no setting by name.

The unit is always written, because some people read a bare number as seconds, others as
milliseconds; some as MB, others as MiB. Sizes become bytes, durations nanoseconds, both exact
integers. Results are cached: every status document asks for settings in bytes.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from logstore.errors import ConfigError

SIZE_UNITS = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
DURATION_UNITS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3_600 * 10**9,
    "d": 86_400 * 10**9,
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")


@lru_cache(maxsize=256)
def parse_size(text: str, *, key: str) -> int:
    """Bytes of `text`, such as "256MiB" or "1.5 GB".

    Raises:
      ConfigError: no number, no unit, an unknown unit or a fraction of a byte; names `key`.
    """
    return _parse(text, SIZE_UNITS, key=key, example="256MiB")


@lru_cache(maxsize=256)
def parse_duration(text: str, *, key: str) -> int:
    """Nanoseconds of `text`, such as "100ms" or "1.5 s".

    Raises:
      ConfigError: no number, no unit, an unknown unit or a fraction of a nanosecond; names `key`.
    """
    return _parse(text, DURATION_UNITS, key=key, example="100ms")


def size_words(size_bytes: int) -> str:
    """A size as an operator writes it, exactly, in the largest binary unit that divides it."""
    units = [name for name in ("GiB", "MiB", "KiB") if size_bytes % SIZE_UNITS[name] == 0]
    unit = units[0] if size_bytes and units else "B"
    return f"{size_bytes // SIZE_UNITS[unit]}{unit}"


def _parse(text: str, units: dict[str, int], *, key: str, example: str) -> int:
    advice = f'write a number and one of {", ".join(units)}, such as "{example}"'
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{key}: {text!r} is no quantity; {advice}")
    number, unit = match.groups()
    if unit not in units:
        reason = f"has the unknown unit {unit!r}" if unit else "has no unit"
        raise ConfigError(f"{key}: {text!r} {reason}; {advice}")
    value = Fraction(number) * units[unit]
    if value.denominator != 1:
        raise ConfigError(f"{key}: {text!r} is no whole number of {next(iter(units))}; {advice}")
    return value.numerator
