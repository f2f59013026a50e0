"""The CONFIG that raft offers becomes a proposal of the gen that it named."""

from __future__ import annotations

import pytest

from logstore.format.configuration_body import Configuration, Member, decode_configuration
from logstore.model import EntryKind
from logstore.raft import effects
from tests.unit.ingress_stage import Stage

CONFIGURATION = Configuration(1, (Member(1, bytes([7] * 16), "node-1", 7100),))


@pytest.fixture
def stage():
    return Stage()


def offer(stage, *, term=1, gen=1):
    stage.tell(effects.ProposeConfiguration(term, gen, CONFIGURATION))


def configs(stage):
    return [(one, body) for one, body in stage.take_proposals() if one.kind == EntryKind.CONFIG]


def test_it_is_proposed_with_its_content_once(stage):
    stage.lead()
    stage.commit()
    offer(stage)
    [(proposed, body)] = configs(stage)
    assert proposed.configuration == CONFIGURATION == decode_configuration(body)
    assert (proposed.term, proposed.gen, proposed.count) == (1, 1, 0)
    stage.work()
    assert configs(stage) == []


def test_it_waits_for_the_gen_to_open(stage):
    stage.identify()
    offer(stage)
    assert configs(stage) == []
    stage.lead()
    assert len(configs(stage)) == 1


def test_what_was_offered_for_a_gen_that_ended_is_forgotten(stage):
    stage.lead()
    stage.commit()
    stage.tell(
        effects.AdmissionClosed(1, 0, "transfer"),
        effects.ProposeConfiguration(1, 1, CONFIGURATION),
        effects.Admit(1, 2, len(stage.entries), 1),
    )
    assert configs(stage) == []
    offer(stage, gen=2)
    [(proposed, _)] = configs(stage)
    assert proposed.gen == 2


def test_batches_go_on_around_it(stage):
    stage.lead()
    stage.commit()
    producer = stage.producer()
    stage.take_proposals()
    producer.push(0)
    offer(stage)
    producer.push(1)
    kinds = [one.kind for one, _ in stage.take_proposals()]
    assert kinds == [EntryKind.DATA, EntryKind.CONFIG, EntryKind.DATA]
