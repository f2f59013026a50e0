"""Message envelope and the declarative codec of every message between hosts (SAFETY M6).

A message is one ZeroMQ frame: the envelope, and a body of fixed fields with an optional tail. Types
that carry batches have them in a second frame, which has its own CRC. Nothing here knows what a
message means. Magic, version, type, length, CRC and correlation keep their places in every version.

Invariant: what decodes is canonical: encoding it again gives the same bytes.

     0 magic u32 'LMSG' │ version u16 │ type u16
     8 length u32 (bytes after the envelope) │ crc u32 (CRC32C of the frame but these 4 bytes)
    16 cluster_id, 16 bytes (zero only before bootstrap, and from clients that do not know it yet)
    32 sender uuid, 16 bytes (zero: a client)
    48 sender node u32 (0: a client) │ target node u32 (0: any)
    56 correlation u64 (clients: request number, echoed; replicas: boot counter)
    64 body
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import msgspec
from crc32c import crc32c

from logstore.errors import (
    DamagedMessage,
    FormatError,
    InvalidRequest,
    UnknownMessageType,
    UnsupportedVersion,
)
from logstore.format.fields import U32, UUID_SIZE
from logstore.limits import CONTROL_MESSAGE_MAX_BYTES, MESSAGE_MAX_BYTES, POSITION_MAX
from logstore.model import NO_NODE, NodeId

MAGIC = 0x47534D4C  # "LMSG"
VERSION = 1
ENVELOPE_SIZE = 64
_ENVELOPE = struct.Struct("<IHHII16s16sIIQ")
_BEFORE_CRC = 12
_AFTER_CRC = 16
NODE_ID_MAX = 0xFFFF
CONTROL_TYPES_END = 32  # types below travel on the peers' control lane
PEER_TYPES_END = 64  # types below are between replicas: their positions are bounded
_ANY_U64 = frozenset({"nonce", "prev_chain", "start_chain"})


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """Sender, target and type of a message. `correlation` is a request number or a boot counter."""

    type: int
    cluster_id: bytes
    sender_uuid: bytes
    sender: NodeId
    target: NodeId
    correlation: int


class Layout(msgspec.Struct, frozen=True):
    """The layout of one message type's body: fixed fields, then the tail, if any, or fields that
    were added later.

    The tail is a whole number of `tail_unit` bytes. `later`: integers and booleans, in the order in
    which they were added. Those at the end that are 0 or false are left out, so a message that does
    not use them has the bytes that it had before they existed. `later_ends`: how many bytes the
    first 0, 1, … of them have. `is_lossy`: packing can change a value. `bounded`: fields of at most
    POSITION_MAX. `frame_max_bytes`: of the whole first frame.
    """

    cls: type[Any]
    fixed: struct.Struct
    later: struct.Struct
    later_ends: tuple[int, ...]
    has_tail: bool
    tail_unit: int
    is_lossy: bool
    bounded: tuple[int, ...]
    frame_max_bytes: int


_BY_TYPE: dict[int, Layout] = {}
_BY_CLASS: dict[type[Any], tuple[int, Layout]] = {}
_M = TypeVar("_M")


def register(
    type_number: int,
    cls: type[Any],
    fixed: str,
    *,
    later: str = "",
    has_tail: bool = False,
    tail_unit: int = 1,
) -> None:
    """Declare a message: its number, its class and the struct format of its fields, without a bytes
    tail. `later`: the format of its last fields, which older versions neither send nor know."""
    if type_number in _BY_TYPE or cls in _BY_CLASS:
        raise ValueError(f"message {type_number} {cls.__name__} is registered twice")
    names = cls.__struct_fields__
    bounded: list[int] = []
    if type_number < PEER_TYPES_END:
        no_integers = _ANY_U64 | {n for n in names if cls.__annotations__[n] in ("bytes", "bool")}
        bounded.extend(n for n, name in enumerate(names) if name not in no_integers)
    layout = Layout(
        cls=cls,
        fixed=struct.Struct("<" + fixed),
        later=struct.Struct("<" + later),
        later_ends=tuple(struct.calcsize("<" + later[:count]) for count in range(len(later) + 1)),
        has_tail=has_tail,
        tail_unit=tail_unit,
        is_lossy="?" in fixed or "s" in fixed,
        bounded=tuple(bounded),
        frame_max_bytes=(
            CONTROL_MESSAGE_MAX_BYTES if type_number < CONTROL_TYPES_END else MESSAGE_MAX_BYTES
        ),
    )
    _BY_TYPE[type_number] = layout
    _BY_CLASS[cls] = (type_number, layout)


def message_types() -> dict[int, type[Any]]:
    """Every registered message class by its number."""
    return {number: layout.cls for number, layout in sorted(_BY_TYPE.items())}


def encode_message(
    message: msgspec.Struct,
    *,
    cluster_id: bytes,
    sender_uuid: bytes,
    sender: NodeId,
    target: NodeId,
    correlation: int,
) -> bytes:
    """The first frame of `message`: envelope, body, CRC.

    Raises:
      InvalidRequest: a field above its width, or more bytes than this type may have.
    """
    number, layout = _BY_CLASS[type(message)]
    body = _encode_body(layout, message)
    if len(cluster_id) != UUID_SIZE or len(sender_uuid) != UUID_SIZE:
        raise InvalidRequest("cluster id and sender uuid have 16 bytes each")
    head = _ENVELOPE.pack(
        MAGIC, VERSION, number, len(body), 0, cluster_id, sender_uuid, sender, target, correlation
    )
    before, after = head[:_BEFORE_CRC], head[_AFTER_CRC:] + body
    return before + U32.pack(crc32c(after, crc32c(before))) + after


def _encode_body(layout: Layout, message: msgspec.Struct) -> bytes:
    """Hot."""
    values = msgspec.structs.astuple(message)
    tail = b""
    if layout.has_tail:
        values, tail = values[:-1], values[-1]
        if len(tail) % layout.tail_unit:
            name = layout.cls.__name__
            raise InvalidRequest(f"{name}: {len(tail)} bytes of rows of {layout.tail_unit}")
    elif layout.later.size:
        values, tail = _split_later(layout, values)
    try:
        fixed = layout.fixed.pack(*values)
    except struct.error as error:
        raise InvalidRequest(f"{layout.cls.__name__}: {error}") from error
    if layout.is_lossy and layout.fixed.unpack(fixed) != values:
        raise InvalidRequest(f"{layout.cls.__name__}: {values} has a field of another size")
    body = fixed + tail
    size = ENVELOPE_SIZE + len(body)
    if size > layout.frame_max_bytes:
        name = layout.cls.__name__
        raise InvalidRequest(f"{name} of {size} bytes, at most {layout.frame_max_bytes}")
    return body


def _split_later(layout: Layout, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], bytes]:
    """The fields of the first version, and the bytes of the later ones."""
    first = len(layout.fixed.format) - 1  # one letter each, after the byte order
    return values[:first], _encode_later(layout, values[first:])


def _encode_later(layout: Layout, later: tuple[Any, ...]) -> bytes:
    """The later fields, up to the last one that is not 0."""
    count = len(later)
    while count and not later[count - 1]:
        count -= 1
    try:
        return layout.later.pack(*later)[: layout.later_ends[count]]
    except struct.error as error:
        raise InvalidRequest(f"{layout.cls.__name__}: {error}") from error


def decode_message(frame: bytes | memoryview) -> tuple[Envelope, Any]:
    """Envelope and message of a first frame.

    Raises:
      UnsupportedVersion: an undamaged message of a newer version of the envelope.
      UnknownMessageType: an undamaged message of an unknown type.
      DamagedMessage: an envelope whose CRC does not fit.
      FormatError: anything else that is not a whole, undamaged message.
    """
    if not ENVELOPE_SIZE <= len(frame) <= MESSAGE_MAX_BYTES:
        raise FormatError(
            f"a message of {len(frame)} bytes, not {ENVELOPE_SIZE} to {MESSAGE_MAX_BYTES}"
        )
    magic, version, number, length, crc, cluster_id, uuid, sender, target, correlation = (
        _ENVELOPE.unpack_from(frame)
    )
    if magic != MAGIC:
        raise FormatError(f"bad message magic {magic:#010x}")
    if length != len(frame) - ENVELOPE_SIZE:
        raise FormatError(f"message says {length} body bytes, has {len(frame) - ENVELOPE_SIZE}")
    view = memoryview(frame)
    if _crc_of(view) != crc:
        raise DamagedMessage("message CRC mismatch")
    if version != VERSION:
        raise UnsupportedVersion(f"message version {version}; this side speaks {VERSION}")
    layout = _BY_TYPE.get(number)
    if layout is None:
        raise UnknownMessageType(number)
    if sender > NODE_ID_MAX or target > NODE_ID_MAX:
        raise FormatError(f"node ids {sender} and {target}, at most {NODE_ID_MAX}")
    if len(frame) > layout.frame_max_bytes:
        raise FormatError(
            f"{layout.cls.__name__} of {len(frame)} bytes, at most {layout.frame_max_bytes}"
        )
    return Envelope(number, cluster_id, uuid, NodeId(sender), NodeId(target), correlation), (
        _decode_body(layout, view[ENVELOPE_SIZE:])
    )


def _decode_body(layout: Layout, body: memoryview) -> Any:
    """Hot."""
    size, tail_size = layout.fixed.size, len(body) - layout.fixed.size
    if tail_size < 0 or not (layout.has_tail or tail_size in layout.later_ends):
        raise FormatError(f"{layout.cls.__name__} body of {len(body)} bytes, fixed part is {size}")
    if tail_size and tail_size % layout.tail_unit:
        raise FormatError(f"{layout.cls.__name__}: its rows are {layout.tail_unit} bytes each")
    values = layout.fixed.unpack_from(body)
    if layout.later.size:
        told = bytes(body[size:])
        later = layout.later.unpack(told.ljust(layout.later.size, b"\0"))
        if _encode_later(layout, later) != told:
            raise FormatError(f"{layout.cls.__name__}: later fields in a form that is never sent")
        values += later
    for position in layout.bounded:
        if values[position] > POSITION_MAX:
            raise FormatError(f"{layout.cls.__name__}: {values[position]} is above {POSITION_MAX}")
    if layout.is_lossy and layout.fixed.pack(*values) != body[:size]:
        raise FormatError(f"{layout.cls.__name__}: a fact that is neither 0 nor 1")
    if layout.has_tail:
        return layout.cls(*values, bytes(body[size:]))
    return layout.cls(*values)


def checked_envelope(frame: bytes | memoryview) -> Envelope | None:
    """The envelope of a frame that did not decode, if it can be trusted; else None.

    It can if magic and CRC fit: then the frame was sent with its fault. In another version only
    type and correlation are known to be in their places; the cluster id is returned as zero.
    """
    if not ENVELOPE_SIZE <= len(frame) <= MESSAGE_MAX_BYTES:
        return None
    magic, version, number, _, crc, cluster_id, uuid, sender, target, correlation = (
        _ENVELOPE.unpack_from(frame)
    )
    if magic != MAGIC or _crc_of(memoryview(frame)) != crc:
        return None
    if version != VERSION:
        cluster_id, uuid, sender, target = bytes(UUID_SIZE), bytes(UUID_SIZE), NO_NODE, NO_NODE
    return Envelope(number, cluster_id, uuid, NodeId(sender), NodeId(target), correlation)


def _crc_of(frame: memoryview) -> int:
    """Of the whole frame but the CRC's own bytes. Hot."""
    return int(crc32c(frame[_AFTER_CRC:], crc32c(frame[:_BEFORE_CRC])))
