"""A bare ZeroMQ stream over one link: what the link carries when nobody stores, checks or answers.

Owns both of its ends, a process each: a PUSH that sends frames of random bytes as fast as it may,
and a PULL that counts what arrives. Must not know a log.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import msgspec
import zmq

from actors.child import die_with_parent
from benchmarks.shaped_network import ShapedNetwork
from logstore.errors import LogStoreError

PORT = 7_999  # each namespace has all ports
QUEUED_BYTES = 16 << 20  # at either end, in frames
FRAMES_AHEAD_MIN = 4
SILENCE_MS_MAX = 20_000
WARM_UP_S = 1.0  # TCP has found the link's rate
_EXIT_TIMEOUT_S = 60.0


class StreamSpec(msgspec.Struct, frozen=True):
    """What either end is told, as JSON in its argument. `endpoint`: where the PULL listens."""

    is_sender: bool
    endpoint: str
    frame_bytes: int
    seconds: float
    parent_pid: int


class StreamRow(msgspec.Struct, frozen=True):
    """One stream. MB are 10**6 bytes of frames, between the arrivals of two of them."""

    frame_bytes: int
    seconds: float
    mb_per_s: float


def measure_stream(
    network: ShapedNetwork, one: int, other: int, *, frame_bytes: int, seconds: float
) -> StreamRow:
    """What node `one` sends to node `other`, if nobody else uses their link.

    Raises:
      LogStoreError: an end failed; what it said is above.
    """
    spec = StreamSpec(
        is_sender=False,
        endpoint=f"tcp://{network.address(other)}:{PORT}",
        frame_bytes=frame_bytes,
        seconds=seconds,
        parent_pid=os.getpid(),
    )
    with network.entered(other):
        receiver = _start(spec)
    with receiver:
        try:
            with network.entered(one):
                sender = _start(msgspec.structs.replace(spec, is_sender=True))
            with sender:
                try:
                    said, _ = receiver.communicate(timeout=WARM_UP_S + seconds + _EXIT_TIMEOUT_S)
                finally:
                    sender.kill()
        finally:
            receiver.kill()
    if receiver.returncode:
        raise LogStoreError("the bare stream failed; what it said is above")
    return msgspec.json.decode(said, type=StreamRow)


def _start(spec: StreamSpec) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.bare_stream", msgspec.json.encode(spec).decode()]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def frames_ahead(frame_bytes: int) -> int:
    """The high-water mark of either end."""
    return max(FRAMES_AHEAD_MIN, QUEUED_BYTES // frame_bytes)


def send(socket: zmq.Socket[bytes], spec: StreamSpec) -> None:
    """Send until somebody kills us. Hot."""
    socket.set_hwm(frames_ahead(spec.frame_bytes))
    socket.connect(spec.endpoint)
    frame = os.urandom(spec.frame_bytes)
    while True:
        socket.send(frame, copy=False)


def receive(socket: zmq.Socket[bytes], spec: StreamSpec) -> StreamRow:
    """Warm up, then count for `seconds`. Hot.

    Raises:
      zmq.Again: nothing came for SILENCE_MS_MAX.
    """
    socket.set_hwm(frames_ahead(spec.frame_bytes))
    socket.setsockopt(zmq.RCVTIMEO, SILENCE_MS_MAX)
    socket.bind(spec.endpoint)
    socket.recv(copy=False)
    began_s = now_s = time.monotonic()
    while now_s - began_s < WARM_UP_S:
        socket.recv(copy=False)
        now_s = time.monotonic()
    began_s, frames = now_s, 0
    while now_s - began_s < spec.seconds:
        socket.recv(copy=False)
        frames += 1
        now_s = time.monotonic()
    mb_per_s = frames * spec.frame_bytes / (now_s - began_s) / 1e6
    return StreamRow(spec.frame_bytes, round(now_s - began_s, 3), round(mb_per_s, 3))


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=StreamSpec)
    die_with_parent(spec.parent_pid)
    with zmq.Context() as context:
        if spec.is_sender:
            with context.socket(zmq.PUSH) as socket:
                send(socket, spec)
        else:
            with context.socket(zmq.PULL) as socket:
                print(msgspec.json.encode(receive(socket, spec)).decode(), flush=True)


if __name__ == "__main__":
    main()
