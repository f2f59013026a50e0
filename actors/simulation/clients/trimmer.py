"""Moves the log start of the virtual world, holds it with a cursor, and asks for what cannot be.

Owns how far each replica is known to be. A patient one leaves no replica below the log start: it
trims at most to the last LSN that every replica has shown. Another one asks nobody how far it is,
and mostly trims as far as the leader allows: who lags gets the log start itself (G5).
"""

from __future__ import annotations

from actors.simulation.clients.inquirer import Inquirer
from logstore.client.core.cursor_admin import Cursor, Cursors
from logstore.client.core.operating import trim, watermarks
from logstore.client.core.steps import Steps
from logstore.errors import LevelRefused, LogStoreError, OutOfRange
from logstore.limits import POSITION_MAX

_BEYOND = 0.1  # of all questions ask for what is not there
_HOLD = 0.2
_PATIENT = 0.3  # of all trimmers
_AT_ONCE = 0.8  # of the questions of the others


class Trimmer:
    """A subject."""

    def __init__(self, inquirer: Inquirer, ask_every_ns: int) -> None:
        self._inquirer = inquirer
        self._random = inquirer.host.random
        self._first_lsn = int(inquirer.host.first_lsn)
        self.ask_every_ns = ask_every_ns
        self._shown: dict[int, int] = {}  # node -> the highest LSN that it showed
        self._is_patient = self._random.random() < _PATIENT

    def ask(self) -> Steps[None]:
        if not self._is_patient and self._random.random() < _AT_ONCE:
            highest = yield from self._trim(POSITION_MAX)
            if highest > self._first_lsn:
                yield from self._trim(highest)
            return
        yield from self._look()
        shown_lsn = min(self._shown.values())
        if self._random.random() < _BEYOND:
            yield from self._trim(self._random.choice((POSITION_MAX, max(1, self._first_lsn - 1))))
            return
        if shown_lsn < self._first_lsn:
            return
        if self._random.random() < _HOLD:
            yield from self._hold(self._draw_lsn(shown_lsn))
            return
        highest = yield from self._trim(self._draw_lsn(shown_lsn))
        if self._first_lsn < highest <= shown_lsn:
            yield from self._trim(highest)

    def _draw_lsn(self, shown_lsn: int) -> int:
        """Mostly near the end: the newest snapshot, or the cursor, decides how far a trim goes."""
        back = int(self._random.expovariate(1.0) * (shown_lsn - self._first_lsn) / 6)
        return max(self._first_lsn, shown_lsn - back)

    def _hold(self, lsn: int) -> Steps[None]:
        """Hold what follows `lsn`, or less often nothing."""
        host, routing, timeout_s = self._inquirer.cluster()
        cursors = Cursors(host, routing, timeout_s=timeout_s)
        yield from cursors.change(
            Cursor(self._inquirer.host.name, lsn, self._random.random() < 0.7), None
        )

    def _look(self) -> Steps[None]:
        """Ask every replica how far it is. What a silent one has shown before, it has."""
        host, cluster = self._inquirer.host, self._inquirer.cluster()
        for node in host.nodes:
            self._shown.setdefault(node, 0)
            try:
                marks = yield from watermarks(
                    cluster, replica=node, min_lsn=0, is_linearizable=False
                )
            except LogStoreError:
                continue
            self._shown[node] = max(self._shown[node], marks.visible_lsn)

    def _trim(self, lsn: int) -> Steps[int]:
        """Ask for it; if it is too much, up to where the log may be trimmed, else 0."""
        try:
            yield from trim(self._inquirer.cluster(), lsn)
        except OutOfRange as bounds:
            self._inquirer.witness.count("trim-refused")
            return bounds.last
        except LevelRefused:
            self._inquirer.witness.count("trim-refused-by-level")
            return 0
        self._inquirer.witness.count("trimmed")
        return 0
