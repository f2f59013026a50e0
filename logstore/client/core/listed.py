"""Learns to which cluster each endpoint belongs that a client was given.

Owns one control link to each listed endpoint whose cluster id is not known; none once all are. An
endpoint that is down when the client connects is asked as soon as it accepts a connection, however
much later, and before the next request goes out. Everything made from one client may use it: the
lock lets one caller at a time use the links.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from logstore.client.core.requests import (
    CONNECT_TIMEOUT_S,
    NO_CLUSTER,
    RESEND_NS,
    Port,
    answer_of,
)
from logstore.client.core.steps import Host, Steps, Wait
from logstore.client.endpoint import Endpoint
from logstore.client.metadata import Metadata, parse_metadata
from logstore.errors import LogStoreError
from logstore.format.client_messages import MetadataReply, MetadataRequest

ANSWER_WAIT_NS = int(CONNECT_TIMEOUT_S * 1e9)
# How often a caller tries to get the links while another one uses them.
LOCK_RETRY_NS = 5_000_000


class _UnknownEndpoint(msgspec.Struct):
    """An endpoint whose cluster id is not known.

    `number`: of the request under way, 0: none. `ask_ns`: it is not asked (again) before this.
    `wait_until_ns`: until when other requests wait for its answer: a second from the start, and a
    second from each new connection.
    """

    port: Port
    wait_until_ns: int
    number: int = 0
    ask_ns: int = 0


class ListedEndpoints:
    """The endpoints of a client's list whose cluster is not known yet."""

    def __init__(self, host: Host, endpoints: Iterable[Endpoint]) -> None:
        self._clock = host.clock
        self._lock = host.new_lock()
        self._is_closed = False
        wait_until_ns = self._clock.monotonic_ns() + ANSWER_WAIT_NS
        self._unknown = {
            each: _UnknownEndpoint(_open(host, each), wait_until_ns) for each in endpoints
        }

    @property
    def are_all_known(self) -> bool:
        return not self._unknown

    def take_answers(self) -> list[tuple[Endpoint, Metadata]]:
        """The answers that are there; empty also while another caller uses the links."""
        if not self._lock.acquire(blocking=False):
            return []
        try:
            return self._take_and_ask(self._clock.monotonic_ns())
        finally:
            self._release()

    def wait_for_answers(self, *, deadline_ns: int) -> Steps[list[tuple[Endpoint, Metadata]]]:
        """The next answers, as soon as there is one; empty: none comes in time.

        An endpoint whose machine refuses the connection is not waited for. Only the first call sees
        refusals; it comes as soon as the links are made. An endpoint that accepts no connection, or
        does not answer, is waited for CONNECT_TIMEOUT_S.

        Args:
          deadline_ns: the wait ends then at the latest (monotonic).
        """
        while not self._lock.acquire(blocking=False):
            now_ns = self._clock.monotonic_ns()
            if now_ns >= deadline_ns:
                return []
            yield Wait(min(deadline_ns, now_ns + LOCK_RETRY_NS))
        try:
            while True:
                now_ns = self._clock.monotonic_ns()
                answers = self._take_and_ask(now_ns)
                waits_ns = (each.wait_until_ns for each in self._unknown.values())
                until_ns = min(deadline_ns, max(waits_ns, default=0))
                if answers or until_ns <= now_ns:
                    return answers
                yield self._wait(until_ns)
        finally:
            self._release()

    def close(self) -> None:
        """Close the links. While another caller uses them, that one closes them when it ends."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                for unknown in self._unknown.values():
                    unknown.port.close()
                self._unknown.clear()
            finally:
                self._lock.release()

    def _release(self) -> None:
        """The caller needs the links no longer."""
        for unknown in self._unknown.values():
            unknown.port.link.stop_reporting_refusals()
        self._lock.release()
        if self._is_closed:
            self.close()

    def _take_and_ask(self, now_ns: int) -> list[tuple[Endpoint, Metadata]]:
        answers = []
        for endpoint, unknown in list(self._unknown.items()):
            metadata = _take_answer(unknown, now_ns)
            if metadata is not None:
                answers.append((endpoint, metadata))
                if metadata.cluster_id != NO_CLUSTER:
                    unknown.port.close()
                    del self._unknown[endpoint]
                    continue
            _ask(unknown, now_ns)
        return answers

    def _wait(self, until_ns: int) -> Wait:
        unknown = self._unknown.values()
        return Wait(
            until_ns,
            tuple(each.port.link for each in unknown),
            tuple(each.port.link for each in unknown if not each.ask_ns),
        )


def _open(host: Host, endpoint: Endpoint) -> Port:
    address = endpoint.control
    link = host.links.requester(address, reports_refusals=True, is_probe=True)
    return Port(host, address, link=link)


def _take_answer(unknown: _UnknownEndpoint, now_ns: int) -> Metadata | None:
    """The endpoint's answer, if it is there. Without a cluster id in it, the endpoint is asked
    again a second later."""
    if unknown.port.link.was_refused():
        unknown.number = unknown.ask_ns = unknown.wait_until_ns = 0
    while (received := unknown.port.try_receive()) is not None:
        if received[0] != unknown.number:
            continue
        unknown.number, unknown.ask_ns, unknown.wait_until_ns = 0, now_ns + RESEND_NS, 0
        try:
            return parse_metadata(answer_of(received[1], MetadataReply).document)
        except LogStoreError:
            return None
    return None


def _ask(unknown: _UnknownEndpoint, now_ns: int) -> None:
    """Ask over a new connection, and again if no answer comes."""
    is_first = not unknown.ask_ns
    if now_ns < unknown.ask_ns:
        return
    unknown.number = unknown.port.try_send(MetadataRequest())
    # Without a connection the request goes out with the next one.
    unknown.ask_ns = now_ns + RESEND_NS if unknown.number else 0
    if unknown.number and is_first:
        unknown.wait_until_ns = now_ns + ANSWER_WAIT_NS
