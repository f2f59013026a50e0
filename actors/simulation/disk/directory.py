"""The names on the simulated disk: which there are, which are durable, and the changes between.

Owns names and their changes. Must not know what files contain, nor handles or space. A change of a
name is durable once a flush of its folder has ended. A power cut before keeps a prefix of the
changes of each name. A lying device has them in its own cache until its next honest flush.
"""

from __future__ import annotations

from random import Random

from actors.simulation.disk.file import SimulatedFile

Versions = list[SimulatedFile | None]  # of a name, oldest first; None: unlinked
FlushedNames = dict[str, SimulatedFile | None]  # what a flush was given: each name's newest change


class Directory:
    """Paths are strings, a folder is the part before the last slash."""

    def __init__(self) -> None:
        self.files: dict[str, SimulatedFile] = {}
        self.durable: dict[str, SimulatedFile] = {}
        self.pending: dict[str, Versions] = {}
        self.lied: dict[str, Versions] = {}

    def in_folder(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        names = [path[len(prefix) :] for path in self.files if path.startswith(prefix)]
        return sorted(name for name in names if "/" not in name)

    def add(self, path: str, file: SimulatedFile) -> None:
        """Processes see this and `drop` at once; `changed` makes it pending."""
        self.files[path] = file

    def drop(self, path: str) -> None:
        del self.files[path]

    def changed(self, path: str, file: SimulatedFile | None) -> None:
        self.pending.setdefault(path, []).append(file)

    def put_durably(self, path: str, file: SimulatedFile) -> None:
        self.files[path] = file
        self.durable[path] = file

    def lose(self, path: str) -> None:
        """The name is gone, and no process was told."""
        for names in (self.files, self.durable):
            names.pop(path, None)
        for changes in (self.pending, self.lied):
            changes.pop(path, None)

    def begin_flush(self, folder: str, flushed: FlushedNames) -> None:
        """Put what changed in the folder so far into `flushed`."""
        flushed.update((path, self.pending[path][-1]) for path in self._changed_in(folder))

    def end_flush(self, flushed: FlushedNames) -> None:
        """What the flush was given is durable. The caller has called `persist_lied`."""
        for path, newest in flushed.items():
            if self._taken(path, newest):
                self._make_durable(path, newest)

    def flush_into_cache(self, flushed: FlushedNames) -> None:
        """The device reports success and keeps the names in its own cache."""
        for path, newest in flushed.items():
            self.lied.setdefault(path, []).extend(self._taken(path, newest))

    def persist_lied(self) -> None:
        """The device flushed its own cache: what it lied about is durable."""
        for path, versions in self.lied.items():
            self._make_durable(path, versions[-1])
        self.lied.clear()

    def changes(self) -> dict[str, Versions]:
        """The changes of each name after the durable one, oldest first."""
        changes = {path: list(versions) for path, versions in self.lied.items()}
        for path, versions in self.pending.items():
            changes.setdefault(path, []).extend(versions)
        return changes

    def power_cut(self, random: Random) -> None:
        for path, versions in self.changes().items():
            taken = random.randrange(len(versions) + 1)
            if taken:
                self._make_durable(path, versions[taken - 1])
        self.pending.clear()
        self.lied.clear()
        self.files = dict(self.durable)

    def durable_file(self, path: str, *, counting_lies: bool) -> SimulatedFile | None:
        """The file that the name has now and after any power cut."""
        file = self.files.get(path)
        if path in self.pending:
            return None
        if path in self.lied:
            return file if counting_lies else None
        return file if self.durable.get(path) is file else None

    def _changed_in(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        paths = [path for path in self.pending if path.startswith(prefix)]
        return [path for path in paths if "/" not in path[len(prefix) :]]

    def _taken(self, path: str, newest: SimulatedFile | None) -> Versions:
        """Remove and return the pending changes of a name up to `newest`."""
        versions = self.pending.get(path, [])
        if newest not in versions:
            return []
        end = versions.index(newest) + 1
        if versions[end:]:
            self.pending[path] = versions[end:]
        else:
            del self.pending[path]
        return versions[:end]

    def _make_durable(self, path: str, file: SimulatedFile | None) -> None:
        if file is None:
            self.durable.pop(path, None)
        else:
            self.durable[path] = file
