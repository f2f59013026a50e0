"""Mutants of compressed batches: which a leader takes, and what it looks at (SAFETY S11, W6)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

BATCH = "logstore.format.batch"
CODEC_LEVEL = "actors.ingress.codec_level:refusal_of_codec"
S11 = "SAFETY S11"
W6 = "SAFETY W6"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "compressed-batch-taken-below-its-level",
        S11,
        CODEC_LEVEL,
        "admission.level >= COMPRESSION_LEVEL",
        "admission.level >= 1",
        "replicas of an older version are sent batches that they refuse",
    ),
    mutant(
        "compressed-import-taken-below-its-level",
        S11,
        "actors.ingress.imports:Imports._offer",
        "refused = refusal_of_codec(self._admission, header)",
        "refused = None",
        "only pushed batches are asked for their form",
    ),
    mutant(
        "compression-refused-at-a-level-that-is-high-enough",
        S11,
        CODEC_LEVEL,
        "admission.level >= COMPRESSION_LEVEL",
        "admission.level > COMPRESSION_LEVEL",
        "the session of a producer that compresses ends, though the log is raised",
    ),
    mutant(
        "compressed-batch-bounded-as-it-is-stored",
        W6,
        f"{BATCH}:verify_batch",
        "if plain_size > batch_max_bytes:",
        "if size > batch_max_bytes:",
        "every reader takes the memory of a bomb",
    ),
    mutant(
        "bytes-after-a-compressed-block-not-looked-at",
        W6,
        f"{BATCH}:verify_batch",
        "if not 0 <= size - end < ALIGNMENT or batch[end:] != _PADDINGS[size - end]:",
        "if not header.codec and size - end >= ALIGNMENT:",
        "what follows the block is stored as it came",
    ),
    mutant(
        "batch-without-compression-refused-below-the-level",
        S11,
        CODEC_LEVEL,
        "if not header.codec or",
        "if",
        "no producer can append until the log is raised",
    ),
    mutant(
        "retry-compressed-again",
        "SAFETY E7",
        "logstore.client.core.producer_machine:ProducerMachine._send",
        "if not connection.try_push(pack.batch, pack.expected_next_lsn):",
        "again = encode_batch(pack.payloads, producer_id=self._session.producer_id,\n"
        "                producer_epoch=self._session.producer_epoch, sequence=pack.sequence,\n"
        "                timestamp_ns=self._clock.wall_ns())\n"
        "        if not connection.try_push(again, pack.expected_next_lsn):",
        "a retry is encoded again, without compression: other bytes under its sequence",
    ),
)
