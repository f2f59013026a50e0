"""Draws the constants of one world from a seed: timing, and sizes so small that bounds are met.

Owns the ranges. Each concern has its own stream, so that other faults change no constant.
Invariants: what `logstore.config_relations` demands holds, except the lower bounds of segments and
rings and their alignment. The simulator goes below those on purpose: rolls, full rings and rows
that have left memory then come within seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any, Literal

from actors.simulation.faults.script import FaultClass, Ground
from actors.simulation.world.random_streams import stream
from logstore.config_layout import ACTOR_KINDS, groups_of
from logstore.format.batch import batch_size
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL, NEW_LOG_LEVEL
from logstore.limits import FIRST_LSN_MAX
from logstore.settings import ProcessSettings

KIB = 1 << 10
MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
# Mostly near the least: how many faults meet in a second finds more than how long it lasts. Exact
# sequences may need more (`draw`).
SAFETY_MIN_NS = 3 * SECOND
SAFETY_MAX_NS = 30 * SECOND
_SAFETY_POWER = 14  # a fifteenth of the range on average, 5 s
FIVE_REPLICAS_PERCENT = 26
IMPORTED_PERCENT = 15
CROWDED_PERCENT = 20
EXPIRING_PERCENT = 30
ANSWERED_PERCENT = 40
COMPARING_PERCENT = 40
STRUCK_AT_BIRTH_PERCENT = 12
TRIMMED_PERCENT = 80
MEMBERS_TIMEOUTS = 14
REPLACED_BY_HAND_PERCENT = 35
RETAINED_PERCENT = 40
RING_STEP_BYTES = 4 * KIB
# Format levels of made-up versions are up to this one: so many that a log is raised while each
# kind of trouble is there. With 3, four of ten mutants of it lived through a minute of seeds.
LEVEL_MAX = 40


def spread(random: Random, low: int, high: int) -> int:
    """An integer of [low, high], log-uniform; `low` above 0."""
    return min(high, int(low * (high / low) ** random.random()))


def percent(random: Random, chance: int) -> bool:
    return random.randrange(100) < chance


def draw_ground(seed: int, *, replicas: int | None, classes: Collection[FaultClass]) -> Ground:
    """The ground of `seed`. Clocks and rings are ideal unless their class is in `classes`."""
    size = stream(seed, "ground.size")
    nodes = 5 if percent(size, FIVE_REPLICAS_PERCENT) else 3
    nodes = nodes if replicas is None else replicas
    longer = size.random() ** _SAFETY_POWER
    safety_ns = SAFETY_MIN_NS + int((SAFETY_MAX_NS - SAFETY_MIN_NS) * longer)
    timing = stream(seed, "ground.timing")
    # Below the product's 1,000, so that more happens in a second.
    election_ms = timing.randint(40, 100) * timing.randint(50, 100) // 10
    if FaultClass.MEMBERS in classes:  # a lost voter is replaced after ten timeouts
        safety_ns += size.randint(0, MEMBERS_TIMEOUTS) * election_ms * MILLISECOND
    # Nearly the fewest heartbeats that a configuration allows (five per timeout): with replies and
    # wake-ups they are a quarter of all events.
    heartbeat_ms = election_ms * 10 // timing.randint(50, 58)
    link_low_ns = spread(timing, 50 * MICROSECOND, MILLISECOND)
    link_high_ns = min(5 * MILLISECOND, link_low_ns * timing.randint(1, 8))
    flush_low_ns = spread(timing, 100 * MICROSECOND, 2 * MILLISECOND)
    flush_high_ns = min(8 * MILLISECOND, flush_low_ns * timing.randint(1, 16))
    stream_mode = "paper" if percent(timing, 20) else "streaming"
    joiners = _joiners(seed, is_on=FaultClass.MEMBERS in classes)
    machines = nodes + joiners
    sizes, workload = _sizes(seed, machines), _workload(seed)
    offsets, drifts = _clocks(seed, machines, is_on=FaultClass.CLOCK in classes)
    ring_delay_ns, counters_lag = _weak_rings(seed, is_on=FaultClass.RINGS in classes)
    return Ground(
        replicas=nodes,
        safety_ns=safety_ns,
        heartbeat_ms=heartbeat_ms,
        election_ms=election_ms,
        stream_mode=stream_mode,
        link_delay_ns=(link_low_ns, link_high_ns),
        flush_ns=(flush_low_ns, flush_high_ns),
        write_ns=spread(timing, MICROSECOND, 100 * MICROSECOND),
        wake_ns=spread(timing, 100 * MICROSECOND, 1_600 * MICROSECOND),
        is_struck_at_birth=percent(stream(seed, "ground.birth"), STRUCK_AT_BIRTH_PERCENT),
        ring_delay_ns=ring_delay_ns,
        counters_lag=counters_lag,
        clock_offset_ns=offsets,
        clock_drift_ppm=drifts,
        **sizes,
        **workload,
        newest_levels=_versions(seed, machines, has_members=FaultClass.MEMBERS in classes),
        new_log_level=_new_log_level(seed, has_members=FaultClass.MEMBERS in classes),
        trim_every_ms=_trims(seed),
        **_retention(seed, sizes["segment_bytes"]),
        groups=_groups(seed),
        joiners=joiners,
        is_lost_replaced=not percent(stream(seed, "ground.lost"), REPLACED_BY_HAND_PERCENT),
        **_import(seed),
        comparers=_comparers(seed),
        **_sessions(seed, workload["producers"], sizes["batch_max_bytes"]),
        answered_producers=_answered(seed, workload["producers"]),
    )


def _sizes(seed: int, nodes: int) -> dict[str, Any]:
    """SAFETY W7 holds: a ring has room for four of the largest pieces and a window per peer."""
    random = stream(seed, "ground.bounds")
    batch_max = random.choice((4, 4, 4, 6, 8)) * KIB
    group_max = random.choice((4, 4, 8)) * KIB
    largest = max(batch_max, group_max)
    window = max(largest, random.choice((4, 8, 16, 32)) * KIB)
    ring_min = 4 * largest + (nodes - 1) * window + batch_max + RING_STEP_BYTES
    ring = max(spread(random, 32 * KIB, 256 * KIB), ring_min)
    if percent(random, 65):
        ring = ring_min
    segment = spread(random, 16 * KIB, 128 * KIB) // RING_STEP_BYTES * RING_STEP_BYTES
    records = random.randint(16, 40)
    return {
        "batch_max_bytes": batch_max,
        "group_max_bytes": group_max,
        "bulk_window_bytes": window,
        "ring_bytes": -(-ring // RING_STEP_BYTES) * RING_STEP_BYTES,
        "command_ring_bytes": random.choice((1, 1, 2, 4)) * KIB,
        "segment_bytes": max(segment, 4 * largest),
        "segment_records": records,
        "groups_in_flight": random.choice((1, 2, 4, 8, 16, 16)),
        "snapshot_every_batches": spread(random, 10, 150),
        "rows_kept": spread(random, 16, 256),
        # few, so that what waits is flushed in several groups at once
        "flush_entries_max": random.choice((1, 2, 2, 4, records // 4)),
    }


def _workload(seed: int) -> dict[str, Any]:
    """At least 20 appends a second in all, though there is no leader for a quarter of the time. The
    largest batch of the largest payloads fits."""
    random = stream(seed, "ground.workload")
    producers = random.randint(2, 4)
    appends_a_second = random.randint(26, 40)
    payload_max = random.choice((8, 16, 32, 64))
    if percent(random, 15):
        payload_max = spread(random, 128, 2 * KIB)
    payloads = random.choice((1, 2, 4, 8))
    while payloads > 1 and batch_size(payloads, payloads * payload_max) > 4 * KIB:
        payloads //= 2
    return {
        "producers": producers,
        "consumers": random.randint(1, 3),
        "append_every_ns": producers * SECOND // appends_a_second,
        "payload_max_bytes": payload_max,
        "batch_max_payloads": payloads,
    }


def _import(seed: int) -> dict[str, Any]:
    """A restored log begins anywhere."""
    random = stream(seed, "ground.import")
    if not percent(random, IMPORTED_PERCENT):
        return {}
    first_lsn = random.choice((1, 2, spread(random, 2, FIRST_LSN_MAX), FIRST_LSN_MAX))
    return {"first_lsn": first_lsn, "imports": spread(random, 8, 120)}


def _trims(seed: int) -> int:
    random = stream(seed, "ground.trims")
    return spread(random, 150, 2_000) if percent(random, TRIMMED_PERCENT) else 0


def _retention(seed: int, segment_bytes: int) -> dict[str, Any]:
    """Mostly one bound, of some segments or seconds."""
    random = stream(seed, "ground.retention")
    if not percent(random, RETAINED_PERCENT):
        return {}
    drawn = {
        "retention_age_ms": spread(random, 400, 4_000),
        "retention_bytes": spread(random, 2 * segment_bytes, 4 * segment_bytes),
        "retention_payloads": spread(random, 20, 200),
    }
    chosen = {random.choice(list(drawn)) for _ in range(2)}
    return {key: value for key, value in drawn.items() if key in chosen}


def _sessions(seed: int, producers: int, batch_max_bytes: int) -> dict[str, Any]:
    """A crowded cluster has room for its producers' sessions, three named ones and one more: a new
    session takes the place of an idle one, whose producer comes back. Snapshots mostly have several
    parts."""
    random = stream(seed, "ground.sessions")
    found: dict[str, Any] = {"snapshot_part_bytes": spread(random, 512, 4 * KIB)}
    if percent(random, 25):
        found["client_memory_bytes"] = spread(random, batch_max_bytes, 64 * KIB)
    if percent(random, EXPIRING_PERCENT):
        found["session_expiry_ms"] = spread(random, 400, 4_000)
        found["kept_names_max"] = random.choice((1, 2, 64))
    found["has_brink"] = percent(random, 20)
    found["has_flooder"] = percent(random, 20)
    if percent(random, CROWDED_PERCENT):
        found["sessions_max"] = producers + _comparers(seed) + 4
        found["session_idle_ms"] = spread(random, 300, 2_000)
    return found


def _answered(seed: int, producers: int) -> int:
    """How many producers append at the produce port: none in most seeds, seldom all."""
    random = stream(seed, "ground.answered")
    return random.randint(1, producers) if percent(random, ANSWERED_PERCENT) else 0


def _comparers(seed: int) -> int:
    """Two: of two that expect the same LSN one is stored at most."""
    return 2 if percent(stream(seed, "ground.comparers"), COMPARING_PERCENT) else 0


def _groups(seed: int) -> dict[str, tuple[str, ...]]:
    """Half of the seeds have a mode of the product, the others groups at random."""
    random = stream(seed, "ground.groups")
    modes: tuple[Literal["processes", "shared", "single"], ...] = ("processes", "shared", "single")
    chosen = random.randrange(2 * len(modes))
    if chosen < len(modes):
        groups = groups_of(ProcessSettings(mode=modes[chosen]))
        return {process: tuple(actors) for process, actors in groups.items()}
    drawn: dict[str, tuple[str, ...]] = {}
    for actor in ACTOR_KINDS:
        process = f"group{random.randrange(3)}"
        drawn[process] = (*drawn.get(process, ()), actor)
    return drawn


def _joiners(seed: int, *, is_on: bool) -> int:
    """Machines that may become members."""
    random = stream(seed, "ground.joiners")
    return random.choice((0, 1, 1, 2)) if is_on else 0


def _clocks(seed: int, nodes: int, *, is_on: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Wall clock offsets in ns and drifts in ppm, from small to absurd."""
    random = stream(seed, "ground.clock")
    offset_max = random.choice((MILLISECOND, SECOND, 3_600 * SECOND))
    drift_max = random.choice((20, 500, 20_000))
    offsets = tuple(random.randint(-offset_max, offset_max) for _ in range(nodes))
    drifts = tuple(random.randint(-drift_max, drift_max) for _ in range(nodes))
    ideal = (0,) * nodes
    return (offsets, drifts) if is_on else (ideal, ideal)


def _versions(seed: int, nodes: int, *, has_members: bool) -> tuple[int, ...]:
    """The newest format level that each node reads at first: mostly the same, then the log is
    raised at once, else mostly the first one. Empty: no client asks for another level. Where the
    members change, nearly all seeds read a CONFIG."""
    random = stream(seed, "ground.versions")
    if percent(random, 10):
        return ()
    common = random.randrange(100)
    if common < 75:
        return (random.randint(2, LEVEL_MAX),) * nodes
    if common < 90 and has_members:
        return (random.randint(CONFIG_LEVEL, LEVEL_MAX),) * nodes
    return tuple(random.choice((1, 1, 1, 2, LEVEL_MAX)) for _ in range(nodes))


def _new_log_level(seed: int, *, has_members: bool) -> int:
    """Mostly one at which the log has a CONFIG, if all replicas read it: nearly always where the
    members change."""
    random = stream(seed, "ground.new_log")
    chance = random.randrange(100)
    if chance < (5 if has_members else 20):
        return FIRST_LEVEL
    return NEW_LOG_LEVEL if chance < (15 if has_members else 40) else CONFIG_LEVEL


def _weak_rings(seed: int, *, is_on: bool) -> tuple[int, bool]:
    random = stream(seed, "ground.rings")
    delay_ns = spread(random, MICROSECOND, 2 * MILLISECOND)
    counters_lag = percent(random, 70)
    return (delay_ns, counters_lag) if is_on else (0, False)
