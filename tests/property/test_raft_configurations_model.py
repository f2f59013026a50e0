"""The configurations that a log still needs, against a list of all that it ever had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import InvariantViolated
from logstore.format.configuration_body import Configuration
from logstore.model import NO_INDEX, Index, NodeId
from logstore.raft.configuration import founders
from logstore.raft.configurations import Configurations

FOUNDERS = founders([NodeId(1)])
ACTS = st.lists(
    st.tuples(st.sampled_from(["append", "truncate", "commit", "start over"]), st.integers(1, 5)),
    max_size=40,
)


def configuration(number: int) -> Configuration:
    return Configuration(number, FOUNDERS.voters)


@given(ACTS)
def test_in_force_and_committed_are_those_of_the_whole_list(acts: list[tuple[str, int]]) -> None:
    """`last` and `commit` are a log's last index and commit index; `model` is (index, what)."""
    configurations = Configurations(FOUNDERS)
    model: list[tuple[int, Configuration]] = [(NO_INDEX, FOUNDERS)]
    last = commit = hidden_to = 0
    for number, (act, by) in enumerate(acts, 1):
        match act:
            case "append":
                last += by
                configurations.append(Index(last), configuration(number))
                model.append((last, configuration(number)))
            case "truncate" if last > commit:
                first = max(commit + 1, last - by)
                configurations.truncate(Index(first))
                model = [each for each in model if each[0] < first]
                last = first - 1
            case "commit":
                commit = min(last, commit + by)
                configurations.commit(Index(commit))
            case "start over":
                commit_before, commit = commit, last + by
                configurations.start_over(Index(commit), needs_one=False)
                hidden_to = commit + 1 if model[-1][0] else hidden_to
                model = [each for each in model if each[0] <= commit_before]
                last = commit
            case _:
                pass
        assert (configurations.newest_index, configurations.in_force) == model[-1]
        newest_committed = [(at, each) for at, each in model if at <= commit][-1]
        assert configurations.committed == newest_committed[1]
        assert configurations.names_voter(NodeId(1), b"") == (newest_committed[0] >= hidden_to)
        assert not configurations.names_voter(NodeId(2), b"")


def test_a_configuration_of_an_older_entry_is_no_new_one() -> None:
    configurations = Configurations(FOUNDERS)
    configurations.append(Index(4), configuration(1))
    for index in (3, 4):
        with pytest.raises(InvariantViolated, match="after that at 4"):
            configurations.append(Index(index), configuration(2))
    assert configurations.in_force == configuration(1)


def test_a_committed_configuration_is_not_truncated() -> None:
    configurations = Configurations(FOUNDERS)
    configurations.append(Index(4), configuration(1))
    configurations.append(Index(6), configuration(2))
    configurations.commit(Index(5))
    with pytest.raises(InvariantViolated, match="committed CONFIG at entry 4"):
        configurations.truncate(Index(4))
    configurations.truncate(Index(5))
    assert configurations.in_force == configurations.committed == configuration(1)


@pytest.mark.parametrize(("first_index", "is_gone"), [(5, True), (6, True), (7, False), (8, False)])
def test_a_truncation_takes_the_config_that_may_be_hidden_with_it(
    first_index: int, is_gone: bool
) -> None:
    """From its lowest index on: what is cut off above that may be another entry."""
    configurations = Configurations(FOUNDERS, hidden=(Index(6), Index(7)))
    assert not configurations.names_voter(NodeId(1), b"")
    configurations.append(Index(4), configuration(2))
    configurations.commit(Index(4))
    configurations.truncate(Index(first_index))
    assert configurations.names_voter(NodeId(1), b"") == is_gone
