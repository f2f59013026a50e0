"""Every mutant, by area, in the order of the published table."""

from __future__ import annotations

from tests.mutants import (
    ack_level_mutants,
    amnesia_mutants,
    comparison_mutants,
    compression_mutants,
    cursor_mutants,
    election_mutants,
    install_mutants,
    layout_mutants,
    level_mutants,
    log_mutants,
    member_mutants,
    produce_port_mutants,
    read_mutants,
    recovery_mutants,
    request_mutants,
    retention_mutants,
    ring_mutants,
    session_list_mutants,
    session_mutants,
    storage_mutants,
    stream_mutants,
    table_mutants,
    trim_mutants,
)
from tests.mutants.mutant import Mutant

CATALOGUE: tuple[Mutant, ...] = (
    *election_mutants.MUTANTS,
    *log_mutants.MUTANTS,
    *stream_mutants.MUTANTS,
    *read_mutants.MUTANTS,
    *storage_mutants.MUTANTS,
    *recovery_mutants.MUTANTS,
    *session_mutants.MUTANTS,
    *produce_port_mutants.MUTANTS,
    *table_mutants.MUTANTS,
    *comparison_mutants.MUTANTS,
    *session_list_mutants.MUTANTS,
    *cursor_mutants.MUTANTS,
    *level_mutants.MUTANTS,
    *ack_level_mutants.MUTANTS,
    *compression_mutants.MUTANTS,
    *trim_mutants.MUTANTS,
    *install_mutants.MUTANTS,
    *retention_mutants.MUTANTS,
    *request_mutants.MUTANTS,
    *ring_mutants.MUTANTS,
    *layout_mutants.MUTANTS,
    *amnesia_mutants.MUTANTS,
    *member_mutants.MUTANTS,
)


def mutant_named(name: str) -> Mutant:
    """The mutant of this name.

    Raises:
      LookupError: there is none.
    """
    for each in CATALOGUE:
        if each.name == name:
            return each
    raise LookupError(f"no mutant is called {name!r}")
