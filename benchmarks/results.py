"""How a measurement is kept: one JSON object, and the raw samples as lines of JSON beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.environment import Document
from logstore.errors import InvalidRequest

RESULTS = "benchmarks/results"
SAMPLES_SUFFIX = ".jsonl"


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written. `summary` holds what the measurement was made for; `commit` is the code's,
    with "+" behind it if files had been changed since or changed meanwhile. `landed`: the commit
    that brought that code to this branch, if it was rebased before; written by hand."""

    name: str
    environment: Document
    commit: str
    rows: list[Any]
    summary: dict[str, Any]
    landed: str = ""


def as_read(result: Result) -> Result:
    """The result as `read_result` would give it: rows and summary of dicts and lists."""
    return msgspec.json.decode(msgspec.json.encode(result), type=Result)


def read_result(path: Path) -> Result:
    """A result that `write_result` wrote.

    Raises:
      InvalidRequest: the file is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidRequest(f"{path.name} is no result of a measurement: {error}") from error


def read_samples(path: Path) -> list[Any]:
    """The raw samples beside a result; none if it has none."""
    beside = path.with_suffix(SAMPLES_SUFFIX)
    return msgspec.json.Decoder().decode_lines(beside.read_bytes()) if beside.exists() else []


def refuse_bad_target(path: str) -> None:
    """Before a measurement: its result can be written there.

    Raises:
      InvalidRequest: it cannot.
    """
    if path == "-":
        return
    target = Path(path)
    if target.suffix == SAMPLES_SUFFIX:
        raise InvalidRequest(f"{path}: raw samples go there, name the result *.json")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error}") from error
    if target.is_dir() or not os.access(target.parent, os.W_OK):
        raise InvalidRequest(f"{path} cannot be written: name a file in a folder of yours")


def write_result(path: str, result: Result, samples: Iterable[object]) -> None:
    """Write `path` and, with the suffix .jsonl, the samples if there are any; "-" is stdout,
    without samples."""
    text = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
    if path == "-":
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = [msgspec.json.encode(sample) + b"\n" for sample in samples]
    beside = target.with_suffix(SAMPLES_SUFFIX)
    if lines:
        _replace(beside, b"".join(lines))
    else:
        beside.unlink(missing_ok=True)  # of an earlier result
    _replace(target, text)


def _replace(path: Path, content: bytes) -> None:
    """An earlier result stays whole until this one is."""
    new = path.with_name(f".{path.name}-new")
    new.write_bytes(content)
    new.replace(path)
