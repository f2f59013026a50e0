"""/metrics: what a scraper sees, and that nobody can hold the supervisor up."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from actors.supervisor.http_listener import (
    CONNECTION_NS,
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    HttpListener,
)
from actors.supervisor.metrics import make_renderer
from actors.topology import (
    SKEW_ZERO_MS,
    SPARE_NAMES,
    clock_slot,
    counter_names,
    served_slot,
)
from logstore.config_layout import actor_names
from logstore.errors import InvalidRequest
from logstore.model import NodeId

VALUES = dict.fromkeys(counter_names(actor_names(1, (1, 2)), (NodeId(1), NodeId(2))), 0)
VALUES |= {"visible": 8, "fetches": 3, "raft.cpu_permille": 250, "raft.pid": 77}
# Whatever a name looks like, it is a label.
ODD_NAME = 'a "b"\\ \n.pid'
VALUES |= {"follower_lag_payloads.2": 7, f"cursor_lag_bytes.{ODD_NAME}": 12}
VALUES |= {"cursor_lag_since_ns.late": 2_500_000_000, "cursor_lag_since_ns.even": 0}
VALUES |= {"cursor_lag_since_ns.ahead": 9_000_000_000, "follower_silent_since_ns.2": 3_250_000_000}
VALUES |= {"cursors": 53, "cursors_left_out": 3}
VALUES |= {"log_bytes.archive": 900, "log_since_ns.": 1_000_000_000}
VALUES |= {"raft.measured_ns": 5, "raft.cpu_ns": 2_500_000_000, "raft.empty_wakes": 12}
VALUES |= {"flushed_lost": 4, clock_slot(NodeId(2)): SKEW_ZERO_MS - 1_500}


@pytest.fixture
def listener() -> Iterator[HttpListener]:
    serving = HttpListener("127.0.0.1", 0, make_renderer(1, lambda: VALUES, lambda: 4_000_000_000))
    yield serving
    serving.close()


def turn(listener: HttpListener, *, now_ns: int = 0) -> None:
    """Serve whatever is ready, until nothing is."""
    while True:
        poll = select.poll()
        for descriptor, events in listener.sources():
            poll.register(descriptor, events)
        ready = {descriptor for descriptor, _ in poll.poll(20)}
        listener.on_ready(ready, now_ns=now_ns)
        if not ready:
            return


def ask(listener: HttpListener, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as client:
        client.sendall(request)
        turn(listener)
        answer = b""
        while piece := client.recv(65_536):
            answer += piece
    return answer


def test_a_scrape_shows_counters_gauges_and_processes(listener: HttpListener) -> None:
    answer = ask(listener, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").decode()
    assert answer.startswith("HTTP/1.0 200 OK\r\n")
    assert 'logstore_visible{node="1"} 7.0' in answer
    assert 'logstore_fetches_total{node="1"} 3.0' in answer
    assert "# HELP logstore_fetches_total fetch requests answered\n" in answer
    assert "# HELP logstore_visible newest LSN that this replica shows: " in answer
    assert 'logstore_process_cpu_cores{node="1",process="raft"} 0.25' in answer
    assert 'logstore_flushed_lost{node="1"} 4.0' in answer
    assert 'logstore_clock_skew_seconds{node="1",of="2"} -1.5' in answer
    assert 'of="1"' not in answer, "not known"
    assert 'logstore_process_pid{node="1",process="raft"} 77.0' in answer


def test_a_scrape_shows_what_the_loop_of_each_process_costs(listener: HttpListener) -> None:
    answer = ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n").decode()
    assert 'logstore_process_cpu_seconds_total{node="1",process="raft"} 2.5' in answer
    assert 'logstore_process_empty_wakes_total{node="1",process="raft"} 12.0' in answer
    assert 'logstore_process_idle_seconds_total{node="1",process="raft"} 0.0' in answer
    assert 'cpu_seconds_total{node="1",process="ingress"}' not in answer, "it has published nothing"
    assert "measured_ns" not in answer


def test_a_scrape_shows_how_far_followers_and_cursors_lag(listener: HttpListener) -> None:
    answer = ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n").decode()
    lags = [
        line
        for line in answer.splitlines()
        if line.startswith(("logstore_follower", "logstore_cursor"))
    ]
    assert lags == [
        'logstore_follower_lag_payloads{node="1",of="2"} 7.0',
        r'logstore_cursor_lag_bytes{cursor="a \"b\"\\ \n.pid",node="1"} 12.0',
        'logstore_cursor_lag_seconds{cursor="late",node="1"} 1.5',
        'logstore_cursor_lag_seconds{cursor="even",node="1"} 0.0',
        'logstore_cursor_lag_seconds{cursor="ahead",node="1"} 0.0',
        'logstore_follower_silent_seconds{node="1",of="2"} 0.75',
        'logstore_cursors{node="1"} 53.0',
        'logstore_cursors_left_out{node="1"} 3.0',
    ]
    assert 'logstore_log_bytes{held_by="archive",node="1"} 900.0' in answer
    assert 'logstore_log_seconds{held_by="",node="1"} 3.0' in answer
    assert 'process="cursor' not in answer, "a cursor's name is no process"
    for kind in ("follower", "cursor"):
        for measure in ("payloads", "bytes", "seconds"):
            assert f"# TYPE logstore_{kind}_lag_{measure} gauge" in answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x01\x02garbage\r\n\r\n", b"400"),
    ],
)
def test_anything_else_is_answered_with_an_error(
    listener: HttpListener, request_bytes: bytes, status: bytes
) -> None:
    assert ask(listener, request_bytes).split(b" ")[1] == status


@pytest.mark.parametrize("error", [OSError("no descriptors"), ImportError("half installed")])
def test_a_renderer_that_fails_is_answered_with_500_and_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The supervisor, and so the replica, would end of it."""
    errors = [error, error]

    def render() -> tuple[str, bytes]:
        if errors:
            raise errors.pop()
        return "text/plain", b"fine"

    listener = HttpListener("127.0.0.1", 0, render)
    answers = [ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n").split(b"\r\n")[0] for _ in "123"]
    listener.close()
    failed = b"HTTP/1.0 500 Internal Server Error"
    assert answers == [failed, failed, b"HTTP/1.0 200 OK"]
    [line] = caplog.messages
    assert str(error) in line


def test_a_request_without_end_is_cut_off(listener: HttpListener) -> None:
    with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as client:
        client.sendall(b"x" * (REQUEST_BYTES_MAX + 1))
        turn(listener)
        assert len(listener.sources()) == 1


def test_silent_connections_are_dropped_when_their_time_is_up(listener: HttpListener) -> None:
    clients = [
        socket.create_connection(("127.0.0.1", listener.port), timeout=10)
        for _ in range(CONNECTIONS_MAX)
    ]
    turn(listener)
    assert len(listener.sources()) == CONNECTIONS_MAX, "a full house does not accept"
    listener.on_ready(set(), now_ns=CONNECTION_NS + 1)
    assert len(listener.sources()) == 1
    for client in clients:
        client.close()


def test_between_incarnations_there_is_nothing_to_show() -> None:
    content_type, body = make_renderer(1, dict)()
    assert content_type.startswith("text/plain")
    assert b"logstore_visible" not in body


def test_a_taken_port_is_refused_by_name(listener: HttpListener) -> None:
    with pytest.raises(InvalidRequest, match=rf"127\.0\.0\.1:{listener.port}: Address already in"):
        HttpListener("127.0.0.1", listener.port, lambda: ("text/plain", b""))


def test_a_spare_replicator_is_shown_while_it_runs_and_its_clock_under_whom_it_serves() -> None:
    values = dict(VALUES)
    _, text = make_renderer(1, lambda: values, lambda: 0)()
    assert b"spare" not in text
    values |= {"spare-2.pid": 77, "spare-2.measured_ns": 5, served_slot("spare-2"): 6}
    values[clock_slot("spare-2")] = SKEW_ZERO_MS + 250
    _, text = make_renderer(1, lambda: values, lambda: 0)()
    lines = text.decode().splitlines()
    assert 'logstore_process_pid{node="1",process="spare-2"} 77.0' in lines
    assert 'logstore_clock_skew_seconds{node="1",of="6"} 0.25' in lines
    assert not [line for line in lines if "spare" in line and 'process="spare-2"' not in line]
    values["spare-2.pid"] = 0
    _, text = make_renderer(1, lambda: values, lambda: 0)()
    assert b"spare" not in text


def test_a_process_may_be_named_like_another_metric() -> None:
    processes = ("clock", "cursors")
    values = dict.fromkeys(counter_names(processes, (NodeId(1), NodeId(2))), 7)
    values |= {"cursors": 3} | {served_slot(spare): 0 for spare in SPARE_NAMES}
    _, text = make_renderer(1, lambda: values, lambda: 4_000_000_000)()
    lines = text.decode().splitlines()
    for process in processes:
        assert f'logstore_process_pid{{node="1",process="{process}"}} 7.0' in lines
    assert 'logstore_cursors{node="1"} 3.0' in lines
    assert sum(line.startswith("logstore_clock_skew_seconds{") for line in lines) == 2
