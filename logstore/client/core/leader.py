"""One request to the leader, repeated while a retry may help.

Owns what is known about one request. Must not know what the request means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from logstore.client.core.backoff import Backoff
from logstore.client.core.requests import Port
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps
from logstore.client.refusal import TRANSIENT
from logstore.errors import ErrorCode, FormatError, LogStoreError, OutcomeUnknown, Unreachable

ANSWER_TIMEOUT_S = 2.0
_ASKED_AGAIN = TRANSIENT | {ErrorCode.OUTCOME_UNKNOWN}
_T = TypeVar("_T", bound=msgspec.Struct)


class LeaderRequest:
    """`in_doubt`: how many attempts had no answer, and may have taken effect, or may yet.
    `level_patience_s`: for how long to ask again while the log's format level is too low.
    `on_wait`: called with each refusal after which it asks again."""

    def __init__(
        self,
        host: Host,
        routing: Routing,
        *,
        timeout_s: float,
        level_patience_s: float = 0.0,
        on_wait: Callable[[LogStoreError], None] | None = None,
    ) -> None:
        self._host = host
        self._routing = routing
        self._timeout_s = timeout_s
        self._level_patience_s = level_patience_s
        self._on_wait = on_wait
        self.in_doubt = 0

    @property
    def is_in_doubt(self) -> bool:
        return self.in_doubt > 0

    def ask(self, request: msgspec.Struct, reply_type: type[_T]) -> Steps[_T]:
        """The leader's answer; repeats the request until there is one or the time is over.

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
          LogStoreError: the leader refuses, and would again.
        """
        deadline_ns = self._host.deadline_ns(self._timeout_s)
        level_ns = 0  # until when refusals for the level are asked again; 0: there was none
        refusal: LogStoreError | None = None
        pauses = Backoff(self._host)
        while True:
            try:
                return (yield from self._ask_once(request, reply_type, deadline_ns))
            except FormatError:
                raise
            except LogStoreError as error:
                until_ns = deadline_ns
                if error.code == ErrorCode.LEVEL_REFUSED:
                    level_ns = level_ns or self._host.deadline_ns(self._level_patience_s)
                    until_ns = min(deadline_ns, level_ns)
                elif error.code not in _ASKED_AGAIN:
                    raise
                if not isinstance(error, Unreachable):
                    refusal = error
                now_ns = self._host.clock.monotonic_ns()
                if now_ns >= until_ns:
                    # A leader's refusal says more than that the last attempt ran out of time.
                    raise refusal or error from None
                if self._on_wait is not None:
                    self._on_wait(error)
            yield pauses.wait(deadline_ns=until_ns)

    def _ask_once(
        self, request: msgspec.Struct, reply_type: type[_T], deadline_ns: int
    ) -> Steps[_T]:
        _, endpoint = yield from self._routing.find_leader(deadline_ns=deadline_ns)
        port = Port(self._host, endpoint.control, cluster_id=self._routing.cluster_id)
        answer_ns = min(deadline_ns, self._host.deadline_ns(ANSWER_TIMEOUT_S))
        try:
            reply, _ = yield from port.request(request, reply_type, deadline_ns=answer_ns)
            return reply
        except (Unreachable, OutcomeUnknown):
            self.in_doubt += 1
            raise
        finally:
            port.close()
