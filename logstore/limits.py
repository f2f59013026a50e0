"""Every bound, with its arithmetic. Settings in `config` may lower or raise some within these.
`ReplicaLimits` are those that are smaller on a simulated replica."""

from __future__ import annotations

import msgspec

KIB = 1 << 10
MIB = 1 << 20

# A batch: its largest whole size on the wire and on disk, as shipped. 4 MiB holds a 3 MiB line; a
# body is at most 2**31 - 1 bytes by its i32 offsets, far above. Each replica's ring holds at least
# four of them.
BATCH_MAX_BYTES = 4 * MIB
# What a configuration may raise it to, for transactions that must be one batch: 16 MiB are 64 ms of
# a 250 MB/s disk, in which nothing else is committed. Above, a message could last longer than a
# client's heartbeat timeout (1 s) on a link of 16 MB/s.
BATCH_WALL_BYTES = 16 * MIB
# Payloads of one batch: 1 Mi offsets are 4 MiB, so the bound on size is always
# reached first or together.
BATCH_MAX_PAYLOADS = 1 << 20
# A group (one Raft entry): batches that ingress joins. 1 MiB is 4 ms of a 250 MB/s disk, below the
# two flushes it pays for; a single larger batch is a group of its own.
GROUP_MAX_BYTES = 1 * MIB
# One flush of the writer: 4 MiB is 16 ms of a 250 MB/s disk, a bound on how long a commit waits;
# and as many entries as every segment has room for.
FLUSH_MAX_BYTES = 4 * MIB
FLUSH_ENTRIES_MAX = 256
# Groups between Proposed and Committed on a leader: groups grow under load instead of queues.
GROUPS_IN_FLIGHT_MAX = 16
# What a message has besides a batch: envelope and prefix, with room to spare.
MESSAGE_MARGIN_BYTES = 64 * KIB
# Every message of any configuration. The bound of a socket depends on its own: see LimitSettings.
MESSAGE_MAX_BYTES = BATCH_WALL_BYTES + MESSAGE_MARGIN_BYTES
CONTROL_MESSAGE_MAX_BYTES = 4 * KIB
BULK_WINDOW_BYTES = 8 * MIB
# Entries in flight to one follower: bounds the replicator's bookkeeping, 64 x 1 MiB > the byte
# window.
BULK_WINDOW_ENTRIES = 256
# One command ring holds about 2,000 entry descriptors of 120 bytes: eight times the entries in
# flight to a follower. A ring is written round and round, so all of it is memory in use.
COMMAND_RING_BYTES = 256 * KIB
# Rows of the newest entries kept in raft's memory (M9): 8,192 x about 300 B = 2.5 MB. So many older
# rows are dropped at once, which shares the cost of moving the rest.
ROWS_KEPT = 8_192
ROWS_DROPPED_AT_ONCE = 1_024
# Appends that raft defers while the term that they need is being flushed.
DEFERRED_EVENTS_MAX = 1_024
# Session table (E1): every session has the least window, and larger ones share the extra rows:
# 12,288 x 16 + 131,072 window rows x about 250 B = 82 MB, on a leader whose windows are all full.
SESSIONS_MAX = 12_288
SESSION_WINDOW_MIN = 16
SESSION_WINDOW_MAX = 4_096
SESSION_WINDOW_EXTRA_MAX = 131_072
SESSION_NAME_MAX_BYTES = 255
# Sessions of one page of a list: 256 x 304 B = 76 KiB, 64 of which may wait for a commit
# (HELD_ANSWERS_MAX); 10,000 sessions are 40 pages, each a quorum round.
SESSIONS_PAGE_MAX = 256
# Named cursors: 256 x 272 B = 68 KiB in every SESSION snapshot and in every list of them. Far above
# what archives and pipelines of one log need; more would make each snapshot and list larger.
CURSORS_MAX = 256
CURSOR_NAME_MAX_BYTES = 255
# Names of monotone sessions that were idle for too long: 16,384 x at most 280 B in each snapshot.
# With so many, none expires any more: forgetting one would let its name start over.
KEPT_NAMES_MAX = 16_384
# Unacknowledged bytes of one session at most, and of all that a leader has read (W6).
SESSION_WINDOW_BYTES = 32 * MIB
CLIENT_MEMORY_BYTES = 1024 * MIB
# SESSION snapshots (E6): at most this much is folded when admission opens.
# A new leader admits nothing while it folds: an entry costs it 10 us, a batch 3 us, a MiB 1 ms (2
# cores, 2026-11-24). So 4,096 entries are 40 ms, and the other two bounds 0.4 s. A table with more
# rows is written down after as many entries as it has rows, so that rows are never most of a log.
SNAPSHOT_EVERY_ENTRIES = 4_096
SNAPSHOT_EVERY_BYTES = 256 * MIB
SNAPSHOT_EVERY_BATCHES = 131_072
# One part of a snapshot, if group_max is not below: 10 ms of encoding in ingress' loop.
SNAPSHOT_PART_MAX_BYTES = 256 * KIB
# OPENs and changes of cursors that are taken before appends get their turn. Each is a group of its
# own; without a bound, a client that asks without end would hold up every append.
REQUESTS_BEFORE_APPENDS_MAX = 16
# Rebuilding the session table yields after this long (E5).
REBUILD_SLICE_NS = 2_000_000
# Tail groups above this are a notice (V8).
TAIL_GROUP_MAX_BYTES = 256 * KIB
FETCH_MAX_BYTES = 4 * MIB
FETCH_WAIT_MAX_MS = 60_000
# Terms may jump by this much in one message before an alarm; above it the message is dropped (C1).
TERM_JUMP_MAX = 1_000_000
# Processes: M3.
RESTARTS_MAX = 5
RESTARTS_WINDOW_S = 60
LIVENESS_TIMEOUT_S = 5.0
RESTART_BACKOFF_MIN_S = 0.1
RESTART_BACKOFF_MAX_S = 5.0
# How long a loop parks at most. Nothing waits for it: what has no bell, socket or timer is looked
# at by then. The simulator's processes park as long, and longer where elections are slower.
PARK_MAX_MS = 400
# ZeroMQ IO threads of a process. Its guide says one for each GB a second: eight are above what the
# disks of a replica take, and more would only wake each other.
IO_THREADS_MAX = 8
NODES_MAX = 9
# A member as CONFIG entries hold it. Nine voters, nine that become voters and nine learners are at
# most 27 x (24 + 256 + 1,032) B = 36 KB, far below a group.
MEMBER_HOST_MAX_BYTES = 255
MEMBER_LABELS_MAX = 8
MEMBER_LABEL_MAX_BYTES = 128
# Whose starts a replica remembers (SAFETY L7): nine voters and nine learners or incoming voters.
PEER_STARTS_MAX = 18
SECTOR_BYTES = 512
# What a writer leaves in the page cache before its tail, and in which steps it releases the rest: a
# reader that is less than 0.4 s of 170 MB/s behind the tail reads memory. Without a bound each page
# written is a new one; on a virtual machine the host then has to find memory for it: 64 x 1 KiB
# batches ran at 111 MB/s without, at 175 MB/s with it (2 cores, three replicas, 2026-11-20).
CACHE_KEPT_BYTES = 64 * MIB
CACHE_RELEASE_STEP_BYTES = 16 * MIB
# Indexes, terms, LSNs, times and byte counts stay below 2**63: sums of two never leave u64, and
# signed 64-bit readers (Arrow, Spark) take them as they are. At 10**9 payloads/s this lasts 292
# years.
POSITION_MAX = (1 << 63) - 1
# Where a new log may begin at most: half of all LSNs are left for its payloads.
FIRST_LSN_MAX = 1 << 62
# ReadIndex requests that wait for a quorum round; more are refused, to be sent to another replica.
# 1,024 x about 100 B.
READS_WAITING_MAX = 1_024
# A transfer is refused for a target this many entries behind: 1,024 x 1 MiB would outlast any
# timeout.
TRANSFER_LAG_MAX = 1_024
# A leader that can commit nothing gives up after this many election timeouts (V6). All progress
# shows within one: a stream without an answer for an election timeout begins again. Four leave room
# for a connection that is opened again, a flush of two or three, and a slow link.
STALL_ELECTION_TIMEOUTS = 4
# Twice as long each time until something is committed: up to 64 election timeouts. If no leader can
# commit, that is one election a minute at the default of a second.
STALL_DOUBLINGS_MAX = 4
# After it gave up, it begins no election for this many. The others need up to two to notice, and
# one or two more each time their votes split.
QUIET_ELECTION_TIMEOUTS = 6
# How far a leader's wall clock counts beyond a majority's (G2): far above what NTP leaves, and what
# a heartbeat answer takes to arrive. A clock that is wrong by more is logged.
CLOCK_AHEAD_MAX_NS = 1_000_000_000
# By how much a leader's wall and monotonic clocks may drift apart while it gives up payloads for
# their age (G2): a crystal that is off by 100 ppm takes a week, so somebody set the wall clock.
CLOCK_DRIFT_MAX_NS = 60_000_000_000
# Descriptors a replicator keeps per stream: 4,096 x about 300 B; older entries are read from the
# files.
DESCRIPTORS_KEPT = 4_096
# What full disks keep for TRIMs and no-ops (S9): 46 of at most 704 B, whatever an election a second
# for half a minute takes. It is 1/32 of the smallest segment, and no restart makes it smaller.
# CONFIGs may use half of it, since a TRIM may wait for one: a member takes some hundred bytes.
FULL_DISK_KEPT_BYTES = 32 * KIB
# A session without a name may be expired for a new one after this long without a batch.
SESSION_IDLE_MIN_NS = 60_000_000_000
# Requests of clients that wait for raft or for a commit: 1,024 x about 200 B.
REQUESTS_PENDING_MAX = 1_024
# How far log start is held back at most for a follower that catches up after an Install (G7): what
# it gets in a minute at 70 MiB/s, and no more disk than that beyond what retention keeps.
INSTALL_HOLD_MAX_BYTES = 4096 * MIB
# For how long log start waits for such a follower that is silent: a replica that is killed starts
# again within some seconds. One that is gone for longer gets another Install, should it need that.
INSTALL_HOLD_ELECTION_TIMEOUTS = 10
# TRIM entries that raft has carried out at once. A start learns at one commit that all in its log
# are committed. The newest has the whole log start; the others are for when it is damaged.
TRIMS_AT_ONCE = 256
# Damaged ranges that a status lists, besides their number: 64 x about 90 B. Ranges whose LSNs are
# kept in memory: 4,096 x about 100 B.
STATUS_FAULTY_MAX = 64
FAULTY_LSNS_KEPT = 4_096
REQUEST_TIMEOUT_NS = 10_000_000_000
# How often a line that an operator must act on is logged again: 1,440 lines a day.
LOG_AGAIN_NS = 60_000_000_000
# Producers that wait for a new leader to admit: 1,024 x about 200 B, and for how long at most: less
# than the second after which they ask again (PROTOCOL section 7).
PRODUCERS_WAITING_MAX = 1_024
PRODUCERS_WAIT_MAX_NS = 800_000_000
# Producers of which a leader remembers the newest conversation (E11): more than a log has sessions,
# so that only those of ended ones are forgotten; 16,384 x about 300 B.
CONVERSATIONS_MAX = 16_384
# Answers that wait for a commit, each with a window of up to 4,096 rows: 64 x about 0.4 MB.
HELD_ANSWERS_MAX = 64
# Connections of clients that one process takes, where its descriptors allow it: 4,096 x about 30 KB
# of libzmq's buffers. A client has three to ingress of the leader and two to egress of a replica.
CONNECTIONS_MAX = 4_096
# Connections to one port for peers; a cluster of nine needs eight.
PEER_CONNECTIONS_MAX = 64
# Descriptors that are left for files and for connections that are being refused. A reader of the
# log has up to 32. One process of nine members that has all actors has twelve readers: raft's, two
# of ingress while the session table is rebuilt, egress', and one of each replicator.
DESCRIPTORS_RESERVED = 384
# Topics are producer ids. Of one connection: 1,024 x 8 nodes x about 40 B; of a process: 21 MB.
TOPIC_MAX_BYTES = 8
TOPICS_PER_CONNECTION_MAX = 1_024
TOPICS_MAX = 65_536
# A frame on a port that only takes subscriptions: a handshake is the longest, with room for its
# properties.
SUBSCRIPTION_MAX_BYTES = 64
# Answers to one client, and to all of a process, that are not acknowledged yet; beyond it no more
# are made. A client has two of 4 MiB under way.
ANSWERS_PER_CLIENT_BYTES = 16 * MIB
ANSWERS_BYTES_MAX = 256 * MIB
# A process' own memory beyond which connections are ended; ingress has what
# clients are granted besides.
CONNECTION_MEMORY_BYTES = 512 * MIB

# How long a client's request may take, unless it says otherwise: an election, a new connection and
# the request fit in it several times.
CLIENT_TIMEOUT_S = 10.0


# A session of level leader or none whose window is full stops all appends until a commit (E10), so
# it is granted so many batches at least where there is room: a commit takes less time than these.
PROVISIONAL_WINDOW_MIN = 1_024


class ReplicaLimits(msgspec.Struct, frozen=True):
    """Limits that a real log reaches after hours, and that no configuration changes. A replica gets
    them when it is made, so that a simulated one reaches smaller ones in seconds."""

    answers_bytes_max: int = ANSWERS_BYTES_MAX
    answers_per_client_bytes: int = ANSWERS_PER_CLIENT_BYTES
    flush_entries_max: int = FLUSH_ENTRIES_MAX
    full_disk_kept_bytes: int = FULL_DISK_KEPT_BYTES
    kept_names_max: int = KEPT_NAMES_MAX
    requests_before_appends_max: int = REQUESTS_BEFORE_APPENDS_MAX
    rows_dropped_at_once: int = ROWS_DROPPED_AT_ONCE
    rows_kept: int = ROWS_KEPT
    session_idle_min_ns: int = SESSION_IDLE_MIN_NS
    provisional_window_min: int = PROVISIONAL_WINDOW_MIN
    sessions_max: int = SESSIONS_MAX
    snapshot_every_batches: int = SNAPSHOT_EVERY_BATCHES
    snapshot_every_entries: int = SNAPSHOT_EVERY_ENTRIES
    snapshot_part_max_bytes: int = SNAPSHOT_PART_MAX_BYTES
