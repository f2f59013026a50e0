"""PROTOCOL.md says what the code does: every message, field, error code, port and magic of it."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from actors.egress import fetch_port as egress
from actors.egress import spans_from_records, tail
from actors.ingress import sockets_and_rings
from actors.topology import Counter
from logstore import limits
from logstore.client import producer_options
from logstore.client.core import (
    backoff,
    consumer_machine,
    importing,
    leader,
    producer_machine,
    replica_reader,
    requests,
    serving,
)
from logstore.errors import ErrorCode
from logstore.format import client_messages, member_messages, message, peer_messages
from logstore.settings import PortOffset
from transport import socket_options

TEXT = (Path(__file__).parents[2] / "PROTOCOL.md").read_text()
TYPES = {"Q": "u64", "I": "u32", "H": "u16", "B": "u8", "?": "u8"}


def row_of(number: int, cls: type[Any]) -> str:
    """The line of a message's table, from its registration."""
    layout = message._BY_TYPE[number]
    codes = re.findall(r"\d+s|[A-Z?]", layout.fixed.format + layout.later.format)
    types = [f"bytes[{code[:-1]}]" if code.endswith("s") else TYPES[code] for code in codes]
    types += ["tail"] * layout.has_tail
    fields = zip(cls.__struct_fields__, types, strict=True)
    return f"| {number} | {cls.__name__} | {', '.join(map(' '.join, fields))} |"


@pytest.mark.parametrize(("number", "cls"), message.message_types().items())
def test_every_message_has_its_row(number: int, cls: type[Any]) -> None:
    homes = client_messages, member_messages, peer_messages
    assert cls.__module__ in [each.__name__ for each in homes]
    assert row_of(number, cls) in TEXT


@pytest.mark.parametrize("code", ErrorCode)
def test_every_error_code_has_its_row(code: ErrorCode) -> None:
    assert f"\n| {code.value} | {code.name} |" in TEXT


@pytest.mark.parametrize("offset", PortOffset)
def test_every_port_has_its_row(offset: PortOffset) -> None:
    assert f"\n| base + {offset.value} |" in TEXT


def test_every_counter_that_shows_silence_is_one_of_a_replica() -> None:
    text = TEXT.partition("### What is answered, and what is not")[2].partition("\n## ")[0]
    named = {counter.name.lower() for counter in Counter}
    cells = re.findall(r"\| ([\w, ]*) \|$", text, re.MULTILINE)
    found = {name for cell in cells for name in cell.split(", ")} - {"", "counter"}
    assert len(found) == 10
    assert found <= named


@pytest.mark.parametrize("magic", ["LMSG", "LBAT", "LGRP", "LREC", "LSEG", "LMET", "LOPN", "LEXP",
                                   "LSES", "LCUR", "LTRM", "LCNF", "LPST"])  # fmt: skip
def test_every_magic_is_written_in_its_order(magic: str) -> None:
    version = 2 if magic == "LSES" else 1
    assert f"magic '{magic}' │ version u16 = {version}" in TEXT
    assert struct.pack("<I", message.MAGIC) == b"LMSG"
    assert struct.pack("<H", client_messages.APPEND_MAGIC) == b"LA"


# What the document says of waits and queues, and what it is in the code.
FIGURES = {
    "| a connection that takes a request | handshake within 2 s | 1 s, then another": (
        (socket_options.HANDSHAKE_MS, 2_000), (requests.CONNECT_TIMEOUT_S, 1.0),
    ),
    "each again 1 s later without an answer; after one as below": (
        (requests.RESEND_NS, 1_000_000_000),
    ),
    "25 ms, then 50, 100, and 200 from then on; each is up to a fifth shorter or longer": (
        (backoff.FIRST_S, 0.025), (backoff.MAX_S, 0.2), (backoff.JITTER, 0.2),
    ),
    "| a leader, before a round | | 1 s,": ((producer_machine.LEADER_TIMEOUT_S, 1.0),),
    "of a new leader within 0.8 s; that a session is over, once that is committed | 1 s each,": (
        (producer_machine.STEP_TIMEOUT_S, 1.0), (limits.PRODUCERS_WAIT_MAX_NS, 800_000_000),
    ),
    "pause of 10 ms, doubled each time that nothing was settled in\nbetween, up to 100 ms (each": (
        (serving.BACKOFF_MIN_S, 0.01), (serving.BACKOFF_MAX_S, 0.1),
    ),
    "| TIMED_OUT after 10 s | 2 s a try, tries for 10 s |": (
        (limits.REQUEST_TIMEOUT_NS, 10_000_000_000), (leader.ANSWER_TIMEOUT_S, 2.0),
        (limits.CLIENT_TIMEOUT_S, 10.0),
    ),
    "| none is promised | 1 s; an import 2 s |": (
        (producer_options.ProducerOptions().ack_timeout_s, 1.0), (importing.ACK_TIMEOUT_S, 2.0),
    ),
    "| the outcome that a caller is told | | 30 s,": (
        (producer_options.ProducerOptions().delivery_timeout_s, 30.0),
    ),
    "is_linearizable at least 5 s, then NO_QUORUM | 3 s a replica, a range 10 s; in all 10 s": (
        (egress.READ_INDEX_WAIT_NS, 5_000_000_000), (replica_reader.ANSWER_TIMEOUT_S, 3.0),
    ),
    "| the tail | a Tip every second | 3.5 s of silence |": (
        (tail.TIP_EVERY_NS, 1_000_000_000), (consumer_machine.SILENCE_S, 3.5),
    ),
    "PING every second (`04 07 04 50 49 4e 47 00 19`: TTL 2.5 s": (
        (socket_options.REPLICA_HEARTBEAT_MS, 1_000), (socket_options.PEER_SILENCE_MS, 2_500),
    ),
    "over which then nothing has come for 1.5 s": (
        (socket_options.REPLICA_HEARTBEAT_TIMEOUT_MS, 1_500),
    ),
    "(the library: every 200 ms, hangs up after 1 s without an answer)": (
        (socket_options.CLIENT_HEARTBEAT_MS, 200),
        (socket_options.CLIENT_HEARTBEAT_TIMEOUT_MS, 1_000),
    ),
    "a client that leaves 256 of them unread (base + 4: 16)": (
        (socket_options.HIGH_WATER_MARK, 256), (egress.ANSWERS_QUEUED_MAX, 16),
    ),
    "a subscriber that leaves 1,024 messages unread (tail: 256)": (
        (sockets_and_rings.ACKS_HIGH_WATER_MARK, 1_024),
    ),
    "at base + 0, 4 or 5 has at most 4,096 bytes, one at base + 2 or 3 64": (
        (limits.CONTROL_MESSAGE_MAX_BYTES, 4_096), (limits.SUBSCRIPTION_MAX_BYTES, 64),
    ),
    "up to 1,024 topics of at most 8 bytes": (
        (limits.TOPICS_PER_CONNECTION_MAX, 1_024), (limits.TOPIC_MAX_BYTES, 8),
    ),
    "a client with 16 MiB of answers under way waits for the next one, for 10 s": (
        (limits.ANSWERS_PER_CLIENT_BYTES, 16 << 20), (egress.HELD_MAX_NS, 10_000_000_000),
    ),
    "so does the 65th request that waits": ((egress.WAITING_PER_CLIENT_MAX, 64),),
    "beyond those a replica takes (4,096 a process": ((limits.CONNECTIONS_MAX, 4_096),),
    "`wait_ms` down to 60,000": ((limits.FETCH_WAIT_MAX_MS, 60_000),),
    "`limit` of\nSpans down to 64": ((spans_from_records.SPANS_MAX, 64),),
}  # fmt: skip


@pytest.mark.parametrize("sentence", FIGURES)
def test_waits_and_queues_are_as_the_document_says(sentence: str) -> None:
    assert sentence in TEXT
    assert all(actual == said for actual, said in FIGURES[sentence])
