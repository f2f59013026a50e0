"""Mutants of what is answered to requests that are wrong (SAFETY M6)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

REQUEST = "logstore.format.client_request"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "wrong-requests-get-silence",
        "SAFETY M6",
        f"{REQUEST}:_refusal",
        "return BadRequest(envelope, code, str(error))",
        "return Silence.NO_MESSAGE",
        "a whole request that cannot be served is dropped, and its client waits",
    ),
    mutant(
        "answers-are-answered",
        "SAFETY M6",
        f"{REQUEST}:_refusal",
        "if envelope.type in _ANSWERS:",
        "if envelope.type < 0:",
        "an answer that comes to a request port is refused like a request",
    ),
)
