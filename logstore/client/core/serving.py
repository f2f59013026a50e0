"""How a producer stays connected: it connects, serves until it must connect again, and so on.

Owns the pauses between attempts of which nothing came. Must not know what is sent.
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.client.core.backoff import Backoff
from logstore.client.core.connection import Connection
from logstore.client.core.steps import NEVER_NS, Host, Steps

BACKOFF_MIN_S = 0.01
BACKOFF_MAX_S = 0.1


def keep_serving(
    host: Host,
    connect: Callable[[], Steps[Connection | None]],
    serve: Callable[[Connection], Steps[bool]],
    is_stopping: Callable[[], bool],
) -> Steps[None]:
    """Until `is_stopping`. Errors of `connect` and `serve` end it.

    Args:
      connect: gives None where there is no leader to connect to now.
      serve: tells whether anything came of the connection, which is closed afterwards.
    """
    pauses = Backoff(host, first_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
    while not is_stopping():
        connection = yield from connect()
        if connection is not None:
            try:
                is_worth_it = yield from serve(connection)
            finally:
                connection.close()
            if is_worth_it:
                pauses.reset()
                continue
        yield pauses.wait(deadline_ns=NEVER_NS)
