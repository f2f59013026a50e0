"""What the time of a failover went to: detection, election, admission, client. Pure.

Owns the arithmetic, and how the replicas' log lines are read, which is where these moments are: a
replica writes a line as it happens, stamped in milliseconds of the wall clock. A campaign's line
comes after the pre-vote's round, which changes no term; so detection includes that round.

      fault ──detect──▶ first campaign ──elect──▶ last to lead ──admit──▶ it admits ──client──▶ ack
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import accumulate, pairwise

import msgspec

_NS_PER_MS = 1_000_000


class Happened(Enum):
    """What a log line says, by the words in it."""

    CAMPAIGNS = "campaigns in term"
    LEADS = "leads term"
    ADMITS = "admission is open in term"


class Moment(msgspec.Struct, frozen=True):
    """One such line, in ns of the wall clock."""

    at_ns: int
    node: int
    what: Happened
    term: int


class Split(msgspec.Struct, frozen=True):
    """Milliseconds; the parts add up to the whole. Without a change of leader all of it is the
    client's. `new_leader`: a node, 0 if there was no change; the same node may lead again."""

    detect_ms: float
    elect_ms: float
    admit_ms: float
    client_ms: float
    new_leader: int


PARTS = ("detect_ms", "elect_ms", "admit_ms", "client_ms")
_LINE = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) [A-Z]+ \S+ node (\d+) [^:]+: .*?("
    + "|".join(each.value for each in Happened)
    + r") (\d+)"
)


def read_moments(log: str) -> list[Moment]:
    """The moments in a replica's log. Times are of this machine's time zone, as its lines are."""
    found = []
    for line in log.splitlines():
        if match := _LINE.match(line):
            text, milliseconds, node, words, term = match.groups()
            seconds = int(time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S")))
            at_ns = seconds * 1_000_000_000 + int(milliseconds) * _NS_PER_MS
            found.append(Moment(at_ns, int(node), Happened(words), int(term)))
    return found


def split(fault_ns: int, acknowledged_ns: int, moments: Iterable[Moment]) -> Split:
    """Split the time between a fault and the first acknowledgement, both in ns of the wall clock.

    Who led last before the acknowledgement gave it. Stamps are cut to milliseconds, so what is
    stamped just before the fault may be after it; parts are never negative.
    """
    within = [each for each in moments if fault_ns - _NS_PER_MS < each.at_ns <= acknowledged_ns]
    leads = _last(within, Happened.LEADS)
    if leads is None:
        return Split(0.0, 0.0, 0.0, _ms(acknowledged_ns - fault_ns), 0)
    campaigns = [each.at_ns for each in within if each.what is Happened.CAMPAIGNS]
    admits = _last([each for each in within if each.term == leads.term], Happened.ADMITS)
    marks = [fault_ns, min(campaigns, default=leads.at_ns), leads.at_ns]
    marks += [leads.at_ns if admits is None else admits.at_ns, acknowledged_ns]
    rising = accumulate(marks, max)
    detect, elect, admit, client = (_ms(after - before) for before, after in pairwise(rising))
    return Split(detect, elect, admit, client, leads.node)


def _last(moments: Sequence[Moment], what: Happened) -> Moment | None:
    return max(
        (each for each in moments if each.what is what), key=lambda each: each.at_ns, default=None
    )


def _ms(duration_ns: int) -> float:
    return round(duration_ns / _NS_PER_MS, 3)
