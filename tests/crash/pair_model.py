"""An abstract model of the rules for segment pairs (SAFETY sections 2 to 4), to be explored whole.

Apart from the storage code on purpose, and importing none of it: it shows that the rules are
sound; other tests show that the code keeps them. A disk is a dict of cells that are written whole
or not at all; an entry is its index, its term and the terms before it (a perfect chain). Frames
take two cells, so they tear; no-ops take one; two records share a cell. A life is a list of events;
a power cut between any two of them leaves any subset of the unflushed cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

Cells = dict[tuple[Any, ...], Any]  # (file, segment, place…) -> what was written there
RECORDS_A_CELL = 2


class Entry(msgspec.Struct, frozen=True):
    index: int
    term: int
    before: tuple[int, ...]  # the terms of all entries before it

    @property
    def chain(self) -> tuple[int, ...]:
        return (*self.before, self.term)


class Header(NamedTuple):
    number: int
    first: int
    base: tuple[int, ...]
    previous: tuple[int, int]  # number and first index of the live segment before it


class Outcome(NamedTuple):
    kept: dict[int, Entry]
    faulty: set[int]
    adopted: list[Entry]
    chain: tuple[int, ...]
    is_torn: bool
    headers: dict[int, Header]
    meta: tuple[int, int]  # generation and vote


class Promises(NamedTuple):
    entries: dict[int, int]  # acknowledged: index to term
    vote: int = 0


# --- the rules: what recovery makes of cells ---


def live_segments(headers: dict[int, Header]) -> list[tuple[int, int, int | None]]:
    """(number, first index, end or None), missing ones that a header names included."""
    first = {header.previous[0]: header.previous[1] for header in headers.values()}
    first.pop(0, None)
    first.update({number: header.first for number, header in headers.items()})
    live: list[tuple[int, int, int | None]] = []
    end: int | None = None
    for number in sorted(first, reverse=True):
        if end is None or first[number] < end:
            live.append((number, first[number], end))
            end = first[number]
    if end is not None and end > 1:
        live.append((0, 1, end))  # missing, and nobody knows its number
    return live[::-1]


def record_at(cells: Cells, header: Header, index: int) -> Entry | None:
    slot = index - header.first
    cell = cells.get(("R", header.number, slot // RECORDS_A_CELL), ())
    place = slot % RECORDS_A_CELL
    found = cell[place] if place < len(cell) else None
    return found if found and found.index == index else None


def frame_at(cells: Cells, header: Header, index: int) -> Entry | None:
    slot = index - header.first
    parts = [cells.get(("D", header.number, slot, part)) for part in range(2)]
    head = parts[0]
    if head is None or head[0].index != index:
        return None
    entry, is_noop = head
    return entry if is_noop or parts[1] == head else None


def recover(cells: Cells) -> Outcome:
    """The table of SAFETY section 4."""
    headers = {value.number: value for (file, *_), value in cells.items() if file in ("DH", "RH")}
    metas = [cells[key] for key in (("MA",), ("MB",)) if key in cells]
    kept: dict[int, Entry] = {}
    faulty: set[int] = set()
    adopted: list[Entry] = []
    chain: tuple[int, ...] | None = ()
    is_torn = False
    live = live_segments(headers)
    for number, first, end in live:
        header = headers.get(number)
        if header is None:
            faulty.update(range(first, end or first))
            chain = None
            continue
        chain = header.base if chain is None else chain
        records = [i for i in range(first, end or 99) if record_at(cells, header, i)]
        evidence = max(records, default=first - 1) if end is None else end - 1
        for index in itertools.count(first):
            if index == end:
                break
            record, frame = record_at(cells, header, index), frame_at(cells, header, index)
            if record is not None:
                if frame == record:
                    kept[index] = record
                else:
                    faulty.add(index)
                chain = record.chain
            elif frame is not None and chain is not None and frame.before == chain:
                kept[index] = frame
                adopted.append(frame)
                chain = frame.chain
            elif index <= evidence:
                faulty.add(index)
                chain = None
            else:
                is_torn = any(
                    file in ("D", "R") and cell == number and written_beyond(key, index - first)
                    for key in cells
                    for file, cell in [key[:2] if len(key) > 1 else ("", 0)]
                )
                break
    return Outcome(kept, faulty, adopted, chain or (), is_torn, headers, max(metas, default=(0, 0)))


def written_beyond(key: tuple[Any, ...], slots: int) -> bool:
    file, _, place, *_ = key
    return bool(place >= slots if file == "D" else place * RECORDS_A_CELL >= slots)


# --- a life: events in the order of SAFETY section 3 ---


class Life:
    """Writes, flushes and promises of one incarnation; `cells` is what it sees itself."""

    def __init__(self, cells: Cells, promises: Promises) -> None:
        self.cells = dict(cells)
        self.events: list[tuple[Any, ...]] = []
        self.promises = promises
        found = recover(self.cells)
        self.chain = found.chain
        self.headers = found.headers
        self.generation = found.meta[0]

    def write(self, file: tuple[Any, ...], key: tuple[Any, ...], value: Any) -> None:
        self.cells[key] = value
        self.events.append(("write", file, key, value))

    def flush(self, *file: Any) -> None:
        self.events.append(("flush", file))

    def promise(self, promises: Promises) -> None:
        self.promises = promises
        self.events.append(("promise", promises))

    def open_segment(self, first: int) -> None:
        """A roll or a truncation: Raft header, flush, data header, flush."""
        number = max(self.headers, default=0) + 1
        live = [s for s in live_segments(self.headers) if s[1] < first]
        previous = live[-1][:2] if live else (0, 0)
        self.chain = self.chain[: first - 1]
        header = Header(number, first, self.chain, previous)
        self.headers[number] = header
        for file, place in (("R", "RH"), ("D", "DH")):
            self.write((file, number), (place, number), header)
            self.flush(file, number)

    def truncate(self, first: int) -> None:
        kept = {i: t for i, t in self.promises.entries.items() if i < first}
        self.promise(self.promises._replace(entries=kept))
        self.open_segment(first)

    def frames(self, term: int, shapes: str) -> list[Entry]:
        """`shapes`: a letter an entry; d is data of two cells, n a no-op of one."""
        header = self.headers[max(self.headers)]
        entries = []
        for shape in shapes:
            entry = Entry(len(self.chain) + 1, term, self.chain)
            slot = entry.index - header.first
            for part in range(1 if shape == "n" else 2):
                file = ("D", header.number)
                self.write(file, (*file, slot, part), (entry, shape == "n"))
            self.chain = entry.chain
            entries.append(entry)
        return entries

    def flush_frames(self) -> None:
        self.flush("D", max(self.headers))

    def records(self, entries: list[Entry]) -> None:
        header = self.headers[
            max(s for s, h in self.headers.items() if h.first <= entries[0].index)
        ]
        file = ("R", header.number)
        for entry in entries:
            slot = entry.index - header.first
            key = (*file, slot // RECORDS_A_CELL)
            shared = list(self.cells.get(key, ()))[: slot % RECORDS_A_CELL]
            shared += [None] * (slot % RECORDS_A_CELL - len(shared))
            self.write(file, key, (*shared, entry))

    def flush_records(self, entries: list[Entry]) -> None:
        self.flush("R", max(self.headers))
        acknowledged = {entry.index: entry.term for entry in entries}
        self.promise(self.promises._replace(entries={**self.promises.entries, **acknowledged}))

    def group(self, term: int, shapes: str) -> None:
        entries = self.frames(term, shapes)
        self.flush_frames()
        self.records(entries)
        self.flush_records(entries)

    def vote(self, vote: int) -> None:
        self.generation += 1
        for copy in ("MA", "MB"):
            self.write((copy,), (copy,), (self.generation, vote))
            self.flush(copy)
        self.promise(self.promises._replace(vote=vote))

    def recovery(self) -> None:
        """Everything is flushed, data first; then headers, META, adopted records, a new segment."""
        numbers = sorted(self.headers)
        for file in ("D", "R"):
            for number in numbers:
                self.flush(file, number)
        found = recover(self.cells)
        for copy in ("MA", "MB"):
            if found.meta[0] and self.cells.get((copy,)) != found.meta:
                self.write((copy,), (copy,), found.meta)
            self.flush(copy)
        for number, header in found.headers.items():
            for file, place in (("R", "RH"), ("D", "DH")):
                if (place, number) not in self.cells:
                    self.write((file, number), (place, number), header)
                    self.flush(file, number)
        for entry in found.adopted:
            self.records([entry])
        for number in numbers:
            self.flush("R", number)
        if found.is_torn:
            self.open_segment(len(found.chain) + 1)


# --- crashes and faults ---


def explore(
    durable: Cells,
    pending: list[tuple[Any, ...]],
    events: list[tuple[Any, ...]],
    promises: Promises,
) -> Iterator[tuple[Cells, Promises, list[tuple[Any, ...]], Cells]]:
    """Every distinct power cut: (cells left, promises, what was pending, what was durable)."""
    durable, pending, seen = dict(durable), list(pending), set()
    for event in [*events, None]:
        versions: dict[tuple[Any, ...], list[Any]] = {}
        for _, key, value in pending:
            versions.setdefault(key, []).append(value)
        for choice in itertools.product(*[[None, *values] for values in versions.values()]):
            left = dict(durable)
            chosen = zip(versions, choice, strict=True)
            left.update({key: value for key, value in chosen if value is not None})
            fingerprint = (
                frozenset(left.items()),
                frozenset(promises.entries.items()),
                promises.vote,
            )
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield left, promises, list(pending), dict(durable)
        match event:
            case ("write", file, key, value):
                pending.append((file, key, value))
            case ("flush", file):
                durable.update({key: value for f, key, value in pending if f == file})
                pending = [write for write in pending if write[0] != file]
            case ("promise", new):
                promises = new


def single_faults(cells: Cells) -> Iterator[Cells]:
    """A cell lost; a file cut at any place or gone; a pair that has a successor gone."""
    for lost in cells:
        yield {key: value for key, value in cells.items() if key != lost}
    for file, number, place in {key[:3] for key in cells if key[0] in ("D", "R")}:
        yield {
            key: value
            for key, value in cells.items()
            if not (key[:2] == (file, number) and key[2] >= place)
        }
        yield {
            key: value
            for key, value in cells.items()
            if key[:2] not in ((file, number), (file + "H", number))
        }
    newest = max((key[1] for key in cells if len(key) > 1), default=0)
    for gone in {key[1] for key in cells if len(key) > 1} - {newest}:
        yield {key: value for key, value in cells.items() if key[1:2] != (gone,)}


def is_lost(cells: Cells, promises: Promises) -> bool:
    found = recover(cells)
    return found.meta[1] < promises.vote or any(
        index not in found.faulty and (index not in found.kept or found.kept[index].term != term)
        for index, term in promises.entries.items()
    )
