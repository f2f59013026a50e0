"""The errors of transport, and what to do about each.

Transport imports nothing of the product, so it has its own small tree. Invariants: the caller
reports an operating error (no memory, a port in use); `RingInvariantViolated` is never handled, it
ends the process.
"""

from __future__ import annotations


class TransportError(Exception):
    """Root of every error of this package."""


class UnsupportedMachine(TransportError):
    """The processor or libzmq cannot keep the promises made here: change it (SAFETY M4, M5)."""


class RegionUnavailable(TransportError):
    """Shared memory is not available: the message names the size, the folder and what to change."""


class LayoutMismatch(TransportError):
    """A ring of another incarnation, kind, version or size: get the current one (SAFETY M1)."""


class MessageTooLarge(TransportError, ValueError):
    """The message can never fit into this ring: split it, or create a larger ring."""


class RingInvariantViolated(TransportError):
    """A ring's own promise is broken (a cursor that goes back, an impossible length)."""


class CountersInvalid(TransportError, ValueError):
    """The file is no counters file, or of a newer version, or damaged: the message says which."""


class LinkError(TransportError):
    """A socket could not be created as requested: the message names the endpoint and the reason."""


class PortInUse(LinkError):
    """Another process listens there: stop it, or choose another port."""


class InsecureBind(LinkError):
    """The endpoint would be open to others: bind to loopback, or set `insecure` (SAFETY M5)."""
