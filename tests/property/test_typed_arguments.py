"""Whatever is typed: a command answers it with a status and at most a line or two, never a
traceback."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logstore.cli.main import main
from logstore.client import client as client_module
from logstore.client.endpoint import PORT_MAX, parse_endpoint, parse_endpoints
from logstore.errors import InvalidRequest, Unreachable
from logstore.settings import PORTS_PER_NODE

# A byte of a command line that is no UTF-8 comes as a lone surrogate; a zero byte cannot come.
ANYTHING = st.text(
    st.characters(exclude_categories=()).filter(lambda each: each != "\0"), max_size=40
)
PARTS = st.sampled_from(
    ["tcp://", "http://", "127.0.0.1", "host", "a b", "*", "[", "::1", "]", ":", "7100", "0", "-",
     ",", ".", "\n", "\udcff", "é", "70000", "1" * 5_000, "_", "%", ";", "@"]
)  # fmt: skip
TYPED = ANYTHING | st.lists(PARTS, max_size=6).map("".join)
NUMBERS = ANYTHING | st.sampled_from(
    ["nan", "inf", "-1", "0", "1e400", "1" * 5_000, "0001-01-01", "9999-12-31T23:59:59", "1960",
     "1969-12-31T23:59:59+00:00", "3000-01-01", "earliest", "24:00", "2026-02-30"]
)  # fmt: skip
# As libzmq 4.3.5 looks at an address before it connects (socket_base.cpp, connect_internal).
LIBZMQ_TAKES = re.compile(r"tcp://[A-Za-z0-9][A-Za-z0-9.:%;\[\]_*-]*:[0-9]+", re.ASCII)


@pytest.fixture(scope="module", autouse=True)
def _nobody_answers() -> Iterator[None]:
    """Clients that are right about their endpoints and find nobody there."""

    def refuse(self: object, endpoints: object, *, timeout_s: float) -> NoReturn:
        raise Unreachable("nobody is there")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module.LogClient, "__init__", refuse)
        yield


def typed(*arguments: str) -> tuple[int, str]:
    """A command's status and what it said; any exception but an exit fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return main(arguments), err.getvalue()


@given(TYPED)
@example("tcp://127.0.0.1:7100")
@example("a b:7100")
@example("*:7100")
@example("http://127.0.0.1:7100")
@example("[::1]:7100")
@example("127.0.0.1:" + "1" * 5_000)
def test_an_endpoint_is_an_address_of_libzmq_or_a_line_that_says_what_to_give(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except InvalidRequest as refusal:
        assert "give" in str(refusal) or "number" in str(refusal) or "neither" in str(refusal)
        assert str(refusal).isprintable()
        assert len(str(refusal)) < 500
    else:
        assert LIBZMQ_TAKES.fullmatch(endpoint.fetch)
        assert 0 < endpoint.port <= PORT_MAX - PORTS_PER_NODE
        assert parse_endpoint(f"tcp://{endpoint}") == endpoint


@given(TYPED)
@example("a b:7100")
@example("*:7100")
@example("http://127.0.0.1:7100")
@example("[::1]:7100")
def test_a_list_of_endpoints_that_makes_no_sense_is_a_line_and_status_2(text: str) -> None:
    try:
        parse_endpoints(text)
        expected = 3  # nobody answers there
    except InvalidRequest:
        expected = 2
    status, said = typed("status", "--endpoint", text)
    assert (status, said.count("\n")) == (expected, 1)


@pytest.mark.parametrize(
    "command",
    [
        ["status", "--timeout"],
        ["consume", "--from"],
        ["consume", "--to"],
        ["consume", "--replica"],
        ["digest", "--from"],
        ["digest", "--to"],
        ["transfer", "--"],
        ["cursor", "set", "name", "--"],
        ["cursor", "set", "name", "1", "--expect"],
        ["cursor", "delete", "--"],
        ["init", "--first-lsn"],
        ["nonsense"],
        [],
    ],
    ids=" ".join,
)
@given(text=NUMBERS)
@example(text="1" * 5_000)
@example(text="nan")
@example(text="0001-01-01")
@example(text="9999-12-31T23:59:59")
def test_no_argument_ends_in_a_traceback(command: list[str], text: str) -> None:
    status, _ = typed(*command, text)
    assert status in (0, 2, 3, 4)
