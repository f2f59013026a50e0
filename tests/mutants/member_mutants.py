"""Mutants of the cluster's members: who counts, which CONFIG follows which, who joins and how."""

from __future__ import annotations

import msgspec

from actors.simulation.faults.script import FaultClass
from tests.mutants.mutant import Mutant, mutant

C5, C6, C7, C9, C10 = "SAFETY C5", "SAFETY C6", "SAFETY C7", "SAFETY C9", "SAFETY C10"
L4, L5 = "SAFETY L4", "SAFETY L5"
_CONFIGURATION = "logstore.raft.configuration"
_CONFIGURATIONS = "logstore.raft.configurations:Configurations"
_MEMBERSHIP = "logstore.raft.membership"
_VOTERS = "tuple(member.number for member in configuration.voters)"

# --- who counts ---

_COUNTING = (
    mutant(
        "members-joint-counts-old-only",
        C7,
        f"{_CONFIGURATION}:by_number",
        "tuple(member.number for member in configuration.incoming)",
        "()",
        "a joint configuration needs a majority of the old voters only",
    ),
    mutant(
        "members-joint-counts-new-only",
        C7,
        f"{_CONFIGURATION}:by_number",
        _VOTERS,
        "tuple(member.number for member in configuration.incoming or configuration.voters)",
        "a joint configuration needs a majority of the new voters only",
    ),
    mutant(
        "members-learners-count",
        C7,
        f"{_CONFIGURATION}:by_number",
        _VOTERS,
        "tuple(each.number for each in (*configuration.voters, *configuration.learners))",
        "learners are voters",
    ),
    mutant(
        "members-one-set-elects",
        C7,
        "logstore.raft.quorum:VoterSets.is_majority",
        "not self.incoming or _is_majority(self.incoming, of)",
        "True",
        "votes and rounds of the new voters are not needed",
    ),
    mutant(
        "members-one-set-commits",
        C7,
        "logstore.raft.quorum:VoterSets.reached",
        "if not self.incoming:",
        "if True:",
        "what the new voters have is not needed for a commit",
    ),
    mutant(
        "members-in-force-once-committed",
        C5,
        f"{_CONFIGURATIONS}.in_force",
        "self._newest[1]",
        "self._committed[1]",
        "a configuration counts once it is committed, not once it is in the log",
    ),
    mutant(
        "members-rolled-back-one-late",
        C5,
        f"{_CONFIGURATIONS}.truncate",
        "self._above[-1][0] >= first_index",
        "self._above[-1][0] > first_index",
        "a CONFIG that is truncated first stays in force",
    ),
    mutant(
        "members-anyone-campaigns",
        C9,
        f"{_CONFIGURATIONS}.names_voter",
        "if self._committed[0] < self._hidden[1]:\n        return False",
        "if self._committed[0] >= self._hidden[1]:\n        return True",
        "a learner, or a replica that was removed, campaigns",
    ),
    mutant(
        "members-campaign-by-number",
        C9,
        f"{_CONFIGURATIONS}.names_voter",
        "member.uuid in (uuid, NO_UUID)",
        "True",
        "a replica campaigns by the number of another one",
    ),
    mutant(
        "members-found-at-no-start",
        C5,
        "logstore.storage.kept_configurations:kept_configurations",
        "in reversed(recovered.configs)",
        "in ()",
        "a start finds no CONFIG",
    ),
)

# --- changes ---

_CHANGES = (
    mutant(
        "members-change-in-one-step",
        C7,
        f"{_CONFIGURATION}:_joint",
        "incoming=incoming, learners",
        "voters=(*incoming,), learners",
        "voters change without a joint configuration",
    ),
    mutant(
        "members-change-leads-back",
        C7,
        f"{_CONFIGURATION}:finish",
        "for each in configuration.incoming",
        "for each in configuration.voters",
        "a joint configuration leads back to the old voters",
    ),
    mutant(
        "members-id-left-out",
        C5,
        f"{_CONFIGURATION}:_next",
        "configuration.id + 1",
        "configuration.id + 2",
        "the ids of configurations are not contiguous",
    ),
    mutant(
        "members-two-changes-at-once",
        C7,
        f"{_MEMBERSHIP}:_why_busy",
        "leading.change is not None:",
        "False:",
        "a change begins while another one is under way",
    ),
    mutant(
        "members-next-step-before-commit",
        C7,
        f"{_MEMBERSHIP}:advance",
        "state.configurations.newest_index <= state.commit and ",
        "",
        "the joint configuration is left before it is committed",
    ),
    mutant(
        "members-next-leader-leaves-it",
        C7,
        f"{_MEMBERSHIP}:_on_committed",
        "if is_joint(in_force):",
        "if is_joint(in_force) and change is not None:",
        "a leader does not end the change that another one began",
    ),
    mutant(
        "members-offered-again",
        C7,
        f"{_MEMBERSHIP}:_offer",
        "not gen.is_open or gen.number == change.offered_gen",
        "not gen.is_open",
        "a CONFIG is offered in each step until it is appended",
    ),
    mutant(
        "members-progress-of-another-replica",
        C6,
        f"{_MEMBERSHIP}:_on_appended",
        "peer in replaced and ",
        "False and ",
        "what a lost replica had is counted for the one that has its number now",
    ),
    mutant(
        "members-learner-gets-no-log",
        "SAFETY C8",
        "logstore.raft.state:State.count_voters",
        "for each in present(in_force)",
        "for each in counted(in_force)",
        "learners are sent nothing",
    ),
    mutant(
        "members-vote-of-a-number",
        "SAFETY C5A",
        "logstore.raft.state:State.may_vote_for",
        "self.meta.vote_uuid == uuid or not self._has_config",
        "True",
        "a second replica of a number gets a vote that the first one has",
        unreachable="both must ask in one term, and the second one's log be as new as the voter's: "
        "tests/paper/test_joins.py finds it",
    ),
    mutant(
        "members-vote-of-a-number-without-its-config",
        "SAFETY C5A, C12",
        "logstore.raft.state:State.may_vote_for",
        "or not self._has_config",
        "or not self.configurations.newest_index",
        "a vote kept as a number is given once more where META alone knows of a CONFIG",
        unreachable="both must ask one voter in one term, whose log has lost its CONFIG: not in "
        "10 seeds; tests/paper/test_joins.py finds it",
    ),
    mutant(
        "members-counted-by-number-alone",
        C6,
        "logstore.raft.state:State.count_voters",
        "as_counted_by(in_force, node, self.config.replica_uuid)",
        'as_counted_by(in_force, node, b"")',
        "a lost replica that is back counts itself as the one that has its number now",
        unreachable="it does not campaign by its own log, which has the CONFIG that names the "
        "other: tests/unit/test_raft_configuration.py finds it",
    ),
    mutant(
        "members-silent-majority",
        "SAFETY C11",
        f"{_MEMBERSHIP}:_who_is_silent",
        "if not sets.incoming or",
        "if True or",
        "a change begins whose new voters do not answer",
        unreachable="the cluster stands still until they are back, as it may when an operator "
        "forces it: tests/paper/test_changes_of_members.py finds it",
    ),
    mutant(
        "members-damaged-voter-stays",
        "SAFETY C13",
        f"{_MEMBERSHIP}:_who_is_damaged",
        "if not damaged:",
        "if True:",
        "a voter leaves that may have the only whole copy of an entry",
        unreachable="media of a minority rot, and others have a whole copy: "
        "tests/paper/test_changes_of_members.py finds it",
    ),
    mutant(
        "members-promoted-without-configuration",
        "SAFETY C8",
        f"{_MEMBERSHIP}:_why_behind",
        "if progress.match < state.configurations.newest_index:",
        "if False:",
        "a learner that does not vote yet becomes a voter that the majority needs",
        unreachable="its leader must end within milliseconds, beside a lost voter: one seed of"
        " 1,300 did; tests/paper/test_joins.py finds it",
    ),
    mutant(
        "members-only-voter-left-to-damage",
        "SAFETY C13",
        f"{_MEMBERSHIP}:_who_is_damaged",
        "or list(sets.incoming)",
        "or []",
        "the only voter is replaced by a learner that has an entry damaged",
        unreachable="a cluster of the simulation has more voters: "
        "tests/paper/test_changes_on_full_disks.py finds it",
    ),
    mutant(
        "members-judged-once",
        "SAFETY C11",
        f"{_MEMBERSHIP}:_offer",
        "if not is_next_step and",
        "if False and",
        "a change that waited for space begins though its majority is silent by then",
        unreachable="no promise is broken where others have a whole copy, and a silent majority is "
        "back in the end: tests/paper/test_changes_on_full_disks.py finds it",
    ),
    mutant(
        "members-lost-judged-once",
        "SAFETY C11, L5",
        f"{_MEMBERSHIP}:_why_not_lost",
        "if request is not None and request.kind is ChangeKind.JOIN:",
        "if False:",
        "a member that was heard again while a join under its number waited is removed alive",
        unreachable="a join must wait for space while the member is heard again: not in 9 seeds; "
        "tests/paper/test_changes_on_full_disks.py finds it",
    ),
    mutant(
        "members-trim-takes-configuration",
        "SAFETY C12",
        "actors.ingress.configuration_bound:ConfigurationBound.index",
        "if self._has_config else NO_INDEX",
        "if False else NO_INDEX",
        "a TRIM goes above the newest CONFIG",
    ),
)

# --- who is heard ---

_HEARD = (
    mutant(
        "members-any-uuid-heard",
        "SAFETY M6",
        "actors.ingress.peer_table:PeerTable._may_replace",
        "return is_silent or self._named.get(number) == uuid",
        "return True",
        "a second replica of a number is heard at once, and takes turns with the one that is named",
        unreachable="a machine of the world runs one replica at a time, and another one is heard "
        "anyway after an election timeout: tests/unit/test_ingress_peer_table.py finds it",
    ),
    mutant(
        "members-answers-of-any-uuid",
        "SAFETY M6",
        "actors.replicator.actor:ReplicatorActor._is_from_peer",
        "if uuid != self._peer_uuid:",
        "if False:",
        "a leader counts what the lost replica answers for the one that has its number now",
        unreachable="the old disk is put in for a moment only, and what it answers must be missing "
        "on the new one just then, which no seed from 1 to 10 meets: "
        "tests/unit/test_replicator_peers.py finds it",
    ),
    mutant(
        "members-configuration-forgotten",
        C5,
        "logstore.raft.state:State.__init__",
        "needs_one=recovered.has_config or config.has_joined",
        "needs_one=config.has_joined",
        "a replica whose log has lost its CONFIG counts the founders",
        unreachable="a log loses its CONFIG only by an install that a crash interrupts, and then "
        "the founders must be a majority that differs, which no seed from 1 to 10 meets: "
        "tests/paper/test_joins.py finds it",
    ),
)

# --- who joins ---

_JOINS = (
    mutant(
        "members-answered-by-the-first-heard-only",
        L4,
        "actors.replicator.actor:ReplicatorActor._receive_answers",
        "isinstance(message, Removed | JoinAnswer) and self._is_of_cluster(envelope)",
        "self._is_of_cluster(envelope) and (\n"
        "                isinstance(message, Removed)\n"
        "                or isinstance(message, JoinAnswer) and self._is_from_peer(envelope)\n"
        "            )",
        "one that asks for a place does not hear a leader that came under a number since",
        unreachable="the leader's number must have come to another replica while this one asked: "
        "not in 10 seeds; tests/unit/test_replicator_actor.py finds it",
    ),
    mutant(
        "members-prepared-on-an-empty-disk",
        "SAFETY L2",
        "logstore.raft.bootstrap:Bootstrap._on_prepare",
        "self.state == ReplicaState.EMPTY and not self._knows_no_cluster()",
        "False",
        "a lost disk comes back in place by an attempt that missed that the cluster was formed",
        unreachable="one machine coordinates at a time there: tests/unit/test_raft_bootstrap.py "
        "finds it",
    ),
    mutant(
        "members-join-unheard",
        L4,
        "actors.ingress.peers:Peers._takes_join",
        "is_of_cluster and is_other",
        "is_of_cluster and not is_other",
        "a replica that asks to join is not heard",
    ),
    mutant(
        "members-join-asked-once",
        L4,
        "actors.raft.joining:Joining.on_tick",
        "self.deadline_ns = now_ns + self._wait_ns",
        "self.deadline_ns = NEVER_NS",
        "a replica asks to join once in its life",
    ),
    mutant(
        "members-part-without-place",
        L4,
        "actors.raft.joining:Joining.__init__",
        "self.is_admitted = not self._is_learner or",
        "self.is_admitted = True or",
        "a replica votes before it has a place",
    ),
    mutant(
        "members-never-founded",
        C5,
        "actors.raft.first_configuration:FirstConfiguration.on_tick",
        "if not self._is_needed or",
        "if self._is_needed or",
        "no leader asks for the first CONFIG",
    ),
    mutant(
        "members-joined-as-the-lost-one",
        L5,
        "logstore.raft.joins:wanted",
        "return configuration.replace_in_place(in_force, held)",
        "return configuration._next(in_force, voters=tuple(\n"
        "        joining if each == held else each for each in in_force.voters\n    ))",
        "a replica on an empty disk is a voter at once",
    ),
    mutant(
        "members-never-lost",
        L5,
        "logstore.raft.joins:is_lost",
        "leading.began_ns <= since_ns and",
        "False and",
        "a lost voter is never replaced",
    ),
    mutant(
        "members-never-promoted",
        L5,
        f"{_CONFIGURATION}:intended",
        "if label == PROMOTE_LABEL:",
        "if label == REPLACES_KEY:",
        "a lost voter's replica stays a learner",
    ),
    mutant(
        "members-learners-unserved",
        "SAFETY C8",
        "actors.raft.peer_routes:_addresses",
        "in present(configuration)",
        "in configuration.voters",
        "no replicator talks to a learner",
    ),
)

# --- who was removed ---

_REMOVALS = (
    mutant(
        "members-removed-though-named",
        C10,
        "actors.ingress.replica_info:ReplicaInfo.removed_at",
        "return NO_INDEX if names else known.index",
        "return known.index",
        "a member that hears no leader is told that it was removed",
        unreachable="it shows nothing until its log has another CONFIG, which breaks no promise: "
        "tests/unit/test_ingress_removed.py finds it",
    ),
    mutant(
        "members-removed-by-an-older-one",
        C10,
        "actors.ingress.replica_info:ReplicaInfo.removed_at",
        "known is None or known.index < config_index",
        "known is None",
        "a replica that is behind the CONFIG that names another tells it that it was removed",
        unreachable="that one looks again at the index, and asks only without a leader: "
        "tests/unit/test_ingress_removed.py finds it",
    ),
    mutant(
        "members-removed-without-proof",
        C10,
        "actors.raft.removal:Removal.on_told",
        "self.was_member and ",
        "",
        "a replica that no CONFIG of its log has named believes that it was removed",
        unreachable="one that was never named asks for a place and not whether it was removed: "
        "tests/unit/test_raft_removal.py finds it",
    ),
    mutant(
        "members-removed-one-keeps-files-open",
        "SAFETY V7",
        "actors.egress.actor:EgressActor._readable",
        "    if visible == 0 or self._identity is None:\n        self._close_log()\n",
        "    if visible == 0 or self._identity is None:\n",
        "a replica that was removed keeps the space of removed files until it is stopped",
        unreachable="its writer must remove files meanwhile: seed 1329 shows it, 1 to 10 do not; "
        "`test_v7_a_replica_that_shows_nothing_any_more_keeps_no_file_open` finds it",
    ),
)

MUTANTS: tuple[Mutant, ...] = tuple(
    msgspec.structs.replace(each, classes=(FaultClass.MEMBERS,))
    for each in (*_COUNTING, *_CHANGES, *_HEARD, *_JOINS, *_REMOVALS)
)
