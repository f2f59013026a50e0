"""What a careless, broken or hostile producer sends on purpose, and what must come of it.

The ledger is told of a batch that must be refused as of an append that never appears in the log,
and is not told of what must be dropped. Must not know when to act.

| act | what must happen |
|---|---|
| RETRY | an acknowledged batch again: the same LSNs, or that they have left the window |
| IMPATIENCE | a batch again that may be under way: stored once |
| REUSE | an acknowledged sequence with other bytes: SEQUENCE_REUSED; monotone: as before |
| SKIP | a sequence is left out: GAP, then both in order |
| DAMAGED | a batch with one byte changed, or cut: dropped |
| GARBAGE | bytes that are no push: dropped |
| TOO_LARGE | above `batch_max_bytes`: refused for good |
| NEWER | of a newer version of the protocol: refused for good |
| LATE | the newest pushes that expected an LSN, once more, of any round: nothing is stored |
| BOMB | compressed, above `batch_max_bytes` without compression: refused for good |
| LOOSE | compressed, with other bytes than zeros after its block: refused for good |
"""

from __future__ import annotations

from enum import StrEnum
from random import Random

from crc32c import crc32c

from actors.simulation.clients.codec import StandIn
from actors.simulation.clients.session import ProducerSession
from logstore.format.client_messages import APPEND_MAGIC, APPEND_PREFIX
from logstore.format.conditional_prefix import CONDITIONAL_VERSION
from logstore.model import Codec

# Sequences of batches that must be refused: far above what a run uses.
BAD_SEQUENCE_FIRST = 1 << 40
_RECENT = 24  # acknowledged batches to choose from: some of them below a window of 16
_OLD_ONE_IN = 3  # retries choose from all of them
_GARBAGE_MAX_BYTES = 200
_CRC = slice(28, 32)


class Mischief(StrEnum):
    RETRY = "retry"
    IMPATIENCE = "impatience"
    REUSE = "reuse"
    SKIP = "skip"
    DAMAGED = "damaged"
    GARBAGE = "garbage"
    TOO_LARGE = "too-large"
    NEWER = "newer"
    LATE = "late"
    BOMB = "bomb"
    LOOSE = "loose"


def commit_mischief(
    session: ProducerSession, kind: Mischief, payloads: list[bytes], random: Random, now_ns: int
) -> None:
    """Commit one act, if the session appends now. `payloads`: new ones, for acts that need some."""
    if not session.is_serving:
        return
    match kind:
        case Mischief.RETRY:
            _retry(session, random)
        case Mischief.IMPATIENCE:
            send_again(session)
        case Mischief.REUSE:
            _reuse(session, payloads, random)
        case Mischief.SKIP:
            _skip(session, payloads)
        case Mischief.DAMAGED:
            _damage(session, payloads, random)
        case Mischief.GARBAGE:
            session.push(random.randbytes(random.randrange(_GARBAGE_MAX_BYTES)))
        case Mischief.TOO_LARGE:
            _too_large(session, now_ns)
        case Mischief.NEWER:
            _newer(session, payloads, now_ns)
        case Mischief.LATE:
            # one that went over another connection of the produce port cannot come over this one
            if not session.is_answered:
                for _, frame in session.checker.frames:
                    session.push(frame)
        case Mischief.BOMB:
            _bomb(session, now_ns)
        case Mischief.LOOSE:
            _loose(session, now_ns)
    session.checker.witness.count(f"mischief-{kind}")


def _acknowledged(session: ProducerSession, random: Random, newest: int) -> int:
    """A sequence of the newest that were acknowledged; -1: there is none."""
    settled = list(session.checker.settled)[-newest:]
    known = [each for each in settled if session.checker.settled[each].is_acknowledged]
    return random.choice(known) if known else -1


def _retry(session: ProducerSession, random: Random) -> None:
    settled = session.checker.settled
    is_old = random.randrange(_OLD_ONE_IN) == 0
    sequence = _acknowledged(session, random, len(settled) if is_old else _RECENT)
    if sequence >= 0:
        session.push_batch(settled[sequence].batch)


def send_again(session: ProducerSession) -> None:
    """Send every batch under way again."""
    for sequence, append in session.checker.waiting.items():
        if sequence in session.checker.unsent:
            continue
        if append.expected_next_lsn is None:
            session.push_batch(append.batch)
        else:
            session.push(dict(session.checker.frames)[sequence])


def _reuse(session: ProducerSession, payloads: list[bytes], random: Random) -> None:
    sequence = _acknowledged(session, random, _RECENT)
    if sequence >= 0:
        session.push_batch(session.encode([*payloads, b"other bytes"], sequence), is_mischief=True)


def _skip(session: ProducerSession, payloads: list[bytes]) -> None:
    """The next batch is lost; the one after it is sent. Only a dense session has gaps."""
    appends = session.appends
    if not session.is_dense or not appends.is_queue_empty:
        return
    if not appends.has_room(2 * session.numbers.batch_max_bytes, batches=2):
        return
    session.lose_next()
    session.append(payloads, session.next_sequence)
    session.append([*payloads[1:], b"behind a gap"], session.next_sequence)


def _damage(session: ProducerSession, payloads: list[bytes], random: Random) -> None:
    """Send a damaged batch with the next sequence; the real one may follow."""
    batch = bytearray(session.encode([*payloads, b"damaged"], session.next_sequence))
    if random.random() < 0.2:
        del batch[random.randrange(len(batch)) :]
    else:
        batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
    session.push_batch(bytes(batch))


def _too_large(session: ProducerSession, now_ns: int) -> None:
    payloads = [bytes(session.numbers.batch_max_bytes)]
    session.push_batch(session.make_bad(payloads, BAD_SEQUENCE_FIRST + now_ns), is_mischief=True)


def _newer(session: ProducerSession, payloads: list[bytes], now_ns: int) -> None:
    batch = session.make_bad(payloads, BAD_SEQUENCE_FIRST + now_ns)
    round_ = session.next_mischief_round()
    prefix = APPEND_PREFIX.pack(APPEND_MAGIC, CONDITIONAL_VERSION + 1, round_)
    session.push(prefix + batch, is_mischief=True)


def _bomb(session: ProducerSession, now_ns: int) -> None:
    payloads = [bytes(session.numbers.batch_max_bytes)]
    batch = session.make_bad(payloads, BAD_SEQUENCE_FIRST + now_ns, StandIn(Codec.ZSTD))
    session.push_batch(batch, is_mischief=True)


def _loose(session: ProducerSession, now_ns: int) -> None:
    """The stand-in makes 24 bytes of 64: the body ends with 4 bytes of padding."""
    sequence = BAD_SEQUENCE_FIRST + now_ns
    batch = bytearray(session.make_bad([bytes(64)], sequence, StandIn(Codec.LZ4)))
    batch[-1] = 1
    batch[_CRC] = crc32c(batch[_CRC.stop :], crc32c(batch[: _CRC.start])).to_bytes(4, "little")
    session.push_batch(bytes(batch), is_mischief=True)
