"""What a leader gives up by itself: when, how far, and what keeps it (SAFETY G1, G2)."""

from __future__ import annotations

import pytest

from actors.ingress import snapshots
from actors.ingress.retention import LOOK_EVERY_NS, Kept, given_up
from actors.topology import Counter
from logstore.errors import CorruptData, InvalidRequest
from logstore.format.trim_entry import TrimReason, decode_trim
from logstore.limits import CLOCK_DRIFT_MAX_NS, LOG_AGAIN_NS
from logstore.model import EntryKind
from logstore.raft import effects
from tests.unit.ingress_stage import Stage, StageLog
from tests.unit.test_ingress_cursors import set_cursor
from tests.unit.test_ingress_snapshots import lead_again, make_due, settle

SECOND_NS = 1_000_000_000
# Entries: 1 a NOOP, 2 an OPEN, 3 to 12 with the LSNs 1 to 20, two each, a second apart; segments
# begin at 4, 6, 8, 10 and 12, before the LSNs 3, 7, 11, 15 and 19.
FIRST_INDEXES = [4, 6, 8, 10, 12]


def make_stage(config):
    stage = Stage(config=f"[retention]\n{config}\n")
    stage.lead()
    stage.pushed = stage.producer()
    for sequence in range(10):
        stage.clock.wall += SECOND_NS
        stage.pushed.push(sequence)
        stage.accept_and_commit()
    stage.roll(*FIRST_INDEXES)
    return stage


def snapshot(stage):
    """A snapshot of the sessions is taken and committed, at the end of the log."""
    make_due(stage)
    stage.work()
    assert set(settle(stage)) == {EntryKind.SESSION}
    make_due(stage, after=1_000)


def look(stage):
    """The next look; what it proposes, as (kind, TRIM or None)."""
    stage.clock.now_ns += LOOK_EVERY_NS
    stage.work()
    return [
        (proposal.kind, decode_trim(body) if proposal.kind == EntryKind.TRIM else None)
        for proposal, body in stage.take_proposals()
    ]


def trimmed(stage):
    """The TRIM that the next look proposes, and nothing else."""
    ((kind, entry),) = look(stage)
    assert kind == EntryKind.TRIM
    return entry


def look_and_commit(stage):
    """The kinds of what the next look proposes, committed."""
    stage.clock.now_ns += LOOK_EVERY_NS
    stage.work()
    return [header.kind for header in stage.accept_and_commit()]


@pytest.mark.parametrize(
    ("config", "reason", "index"),
    [
        ("payloads = 6", TrimReason.PAYLOADS, 9),
        ("payloads = 7", TrimReason.PAYLOADS, 7),
        ("payloads = 1", TrimReason.PAYLOADS, 11),
        ('age = "4s"', TrimReason.AGE, 7),
        ('age = "5s"', TrimReason.AGE, 5),
        ('age = "4s"\npayloads = 9', TrimReason.AGE, 7),
        ('age = "8s"\npayloads = 9', TrimReason.PAYLOADS, 7),
    ],
)
def test_g1_what_exceeds_a_bound_is_given_up_by_whole_segments(config, reason, index, caplog):
    caplog.set_level("INFO")
    stage = make_stage(config)
    snapshot(stage)
    entry = trimmed(stage)
    bound = f"[retention] {reason.name.lower()}"
    assert f"the log exceeds {bound}: it is to start at LSN {entry.start.next_lsn}" in caplog.text
    header = stage.entries[index - 1][0]
    assert (entry.reason, entry.start.index) == (reason, index)
    assert (entry.start.next_lsn, entry.start.term) == (header.next_lsn, header.term)
    assert (entry.cumulative_bytes, entry.timestamp_ns) == (
        header.cumulative_bytes,
        header.timestamp_ns,
    )
    assert entry.start.chain == index + 1  # as the segment's header has it


def test_g1_bytes_are_those_of_bodies():
    stage = make_stage("payloads = 0")
    body_bytes = stage.entries[-1][0].body_size
    pairs = stage._open_log().pairs()
    newest = stage.entries[-1][0]
    for size_bytes, count in ((3 * body_bytes, 4), (3 * body_bytes + 1, 3), (body_bytes, 5)):
        assert given_up(pairs, newest, Kept(0, size_bytes, 0)) == (count, TrimReason.BYTES)
    assert given_up(pairs, newest, Kept(0, 0, 0))[0] == 0


def test_g1_no_trim_is_proposed_that_frees_no_segment():
    stage = make_stage("payloads = 19")
    snapshot(stage)
    assert look(stage) == []
    stage.pushed.push(10)
    stage.accept_and_commit()
    assert trimmed(stage).start.next_lsn == 3


def test_g1_each_segment_is_given_up_once():
    """The log start moves a while after the commit."""
    stage = make_stage("payloads = 6")
    snapshot(stage)
    assert look_and_commit(stage) == [EntryKind.TRIM]
    assert look(stage) == []
    stage.pushed.push(10)
    stage.accept_and_commit()
    assert look(stage) == []


def test_g1_segments_without_payloads_are_given_up_too():
    """Cursors move, and nobody appends: each segment begins at the LSN where the log does."""
    stage = make_stage('age = "1s"')
    snapshot(stage)
    assert look_and_commit(stage) == [EntryKind.TRIM]
    starts = []
    for lsn in range(1, 21):
        stage.clock.wall += SECOND_NS
        set_cursor(stage, b"reader", lsn)
        stage.roll(*FIRST_INDEXES, *range(13, len(stage.entries) + 1))
        look_and_commit(stage)
        settle(stage)
        starts += [
            decode_trim(body).start
            for header, body in stage.entries
            if header.kind == EntryKind.TRIM
        ][-1:]
    assert {start.next_lsn for start in starts[3:]} == {21}
    assert starts[-1].index > starts[3].index + 20


def test_a_log_without_bounds_is_never_looked_at():
    stage = make_stage("payloads = 0")
    snapshot(stage)
    logs = len(stage.logs)
    for _ in range(3):
        stage.clock.now_ns += LOOK_EVERY_NS
        stage.work()
    assert stage.take_proposals() == []
    assert len(stage.logs) == logs


def test_g1_no_trim_passes_a_held_cursor():
    stage = make_stage("payloads = 1")
    snapshot(stage)
    set_cursor(stage, b"low", 2)
    set_cursor(stage, b"high", 18, is_held=True)
    set_cursor(stage, b"held", 12, is_held=True)
    assert look_and_commit(stage) == [EntryKind.TRIM]
    assert decode_trim(stage.entries[-1][1]).start.next_lsn == 11
    set_cursor(stage, b"held", 14, is_held=True)
    assert look(stage) == []
    set_cursor(stage, b"held", 15, is_held=True)
    assert look_and_commit(stage) == [EntryKind.TRIM]
    assert decode_trim(stage.entries[-1][1]).start.next_lsn == 15
    set_cursor(stage, b"held", 0)
    assert look(stage) == []  # the other one holds LSN 18


def test_g7_what_a_follower_that_catches_up_needs_is_kept():
    """As the leader said last; what was held in another term keeps nothing."""
    stage = make_stage("payloads = 1")
    snapshot(stage)
    stage.tell(effects.HoldLogStart(stage.term, 6))
    assert look_and_commit(stage) == [EntryKind.TRIM]
    assert decode_trim(stage.entries[-1][1]).start.index == 5
    assert look(stage) == []
    stage.tell(effects.HoldLogStart(stage.term, 7))
    assert look_and_commit(stage) == [EntryKind.TRIM]
    assert decode_trim(stage.entries[-1][1]).start.index == 7
    stage.tell(effects.HoldLogStart(stage.term - 1, 7))
    assert trimmed(stage).start.index == 11


def test_g7_damage_before_a_segment_does_not_stop_retention_while_a_follower_catches_up(
    monkeypatch,
):
    """Segments' headers say how much lies before them; and no record is read for each of them."""
    stage = make_stage("payloads = 1")
    snapshot(stage)
    stage.tell(effects.HoldLogStart(stage.term, 5))
    row, read = StageLog.row, []

    def damaged(log, index):
        read.append(index)
        if index + 1 in FIRST_INDEXES:
            raise CorruptData("00.raft", 0, expected="a record", got="rot")
        return row(log, index)

    monkeypatch.setattr(StageLog, "row", damaged)
    assert trimmed(stage).start.index == 5
    assert read == [13, 6]


def test_damage_that_stops_retention_is_logged(monkeypatch, caplog):
    stage = make_stage("payloads = 1")
    snapshot(stage)

    def damaged(_log, _index):
        raise CorruptData("00.raft", 0, expected="a record", got="rot")

    monkeypatch.setattr(StageLog, "row", damaged)
    for _ in range(3):
        assert look(stage) == []
    assert caplog.text.count("nothing is given up: 00.raft") == 1


def test_g1_where_the_snapshot_is_in_the_way_another_is_taken():
    stage = make_stage("payloads = 6")
    assert look_and_commit(stage) == [EntryKind.SESSION]
    assert trimmed(stage).start.index == 9


def test_s9_on_full_disks_no_snapshot_is_begun_that_has_no_room():
    """Each gen had begun one, until its parts had used up the room. What lies below the old one is
    given up."""
    stage = make_stage("payloads = 1")
    snapshot(stage)
    stage.pushed.push(10)
    stage.accept_and_commit()
    stage.roll(4, 6, 14)
    stage.slots[Counter.ROOM_FOR_CHANGES] = 1_000
    stage.tell(effects.AdmissionClosed(1, len(stage.entries) - 1, "disk_full"))
    stage.tell(effects.Admit(1, 2, len(stage.entries), 0, takes_batches=False))
    assert look_and_commit(stage) == [EntryKind.TRIM]
    assert decode_trim(stage.entries[-1][1]).start.index == 5
    assert [look(stage) for _ in range(3)] == [[], [], []]
    stage.slots[Counter.ROOM_FOR_CHANGES] = 1 << 20
    assert look_and_commit(stage) == [EntryKind.SESSION]


def test_g1_a_log_that_gets_more_between_two_looks_than_it_keeps_is_trimmed_all_the_same():
    """Each look finds segments above the newest snapshot that exceed the bound."""
    stage = make_stage("payloads = 1")
    first_indexes = [*FIRST_INDEXES]
    kinds = set()
    for sequence in range(10, 30, 4):
        for each in range(sequence, sequence + 4):
            stage.pushed.push(each)
            first_indexes += [header.index for header in stage.accept_and_commit()][:1]
        stage.roll(*first_indexes)
        kinds |= set(look_and_commit(stage))
        kinds |= set(settle(stage))
    assert kinds == {EntryKind.SESSION, EntryKind.TRIM}


def test_g1_no_snapshot_is_taken_only_because_the_one_before_fills_segments():
    """A large one exceeds a small bound by itself: an idle log would get another at each look."""
    stage = make_stage("payloads = 1")
    stage.ingress._retention._kept = Kept(0, 1, 0)
    kinds = []
    for _ in range(10):
        kinds += look_and_commit(stage)
        stage.roll(*FIRST_INDEXES, *range(13, len(stage.entries) + 1))
    assert kinds == [EntryKind.SESSION, EntryKind.TRIM]
    stage.pushed.push(10)
    stage.accept_and_commit()
    assert look_and_commit(stage) == [EntryKind.SESSION]


def test_g1_no_snapshot_is_taken_where_a_held_cursor_keeps_the_segments():
    stage = make_stage("payloads = 6")
    set_cursor(stage, b"held", 2, is_held=True)
    assert look(stage) == []


def test_g1_without_a_new_snapshot_what_lies_below_the_old_one_is_given_up(monkeypatch):
    """One that cannot be encoded is asked for once for each segment: it would be tried again every
    second, and stop appends each time."""
    stage = make_stage("payloads = 1")
    snapshot(stage)
    stage.roll()
    for sequence in (10, 11, 12):
        stage.pushed.push(sequence)
        stage.accept_and_commit()
    asked = []

    def parts(*_arguments, **_named):
        asked.append(1)
        raise InvalidRequest("a session that is too large")
        yield

    monkeypatch.setattr(snapshots, "snapshot_parts", parts)
    stage.roll(4, 6, 15)
    assert look_and_commit(stage) == [EntryKind.TRIM]
    assert decode_trim(stage.entries[-1][1]).start.index == 5
    assert [look(stage) for _ in range(3)] == [[], [], []]
    assert len(asked) == 1
    stage.roll(4, 6, 15, 16)
    assert look(stage) == []
    assert len(asked) == 2


def test_s11_below_the_level_of_trims_nothing_is_given_up_and_no_snapshot_is_taken(caplog):
    stage = make_stage("payloads = 6")
    stage.level = 1
    stage.pushed.push(10)
    stage.accept_and_commit()
    assert [look(stage) for _ in range(3)] == [[], [], []]
    assert stage.counter(Counter.RETENTION_OFF) == 1
    assert caplog.text.count("run `logstore upgrade` first") == 1
    stage.level = 2
    stage.pushed.push(11)
    stage.accept_and_commit()
    assert look_and_commit(stage) == [EntryKind.SESSION]
    assert trimmed(stage).level == 2
    assert stage.counter(Counter.RETENTION_OFF) == 0


def test_g1_nothing_above_the_commit_is_given_up():
    stage = make_stage("payloads = 1")
    snapshot(stage)
    stage.pushed.push(10)
    stage.pushed.push(11)
    stage.accept()
    stage.roll(*FIRST_INDEXES, len(stage.entries))
    assert trimmed(stage).start.index == 11


def test_a_new_gen_looks_anew():
    stage = make_stage("payloads = 6")
    snapshot(stage)
    assert trimmed(stage).start.index == 9
    lead_again(stage, accepted=12)
    assert stage.entries[-1][0].kind != EntryKind.TRIM
    assert trimmed(stage).start.index == 9


def test_a_replica_that_does_not_lead_gives_up_nothing():
    stage = make_stage("payloads = 6")
    snapshot(stage)
    assert look_and_commit(stage) == [EntryKind.TRIM]
    assert stage.logs[-1].is_closed  # an open file would keep the space of one that is removed
    stage.tell(effects.AdmissionClosed(1, 13, "step_down"), effects.TermEnded(1))
    assert stage.ingress.next_timer_ns() > stage.clock.now_ns + 10 * LOOK_EVERY_NS


def test_e6_retention_waits_for_a_snapshot_that_is_due():
    stage = make_stage("payloads = 6")
    snapshot(stage)
    stage.pushed.push(10)
    make_due(stage)
    assert [kind for kind, _ in look(stage)] == [EntryKind.DATA]


@pytest.mark.parametrize("sign", [1, -1])
def test_g2_nothing_is_given_up_for_its_age_while_the_clocks_have_drifted_apart(sign, caplog):
    stage = make_stage('age = "4s"')
    snapshot(stage)
    stage.clock.wall = stage.clock.now_ns  # as they are when it takes office
    lead_again(stage, accepted=12)
    stage.clock.wall = stage.clock.now_ns + sign * (CLOCK_DRIFT_MAX_NS + 10 * SECOND_NS)
    for _ in range(3):
        assert look(stage) == []
    assert stage.counter(Counter.AGE_TRIMS_OFF) == 1
    assert caplog.text.count("nothing is given up for its age") == 1
    stage.clock.now_ns += LOG_AGAIN_NS
    stage.clock.wall += LOG_AGAIN_NS
    assert look(stage) == []
    assert caplog.text.count("nothing is given up for its age") == 2
    stage.clock.wall = stage.clock.now_ns + sign * (CLOCK_DRIFT_MAX_NS - 10 * SECOND_NS)
    assert trimmed(stage).reason == TrimReason.AGE
    assert stage.counter(Counter.AGE_TRIMS_OFF) == 0


def test_g2_nothing_is_given_up_for_its_age_while_stamps_are_ahead_of_a_clock_set_right(caplog):
    """All that was appended before the clocks went wrong looks as old as they were wrong."""
    stage = make_stage('age = "4s"')
    right_ns = stage.clock.wall
    stage.clock.wall += CLOCK_DRIFT_MAX_NS + 10 * SECOND_NS
    snapshot(stage)
    stage.clock.wall = right_ns
    for _ in range(3):
        assert look(stage) == []
    assert stage.counter(Counter.AGE_TRIMS_OFF) == 1
    assert caplog.text.count("the newest entry's time is 70 s ahead of this machine's clock") == 1
    lead_again(stage, accepted=12)  # one that takes office with the clock right
    assert look(stage) == []
    stage.clock.wall = right_ns + 20 * SECOND_NS
    assert trimmed(stage).reason == TrimReason.AGE
    assert stage.counter(Counter.AGE_TRIMS_OFF) == 0


def test_g2_other_bounds_hold_while_the_clocks_have_drifted_apart():
    stage = make_stage('age = "1s"\npayloads = 9')
    snapshot(stage)
    stage.clock.wall += 2 * CLOCK_DRIFT_MAX_NS
    entry = trimmed(stage)
    assert (entry.reason, entry.start.index) == (TrimReason.PAYLOADS, 7)
