"""The CONFIG that raft wants to append, until it can be proposed (SAFETY C7, E3).

Owns when: in the gen that raft named, once its admission is open. What ends before that, raft
offers again in the next gen. Must not know what a configuration says.
"""

from __future__ import annotations

from actors.ingress.admission import Admission
from logstore.format.configuration_body import encode_configuration
from logstore.model import EntryKind
from logstore.raft.effects import ProposeConfiguration


class ConfigurationOffers:
    """Of one replica; holds the newest offer."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._offer: ProposeConfiguration | None = None

    def take(self, offer: ProposeConfiguration) -> None:
        """Raft offers each configuration once in a gen."""
        self._offer = offer

    def do_work(self) -> int:
        """Propose what is offered, if it can be now. Hot: called in every turn."""
        offer = self._offer
        if offer is None:
            return 0
        admission = self._admission
        named, open_ = (offer.term, offer.gen), admission.proposals.gen
        if named > open_ or (named == open_ and admission.table is None):
            return 0
        self._offer = None
        if named < open_:
            return 0
        body = encode_configuration(offer.configuration)
        group = admission.proposals.add_entry(EntryKind.CONFIG, body)
        group.configuration = offer.configuration
        return 1
