"""Network namespaces without a name, for processes that are to meet over links of their own.

Owns how one is made and entered, and what a machine needs for it. Must not know what runs inside.
A namespace lives as long as its descriptor or a process in it, and its links live as long as it
does: whatever ends this process, nothing of them stays behind and nothing must be swept. Nothing
of the machine's own network is touched, and `ip netns list` shows none of them.

Only the calling thread enters a namespace, and what it starts meanwhile begins there. The threads
of a ZeroMQ context stay where they began, so sockets are for processes that were started inside.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from logstore.errors import InvalidRequest, LogStoreError

TOOLS = ("ip", "tc")
BURST_BYTES = 128 << 10
_PACKAGE = "iproute2"
_CLONE_NEWNET = 0x4000_0000  # <linux/sched.h>
_OWN = "/proc/thread-self/ns/net"
_COMMAND_TIMEOUT_S = 30.0
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """What this process lacks to make namespaces with shaped links; empty if nothing. It tries."""
    if os.geteuid() != 0:
        return "network namespaces need root: run it as root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} missing: install {_PACKAGE}"
    try:
        with Namespace() as probe:
            probe.run("ip", "link", "add", "name", "a", "type", "veth", "peer", "name", "b")
            probe.run("tc", "qdisc", "add", "dev", "a", "root", "tbf", *tbf_words(1_000_000))
    except (OSError, LogStoreError) as error:
        return f"this kernel or container lets us make no shaped links: {error}"
    return ""


def require_namespaces() -> None:
    """Refuse a machine that cannot do it.

    Raises:
      InvalidRequest: with what is missing.
    """
    if reason := why_not():
        raise InvalidRequest(reason)


def tbf_words(bytes_per_s: int) -> list[str]:
    """The options of `tc qdisc ... tbf` for a rate of bytes on the wire, headers included.

    The bucket holds BURST_BYTES, two of the largest packets that TCP hands to a link: in a smaller
    one than such a packet, each would be cut into segments. At most 50 ms of the rate wait.
    """
    return ["rate", f"{bytes_per_s * 8}bit", "burst", str(BURST_BYTES), "latency", "50ms"]


class Namespace:
    """A network namespace whose loopback is up. Close it, or use it as a context manager.

    Raises:
      OSError: this process may not make one.
    """

    def __init__(self) -> None:
        self._home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self.descriptor = -1
        try:
            if _libc.unshare(_CLONE_NEWNET):
                raise _os_error("unshare")
            try:
                self.descriptor = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
            finally:
                _enter(self._home)
            self.run("ip", "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; it ends with the last process inside."""
        for descriptor in {self._home, self.descriptor} - {-1}:
            os.close(descriptor)
        self._home = self.descriptor = -1

    @property
    def number(self) -> int:
        """The inode, by which the kernel tells namespaces apart."""
        return os.fstat(self.descriptor).st_ino

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is inside meanwhile, and then where it was before."""
        before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(self.descriptor)
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(before)

    def run(self, *command: str, also: Sequence[Namespace] = ()) -> str:
        """Run a command inside, and return what it printed. It reaches the namespaces in `also` as
        their `path_for_children`.

        Raises:
          LogStoreError: it failed; with what it said.
        """
        try:
            with self.entered():
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=_COMMAND_TIMEOUT_S,
                    pass_fds=[each.descriptor for each in also],
                    check=True,
                )
        except subprocess.SubprocessError as error:
            said = str(getattr(error, "stderr", None) or error).strip()
            raise LogStoreError(f"`{' '.join(command)}` failed: {said}") from error
        return done.stdout

    @property
    def path_for_children(self) -> str:
        """How a command that was run with us in `also` names this namespace."""
        return f"/proc/self/fd/{self.descriptor}"


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        raise _os_error("setns")


def _os_error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
