"""Runs the client's core in a simulated process: the second driver of the core.

Owns the tasks of one client, and the host that they run on: virtual links, the clock of its
`do_work`, seeded chance. A client of the workload is a generator of `Steps`, like everything that
the core does, so it uses the core as a program uses `connect()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actors.simulation.network.core_links import FrameObserver, SimulatedLink, SimulatedLinks
from actors.simulation.world.client_host import MS_NS, NEVER_NS, ClientHost
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps, Wait
from logstore.client.core.task import Task
from logstore.client.endpoint import Endpoint, parse_endpoint
from logstore.settings import PortOffset

# Nobody says when a connection has room again.
_ROOM_NS = 20 * MS_NS
# After so many rounds of work in one moment time must go on.
_ROUNDS_MAX = 256


class SimulatedClock:
    """The core's `Clock`: the time of the `do_work` under way. Wall time only stamps batches."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    wall_ns = monotonic_ns


class SimulatedLock:
    """The core's `Lock`. Nobody else runs, so a task that waits for it would wait for ever."""

    def __init__(self) -> None:
        self._is_held = False

    def acquire(self, blocking: bool = True) -> bool:
        if self._is_held:
            if blocking:
                raise RuntimeError("a task waits without a Wait, for ever")
            return False
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False


class _Anything:
    """A link without messages: a wait for it ends whenever the process runs."""

    has_news = False

    def try_receive(self) -> None:
        return None

    def close(self) -> None: ...


_ANYTHING = _Anything()


class CoreClient:
    """Has the methods of an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`.

    `live` gives the first steps; `start` adds others. An error that steps raise ends the process,
    which is a violation.
    """

    def __init__(
        self,
        host: ClientHost,
        live: Callable[[CoreClient], Steps[None]],
        observer: FrameObserver | None = None,
    ) -> None:
        self.host = host
        self.clock = SimulatedClock()
        self.core = self.core_on(SimulatedLinks(host.links, observer))
        self._tasks = [Task(live(self))]
        self._is_woken = False

    def core_on(self, links: SimulatedLinks) -> Host:
        """A host of the core for a part of this client that has links of its own."""
        return Host(links, self.clock, self.host.random, SimulatedLock)

    def connect(self, core: Host | None = None) -> Routing:
        """A new client's map of the cluster, as `logstore.connect` makes one, from the endpoints of
        some nodes; close it at the end. `core`: None is the client's own."""
        host = self.host
        nodes = host.draw_seeds()
        return Routing(core or self.core, [endpoint_of(host, node) for node in nodes])

    def start(self, steps: Steps[Any]) -> Task[Any]:
        """Run these steps, too, until they end or the task is closed."""
        task = Task(steps)
        self._tasks.append(task)
        self._is_woken = True
        return task

    def wake(self) -> None:
        """Run every task in this `do_work`: something happened that no link shows."""
        self._is_woken = True

    def sleep(self, until_ns: int) -> Wait:
        """A wait until then. It ends early whenever the process runs, so check the time after
        it."""
        return Wait(until_ns, (_ANYTHING,))

    # --- an actor's words ---

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Do everything that is due; more than 0 if there may be something left."""
        self.clock.now_ns = now_ns
        self._is_woken = True
        for _ in range(_ROUNDS_MAX):
            is_woken, self._is_woken = self._is_woken, False
            has_worked = False
            for task in tuple(self._tasks):
                if is_woken or _is_due(task.wait, now_ns):
                    has_worked = True
                    task.do_work(now_ns)
            if not has_worked:
                return 0
            self._tasks = [task for task in self._tasks if not task.is_done]
        return 1

    def wait_on(self) -> list[Any]:
        reads = [link for task in self._tasks for link in _links(task.wait.reads)]
        return [link.socket for link in reads if isinstance(link, SimulatedLink)]

    def next_timer_ns(self) -> int:
        timer_ns = NEVER_NS
        for task in self._tasks:
            timer_ns = min(timer_ns, task.wait.until_ns)
            if any(link.is_connected for link in _links(task.wait.writes)):
                timer_ns = min(timer_ns, self.clock.now_ns + _ROOM_NS)
        return timer_ns

    def on_close(self) -> None:
        for task in self._tasks:
            task.close()
        self._tasks.clear()


def endpoint_of(host: ClientHost, node: int) -> Endpoint:
    """The address of a node, as a user gives it."""
    return parse_endpoint(host.endpoint(node, PortOffset.CONTROL))


def _is_due(wait: Wait, now_ns: int) -> bool:
    return (
        now_ns >= wait.until_ns
        or any(link.has_news for link in _links(wait.reads))
        or any(link.can_send for link in _links(wait.writes))
    )


def _links(links: Iterable[Any]) -> Iterable[Any]:
    """Links of this driver's own making, of which a `Wait` knows only what the core needs."""
    return links
