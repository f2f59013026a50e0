"""What can go wrong while bytes move, and what to do about it.

Transport imports nothing of the product, so it has its own small tree. Invariants: an operating
error (no memory, a port in use) is for the caller to report; `RingInvariantViolated` is never
handled, it ends the process.
"""

from __future__ import annotations


class TransportError(Exception):
    """Root of every error of this package."""


class UnsupportedMachine(TransportError):
    """Processor or library cannot keep the promises made here: change it (SAFETY M4, M5)."""


class RegionUnavailable(TransportError):
    """Shared memory could not be had: the message names the size, the folder and what to change."""


class LayoutMismatch(TransportError):
    """A ring of another incarnation, kind, version or size: get the current one (SAFETY M1)."""


class MessageTooLarge(TransportError, ValueError):
    """The message can never fit into this ring, however empty: split it or make a larger ring."""


class RingInvariantViolated(TransportError):
    """A ring's own promise is broken (a cursor that goes back, a length that cannot be)."""


class CountersInvalid(TransportError, ValueError):
    """The file is no counters file, or of a newer version, or damaged: the message says which."""


class LinkError(TransportError):
    """A socket could not be made as asked: the message names the endpoint and the reason."""


class PortInUse(LinkError):
    """Another process listens there: stop it or choose another port."""


class InsecureBind(LinkError):
    """The endpoint would be open to others: bind to loopback, or say `insecure` (SAFETY M5)."""
