"""The log on disk against a dumb model: a list that is appended to, cut and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.simulation.disk.disk import SimulatedDisk
from logstore.format.entry import Row
from logstore.model import Index, Lsn
from logstore.storage.log_reader import LogReader
from tests.crash.storage_trial import FOLDER, StorageTrial

SIZES = st.lists(st.sampled_from([0, 8, 376, 384, 800]), min_size=1, max_size=4)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), SIZES),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.sampled_from(["roll", "restart", "spare", "refresh"]), st.none()),
    ),
    max_size=25,
)


class ListLog:
    """The model: rows and bodies in a list; an index is a place in it, plus one."""

    def __init__(self) -> None:
        self.entries: list[tuple[Row, bytes]] = []


def act_on_both(trial: StorageTrial, model: ListLog, term: int, act: str, what: object) -> int:
    if act == "commit":
        assert isinstance(what, list)
        entries = trial.group(term, what)
        if trial.writer.needs_roll(entries):
            trial.writer.roll()
        trial.finish(trial.writer.append(entries))
        model.entries += [(Row(h, chain), b"".join(body)) for h, chain, _, body in entries]
    elif act == "truncate" and model.entries:
        assert isinstance(what, float)
        first = 1 + int(what * (len(model.entries) - 1))
        trial.writer.truncate(Index(first))
        del model.entries[first - 1 :]
        return term + 1
    elif act == "roll":
        trial.writer.roll()
    elif act == "spare":
        trial.writer.prepare_spare()
    elif act == "restart":
        trial.restart()
    return term


@pytest.mark.slow
@given(ACTS)
def test_the_log_is_a_list_whatever_is_done_to_it(acts: list[tuple[str, object]]) -> None:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    model = ListLog()
    reader = LogReader(trial.disk, FOLDER)
    term = 1
    for act, what in acts:
        term = act_on_both(trial, model, term, act, what)
        if act == "restart":
            reader = LogReader(trial.disk, FOLDER)
            assert trial.recovered.last.header.index == len(model.entries)
            assert trial.recovered.faulty == ()
        if act == "refresh":
            reader.refresh()
    assert trial.writer.last.header.index == len(model.entries)
    last = Index(len(model.entries))
    for row, body in model.entries:
        index = row.header.index
        assert reader.row(index) == row
        assert reader.read_body(index) == body
        assert reader.newest_of_kind(row.header.kind, index) == index
    for lsn in range(1, len(model.entries) + 2):
        found = next(
            (r.header.index for r, _ in model.entries if r.header.next_lsn > lsn), last + 1
        )
        assert reader.index_of_lsn(Lsn(lsn), last) == found
    trial.restart()
    runs = [term for _, term in trial.recovered.term_runs]
    assert runs == sorted({row.header.term for row, _ in model.entries})
