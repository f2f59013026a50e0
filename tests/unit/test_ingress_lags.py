"""How far followers and cursors lag: against looking at every entry, at the bounds, in turns."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from actors.ingress.lags import (
    CURSORS_PUBLISHED_MAX,
    DAMAGE_LOOKED_AT_EVERY_NS,
    OWN_REQUEST,
    PUBLISH_EVERY_NS,
    SLICE_NS,
    Lags,
)
from actors.messages import StatusReported, StatusRequested
from actors.simulation.disk.disk import SimulatedDisk
from actors.topology import Counter
from logstore.format.cursor_entries import Cursor
from logstore.format.entry import EntryHeader, Row
from logstore.format.meta import LogStart
from logstore.format.segment_header import FileRole
from logstore.limits import CURSORS_MAX, NODES_MAX
from logstore.model import FIRST_LSN
from logstore.session.grants import SessionLimits
from logstore.session.table import SessionTable
from logstore.storage.segment import segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial, next_header
from transport.counters import NAMED_BYTES_MAX, create_counters

NOW_NS = 1_000
ROW = {"next_lsn": 1, "payloads": 0, "bytes": 0, "since_ns": 0, "seconds": 0.0}
UNKNOWN = {"payloads": None, "bytes": None, "since_ns": None, "seconds": None}
SILENT_MS = 1_500


def raft_document(role: str, match: dict[str, int]) -> bytes:
    """What raft reports; node 2 is `n2`."""
    found = {node[1:]: index for node, index in match.items()}
    document = {"role": role, "match": found, "silent_ms": dict.fromkeys(found, SILENT_MS)}
    return msgspec.json.encode(document)


class Stage:
    """A leader's log, of one entry for each (count, size) or 0 for a NOOP; all of it is shown."""

    def __init__(self, tmp_path: Path, *entries: tuple[int, int], first_lsn: int = FIRST_LSN):
        self.trial = StorageTrial(SimulatedDisk())
        self.trial.create_log(first_lsn)
        self.headers: list[EntryHeader] = []
        self.slots = [0] * len(Counter)
        self.slots[Counter.VISIBLE] = first_lsn
        self.page = create_counters(tmp_path / "counters", ["one"], 1)
        self.table = SessionTable(SessionLimits())  # without a session
        self.admission = SimpleNamespace(table=self.table, is_ready=True)
        self.replica = SimpleNamespace(is_leading=True)
        self.asked: list[StatusRequested] = []
        self.answers: list[StatusReported] = []
        self.timed_out: set[int] = set()
        self.now_ns = 0
        self.clock = SimpleNamespace(wall_ns=lambda: NOW_NS, monotonic_ns=lambda: 0)
        station = SimpleNamespace(
            slots=self.slots,
            folder=FOLDER,
            host=SimpleNamespace(disk=self.trial.disk),
            config=SimpleNamespace(process=SimpleNamespace(metrics=True)),
            counters=self.page,
        )
        self.lags = Lags(
            station,
            self.admission,
            self.replica,
            self.clock,
            SimpleNamespace(send=self.asked.append),
            self.answers.append,
            lambda request_id: request_id not in self.timed_out,
        )
        for count, size in entries:
            self.append(count, size)

    def append(self, count: int, size: int) -> None:
        writer = self.trial.writer
        body = b"b" * size
        header = next_header(writer.last, 1, body, count)
        entry = (header, Row.of(header).chain, 0, [memoryview(body)])
        if writer.needs_roll([entry]):
            writer.roll()
            self.slots[Counter.MAP_GENERATION] += 1
        self.trial.finish(writer.append([entry]))
        self.headers.append(header)
        self.slots[Counter.VISIBLE_INDEX] = header.index
        self.slots[Counter.VISIBLE] = header.next_lsn

    def trim(self, index: int) -> None:
        """The log starts after this entry."""
        header = self.headers[index - 1]
        chain = Row.of(header).chain
        self.trial.move_start(LogStart(header.index, header.term, chain, header.next_lsn))
        self.slots[Counter.MAP_GENERATION] += 1

    def show(self, index: int) -> None:
        header = self.headers[index - 1]
        self.slots[Counter.VISIBLE_INDEX] = index
        self.slots[Counter.VISIBLE] = header.next_lsn

    def set_cursor(self, name: str, lsn: int, *, is_held: bool = False) -> None:
        self.table.cursors.apply(Cursor(name.encode(), lsn, is_held))

    def status(self, role: str = "leader", **match: int) -> dict:
        """What a status that raft reports becomes."""
        self.lags.take(StatusReported(7, raft_document(role, match)))
        self.work()
        assert self.answers[-1].request_id == 7
        return msgspec.json.decode(self.answers[-1].document)

    def work(self) -> int:
        rounds = 0
        while self.lags.do_work(self.now_ns):
            rounds += 1
        return rounds

    def lag_of(self, index: int) -> dict:
        (row,) = self.status(n2=index)["lag"]["followers"]
        assert (row.pop("node"), row.pop("silent_seconds")) == (2, SILENT_MS / 1_000)
        return row

    def lag_at(self, lsn: int) -> dict:
        self.set_cursor("here", lsn)
        (row,) = self.status()["lag"]["cursors"]
        assert row.pop("name") == "here"
        return row

    def looked_at(self, lsn: int, visible_index: int) -> dict:
        """The lag from `lsn` on, by looking at every entry that is shown."""
        shown = self.headers[:visible_index]
        first_lsn = max(lsn, int(shown[0].first_lsn))
        lacking = [each for each in shown if each.next_lsn > first_lsn]
        held = [each.index for each in shown if each.count]
        if not lacking:
            return ROW | {"next_lsn": lsn}
        first = lacking[0]
        sizes = [each.body_size for each in lacking if each.index <= held[-1]]
        return {
            "next_lsn": lsn,
            "payloads": shown[-1].next_lsn - first_lsn,
            "bytes": sum(sizes),
            "since_ns": first.timestamp_ns,
            "seconds": (NOW_NS - first.timestamp_ns) / 1e9,
        }


# NOOPs at both ends and between, several payloads in one entry, many segments.
ENTRIES = (
    (0, 0),
    (1, 8),
    (3, 24),
    (0, 0),
    (2, 800),
    (1, 800),
    (1, 2_000),
    (4, 2_000),
    (1, 2_000),
    (0, 0),
)


@pytest.mark.parametrize("first_lsn", [1, 1_000])
def test_every_position_lags_by_what_looking_at_every_entry_gives(
    tmp_path: Path, first_lsn: int
) -> None:
    stage = Stage(tmp_path, *ENTRIES, first_lsn=first_lsn)
    assert stage.slots[Counter.MAP_GENERATION] > 1, "more than two segments"
    for visible_index in range(2, len(ENTRIES) + 1):
        stage.show(visible_index)
        for lsn in range(max(1, first_lsn - 2), first_lsn + 16):
            assert stage.lag_at(lsn) == stage.looked_at(lsn, visible_index)
        for match in range(1, len(ENTRIES) + 1):
            lsn = min(stage.headers[match - 1].next_lsn, stage.slots[Counter.VISIBLE])
            assert stage.lag_of(match) == stage.looked_at(lsn, visible_index)


def test_nothing_lags_behind_an_empty_log(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.lag_at(1) == ROW
    assert stage.lag_at(9) == ROW | {"next_lsn": 9}, "beyond the end"
    stage.append(0, 0)
    assert stage.lag_at(1) == ROW, "an entry without payloads"
    assert stage.lag_of(1) == ROW
    assert stage.status()["lag"]["newest_ns"] == 0


def test_a_cursor_beyond_the_end_lags_by_nothing_until_payloads_come_after_it(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, (2, 16))
    assert stage.lag_at(3) == ROW | {"next_lsn": 3}
    assert stage.lag_at(5) == ROW | {"next_lsn": 5}
    stage.append(4, 32)
    assert stage.lag_at(5) == stage.looked_at(5, 2)
    assert (stage.lag_at(5)["payloads"], stage.lag_at(5)["bytes"]) == (2, 32)


def test_a_cursor_below_the_log_start_lags_by_what_is_left(tmp_path: Path) -> None:
    """Payloads that are gone cannot be read any more: they do not count."""
    stage = Stage(tmp_path, (2, 16), (3, 24))
    assert (stage.lag_at(1)["payloads"], stage.lag_at(1)["bytes"]) == (5, 40)
    stage.trim(1)
    row = stage.lag_at(1)
    assert (row["next_lsn"], row["payloads"], row["bytes"]) == (1, 3, 24)
    assert stage.status()["lag"]["log_start_lsn"] == 3


def test_a_cursor_below_a_log_start_after_which_nothing_is_shown_lags_by_what_comes_there(
    tmp_path: Path,
) -> None:
    """The entry above what is shown does not hold the LSN at the log start: another one does."""
    stage = Stage(tmp_path, (2, 16), (0, 0))
    stage.trim(1)
    stage.show(1)
    assert stage.lag_at(1) == ROW
    stage.append(4, 32)
    row = stage.lag_at(1)
    assert (row["payloads"], row["bytes"]) == (4, 32)
    assert row["since_ns"] == stage.headers[2].timestamp_ns


def trim_in_the_search_for(stage: Stage, lsn: int, index: int) -> None:
    """The log start moves, and the pairs below go, just before that search."""
    log = stage.lags._readable(stage.slots[Counter.MAP_GENERATION])
    search = log.index_of_lsn

    def moved(searched, last_index):
        if searched == lsn and stage.trial.start < index:
            stage.trim(index)
        return search(searched, last_index)

    log.index_of_lsn = moved


def test_a_log_start_that_moves_amid_a_measurement_is_followed(tmp_path: Path) -> None:
    """Files that the reader still knows are gone then: it finds so, and no error ends ingress."""
    stage = Stage(tmp_path, *[(1, 600)] * 20)
    assert len(stage.trial.writer._live) > 3
    for name, lsn in (("below", 2), ("at it", 12), ("above", 13)):
        stage.set_cursor(name, lsn)
    trim_in_the_search_for(stage, 20, 11)
    lag = stage.status(n2=5, n3=15)["lag"]
    assert lag["log_start_lsn"] == 12
    rows = {row["name"]: (row["next_lsn"], row["payloads"]) for row in lag["cursors"]}
    assert rows == {"below": (2, 9), "at it": (12, 9), "above": (13, 8)}
    assert [row["payloads"] for row in lag["followers"]] == [None, 5]


def test_a_mistake_is_not_taken_for_a_log_start_that_moves(tmp_path: Path) -> None:
    """A KeyError is a LookupError, too: the measurement would begin again without end."""
    stage = Stage(tmp_path, (1, 8))
    document = {"role": "leader", "match": {"2": 1}, "silent_ms": {}}
    stage.lags.take(StatusReported(7, msgspec.json.encode(document)))

    def measure() -> None:
        for _ in range(3):
            stage.lags.do_work(0)

    with pytest.raises(KeyError):
        measure()


def test_no_removed_file_is_kept_open_while_nobody_asks(tmp_path: Path) -> None:
    stage = Stage(tmp_path, *[(1, 600)] * 20)
    stage.lag_at(2)
    assert stage.lags._log.pairs_open
    stage.trim(11)
    stage.work()
    assert not stage.lags._log.pairs_open
    assert stage.lag_at(12)["payloads"] == 9


def test_the_lag_of_a_follower_that_this_leader_has_not_heard_is_not_known(tmp_path: Path) -> None:
    """Its match is the log start then: it may have everything. How long it is silent is known."""
    stage = Stage(tmp_path, (1, 8))
    assert stage.lag_of(0) == UNKNOWN | {"next_lsn": None}
    assert stage.lag_of(1)["payloads"] == 0


def test_a_follower_ahead_of_what_is_shown_lags_by_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, 8), (1, 8), (1, 8))
    stage.show(1)
    assert stage.lag_of(3) == ROW | {"next_lsn": 2}


def test_stamps_ahead_of_this_clock_are_waits_of_zero_seconds(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, 8))
    header = stage.headers[0]
    assert header.timestamp_ns < NOW_NS
    stage.clock.wall_ns = lambda: 0
    assert stage.lag_at(1)["seconds"] == 0.0


def test_damage_hides_bytes_and_time_and_nothing_else(tmp_path: Path) -> None:
    stage = Stage(tmp_path, *[(1, 8)] * 4)
    path = segment_path(FOLDER, 1, FileRole.RAFT)
    stage.trial.disk.damage(path, 4096 // 512, b"\x07" * 512)
    row = stage.lag_at(1)
    assert (row["payloads"], row["bytes"], row["seconds"]) == (4, None, None)
    assert stage.lag_of(2) == UNKNOWN | {"next_lsn": None}, "where it stands is in a damaged record"


def test_damage_is_looked_at_again_from_time_to_time(tmp_path: Path) -> None:
    """A search in damage reads META and the folder again and again: not in every status."""
    stage = Stage(tmp_path, *[(1, 8)] * 4)
    path = segment_path(FOLDER, 1, FileRole.RAFT)
    whole = stage.trial.disk.read(stage.trial.disk.open_read(path), 4096, 512)
    stage.trial.disk.damage(path, 4096 // 512, b"\x07" * 512)
    for number in range(4):
        stage.set_cursor(f"{number}", number + 1)
    searches = count_searches(stage)
    assert len(stage.status()["lag"]["cursors"]) == 4
    first, searches[:] = len(searches), []
    assert first == 4 + 1, "the newest entry, and one for each cursor"
    stage.status()
    assert len(searches) == 1, "the newest entry"
    stage.trial.disk.damage(path, 4096 // 512, whole)
    stage.clock.monotonic_ns = lambda: 2 * DAMAGE_LOOKED_AT_EVERY_NS
    rows = stage.status()["lag"]["cursors"]
    assert [row["bytes"] for row in rows] == [32, 24, 16, 8]


def count_searches(stage: Stage) -> list:
    """The LSNs that are searched for from here on."""
    log, searches = stage.lags._readable(stage.slots[Counter.MAP_GENERATION]), []
    search = log.index_of_lsn

    def counted(lsn, last_index):
        searches.append(lsn)
        return search(lsn, last_index)

    log.index_of_lsn = counted
    return searches


def test_only_a_leader_that_shows_its_log_adds_lags(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, 8))
    assert "lag" not in stage.status(role="follower")
    stage.slots[Counter.VISIBLE] = 0
    assert "lag" not in stage.status()


def test_cursors_are_unknown_until_their_table_is_complete(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, 8))
    stage.set_cursor("here", 1)
    stage.admission.is_ready = False
    assert stage.status()["lag"]["cursors"] is None
    stage.admission.is_ready, stage.admission.table = True, None
    assert stage.status()["lag"]["cursors"] is None


def test_positions_are_looked_up_in_slices_and_only_when_somebody_stands_there_anew(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, *[(1, 8)] * 40)
    for number in range(40):
        stage.set_cursor(f"cursor {number:02}", number + 1)
    reads = count_rows(stage)
    ticks = itertools.count(step=SLICE_NS // 4)
    stage.clock.monotonic_ns = lambda: next(ticks)
    stage.lags.take(StatusReported(7, b'{"role":"leader","match":{}}'))
    assert stage.lags.do_work(0) == 1
    assert not stage.answers
    assert len(reads) <= 8 * (4 + 1), "searches for the end and four others in 40 entries"
    assert stage.work() == 40 // 4
    rows = msgspec.json.decode(stage.answers[-1].document)["lag"]["cursors"]
    assert [row["payloads"] for row in rows] == list(range(40, 0, -1))
    reads.clear()
    stage.set_cursor("cursor 07", 20)
    stage.status()
    assert len(reads) <= 8, "the newest entry; LSN 20 is known"


def count_rows(stage: Stage) -> list:
    """The records that are read from here on."""
    stage.status()
    log, reads = stage.lags._log, []
    assert log is not None
    stage.lags._entries.clear()
    stage.answers.clear()
    row = log.row

    def counted(index):
        reads.append(index)
        return row(index)

    log.row = counted
    return reads


def test_statuses_are_answered_in_their_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, 8))
    for number in (3, 4, 5):
        stage.lags.take(StatusReported(number, b'{"role":"leader","match":{}}'))
    stage.work()
    assert [each.request_id for each in stage.answers] == [3, 4, 5]


def test_nothing_is_measured_for_requests_that_have_timed_out(tmp_path: Path) -> None:
    """Where damage makes a status slow, watchers may ask for more than can be measured."""
    stage = Stage(tmp_path, (1, 8))
    for number in (3, 4, OWN_REQUEST, 5, 6):
        stage.lags.take(StatusReported(number, b'{"role":"leader","match":{}}'))
    stage.timed_out = {3, 4, 5}
    assert stage.work() == 2
    assert [each.request_id for each in stage.answers] == [OWN_REQUEST, 6]


# --- /metrics ---


def answer_own(stage: Stage, **match: int) -> None:
    stage.lags.take(StatusReported(OWN_REQUEST, raft_document("leader", match)))
    stage.work()


def test_a_leader_asks_raft_once_a_second_and_publishes_what_it_knows(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, 8), (2, 16))
    stage.set_cursor("a.b", 2)
    stage.work()
    assert stage.asked == [StatusRequested(OWN_REQUEST)]
    stage.now_ns = 5 * PUBLISH_EVERY_NS
    stage.work()
    assert len(stage.asked) == 1, "not while raft has not answered"
    stage.clock.wall_ns = lambda: 9_000_000_000
    answer_own(stage, n2=1, n3=0)
    assert stage.page.published() == {
        "follower_lag_payloads.2": 2,
        "follower_lag_bytes.2": 16,
        "follower_lag_since_ns.2": stage.headers[1].timestamp_ns,
        "follower_silent_since_ns.2": 7_500_000_000,
        "follower_silent_since_ns.3": 7_500_000_000,
        "cursors": 1,
        "cursors_left_out": 0,
        "log_payloads.": 3,
        "log_bytes.": 24,
        "log_since_ns.": stage.headers[0].timestamp_ns,
        "cursor_lag_payloads.a.b": 2,
        "cursor_lag_bytes.a.b": 16,
        "cursor_lag_since_ns.a.b": stage.headers[1].timestamp_ns,
    }
    stage.work()
    assert len(stage.asked) == 2
    assert stage.lags.next_timer_ns > stage.now_ns + PUBLISH_EVERY_NS, "it waits for the answer"
    answer_own(stage)
    assert stage.lags.next_timer_ns == stage.now_ns + PUBLISH_EVERY_NS


def test_what_the_log_holds_and_who_keeps_its_start(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, 8), (2, 16))
    log = stage.status()["lag"]["log"]
    assert (log["next_lsn"], log["payloads"], log["bytes"], log["held_by"]) == (1, 3, 24, None)
    assert log["since_ns"] == stage.headers[0].timestamp_ns
    stage.set_cursor("free", 1)
    stage.set_cursor("high", 3, is_held=True)
    stage.set_cursor("low", 2, is_held=True)
    assert stage.status()["lag"]["log"]["held_by"] == {"name": "low", "lsn": 2}
    stage.work()
    answer_own(stage)
    assert stage.page.published()["log_payloads.low"] == 3
    stage.set_cursor("low", 2)
    assert stage.status()["lag"]["log"]["held_by"] == {"name": "high", "lsn": 3}
    for lsn in (4, 100_000):
        stage.set_cursor("high", lsn, is_held=True)
        assert stage.status()["lag"]["log"]["held_by"] is None, "at the end it holds nothing yet"


def test_a_replica_that_leads_no_longer_publishes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, 8))
    stage.work()
    answer_own(stage, n2=1)
    assert stage.page.published()
    stage.replica.is_leading = False
    answer_own(stage, n2=1)
    assert stage.page.published() == {}
    assert stage.lags._log is None
    assert stage.lags.next_timer_ns > 1 << 60


def test_what_is_published_is_bounded_and_fits_whatever_the_names_are(tmp_path: Path) -> None:
    stage = Stage(tmp_path, *[(1, 8)] * 4)
    for number in range(CURSORS_MAX):
        stage.set_cursor(f"{number:03}".ljust(255, "x"), 1)
    stage.work()
    answer_own(stage, **{f"n{60_000 + node}": 1 for node in range(1, NODES_MAX)})
    values = stage.page.published()
    assert len(values) == 2 + 3 * (CURSORS_PUBLISHED_MAX + 1) + 4 * (NODES_MAX - 1)
    assert values["cursors"] == CURSORS_PUBLISHED_MAX + values["cursors_left_out"] == CURSORS_MAX
    largest = dict.fromkeys(values, (1 << 64) - 1)
    assert len(msgspec.msgpack.encode(largest)) <= NAMED_BYTES_MAX
    assert "cursor_lag_payloads." + "049".ljust(255, "x") in values
