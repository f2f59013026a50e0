"""The log in memory against a plain list, and hints that always lead two logs together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore.format.peer_messages import AppendAccepted, AppendReject
from logstore.model import Index, Term
from logstore.raft.effects import Rewind
from logstore.raft.log_view import EntryLog, Position
from tests.paper.one_node import OneNode, of_type, rows_of, sent
from tests.paper.virtual_node import Files, recovered, whole_start

TERMS = st.lists(st.integers(1, 5), max_size=14).map(sorted)


@given(TERMS, TERMS, st.data())
def test_terms_runs_and_truncation_agree_with_a_plain_list(
    before: list[int], after: list[int], data: st.DataObject
) -> None:
    rows = rows_of(before)
    files = Files()
    files.rows = rows
    log = EntryLog(recovered(rows), files)
    kept = data.draw(st.integers(0, len(before)))
    position = log.position(Index(kept))
    assert position is not None
    log.truncate(position)
    terms = before[:kept]
    terms += [term for term in after if term >= (terms[-1] if terms else 0)]
    files.rows = rows_of(terms)
    for row in files.rows[kept:]:
        log.append(row)
    assert log.last_index == len(terms)
    for index in range(1, len(terms) + 1):
        assert log.term_at(Index(index)) == terms[index - 1]
        assert log.run_first(Index(index)) == terms.index(terms[index - 1]) + 1
        assert log.row(Index(index)) == files.rows[index - 1]
        assert log.position(Index(index)) == Position.after(files.rows[index - 1])
        for term in range(6):
            expected = sum(1 for each in terms[:index] if each <= term)
            assert log.last_at_or_below_term(Index(index), Term(term)) == expected


@given(TERMS.filter(lambda terms: len(terms) > 1), st.sets(st.integers(1, 14)), st.data())
def test_a_log_start_that_moves_agrees_with_a_plain_list(
    terms: list[int], trims: set[int], data: st.DataObject
) -> None:
    """SAFETY G6: what is above the log start stays as it was, and each TRIM acts once."""
    rows = rows_of(terms, trims=sorted(trims))
    files = Files()
    files.rows = rows
    log = EntryLog(recovered(rows), files)
    taken: list[int] = []
    visible = start = 0
    for _ in range(data.draw(st.integers(1, 4))):
        visible = data.draw(st.integers(visible, len(terms)))
        taken += log.take_trims(Index(visible))
        if start < (highest := min(visible, len(terms) - 1)):
            start = data.draw(st.integers(start + 1, highest))
            files.start = Index(start)
            log.move_start(whole_start(rows[start - 1]))
    assert taken == [index for index in sorted(trims) if index <= visible]
    assert (log.start.index, log.last_index) == (start, len(terms))
    for index in range(max(start, 1), len(terms) + 1):
        assert log.term_at(Index(index)) == terms[index - 1]
        first = max(start + 1, terms.index(terms[index - 1]) + 1)
        assert log.run_first(Index(index)) == min(first, index)
        assert log.position(Index(index)) == Position.after(rows[index - 1])
        for term in range(6):
            expected = max(start, sum(1 for each in terms[:index] if each <= term))
            assert log.last_at_or_below_term(Index(index), Term(term)) == expected
    kept = data.draw(st.integers(start, len(terms)))
    log.truncate(Position.after(rows[kept - 1]) if kept else log.start)
    assert log.newest_trim == max((each for each in trims if start < each <= kept), default=0)
    assert log.take_trims(Index(len(terms))) == [
        index for index in sorted(trims) if visible < index <= kept
    ]


COUNT = st.integers(0, 14)
LEVELS = st.dictionaries(st.integers(1, 28).map(Index), st.integers(2, 6), max_size=8)


@given(COUNT, COUNT, COUNT, LEVELS, LEVELS, st.integers(1, 4))
def test_levels_and_truncation_agree_with_a_plain_list(
    before: int,
    kept: int,
    after: int,
    raises: dict[Index, int],
    raises_after: dict[Index, int],
    meta: int,
) -> None:
    """SAFETY S11: the level never falls within a log, whatever its entries and META say."""
    rows = rows_of([1] * before, raises=raises)
    log = EntryLog(recovered(rows, level=meta), Files())
    kept = min(kept, before)
    position = log.position_in_memory(Index(kept)) or Position.after(rows[kept - 1])
    log.truncate(position)
    raises = {index: level for index, level in raises.items() if index <= kept}
    raises |= {index: level for index, level in raises_after.items() if index > kept}
    for row in rows_of([1] * (kept + after), raises=raises)[kept:]:
        log.append(row)
    level = meta
    for number in range(kept + after + 1):
        index = Index(number)
        level = max(level, raises.get(index, 0))
        assert log.level_at(index) == level


@given(st.lists(st.integers(1, 5), max_size=14), st.lists(st.integers(1, 5), max_size=14), TERMS)
def test_rejects_lead_to_agreement_in_a_round_a_term_at_most(
    shared: list[int], theirs: list[int], ours: list[int]
) -> None:
    """A leader and a follower whose logs share a prefix: hints skip whole terms, never loop."""
    shared = sorted(shared)
    floor = shared[-1] if shared else 1
    ours = [*shared, *(term for term in ours if term >= floor)]
    # What a follower has beyond the shared prefix are entries of leaders we never heard: other
    # terms.
    theirs = [*shared, *sorted(term + 10 for term in theirs)]
    leader = OneNode(rows=rows_of(ours), term=20)
    leader.lead()
    follower = OneNode(node=2, rows=rows_of(theirs), term=21)
    follower.follow(1, 21)
    next_index, stream, rounds = len(ours) + 1, 1, 0
    rows = [leader.core.row(Index(index + 1)) for index in range(leader.core.last_index)]
    while next_index <= len(rows):
        row = rows[next_index - 1]
        assert row is not None
        effects = follower.hear_append(1, row, term=21, stream=stream)
        if sent(effects, AppendAccepted):
            next_index += 1
            continue
        ((_, reject),) = sent(effects, AppendReject)
        (rewind,) = of_type(leader.hear_answer(2, reject), Rewind)
        assert rewind.next_index < next_index
        next_index, stream, rounds = rewind.next_index, stream + 1, rounds + 1
    assert follower.core.row(follower.core.last_index) == rows[-1]
    assert rounds <= len({*ours, *theirs}) + 1
