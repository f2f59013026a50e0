"""Gives steps the interface of an actor: `do_work`, what it waits for, a result.

Owns the position in the steps. Knows neither what they do nor how a driver waits.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from logstore.client.core.steps import Steps, Wait

_T = TypeVar("_T")


class Task(Generic[_T]):
    """Call `do_work` whenever `wait` has ended, until it `is_done`; then `close`."""

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
        """Run to the next wait, or to the end. Returns 0: no work is left then.

        Raises: what the steps raise; the task is done then.
        """
        wait = self.wait
        if not self.is_done and (wait.reads or wait.writes or now_ns >= wait.until_ns):
            self._go_on(None)
        return 0

    def fail(self, error: Exception) -> None:
        """Raise an error where the steps wait, since waiting failed. Most steps pass it on."""
        self._go_on(error)

    def close(self) -> None:
        """Cancel the steps: they close what they have opened."""
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
