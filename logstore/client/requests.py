"""One request to one replica, or the same one to several: numbering, matching, bounded waiting.

Owns the request numbers and the sockets of `Port`s. Knows nothing of who leads. A reply that is an
`ErrorReply` becomes its exception here, and only here.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from logstore.client.clock import milliseconds_until, monotonic_ns, seconds_from_now
from logstore.client.endpoint import Endpoint
from logstore.client.link import Context, Frame, Requester, Waiter
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
# A replica that takes no connection for so long is down, or as good as: another one may be up.
CONNECT_TIMEOUT_S = 1.0
# A question that was not answered for so long is asked again while a watch lasts.
RESEND_NS = 1_000_000_000
_T = TypeVar("_T", bound=msgspec.Struct)


class Reply(msgspec.Struct, frozen=True):
    """A reply's message and, for fetches, the frame of pieces after it."""

    message: Any
    cluster_id: bytes
    body: Frame


class Port:
    """A request socket to one port of one replica."""

    def __init__(
        self,
        context: Context,
        address: str,
        *,
        cluster_id: bytes = NO_CLUSTER,
        requester: Requester | None = None,
    ) -> None:
        self.address = address
        self.requester = requester or Requester(context, address)
        self._cluster_id = cluster_id
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self.requester.close()

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
        return number if self.requester.try_send(frame) else 0

    def try_receive(self) -> tuple[int, Reply] | None:
        """The next reply and the number of its request; what does not decode is dropped.

        Raises:
          WrongCluster: the replica belongs to another cluster than the one asked for.
        """
        while (frames := self.requester.try_receive()) is not None:
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
    ) -> tuple[_T, Frame]:
        """Send `message`, wait for its answer; the answer and the frame after it.

        Args:
          number: of the request, if it was sent already.

        Raises:
          Unreachable: no answer before the deadline (monotonic ns).
          LogStoreError: what the replica answered instead.
        """
        waiter = Waiter(self.requester)
        if not number:
            waiter.want_to_send(self.requester)
            connect_ns = min(deadline_ns, seconds_from_now(CONNECT_TIMEOUT_S))
            while not (number := self.try_send(message)):
                if not waiter.wait(milliseconds_until(connect_ns)):
                    raise Unreachable(f"no connection to {self.address} within the time given")
            waiter.sent(self.requester)
        while True:
            received = self.try_receive()
            if received is None:
                if not waiter.wait(milliseconds_until(deadline_ns)):
                    raise Unreachable(f"no answer from {self.address} within the time given")
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


class Survey:
    """The same request to several control ports at once, whoever answers."""

    def __init__(
        self, context: Context, endpoints: Iterable[Endpoint], *, cluster_id: bytes = NO_CLUSTER
    ) -> None:
        self._ports: dict[Endpoint, Port] = {}
        with contextlib.ExitStack() as opened:
            opened.callback(self.close)
            for endpoint in endpoints:
                address = endpoint.control
                requester = Requester(context, address, asks_around=True)
                port = Port(context, address, cluster_id=cluster_id, requester=requester)
                self._ports[endpoint] = port
            opened.pop_all()

    def close(self) -> None:
        for port in self._ports.values():
            port.close()

    def __enter__(self) -> Survey:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def gather(
        self,
        message: msgspec.Struct,
        reply_type: type[_T],
        *,
        timeout_s: float,
        settle_s: float,
    ) -> Iterator[tuple[Endpoint, _T]]:
        """Answers as they come, until all have answered or the time is over.

        The time is `timeout_s` in all, but only `settle_s` from the first answer on, so that a dead
        replica does not hold up what the living know.

        Errors among the answers are left out: another replica may know better, or this one later.

        Raises:
          InvalidRequest: a replica refuses for good, of another cluster for example.
        """
        deadline_ns = seconds_from_now(timeout_s)
        waiter = Waiter()
        unsent = dict(self._ports)
        sent: dict[Endpoint, int] = {}
        for port in unsent.values():
            waiter.want_to_send(port.requester)
        while (unsent or sent) and waiter.wait(milliseconds_until(deadline_ns)):
            for endpoint, port in list(unsent.items()):
                if number := port.try_send(message):
                    sent[endpoint] = number
                    del unsent[endpoint]
                    waiter.sent(port.requester)
            for endpoint in list(sent):
                answer = self._take_answer(endpoint, sent, reply_type)
                if answer is not None:
                    deadline_ns = min(deadline_ns, seconds_from_now(settle_s))
                    yield endpoint, answer

    def watch(
        self,
        message: msgspec.Struct,
        reply_type: type[_T],
        *,
        again_ms: int,
        deadline_ns: int,
    ) -> Iterator[tuple[Endpoint, _T]]:
        """Answers as they come, each replica asked again `again_ms` after its last one, until the
        deadline (monotonic). Errors as `gather`.
        """
        waiter = Waiter(*(port.requester for port in self._ports.values()))
        due_ns = dict.fromkeys(self._ports, 0)
        while (now_ns := monotonic_ns()) < deadline_ns:
            next_ns = deadline_ns
            for endpoint, port in self._ports.items():
                if due_ns[endpoint] <= now_ns:
                    if not port.try_send(message):
                        waiter.want_to_send(port.requester)
                        continue
                    waiter.sent(port.requester)
                    due_ns[endpoint] = now_ns + RESEND_NS
                next_ns = min(next_ns, due_ns[endpoint])
            waiter.wait(milliseconds_until(next_ns))
            for endpoint, port in self._ports.items():
                while (received := port.try_receive()) is not None:
                    due_ns[endpoint] = monotonic_ns() + again_ms * 1_000_000
                    answer = _answer_or_none(received[1], reply_type)
                    if answer is not None:
                        yield endpoint, answer

    def _take_answer(
        self, endpoint: Endpoint, sent: dict[Endpoint, int], reply_type: type[_T]
    ) -> _T | None:
        while (received := self._ports[endpoint].try_receive()) is not None:
            number, reply = received
            if number != sent[endpoint]:
                continue  # the late answer to an earlier round
            del sent[endpoint]
            return _answer_or_none(reply, reply_type)
        return None


def _answer_or_none(reply: Reply, reply_type: type[_T]) -> _T | None:
    """The answer, None for an error that time or another replica may mend."""
    try:
        return answer_of(reply, reply_type)
    except InvalidRequest:
        raise
    except LogStoreError:
        return None
