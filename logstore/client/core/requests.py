"""One request to one replica, or the same one to several: numbering, matching, bounded waiting.

Owns the request numbers and the links of `Port`s. Knows nothing of who leads. A reply that is an
`ErrorReply` becomes its exception here, and only here.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from logstore.client.core.backoff import Backoff
from logstore.client.core.steps import NEVER_NS, Frame, Host, RequestLink, Steps, Wait
from logstore.client.endpoint import Endpoint
from logstore.client.refusal import error_of_reply
from logstore.errors import (
    FormatError,
    InvalidRequest,
    LogStoreError,
    Unreachable,
    WrongCluster,
)
from logstore.format.client_messages import ErrorReply
from logstore.format.message import decode_message, encode_message
from logstore.model import NO_NODE

NO_CLUSTER = bytes(16)
NO_UUID = bytes(16)
# A replica that accepts no connection for so long counts as down; another one may be up.
CONNECT_TIMEOUT_S = 1.0
# While a survey lasts, a request without an answer is repeated after this.
RESEND_NS = 1_000_000_000
_T = TypeVar("_T", bound=msgspec.Struct)


class Reply(msgspec.Struct, frozen=True):
    """A reply's message and, for fetches, the frame of pieces after it."""

    message: Any
    cluster_id: bytes
    body: Frame


class Port:
    """A request link to one port of one replica."""

    def __init__(
        self,
        host: Host,
        address: str,
        *,
        cluster_id: bytes = NO_CLUSTER,
        link: RequestLink | None = None,
    ) -> None:
        self.address = address
        self.link = link or host.links.requester(address)
        self._host = host
        self._cluster_id = cluster_id
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self.link.close()

    def try_send(self, message: msgspec.Struct) -> int:
        """Send a request if there is a connection; its number, 0 if there is none."""
        number = next(self._numbers)
        frame = encode_message(
            message,
            cluster_id=self._cluster_id,
            sender_uuid=NO_UUID,
            sender=NO_NODE,
            target=NO_NODE,
            correlation=number,
        )
        return number if self.link.try_send(frame) else 0

    def try_receive(self) -> tuple[int, Reply] | None:
        """The next reply and the number of its request; what does not decode is dropped.

        Raises:
          WrongCluster: the replica belongs to another cluster than the one asked for.
        """
        while (frames := self.link.try_receive()) is not None:
            try:
                envelope, message = decode_message(frames[0])
            except FormatError:
                continue
            if self._cluster_id not in (NO_CLUSTER, envelope.cluster_id):
                if envelope.cluster_id != NO_CLUSTER:
                    raise WrongCluster(
                        f"{self.address} belongs to cluster {envelope.cluster_id.hex()}, not to "
                        f"{self._cluster_id.hex()}: check the endpoints"
                    )
            body: Frame = frames[1] if len(frames) > 1 else b""
            return envelope.correlation, Reply(message, envelope.cluster_id, body)
        return None

    def request(
        self, message: msgspec.Struct, reply_type: type[_T], *, deadline_ns: int, number: int = 0
    ) -> Steps[tuple[_T, Frame]]:
        """Send `message`, wait for its answer; the answer and the frame after it.

        Args:
          number: the request's, if it was sent before; 0: send it now.

        Raises:
          Unreachable: no answer before the deadline (monotonic ns).
          LogStoreError: what the replica answered instead.
        """
        clock, link = self._host.clock, self.link
        if not number:
            connect_ns = min(deadline_ns, self._host.deadline_ns(CONNECT_TIMEOUT_S))
            while not (number := self.try_send(message)):
                if clock.monotonic_ns() >= connect_ns:
                    raise Unreachable(f"no connection to {self.address} within the time given")
                while self.try_receive() is not None:
                    pass  # a late answer that stayed unread would end each of these waits at once
                yield Wait(connect_ns, (link,), (link,))
        while True:
            received = self.try_receive()
            if received is None:
                if clock.monotonic_ns() >= deadline_ns:
                    raise Unreachable(f"no answer from {self.address} within the time given")
                yield Wait(deadline_ns, (link,))
            elif received[0] == number:
                return answer_of(received[1], reply_type), received[1].body


def answer_of(reply: Reply, reply_type: type[_T]) -> _T:
    """The reply's message, if it is of the type the request asks for.

    Raises:
      LogStoreError: the error that the replica answered with.
      FormatError: any other type.
    """
    message = reply.message
    if isinstance(message, ErrorReply):
        raise error_of_reply(message)
    if not isinstance(message, reply_type):
        raise FormatError(f"a {type(message).__name__} answers what asks for {reply_type.__name__}")
    return message


class Survey(Generic[_T]):
    """The same request to several control ports at once; answers come in any order.

    A replica is asked again after RESEND_NS without an answer; after an answer never, or, if
    `pauses` makes a `Backoff` for each replica, after its next pause. `on_refused` gets what would
    be raised, and who refused, where an older version does not know the request.
    """

    def __init__(
        self,
        host: Host,
        endpoints: Iterable[Endpoint],
        message: msgspec.Struct,
        reply_type: type[_T],
        *,
        pauses: Callable[[Host], Backoff] | None = None,
        on_refused: Callable[[Endpoint, InvalidRequest], None] | None = None,
        cluster_id: bytes = NO_CLUSTER,
    ) -> None:
        self._on_refused = on_refused
        self._clock = host.clock
        self._message = message
        self._reply_type = reply_type
        self._ports: dict[Endpoint, Port] = {}
        with contextlib.ExitStack() as opened:
            opened.callback(self.close)
            for endpoint in endpoints:
                address = endpoint.control
                link = host.links.requester(address, is_probe=True)
                self._ports[endpoint] = Port(host, address, cluster_id=cluster_id, link=link)
            opened.pop_all()
        self._due_ns = dict.fromkeys(self._ports, 0)
        self._pauses = {each: pauses(host) for each in self._ports} if pauses else {}

    def close(self) -> None:
        for port in self._ports.values():
            port.close()

    def __enter__(self) -> Survey[_T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next_answer(self, *, deadline_ns: int) -> Steps[tuple[Endpoint, _T] | None]:
        """The next answer of any replica; None: none came before the deadline (monotonic), or all
        have answered.

        Answers that are errors are skipped: another replica may know, or this one later.

        Raises:
          InvalidRequest: a replica would refuse every time, of another cluster for example.
        """
        while True:
            now_ns = self._clock.monotonic_ns()
            if (found := self._take_answer()) is not None:
                return found
            if now_ns >= deadline_ns or min(self._due_ns.values(), default=NEVER_NS) == NEVER_NS:
                return None
            yield self._ask(now_ns, deadline_ns)

    def _take_answer(self) -> tuple[Endpoint, _T] | None:
        for endpoint, port in self._ports.items():
            while (received := port.try_receive()) is not None:
                pauses = self._pauses.get(endpoint)
                self._due_ns[endpoint] = pauses.next_ns() if pauses else NEVER_NS
                try:
                    return endpoint, answer_of(received[1], self._reply_type)
                except InvalidRequest as error:
                    if self._on_refused is None:
                        raise
                    self._on_refused(endpoint, error)
                except LogStoreError:
                    continue
        return None

    def _ask(self, now_ns: int, deadline_ns: int) -> Wait:
        """Ask each replica that is due and connected; what to wait for after that."""
        unsent = []
        for endpoint, port in self._ports.items():
            if self._due_ns[endpoint] <= now_ns:
                if port.try_send(self._message):
                    self._due_ns[endpoint] = now_ns + RESEND_NS
                else:
                    unsent.append(port.link)
        due = [at_ns for at_ns in self._due_ns.values() if at_ns > now_ns]
        links = tuple(port.link for port in self._ports.values())
        return Wait(min([deadline_ns, *due]), links, tuple(unsent))
