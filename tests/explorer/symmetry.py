"""The six numberings of three replicas: states that differ in the numbering only are equal.

Owns the renumberings and what the odd ones do to a replica. A replica numbers its peers by their
place in the ring (1 the next, 2 the one after), so rotating the ring does not change it, and
reflecting the ring swaps its two peers. Where members change it has a number, and the one that is
used exchanges nodes 1 and 2. The core does not depend on the ids of its peers (transfers do, and
`normal_form` has made them equal): `test_explorer` steps states and their mirror images side by
side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from logstore.model import NodeId
from tests.explorer.bound import REPLICAS, Bound
from tests.explorer.events import Delivery, Happening
from tests.explorer.explored_replica import Replica, config_of

Nodes = tuple[int, int, int]
EXCHANGE = 4  # the renumbering that exchanges the first two
# Its two peers, where a replica numbers itself 1; nodes 1 and 2, where members change.
_PEERS = {NodeId(0): NodeId(0), NodeId(1): NodeId(1), NodeId(2): NodeId(3), NodeId(3): NodeId(2)}
_NODES = {NodeId(0): NodeId(0), NodeId(1): NodeId(2), NodeId(2): NodeId(1), NodeId(3): NodeId(3)}


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
    """The event of the mirror image. No change of the members that is asked for has another."""
    if isinstance(event, Delivery):
        return Delivery(REPLICAS - event.peer, event.boot, event.message)
    return event


def mirror(bound: Bound, replica: Replica) -> None:
    """Swap the two peers in all of the replica's state; where members change, nodes 1 and 2, which
    leaves every CONFIG as it is."""
    state, disk, swapped = replica.state, replica.disk, _NODES if bound.changes else _PEERS
    if bound.changes:
        replica.place = swapped[NodeId(replica.place + 1)] - 1
        replica.config = state.config = config_of(bound, replica.place)
        state.count_voters()
    state.leader = swapped[state.leader]
    state.meta.vote = swapped[state.meta.vote]
    state.campaign.granted = {swapped[node] for node in state.campaign.granted}
    withheld = state.meta._withheld
    for _ in range(len(withheld)):
        seq, effect = withheld.popleft()
        withheld.append((seq, type(effect)(swapped[effect.peer], effect.message)))
    state.deferred[:] = [
        msgspec.structs.replace(event, sender=swapped[event.sender]) for event in state.deferred
    ]
    if state.leading is not None:
        state.leading.progress = _swap_peers(state.leading.progress, swapped)
        leaving = state.leading.leaving
        state.leading.leaving = {swapped[peer]: until_ns for peer, until_ns in leaving.items()}
    replica.streams = _swap_peers(replica.streams, swapped)
    term, vote = disk.meta
    saves = tuple((each, swapped[voted]) for each, voted in disk.saves)
    replica.disk = disk._replace(meta=(term, swapped[vote]), saves=saves)
    told_term, candidate = replica.vote_sent
    replica.vote_sent = (told_term, swapped[NodeId(candidate)])


def _swap_peers(of_peers: dict[NodeId, Any], swapped: dict[NodeId, NodeId]) -> dict[NodeId, Any]:
    for peer, each in of_peers.items():
        each.peer = swapped[peer]
    return dict(sorted((swapped[peer], each) for peer, each in of_peers.items()))
