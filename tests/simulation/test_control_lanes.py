"""A do_work that leaves a control lane unread is noticed, alone and in a whole cluster."""

from __future__ import annotations

from tests.mutants.mutant import mutant
from tests.mutants.patch import applied
from tests.simulation.network_stage import NetworkStage
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster
from transport.link import Lane, try_receive, try_send

NEVER_READ = mutant(
    "peer-control-never-read",
    "SAFETY W7",
    "actors.ingress.actor:IngressActor.do_work",
    "work += self._peer_control.do_work()",
    "work += 0",
    "ingress leaves votes and heartbeats where they are",
)


def test_a_socket_shows_its_oldest_message_and_its_lane() -> None:
    stage = NetworkStage()
    dealer, router = stage.dealer_and_router()
    assert (router.lane, dealer.lane, router.oldest) == (Lane.CONTROL, Lane.CONTROL, None)
    assert stage.bind("pull", endpoint="tcp://1:2").lane is Lane.BULK
    for _ in range(2):
        assert try_send(dealer, [b"a vote"])
    stage.run(5)
    first = router.oldest
    assert first is not None
    assert try_receive(router) is not None
    assert router.oldest is not None
    assert router.oldest is not first  # though the bytes are equal
    assert try_receive(router) is not None
    assert router.oldest is None


def test_an_ingress_that_does_not_read_messages_of_peers_is_noticed() -> None:
    cluster = QuietCluster()
    cluster.run_for(SECOND_NS)
    assert cluster.cluster.violations == []
    with applied(NEVER_READ):
        cluster.run_for(SECOND_NS)
    texts = {each.text for each in cluster.cluster.violations}
    assert len(texts) > 0
    assert all(" does not read " in text for text in texts)
