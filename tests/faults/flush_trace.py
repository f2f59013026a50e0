"""What the shipped writers asked the kernel for, traced by strace, and the order check over it
(SAFETY F1).

kill -9 keeps the page cache, so it proves no flush; this does. For every entry: its frame was
written, then the data file flushed, then its record written, then the Raft file flushed;
`durable_times` tells when the last of these four ended, and `early_acknowledgements` compares
that with when producers were told.
"""

from __future__ import annotations

import re
import struct
import subprocess
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_CALL = re.compile(
    r"(?P<start>\d+\.\d+) (?P<name>pwritev2?|pwrite64|fdatasync)"
    r"\(\d+<(?P<path>[^>]*\.(?P<kind>data|raft))>(?P<arguments>.*)\) = (?P<result>-?\d+)"
    r".* <(?P<took>\d+\.\d+)>$"
)
_HEX = re.compile(r'"((?:\\x[0-9a-f]{2})+)"')
_FRAME_MAGIC, _RECORD_MAGIC = b"LGRP", b"LREC"
_INDEX_AT = 8 + 16  # magic, version, reserved; then the entry header, whose index is at 16
_RECORD_SIZE = 128


@dataclass
class WriterTrace:
    """Calls of one writer on its log files. Times in seconds since the Unix epoch."""

    frames: dict[int, float] = field(default_factory=dict)  # index: when its write ended
    records: dict[int, tuple[float, float]] = field(default_factory=dict)  # index: start, end
    flushes: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


class Strace:
    """strace on some processes, while the object is open."""

    def __init__(self, folder: Path, pids: Iterable[int]) -> None:
        folder.mkdir()
        self._folder = folder
        self._tracers: list[subprocess.Popen[bytes]] = []
        for pid in pids:
            prefix = folder / f"{pid}"
            prefix.mkdir()
            tracer = subprocess.Popen(
                [
                    "strace", "-ff", "-ttt", "-T", "-y", "-xx", "-s", "160", "-p", str(pid),
                    "-e", "trace=pwritev,pwritev2,pwrite64,fdatasync", "-o", str(prefix / "t"),
                ],
                stderr=subprocess.PIPE,
            )  # fmt: skip
            self._tracers.append(tracer)
            assert tracer.stderr is not None
            assert b"attached" in tracer.stderr.readline()

    def close(self) -> list[WriterTrace]:
        """Stop tracing; one trace per process."""
        for tracer in self._tracers:
            tracer.terminate()
            tracer.communicate()
        return [read_trace(folder) for folder in sorted(self._folder.iterdir())]


def read_trace(folder: Path) -> WriterTrace:
    """The calls in the files that `strace -ff` left, one a thread."""
    trace = WriterTrace()
    for file in folder.iterdir():
        for line in file.read_text(errors="replace").splitlines():
            # -xx shows paths in hexadecimal too
            call = _CALL.match(_plain_paths(line))
            if call is not None and int(call["result"]) >= 0:
                _take(trace, call)
    for flushes in trace.flushes.values():
        flushes.sort()
    return trace


def _plain_paths(line: str) -> str:
    return re.sub(r"<((?:\\x[0-9a-f]{2})+)>", lambda found: f"<{_bytes(found[1]).decode()}>", line)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _take(trace: WriterTrace, call: re.Match[str]) -> None:
    start = float(call["start"])
    end = start + float(call["took"])
    if call["name"] == "fdatasync":
        trace.flushes.setdefault(call["kind"], []).append((start, end))
        return
    for text in _HEX.findall(call["arguments"]):
        block = _bytes(text)
        if call["kind"] == "data" and block[:4] == _FRAME_MAGIC:
            trace.frames[_index(block)] = end
        elif call["kind"] == "raft" and block[:4] == _RECORD_MAGIC:
            first = _index(block)
            for index in range(first, first + int(call["result"]) // _RECORD_SIZE):
                trace.records[index] = (start, end)


def _index(block: bytes) -> int:
    return int(struct.unpack_from("<Q", block, _INDEX_AT)[0])


def durable_times(trace: WriterTrace) -> tuple[dict[int, float], list[str]]:
    """When each entry was durable, and every entry whose record came before its frame's flush."""
    times: dict[int, float] = {}
    broken: list[str] = []
    for index, (record_start, record_end) in sorted(trace.records.items()):
        frame_end = trace.frames.get(index)
        if frame_end is None:
            continue  # written before the trace began
        data_flushed = _first_flush_after(trace, "data", frame_end)
        if data_flushed is None or data_flushed > record_start:
            broken.append(f"entry {index}: its record was written before its frame was flushed")
            continue
        raft_flushed = _first_flush_after(trace, "raft", record_end)
        if raft_flushed is not None:
            times[index] = raft_flushed
    return times, broken


def _first_flush_after(trace: WriterTrace, kind: str, moment: float) -> float | None:
    """When the first flush that began at or after `moment` ended. `-T` and `-ttt` are
    microseconds.
    """
    flushes = trace.flushes.get(kind, [])
    at = bisect_left(flushes, (moment - 2e-6, 0.0))
    return flushes[at][1] if at < len(flushes) else None


def early_acknowledgements(
    traces: list[WriterTrace], acknowledged: dict[int, float], *, majority: int
) -> list[str]:
    """Entries (index: when the producer knew) that no majority had flushed by then, in words."""
    found: list[str] = []
    durable: list[dict[int, float]] = []
    for trace in traces:
        times, broken = durable_times(trace)
        durable.append(times)
        found += broken
    for index, told in sorted(acknowledged.items()):
        flushed = sum(times.get(index, told + 1) <= told for times in durable)
        if flushed < majority:
            found.append(f"entry {index} was acknowledged with {flushed} of {majority} flushes")
    return found
