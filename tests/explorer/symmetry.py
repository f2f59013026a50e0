"""The six numberings of three replicas: states that differ in the numbering only are equal.

Owns the renumberings and what the odd ones do to a replica. A replica numbers its peers by their
place in the ring (1 the next, 2 the one after), so rotating the ring does not change it, and
reflecting the ring swaps its two peers. The core does not depend on the ids of its peers (transfers
do, and there are none here): `test_explorer` steps states and their mirror images side by side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from logstore.model import NodeId
from tests.explorer.bound import REPLICAS
from tests.explorer.events import Delivery, Happening
from tests.explorer.explored_replica import Replica

Nodes = tuple[int, int, int]
_SWAPPED = {NodeId(0): NodeId(0), NodeId(1): NodeId(1), NodeId(2): NodeId(3), NodeId(3): NodeId(2)}


class Renumbering(NamedTuple):
    """Replica i becomes replica `places[i]`. `is_mirror`: the next and the previous are swapped."""

    places: Nodes
    is_mirror: bool


# In the order of `images`.
RENUMBERINGS = (
    Renumbering((0, 1, 2), False),
    Renumbering((1, 2, 0), False),
    Renumbering((2, 0, 1), False),
    Renumbering((0, 2, 1), True),
    Renumbering((1, 0, 2), True),
    Renumbering((2, 1, 0), True),
)


def images(nodes: Nodes, mirrored: Nodes) -> tuple[Nodes, ...]:
    """`nodes` under each renumbering; `mirrored`: their mirror images."""
    one, two, three = nodes
    first, second, third = mirrored
    return (
        nodes,
        (three, one, two),
        (two, three, one),
        (first, third, second),
        (second, first, third),
        (third, second, first),
    )


def mirror_event(event: Happening) -> Happening:
    """The event of the mirror image."""
    if isinstance(event, Delivery):
        return Delivery(REPLICAS - event.peer, event.boot, event.message)
    return event


def mirror(replica: Replica) -> None:
    """Swap the two peers in all of the replica's state."""
    state, disk = replica.state, replica.disk
    state.leader = _SWAPPED[state.leader]
    state.meta.vote = _SWAPPED[state.meta.vote]
    state.campaign.granted = {_SWAPPED[node] for node in state.campaign.granted}
    withheld = state.meta._withheld
    for _ in range(len(withheld)):
        seq, effect = withheld.popleft()
        withheld.append((seq, type(effect)(_SWAPPED[effect.peer], effect.message)))
    state.deferred[:] = [
        msgspec.structs.replace(event, sender=_SWAPPED[event.sender]) for event in state.deferred
    ]
    if state.leading is not None:
        state.leading.progress = _swap_peers(state.leading.progress)
    replica.streams = _swap_peers(replica.streams)
    term, vote = disk.meta
    saves = tuple((each, _SWAPPED[voted]) for each, voted in disk.saves)
    replica.disk = disk._replace(meta=(term, _SWAPPED[vote]), saves=saves)
    told_term, candidate = replica.vote_sent
    replica.vote_sent = (told_term, _SWAPPED[NodeId(candidate)])


def _swap_peers(of_peers: dict[NodeId, Any]) -> dict[NodeId, Any]:
    swapped = {}
    for peer in of_peers:
        swapped[peer] = of_peers[_SWAPPED[peer]]
        swapped[peer].peer = peer
    return swapped
