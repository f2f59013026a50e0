"""The steps in which the log is dropped, and starts over at a log start that is installed (SAFETY
G5a, F7).

Owns which step comes next, and which worker takes it. Must not know when it may begin: `log_work`
does, once every earlier flush has ended (F6).

    1. META gets the log start and the mark INSTALL, flushed, in META's own worker (S8)
    2. the old pairs are removed       both in the data worker, where nothing else uses the log
    3. a new pair is opened, flushed   until it ends; without space it is tried again (S9)
    4. the mark is taken off, in META's worker; only now may raft be answered

A crash between any two leaves what recovery finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto

from actors.host import FlushWorker
from actors.writer.folder import Folder
from actors.writer.trims import Trims
from logstore.raft.log_view import WholeLogStart


class Step(Enum):
    """What comes next."""

    MARK = auto()
    START_OVER = auto()
    UNMARK = auto()
    ANSWER = auto()


class Installs:
    """One install at a time. `meta_worker` is the only one that saves META."""

    def __init__(self, folder: Folder, trims: Trims, *, meta_worker: FlushWorker) -> None:
        self._folder = folder
        self._trims = trims
        self._meta_worker = meta_worker
        self._next = Step.MARK
        self._is_saving = False

    def go_on(self) -> None:
        """The mark is in META since an earlier start, and recovery had no space for a new pair."""
        self._next = Step.START_OVER

    def advance(self, whole: WholeLogStart, start_over: Callable[[], int]) -> int:
        """Begin the next step, if it can begin. `start_over` has the data worker take steps 2 and 3
        and call `on_begun_anew` after them."""
        if self._is_saving or not self._trims.is_idle:
            return 0
        match self._next:
            case Step.MARK:
                return self._save(lambda: self._folder.save_install(whole), Step.START_OVER)
            case Step.START_OVER:
                return start_over()
            case Step.UNMARK:
                return self._save(self._folder.save_installed, Step.ANSWER)
            case Step.ANSWER:
                return 0

    def on_begun_anew(self) -> None:
        """The new pair is open and flushed."""
        self._next = Step.UNMARK

    def take_end(self) -> bool:
        """Whether the log has started over, durably; the next one may then begin."""
        if self._next != Step.ANSWER or self._is_saving:
            return False
        self._next = Step.MARK
        return True

    def _save(self, save: Callable[[], None], following: Step) -> int:
        self._is_saving = True
        self._meta_worker.start(lambda: self._save_meta(save, following))
        return 1

    def _save_meta(self, save: Callable[[], None], following: Step) -> Iterator[None]:
        """In the META worker."""
        save()
        yield
        self._next = following
        self._is_saving = False
