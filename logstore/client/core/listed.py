"""Do the endpoints that a client was given belong to one cluster? Each is asked until it has told.

Owns one control link to each listed endpoint that has not told its cluster id; none once all have.
An endpoint that is down when the client connects is asked as soon as it takes a connection, however
much later, and before the next request goes out. Whoever shares the client may use it: the lock
gives the links to one at a time.
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

PATIENCE_NS = int(CONNECT_TIMEOUT_S * 1e9)
# How often it is tried to take the links over from another one who hears.
TAKE_OVER_NS = 5_000_000


class _Silent(msgspec.Struct):
    """An endpoint that has not told its cluster id.

    `number`: of the question under way, 0: none. `ask_ns`: not asked (again) before this.
    `wait_until_ns`: how long a request waits for its answer: once for each connection that it
    takes, and once for the first.
    """

    port: Port
    wait_until_ns: int
    number: int = 0
    ask_ns: int = 0


class ListedEndpoints:
    """The endpoints of a client's list that have not told yet which cluster they belong to."""

    def __init__(self, host: Host, endpoints: Iterable[Endpoint]) -> None:
        self._clock = host.clock
        self._lock = host.new_lock()
        self._is_closed = False
        wait_until_ns = self._clock.monotonic_ns() + PATIENCE_NS
        self._silent = {each: _Silent(_open(host, each), wait_until_ns) for each in endpoints}

    @property
    def are_all_known(self) -> bool:
        return not self._silent

    def hear_now(self) -> list[tuple[Endpoint, Metadata]]:
        """What endpoints have told; waits for nothing, nor for another one who hears."""
        if not self._lock.acquire(blocking=False):
            return []
        try:
            return self._look(self._clock.monotonic_ns())
        finally:
            self._let_go()

    def hear(self, *, deadline_ns: int) -> Steps[list[tuple[Endpoint, Metadata]]]:
        """What endpoints tell, as soon as one does; empty: none of them tells now.

        An endpoint whose machine refuses the connection is not waited for: the first call sees it,
        which comes as soon as the links are made. One that takes no connection, or takes it and
        says nothing, is waited for CONNECT_TIMEOUT_S.

        Args:
          deadline_ns: wait no longer than this (monotonic).
        """
        while not self._lock.acquire(blocking=False):
            now_ns = self._clock.monotonic_ns()
            if now_ns >= deadline_ns:
                return []
            yield Wait(min(deadline_ns, now_ns + TAKE_OVER_NS))
        try:
            while True:
                now_ns = self._clock.monotonic_ns()
                heard = self._look(now_ns)
                waits_ns = (each.wait_until_ns for each in self._silent.values())
                until_ns = min(deadline_ns, max(waits_ns, default=0))
                if heard or until_ns <= now_ns:
                    return heard
                yield self._wait(until_ns)
        finally:
            self._let_go()

    def close(self) -> None:
        """Close the links; where another one is amid `hear`, it does so at its end."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                for silent in self._silent.values():
                    silent.port.close()
                self._silent.clear()
            finally:
                self._lock.release()

    def _let_go(self) -> None:
        """The end of hearing."""
        for silent in self._silent.values():
            silent.port.link.stop_reporting_refusals()
        self._lock.release()
        if self._is_closed:
            self.close()

    def _look(self, now_ns: int) -> list[tuple[Endpoint, Metadata]]:
        heard = []
        for endpoint, silent in list(self._silent.items()):
            metadata = _take_answer(silent, now_ns)
            if metadata is not None:
                heard.append((endpoint, metadata))
                if metadata.cluster_id != NO_CLUSTER:
                    silent.port.close()
                    del self._silent[endpoint]
                    continue
            _ask(silent, now_ns)
        return heard

    def _wait(self, until_ns: int) -> Wait:
        silent = self._silent.values()
        return Wait(
            until_ns,
            tuple(each.port.link for each in silent),
            tuple(each.port.link for each in silent if not each.ask_ns),
        )


def _open(host: Host, endpoint: Endpoint) -> Port:
    address = endpoint.control
    link = host.links.requester(address, reports_refusals=True, is_probe=True)
    return Port(host, address, link=link)


def _take_answer(silent: _Silent, now_ns: int) -> Metadata | None:
    """What the endpoint tells, if it does now; it is asked again a second later if it has no
    cluster id yet."""
    if silent.port.link.was_refused():
        silent.number = silent.ask_ns = silent.wait_until_ns = 0
    while (received := silent.port.try_receive()) is not None:
        if received[0] != silent.number:
            continue
        silent.number, silent.ask_ns, silent.wait_until_ns = 0, now_ns + RESEND_NS, 0
        try:
            return parse_metadata(answer_of(received[1], MetadataReply).document)
        except LogStoreError:
            return None
    return None


def _ask(silent: _Silent, now_ns: int) -> None:
    """Ask over a new connection, and again where the answer does not come."""
    is_first = not silent.ask_ns
    if now_ns < silent.ask_ns:
        return
    silent.number = silent.port.try_send(MetadataRequest())
    silent.ask_ns = now_ns + RESEND_NS if silent.number else 0  # without a connection: the next one
    if silent.number and is_first:
        silent.wait_until_ns = now_ns + PATIENCE_NS
