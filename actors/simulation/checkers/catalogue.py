"""Every checker, a row each. Owns their order: in it they read what they read of one fact or part.

The disk's claims come before the logs, which forget what is truncated; votes before elections,
which count what is saved; rings after the logs, and what reads the bytes of an entry, the
configurations first, after the rings. `Stalls` reads which peers a leader had heard before
`Contacts` records that it hears one.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.simulation.checkers.acknowledgements import Acknowledgements
from actors.simulation.checkers.answers import Answers
from actors.simulation.checkers.bells import Bells
from actors.simulation.checkers.commits import Commits
from actors.simulation.checkers.configurations import Configurations
from actors.simulation.checkers.contacts import Contacts
from actors.simulation.checkers.cursor_history import Cursors
from actors.simulation.checkers.damage_reports import Damage
from actors.simulation.checkers.deliveries import Deliveries
from actors.simulation.checkers.disk_claims import DiskClaims
from actors.simulation.checkers.elections import Elections
from actors.simulation.checkers.expected_lsns import ExpectedLsns
from actors.simulation.checkers.final_logs import FinalLogs
from actors.simulation.checkers.format_levels import FormatLevels
from actors.simulation.checkers.handovers import Handovers
from actors.simulation.checkers.lanes import ControlLanes
from actors.simulation.checkers.log_starts import LogStarts
from actors.simulation.checkers.logs import Logs
from actors.simulation.checkers.lookups import Lookups
from actors.simulation.checkers.orders import Orders
from actors.simulation.checkers.peer_streams import PeerStreams
from actors.simulation.checkers.processes import Liveness, Processes
from actors.simulation.checkers.provisional_batches import ProvisionalBatches
from actors.simulation.checkers.read_rounds import ReadRounds
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.retention import Retention
from actors.simulation.checkers.ring_ranges import RingRanges
from actors.simulation.checkers.session_fold import SessionTables
from actors.simulation.checkers.session_lists import SessionLists
from actors.simulation.checkers.stalls import Stalls
from actors.simulation.checkers.surveys import Surveys
from actors.simulation.checkers.turns import AppendTurns
from actors.simulation.checkers.verified import Verified
from actors.simulation.checkers.votes import VoteDelays
from actors.simulation.checkers.witnesses import Witnesses
from actors.simulation.checkers.written_once import WrittenOnce

CHECKERS: tuple[Callable[[Record], object], ...] = (
    Witnesses,
    Processes,
    Acknowledgements,
    ExpectedLsns,
    Liveness,
    DiskClaims,
    Logs,
    LogStarts,
    Retention,
    VoteDelays,
    Elections,
    Verified,
    Damage,
    RingRanges,
    Configurations,
    SessionTables,
    Commits,
    FormatLevels,
    Orders,
    PeerStreams,
    ReadRounds,
    Handovers,
    Stalls,
    Contacts,
    Deliveries,
    Answers,
    Cursors,
    Lookups,
    SessionLists,
    Surveys,
    AppendTurns,
    ProvisionalBatches,
    ControlLanes,
    Bells,
    WrittenOnce,
    FinalLogs,
)
