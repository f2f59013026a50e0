"""The core's import against a played log: whatever is lost and whoever leads, every batch comes to
its LSNs once, in order, and nothing else does (P1)."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from logstore.client.core import importing
from logstore.client.core.importing import Window, import_batches
from logstore.client.core.operating import Cluster
from logstore.errors import ImportRefused, LogStoreError
from logstore.format.batch import encode_batch
from logstore.format.client_messages import ImportRequest
from tests.unit.core_stage import World

COUNTS = st.lists(st.integers(1, 3), min_size=4, max_size=12)
TROUBLES = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(["acks are lost", "acks come", "lead", "stop", "start", "stranger"]),
        st.integers(1, 3),
    ),
    max_size=8,
)


def batch(number: int, count: int) -> bytes:
    return encode_batch(
        [b"%d-%d" % (number, at) for at in range(count)],
        producer_id=5, producer_epoch=4, sequence=number, timestamp_ns=17,
    )  # fmt: skip


@given(COUNTS, TROUBLES, st.integers(0, 3))
def test_an_import_ends_whole_or_says_why(
    counts: list[int], troubles: list[tuple[int, str, int]], there: int
) -> None:
    """A trouble comes with the push of that number, and is over a second later."""
    world = World()
    batches = [batch(number, count) for number, count in enumerate(counts)]
    for each in batches[:there]:
        world._add(each)
    world.commit()
    is_disturbed = False

    def trouble(what: str, number: int) -> None:
        nonlocal is_disturbed
        if what == "stranger":
            is_disturbed = True
            world.fill([b"of somebody else"])
        elif what in ("acks are lost", "acks come"):
            world.loses_acks = what == "acks are lost"
        elif what == "lead":
            world.lead(number)
        elif what == "stop":
            world.stop(number)
        else:
            world.start(number)

    def heal() -> None:
        world.loses_acks = False
        for node in world.nodes:
            world.start(node)

    take, pushed = world.take_import, itertools.count()

    def take_import(node: int, request: ImportRequest) -> None:
        place = next(pushed)
        for at, what, number in troubles:
            if at == place:
                trouble(what, number)
                world.at(1.0, heal)
        take(node, request)

    world.take_import = take_import  # type: ignore[method-assign]
    # Few at a time, so that troubles come in between.
    window_batches, importing.WINDOW_BATCHES = importing.WINDOW_BATCHES, 2
    try:
        cluster = Cluster(world.host, world.routing, 30.0)
        end_lsn = world.finish(import_batches(cluster, Window(1, iter(batches))))
        assert end_lsn == sum(counts) + 1
        assert [held for _, held in world.log][: len(batches)] == batches
    except ImportRefused:
        assert is_disturbed
        held = [each for _, each in world.log]
        assert held != batches
    except LogStoreError as error:
        raise AssertionError(f"it ended with {error!r}") from error
    finally:
        importing.WINDOW_BATCHES = window_batches
