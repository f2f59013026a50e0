"""Kills across a stream in and out, on a cluster of Spark; and the check that finds faults."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.spark.chaos.content import compare, expected
from tests.spark.chaos.plan import Kind, draw_kills, records_a_batch
from tests.spark.chaos.run import Chaos
from tests.spark.standalone import StandaloneSpark

SEED = 20261121
ROWS = 6_000
KILLS = 6


@pytest.mark.timeout(900)
def test_six_kills_leave_every_row_once(standalone: StandaloneSpark, tmp_path: Path) -> None:
    """Drivers and executors by SIGKILL, leaders of both logs; `make chaos-spark` makes 200."""
    kills = draw_kills(KILLS, rows=ROWS, random=Random(SEED))
    found = Chaos(tmp_path, standalone, seed=SEED, rows=ROWS, kills=kills).run()
    assert found.violations == []
    assert [each.kind for each in found.killed] == [each.kind for each in kills]
    assert (found.source.rows, found.target.rows) == (ROWS, ROWS)
    assert (found.target.missing, found.target.doubled) == (0, 0)
    assert (
        found.source.checksum
        == found.target.checksum
        == compare(expected(SEED, ROWS), SEED, ROWS).checksum
    )
    assert found.replays >= 2


@pytest.mark.parametrize("count", [6, 200])
def test_a_seed_draws_kills_of_every_sort_across_all_rows(count: int) -> None:
    rows = 1_000 * count
    kills = draw_kills(count, rows=rows, random=Random(7))
    assert kills == draw_kills(count, rows=rows, random=Random(7))
    assert kills != draw_kills(count, rows=rows, random=Random(8))
    kinds = Counter(each.kind for each in kills)
    assert kinds.total() == count
    wanted = set(Kind) - ({Kind.DRIVER_JVM} if count == 6 else set())
    assert kinds.keys() == wanted
    assert kinds[Kind.DRIVER_BETWEEN] + kinds[Kind.DRIVER_JVM] >= count // 4
    places = [each.at_row for each in kills]
    assert places == sorted(places)
    # Each kill has its micro-batches: the stream cannot end before it.
    batch = records_a_batch(count, rows=rows)
    assert places[-1] + 2 * batch < rows
    assert places[-1] > rows * 0.7


@pytest.mark.parametrize(
    ("broken", "missing", "doubled"),
    [
        (lambda rows: rows[:-1], 1, 0),
        (lambda rows: [*rows, (len(rows) + 1, rows[3][1])], 0, 1),
        (lambda rows: [*rows[:5], (6, rows[4][1]), *rows[6:]], 1, 1),
        (lambda rows: [(1, rows[1][1]), (2, rows[0][1]), *rows[2:]], 0, 0),
        (lambda rows: [(1, rows[0][1][:-1] + b"?"), *rows[1:]], 0, 0),
        (lambda rows: [(lsn + (lsn > 4), payload) for lsn, payload in rows], 0, 0),
        (lambda rows: [], 300, 0),
    ],
)
def test_the_check_finds_what_is_missing_doubled_changed_or_elsewhere(
    broken, missing: int, doubled: int
) -> None:
    rows = list(expected(3, 300))
    whole = compare(iter(rows), 3, 300)
    assert (whole.rows, whole.problems, whole.missing, whole.doubled) == (300, [], 0, 0)
    found = compare(broken(rows), 3, 300)
    assert found.problems
    assert (found.missing, found.doubled) == (missing, doubled)
    assert found.checksum != whole.checksum
