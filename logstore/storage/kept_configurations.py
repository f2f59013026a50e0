"""The configurations that a replica's log holds, as a start finds them, and whether damage may hide
one (SAFETY C5, C12).

Owns which CONFIG entries are read: the newest one that is known to be committed, and those above
it. Must not know what a configuration says. A log that has none, and whose META knows of none, is
taken for one that never had: damage hides nothing there.
"""

from __future__ import annotations

import msgspec

from logstore.errors import CorruptData, FormatError
from logstore.format.configuration_body import Configuration, decode_configuration
from logstore.model import NO_INDEX, EntryKind, Index
from logstore.storage.log_reader import LogReader
from logstore.storage.recovery import Recovered

# A longer damaged range is not searched for records: it may hide a CONFIG.
_SEARCHED_MAX = 4_096


class KeptConfigurations(msgspec.Struct, frozen=True):
    """`found`: (index, what it holds), rising. `hidden_to`: the highest index at which a CONFIG may
    lie that cannot be read; NO_INDEX: none does."""

    found: tuple[tuple[Index, Configuration], ...]
    hidden_to: Index


def kept_configurations(reader: LogReader, recovered: Recovered) -> KeptConfigurations:
    """Read them, a body for each."""
    found: list[tuple[Index, Configuration]] = []
    hidden_to = NO_INDEX
    for index in reversed(recovered.configs):
        try:
            found.insert(0, (index, decode_configuration(reader.read_body(index))))
        except (CorruptData, FormatError):
            hidden_to = max(hidden_to, index)
            continue
        if index <= recovered.commit_floor:
            break
    if recovered.configs or recovered.meta.meta.has_config:
        hidden_to = max(hidden_to, _hidden_by_damage(reader, recovered))
    newest_committed = max(
        (index for index, _ in found if index <= recovered.commit_floor), default=NO_INDEX
    )
    return KeptConfigurations(tuple(found), hidden_to if hidden_to > newest_committed else NO_INDEX)


def _hidden_by_damage(reader: LogReader, recovered: Recovered) -> Index:
    """The highest damaged entry that may be a CONFIG: its record is lost, or says so."""
    for each in reversed(recovered.faulty):
        if each.last - each.first >= _SEARCHED_MAX:
            return each.last
        for number in range(each.last, each.first - 1, -1):
            if _may_be_config(reader, Index(number)):
                return Index(number)
    return NO_INDEX


def _may_be_config(reader: LogReader, index: Index) -> bool:
    try:
        return reader.row(index).header.kind == EntryKind.CONFIG
    except CorruptData:
        return True
