"""Steps in the shape of an actor: `do_work`, what it waits for, a result.

Owns where the steps stand. Knows neither what they do nor how a driver waits.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from logstore.client.core.steps import Steps, Wait

_T = TypeVar("_T")


class Task(Generic[_T]):
    """Call `do_work` when something at `wait` has happened, until it `is_done`; then `close`."""

    def __init__(self, steps: Steps[_T]) -> None:
        self._steps = steps
        self._results: list[_T] = []
        self.wait = Wait(0)
        self.is_done = False

    @property
    def result(self) -> _T:
        """What the steps returned, once it is done."""
        return self._results[0]

    def do_work(self, now_ns: int) -> int:
        """Go on to the next wait, or to the end; 0, since nothing is left to do then.

        Raises: what the steps raise; it is done then.
        """
        wait = self.wait
        if not self.is_done and (wait.reads or wait.writes or now_ns >= wait.until_ns):
            self._go_on(None)
        return 0

    def fail(self, error: Exception) -> None:
        """Waiting has failed: the steps see the error where they wait, and mostly raise it."""
        self._go_on(error)

    def close(self) -> None:
        """Give up what is under way: the steps close what they have opened."""
        self.is_done = True
        self._steps.close()

    def _go_on(self, error: Exception | None) -> None:
        """Hot."""
        try:
            self.wait = next(self._steps) if error is None else self._steps.throw(error)
        except StopIteration as end:
            self.is_done = True
            self._results.append(end.value)
        except BaseException:
            self.is_done = True
            raise
