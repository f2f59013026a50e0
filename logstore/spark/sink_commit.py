"""One write of Spark into the log, once: a batch in a named, monotone session (SAFETY E1).

Owns the mapping: the session's name is the query (or txnAppId), its sequence the batch id (or
txnVersion). The marker that a batch was written is the session's own row, in the same entry as the
batch: a replay finds it and changes nothing. Each commit opens the session anew, so that whatever
an older driver still has under way is fenced.

With atomic=false a batch above PART_BYTES goes in parts: all but the last in the session
`NAME/parts`, under sequences batch id x 2**20 + part, the last one in the session NAME, under the
batch id. So NAME having the batch id means, as always, that the batch is there, whole.

A driver that may write parts opens `NAME/parts` before NAME; one that may not opens it after NAME,
if there is one. So of two drivers the later one has fenced all that the other could still write, or
finds its batch, or the part of it that is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from logstore.client.client import LogClient
from logstore.client.core.commits import Commit
from logstore.client.future import LsnRange
from logstore.client.producer import Producer
from logstore.client.producer_options import ProducerOptions
from logstore.errors import (
    BatchTooLarge,
    CommittedLsnUnknown,
    Fenced,
    InvalidRequest,
)
from logstore.format.batch import PackedPayloads, batch_size
from logstore.limits import BATCH_MAX_PAYLOADS, MIB, POSITION_MAX, SESSION_WINDOW_MIN
from logstore.model import SequenceMode
from logstore.spark.connections import client_of
from logstore.spark.task_rows import cut_payloads, largest_payload, too_large
from logstore.spark.write_options import WriteOptions

# Parts are cut by their bytes, not by the replicas' limit: that may change before a replay. Below
# a limit of 1 MiB they are cut by it, and a change of it is found and refused.
PART_BYTES = 1 * MIB
PARTS_MAX = 1 << 20
PARTS_SUFFIX = "/parts"
# Rows of a session that are remembered: what `last_commit` finds, and which parts are verified.
PARTS_WINDOW = 256
_SAME_AGAIN = (
    "with atomic=false a replayed query must give the same rows in the same order; if "
    "limits.batch_max of the replicas was changed meanwhile, set it back until the batch is written"
)


def commit_rows(
    options: WriteOptions, packed: PackedPayloads, *, name: str | None, sequence: int
) -> LsnRange | None:
    """Append all payloads, unless the log has this sequence of this name already.

    Args:
      name: of the session; None: an anonymous one, and nothing is ever found there.

    Returns:
      The LSNs that they have, or got when they were written first; None: that is so long ago that
      they are not known any more.

    Raises:
      BatchTooLarge: nothing was written.
      Fenced: another driver has begun to write under this name.
      LogStoreError: no outcome in time; the same call again finds out.
    """
    client = client_of(options.endpoints, timeout_s=options.commit_timeout_s)
    if name is None:
        return _append_anonymously(client, options, packed)
    with ExitStack() as stack:

        def opened(suffix: str, window: int) -> Producer:
            return stack.enter_context(_session(client, options, name + suffix, window))

        parts = None if options.is_atomic else opened(PARTS_SUFFIX, PARTS_WINDOW)
        producer = opened("", SESSION_WINDOW_MIN)
        if sequence < producer.session.next_sequence:
            return _known_range(client, name, sequence)  # a replay
        limit = producer.session.batch_max_bytes
        if parts is None:
            _check_fits(packed, limit)
            has_parts = client.admin.session_commits(name + PARTS_SUFFIX) is not None
            if has_parts and _is_begun(opened(PARTS_SUFFIX, PARTS_WINDOW), sequence):
                raise InvalidRequest(
                    f"batch {sequence} of {name!r} was begun with atomic=false, and is in the log "
                    "in part: finish it with atomic=false"
                )
            return _append(producer, packed, sequence, name)
        fits = batch_size(len(packed), len(packed.values)) <= min(PART_BYTES, limit)
        if fits and not _is_begun(parts, sequence):
            return _append(producer, packed, sequence, name)
        _check_largest_fits(packed, limit)
        return _append_in_parts(parts, producer, packed, name, sequence)


def last_commit(endpoints: str, name: str, *, timeout: float = 30.0) -> Commit | None:
    """The newest batch that a query (its id) or txnAppId has written: sequence and LSNs. None: it
    has written nothing, or only what is no longer remembered.

    Of a batch in parts it is the last part. Any process may ask; it fences no producer.
    """
    client = client_of(endpoints, timeout_s=timeout)
    found = client.admin.session_commits(name)
    return found.commits[-1] if found is not None and found.commits else None


def _known_range(client: LogClient, name: str, sequence: int) -> LsnRange | None:
    found = client.admin.session_commits(name)
    for commit in found.commits if found is not None else ():
        if commit.sequence == sequence:
            return LsnRange(commit.first_lsn, commit.last_lsn)
    return None


def _append_anonymously(
    client: LogClient, options: WriteOptions, packed: PackedPayloads
) -> LsnRange:
    producer_options = ProducerOptions(delivery_timeout_s=options.commit_timeout_s)
    with client.producer(producer_options) as producer:
        limit = producer.session.batch_max_bytes
        if options.is_atomic:
            _check_fits(packed, limit)
            parts: Iterator[PackedPayloads] = iter([packed])
        else:
            _check_largest_fits(packed, limit)
            parts = cut_payloads(packed, min(PART_BYTES, limit))
        futures = [producer.append_batch(part) for part in parts]
        ranges = [future.result() for future in futures]
    return LsnRange(ranges[0].first, ranges[-1].last)


def _append_in_parts(
    parts_producer: Producer,
    producer: Producer,
    packed: PackedPayloads,
    name: str,
    sequence: int,
) -> LsnRange | None:
    """All parts but the last in their own session, then the last one; those that are there stay."""
    *first_parts, last_part = cut_payloads(
        packed, min(PART_BYTES, producer.session.batch_max_bytes)
    )
    if len(first_parts) >= PARTS_MAX or sequence > POSITION_MAX // PARTS_MAX - 1:
        raise InvalidRequest(
            f"{len(first_parts)} parts of sequence {sequence}: with atomic=false there are at most "
            f"{PARTS_MAX} parts of 1 MiB, and versions up to {POSITION_MAX // PARTS_MAX - 1}"
        )
    first_sequence = sequence * PARTS_MAX
    there = parts_producer.session.next_sequence - first_sequence
    if there > len(first_parts):
        raise InvalidRequest(
            f"{there} parts of batch {sequence} are in the log, and now there are "
            f"{len(first_parts)} before the last one: {_SAME_AGAIN}"
        )
    first_lsn: int | None = None
    for number, part in enumerate(first_parts):
        found = _append(parts_producer, part, first_sequence + number, name)
        if found is not None and found.last - found.first + 1 != len(part):
            raise InvalidRequest(
                f"part {number} of batch {sequence} is in the log with "
                f"{found.last - found.first + 1} rows, and comes again with {len(part)}: "
                f"{_SAME_AGAIN}"
            )
        if number == 0 and found is not None:
            first_lsn = found.first
    found = _append(producer, last_part, sequence, name)
    return None if found is None or first_lsn is None else LsnRange(first_lsn, found.last)


def _append(
    producer: Producer, packed: PackedPayloads, sequence: int, name: str
) -> LsnRange | None:
    try:
        return producer.append_batch(packed, sequence=sequence).result()
    except CommittedLsnUnknown:
        return None
    except Fenced as error:
        raise Fenced(
            f"another driver writes as {name!r} by now, and has fenced this one: stop this query, "
            "or give it a txnAppId of its own"
        ) from error


@contextmanager
def _session(
    client: LogClient, options: WriteOptions, name: str, window: int
) -> Iterator[Producer]:
    producer = client.producer(
        ProducerOptions(
            name=name,
            mode=SequenceMode.MONOTONE,
            window=window,
            append_timeout_s=options.commit_timeout_s,
            delivery_timeout_s=options.commit_timeout_s,
        )
    )
    try:
        yield producer
    finally:
        producer.close(timeout=0)


def _check_fits(packed: PackedPayloads, batch_max_bytes: int) -> None:
    size = batch_size(len(packed), len(packed.values))
    if size > batch_max_bytes or len(packed) > BATCH_MAX_PAYLOADS:
        raise too_large(len(packed), len(packed.values), batch_max_bytes)


def _check_largest_fits(packed: PackedPayloads, batch_max_bytes: int) -> None:
    largest = largest_payload(packed)
    if batch_size(1, largest) > batch_max_bytes:
        raise BatchTooLarge(
            f"a payload of {largest} bytes is more than a batch of the log holds "
            f"({batch_max_bytes} bytes); nothing was written: raise limits.batch_max on the "
            "replicas"
        )


def _is_begun(parts_producer: Producer, sequence: int) -> bool:
    """A batch that was begun in parts is only finished in parts."""
    return parts_producer.session.next_sequence > sequence * PARTS_MAX
