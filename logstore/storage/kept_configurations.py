"""The configurations that a replica's log holds, as a start finds them, and whether damage may hide
one (SAFETY C5, C12).

Owns which CONFIG entries are read: the newest one that is known to be committed, and those above
it. Must not know what a configuration says. A log that has none, and whose META knows of none, is
taken for one that never had: damage hides nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import msgspec

from logstore.errors import CorruptData, FormatError
from logstore.format.configuration_body import Configuration, decode_configuration, roles
from logstore.model import NO_INDEX, NO_RANGE, EntryKind, Index, IndexRange
from logstore.storage.log_reader import LogReader
from logstore.storage.recovery import Recovered

# So many damaged entries are searched for records: the next may be a CONFIG.
_SEARCHED_MAX = 4_096


class KeptConfigurations(msgspec.Struct, frozen=True):
    """`found`: (index, what it holds), rising. `hidden`: the lowest and the highest index above the
    newest committed one at which a CONFIG may lie that cannot be read; NO_RANGE: none does.
    `was_named`: a committed one names this replica, perhaps one that is older than those (C9)."""

    found: tuple[tuple[Index, Configuration], ...]
    hidden: IndexRange
    was_named: bool = False


def kept_configurations(reader: LogReader, recovered: Recovered) -> KeptConfigurations:
    """Read them, a body for each. Older ones are read only until one names this replica: where the
    newest does not, it was removed, or has not caught up since it joined."""
    found: list[tuple[Index, Configuration]] = []
    hidden: list[Index] = []
    for index in reversed(recovered.configs):
        configuration = _read(reader, index)
        if configuration is None:
            hidden.append(index)
            continue
        found.insert(0, (index, configuration))
        if index <= recovered.commit_floor:
            break
    newest_committed = max(
        (index for index, _ in found if index <= recovered.commit_floor), default=NO_INDEX
    )
    hidden = [index for index in hidden if index > newest_committed]
    if recovered.configs or recovered.meta.meta.has_config:
        hidden += _hidden_by_damage(reader, recovered, newest_committed)
    committed = [each for index, each in found if index <= recovered.commit_floor]
    older = [index for index in recovered.configs if index < newest_committed]
    uuid = recovered.meta.meta.replica_uuid
    return KeptConfigurations(
        tuple(found),
        (min(hidden), max(hidden)) if hidden else NO_RANGE,
        was_named=any(
            _names(each, uuid)
            for each in chain(committed, (_read(reader, index) for index in reversed(older)))
        ),
    )


def _read(reader: LogReader, index: Index) -> Configuration | None:
    """None: damage hides it."""
    try:
        return decode_configuration(reader.read_body(index))
    except (CorruptData, FormatError):
        return None


def _names(configuration: Configuration | None, uuid: bytes) -> bool:
    return configuration is not None and any(
        member.uuid == uuid for member, _ in roles(configuration)
    )


def _hidden_by_damage(reader: LogReader, recovered: Recovered, above: Index) -> list[Index]:
    """The lowest and the highest damaged entry above an index that may be a CONFIG: its record is
    lost, or says so."""
    ranges = [range(max(each.first, above + 1), each.last + 1) for each in recovered.faulty]
    upwards = chain.from_iterable(ranges)
    downwards = chain.from_iterable(reversed(each) for each in reversed(ranges))
    found = (_first_hidden(reader, numbers) for numbers in (upwards, downwards))
    return [index for index in found if index is not None]


def _first_hidden(reader: LogReader, numbers: Iterable[int]) -> Index | None:
    for searched, number in enumerate(numbers):
        if searched == _SEARCHED_MAX or _may_be_config(reader, Index(number)):
            return Index(number)
    return None


def _may_be_config(reader: LogReader, index: Index) -> bool:
    try:
        return reader.row(index).header.kind == EntryKind.CONFIG
    except CorruptData:
        return True
