"""The points at which ingress stamps sampled entries, a leader's groups and a follower's appends.

Owns nothing else; what the points mean says `actors.trace`.
"""

from __future__ import annotations

from typing import NamedTuple

from actors.station import Station
from actors.trace import Stamper, TracePoint


class Stampers(NamedTuple):
    """Each has the name of its point."""

    received: Stamper
    proposed: Stamper
    acknowledged: Stamper
    answered: Stamper


def stampers_of(station: Station) -> Stampers:
    return Stampers(
        received=station.stamper(TracePoint.RECEIVED),
        proposed=station.stamper(TracePoint.PROPOSED),
        acknowledged=station.stamper(TracePoint.ACKNOWLEDGED),
        answered=station.stamper(TracePoint.ANSWERED),
    )
