"""Errors as processes of Spark hand them to each other."""

from __future__ import annotations

import inspect
import pickle

import pytest

from logstore import errors
from logstore.errors import LogStoreError

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, LogStoreError)
]
FIELDS = {
    errors.OutOfRange: {"first": 3, "last": 9},
    errors.CursorMoved: {"lsn": 5},
    errors.Gap: {"expected": 7},
    errors.NextLsnIs: {"next_lsn": 7},
    errors.NotLeader: {"leader": 2},
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_the_same_on_the_other_side(kind: type[LogStoreError]) -> None:
    if kind is errors.CorruptData:
        error: LogStoreError = errors.CorruptData("file", 7, expected="a", got="b")
    elif kind is errors.UnknownMessageType:
        error = errors.UnknownMessageType(5)
    else:
        error = kind("what happened", **FIELDS.get(kind, {}))
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert (str(found), found.__dict__) == (str(error), error.__dict__)
