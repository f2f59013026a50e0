"""Under which name a replay begins, or continues: `replay/NAME/FIRST`.

Pure. Owns the rule that a replay which is called again is the same one, although its source has
changed meanwhile: a log begins later once it is trimmed, and a lake gets another newest cluster
when it is adopted. Under another name every record would be appended once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from logstore.errors import InvalidRequest


def choose_name(
    ids: Sequence[str],
    *,
    has_lsn: int,
    wanted_lsn: int | None,
    is_begun: Callable[[str], bool],
    cursors: Iterable[str],
) -> tuple[str, int]:
    """The replay's name, and the LSN it begins with, which is part of it.

    Args:
      ids: what the source is known by, the one that a new replay takes first.
      has_lsn: where the source begins now.
      wanted_lsn: where the replay is to begin; None: at the source's beginning.
      is_begun: whether the target has written something under a name.
      cursors: names of all cursors of the target; each replay has one of its own name.

    Raises:
      InvalidRequest: several replays began where the source does not begin any more.
    """
    first_lsn = has_lsn if wanted_lsn is None else wanted_lsn
    names = [_name(each, first_lsn) for each in ids]
    known = set(cursors)
    for name in names:
        if name in known or is_begun(name):
            return name, first_lsn
    if wanted_lsn is not None:
        return names[0], first_lsn
    before = [each for each in map(_parts, sorted(known)) if each[0] in ids and each[1] < has_lsn]
    if len(before) > 1:
        firsts = ", ".join(str(first) for _, first in before)
        raise InvalidRequest(
            f"the source begins at LSN {has_lsn} by now, and replays of it began at LSNs {firsts}: "
            "give --from, one of these to go on with it"
        )
    for each, first in before:
        return _name(each, first), first
    return names[0], first_lsn


def _name(source: str, first_lsn: int) -> str:
    return f"replay/{source}/{first_lsn}"


def _parts(name: str) -> tuple[str, int]:
    """The source and the first LSN in a replay's name; of another name "" and 0."""
    root, _, first = name.rpartition("/")
    kind, _, source = root.partition("/")
    is_one = kind == "replay" and first.isascii() and first.isdigit()
    return (source, int(first)) if is_one else ("", 0)
