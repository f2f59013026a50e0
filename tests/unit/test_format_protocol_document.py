"""PROTOCOL.md says what the code does: every message, field, error code, port and magic of it."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format import client_messages, message, peer_messages
from logstore.settings import PortOffset

TEXT = (Path(__file__).parents[2] / "PROTOCOL.md").read_text()
TYPES = {"Q": "u64", "I": "u32", "?": "u8"}


def row_of(number: int, cls: type[Any]) -> str:
    """The line of a message's table, from its registration."""
    layout = message._BY_TYPE[number]
    codes = re.findall(r"\d+s|[A-Z?]", layout.fixed.format)
    types = [f"bytes[{code[:-1]}]" if code.endswith("s") else TYPES[code] for code in codes]
    types += ["tail"] * layout.has_tail
    fields = zip(cls.__struct_fields__, types, strict=True)
    return f"| {number} | {cls.__name__} | {', '.join(map(' '.join, fields))} |"


@pytest.mark.parametrize(("number", "cls"), message.message_types().items())
def test_every_message_has_its_row(number: int, cls: type[Any]) -> None:
    assert cls.__module__ in (client_messages.__name__, peer_messages.__name__)
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
    found = set(re.findall(r"\| (\w*) \|$", text, re.MULTILINE)) - {"", "counter"}
    assert len(found) == 6
    assert found <= named


@pytest.mark.parametrize("magic", ["LMSG", "LBAT", "LGRP", "LREC", "LSEG", "LMET", "LOPN", "LEXP",
                                   "LSES", "LCUR"])  # fmt: skip
def test_every_magic_is_written_in_its_order(magic: str) -> None:
    assert f"magic '{magic}' │ version u16 = 1" in TEXT
    assert struct.pack("<I", message.MAGIC) == b"LMSG"
    assert struct.pack("<H", client_messages.APPEND_MAGIC) == b"LA"
