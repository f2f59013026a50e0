"""A timer of each client that keeps it current with the members of its cluster.

Owns when the event loop asks for them next. The loop keeps no client that nothing else uses: while
the timer waits, it knows driver and map by weak references only. `Routing.keep_current` says when
to ask and what an answer changes.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from functools import partial

from logstore.aio.driver import Driver, Run
from logstore.client.core import routing
from logstore.client.core.steps import Steps
from logstore.errors import Closed

_LOG = logging.getLogger(__name__)


def keep_current(driver: Driver, known: routing.Routing) -> None:
    """Until the driver is closed, or nothing else uses the two."""
    _ask(weakref.ref(driver), weakref.ref(known))


def _ask(weak_driver: weakref.ref[Driver], weak: weakref.ref[routing.Routing]) -> None:
    driver, known = weak_driver(), weak()
    if driver is None or known is None or driver.is_closed:
        return
    run = driver.start(_steps(known))
    run.future.add_done_callback(partial(_on_asked, weak_driver, weak, run))


def _steps(known: routing.Routing) -> Steps[float | None]:
    """As `keep_current`; None: the client is closed."""
    try:
        return (yield from known.keep_current())
    except Closed:
        return None


def _on_asked(
    weak_driver: weakref.ref[Driver],
    weak: weakref.ref[routing.Routing],
    run: Run[float | None],
    asked: asyncio.Future[float | None],
) -> None:
    run.close()
    if asked.cancelled():
        return
    if (error := asked.exception()) is None:
        wait_s = asked.result()
    else:  # no descriptor is left, for example: later one may be
        _LOG.warning("the members of the cluster were not asked for: %r", error)
        wait_s = routing.KEEP_CURRENT_S
    if wait_s is not None:
        asked.get_loop().call_later(wait_s, _ask, weak_driver, weak)
