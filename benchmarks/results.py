"""How a measurement is kept: one JSON object, and the raw samples as lines of JSON beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.environment import Document


class Result(msgspec.Struct, frozen=True):
    """What is written. `summary` holds what the measurement was made for."""

    name: str
    environment: Document
    rows: list[Any]
    summary: dict[str, Any]


def write_result(path: str, result: Result, samples: Iterable[object]) -> None:
    """Write `path` and, with the suffix .jsonl, the samples; "-" is stdout, without samples."""
    text = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
    if path == "-":
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text)
    with open(target.with_suffix(".jsonl"), "wb") as lines:
        for sample in samples:
            lines.write(msgspec.json.encode(sample) + b"\n")
