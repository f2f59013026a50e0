"""Changes of the configuration: what a leader does from the request of an operator until the last
CONFIG of the change is committed, and when a replica that left gets the log no more (SAFETY C7-C9,
C11, C13).

Owns which CONFIG comes next and when. `configuration` says what may follow what; ingress writes the
body and proposes it, as every entry with one. Invariants: one change at a time, only after an entry
of this term is committed; a joint configuration that is committed is followed by the one that it
leads to, by whichever leader finds it.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from logstore.errors import ErrorCode, InvalidRequest, InvariantViolated
from logstore.format.configuration_body import NO_UUID, Configuration, Member, encode_configuration
from logstore.format.level import CONFIG_LEVEL
from logstore.model import NO_INDEX, NO_NODE, EntryKind, Index, NodeId
from logstore.raft import commit, configuration, gens, joins, replication, role, space, transfer
from logstore.raft.configuration import Refusal, Refused, by_number, is_joint
from logstore.raft.effects import ChangeAnswered, Log, ProposeConfiguration, StopLeading
from logstore.raft.events import ChangeKind, ChangeRequested, Proposed
from logstore.raft.progress import Progress
from logstore.raft.quorum import VoterSets
from logstore.raft.state import Change, Leading, State


class InForce(msgspec.Struct, frozen=True):
    """The configuration in force, the index of its entry, and whether that is committed, as far as
    is known. `waits_for`: what full disks hold up; empty: nothing, or another replica leads."""

    index: Index
    is_committed: bool
    configuration: Configuration
    waits_for: str


def on_requested(state: State, event: ChangeRequested) -> None:
    """Begin the change, or answer why not."""
    leading = state.leading
    if leading is None:
        _answer(state, event, ErrorCode.NOT_LEADER, "this replica does not lead")
        return
    if state.level < CONFIG_LEVEL:
        text = f"changes of the members need format level {CONFIG_LEVEL}: run `logstore upgrade`"
        _answer(state, event, ErrorCode.LEVEL_REFUSED, text)
        return
    in_force = state.configurations.in_force
    if reason := _why_busy(state, leading) or _who_came_instead(in_force, event):
        _answer(state, event, ErrorCode.NOT_READY, reason)
        return
    wanted = _wanted(state, leading, event)
    if wanted is None:
        _answer(state, event, ErrorCode.OK, "")
    elif isinstance(wanted, Refused):
        is_early = wanted.refusal is Refusal.NO_CONFIGURATION
        code = ErrorCode.NOT_READY if is_early else ErrorCode.INVALID_REQUEST
        _answer(state, event, code, wanted.text)
    elif reason := _why_not_now(state, leading, wanted, event):
        _answer(state, event, ErrorCode.NOT_READY, reason)
    else:
        _begin(leading, event, wanted)


def on_proposed(state: State, event: Proposed) -> None:
    """A group of ingress, perhaps the CONFIG that it was offered."""
    index = replication.on_proposed(state, event)
    if index is not None and event.configuration is not None:
        _on_appended(state, index, event.configuration)


def _on_appended(state: State, index: Index, appended: Configuration) -> None:
    """The CONFIG that this leader wanted is in its log, and in force (C5).

    Raises:
      InvariantViolated: it wanted another one, or none.
    """
    leading = state.leading
    change = None if leading is None else leading.change
    if leading is None or change is None or change.index or change.configuration != appended:
        raise InvariantViolated(f"CONFIG {appended} was appended, and not wanted")
    change.index = index
    replaced = _replaced(state.configurations.in_force, appended)
    state.configurations.append(index, appended)
    state.count_voters()
    now_ns = state.now_ns
    for peer in state.members:
        leading.leaving.pop(peer, None)
        if peer in replaced and leading.progress.pop(peer, None) is not None:
            state.emit(StopLeading(state.term, peer))
        if peer not in leading.progress:
            progress = Progress(
                peer, NO_INDEX, state.log.origin, heard_ns=now_ns, advanced_ns=now_ns
            )
            leading.progress[peer] = progress
            replication.begin_stream(state, progress, index)


def _replaced(before: Configuration, after: Configuration) -> set[NodeId]:
    """The numbers that are another replica's now."""
    uuids = {member.number: member.uuid for member in configuration.members(before)}
    return {
        member.number
        for member in configuration.present(after)
        if uuids.get(member.number, member.uuid) not in (member.uuid, NO_UUID)
    }


def begin_intended(state: State, leading: Leading) -> None:
    """Go on with what a learner was added for, once it has caught up. Called now and then."""
    in_force = state.configurations.in_force
    if not in_force.learners or state.configurations.newest_index > state.commit:
        return
    for learner in in_force.learners:
        wanted = configuration.intended(in_force, learner)
        if (
            isinstance(wanted, Configuration)
            and not _why_busy(state, leading)
            and not _why_not_now(state, leading, wanted, None)
        ):
            state.emit(Log(f"node {learner.number} has caught up: it becomes a voter"))
            _begin(leading, None, wanted)
            return


def advance(state: State) -> None:
    """Go on with the change that is under way, if there is one. Called after every event: hot."""
    leading = state.leading
    if leading is None or leading.settled == state.configurations.newest_index:
        return
    if leading.change is not None and not leading.change.index:
        _offer(state, leading, leading.change)
    elif state.configurations.newest_index <= state.commit and state.commit >= leading.noop_index:
        _on_committed(state, leading, state.configurations.in_force)


def _on_committed(state: State, leading: Leading, in_force: Configuration) -> None:
    """The newest CONFIG is committed."""
    change = leading.change
    if is_joint(in_force):
        following = configuration.finish(in_force)
        if isinstance(following, Refused):
            raise InvariantViolated(f"{in_force} leads nowhere: {following.text}")
        leading.change = _change_to(None if change is None else change.request, following)
        _offer(state, leading, leading.change)
        return
    if change is not None:
        text = f"node {state.config.node}: the members are those of configuration {in_force.id}"
        state.emit(Log(text))
        commit.answer_change(state, leading, ErrorCode.OK, "")
    _release_leaving(state, leading)
    is_voter = state.config.node in state.voters.voters
    if is_voter and not leading.leaving:
        leading.settled = state.configurations.newest_index
    elif not is_voter and leading.transfer is None:
        if leading.has_left or not transfer.begin_to_best(state, leading, caught_up_only=False):
            role.step_down(state, leading, "it is no voter any more")
        leading.has_left = True  # another transfer of its own would choose the same target


def _begin(leading: Leading, request: ChangeRequested | None, wanted: Configuration) -> None:
    leading.settled = None
    leading.change = _change_to(request, wanted)


def _change_to(request: ChangeRequested | None, wanted: Configuration) -> Change:
    return Change(request, wanted, len(encode_configuration(wanted)))


def _offer(state: State, leading: Leading, change: Change) -> None:
    """Offer the CONFIG once in each gen, until one takes it. Where full disks have no room for it,
    it would shut the gen to the TRIM that makes some (S9). What was true when it was asked for may
    not be any more: until it is in the log, a change is judged again at each offer, or given up."""
    gen = state.gen
    if not gen.is_open or gen.number == change.offered_gen:
        return
    if not space.leader_takes(state, EntryKind.CONFIG, change.size_bytes):
        return
    is_next_step = is_joint(state.configurations.in_force)  # there is no way back (C7)
    if not is_next_step and (
        reason := _why_not_now(state, leading, change.configuration, change.request)
    ):
        state.emit(Log(f"configuration {change.configuration.id} is given up: {reason}"))
        commit.answer_change(state, leading, ErrorCode.NOT_READY, reason)
        return
    change.offered_gen = gen.number
    state.emit(ProposeConfiguration(state.term, gen.number, change.configuration))


def _release_leaving(state: State, leading: Leading) -> None:
    """A replica that left gets the log until it has the CONFIG that says so, and was sent that this
    is committed, but no longer than for an election timeout (C9)."""
    progress = leading.progress
    if len(progress) == len(state.members):
        return
    last = state.configurations.newest_index
    for peer in [peer for peer in progress if peer not in state.members]:
        until_ns = leading.leaving.setdefault(peer, state.now_ns + state.config.election_timeout_ns)
        each = progress[peer]
        if state.now_ns >= until_ns or min(each.match, each.commit_sent) >= last:
            del progress[peer], leading.leaving[peer]
            state.emit(StopLeading(state.term, peer))


# --- what a change must be ---


def _wanted(
    state: State, leading: Leading, event: ChangeRequested
) -> Configuration | Refused | None:
    """The configuration that the request leads to, directly or by a joint one; None: a replica
    that asks to join is a member already. Whatever a request may lead to ends no leader: the next
    one would be asked the same."""
    wanted = _changed(state, leading, event)
    if isinstance(wanted, Configuration):
        try:
            encode_configuration(wanted)
        except InvalidRequest as error:
            return Refused(Refusal.NO_MEMBER, str(error))
    return wanted


def _changed(
    state: State, leading: Leading, event: ChangeRequested
) -> Configuration | Refused | None:
    kind, in_force = event.kind, state.configurations.in_force
    if kind is ChangeKind.FOUND:
        return _founded(in_force, event.members)
    if not in_force.id:
        return Refused(Refusal.NO_CONFIGURATION, "the log has no configuration yet: try again")
    if kind is ChangeKind.ADD:
        (added,) = event.members
        return configuration.why_not_labelled(added) or configuration.add_learner(in_force, added)
    if kind is ChangeKind.PROMOTE:
        learner = _of_number(in_force.learners, event.node)
        return _none(event.node) if learner is None else configuration.promote(in_force, learner)
    if kind is ChangeKind.REMOVE:
        found = _of_number((*in_force.learners, *in_force.voters), event.node)
        return _none(event.node) if found is None else configuration.remove(in_force, found)
    if kind is ChangeKind.REPLACE:
        return _replaced_by(in_force, event)
    if kind is ChangeKind.RENEW:
        return configuration.renew(in_force)
    if kind is ChangeKind.JOIN:
        return joins.wanted(state, leading, event.members[0])
    assert_never(kind)


def _replaced_by(in_force: Configuration, event: ChangeRequested) -> Configuration | Refused:
    """A lost voter by one in its place, a voter by one that is to come elsewhere, or by a
    learner."""
    voter = _of_number(in_force.voters, event.node)
    if event.by == NO_NODE:
        if voter is None:
            return _none(event.node)
        for place in event.members:
            return configuration.replace_elsewhere(in_force, voter, place.host, place.port)
        return configuration.replace_in_place(in_force, voter)
    learner = _of_number(in_force.learners, event.by)
    if voter is None or learner is None:
        return _none(event.node if voter is None else event.by)
    return configuration.replace(in_force, voter, learner)


def _founded(in_force: Configuration, members: tuple[Member, ...]) -> Configuration | Refused:
    """The first CONFIG has the voters that were counted without one (C5a)."""
    if in_force.id:
        return Refused(Refusal.CHANGE_UNDER_WAY, "the log has a configuration already")
    numbers = [member.number for member in in_force.voters]
    if [member.number for member in members] != numbers:
        return Refused(Refusal.NO_MEMBER, f"the voters are nodes {numbers}, in this order")
    return Configuration(1, members)


def _of_number(among: tuple[Member, ...], number: NodeId) -> Member | None:
    return next((member for member in among if member.number == number), None)


def _none(number: NodeId) -> Refused:
    return Refused(
        Refusal.NO_MEMBER, f"node {number} is no such member of this cluster: see `logstore status`"
    )


# --- when it may be ---


def _who_came_instead(in_force: Configuration, event: ChangeRequested) -> str:
    """Ingress has not heard yet that the replica that is meant has left, and another one has its
    number: asked again, it has (C6)."""
    if event.uuid == NO_UUID:
        return ""
    found = _of_number(configuration.members(in_force), event.node)
    if found is None or found.uuid == event.uuid:
        return ""
    return f"node {event.node} is another replica by now: ask again"


def _why_busy(state: State, leading: Leading) -> str:
    """Why no change can begin at this moment, whatever it is; empty: one can."""
    if state.commit < leading.noop_index:
        return "this leader is not ready yet"
    if leading.change is not None:  # also one that it found in its log
        waits_for = _why_no_space(state, leading, leading.change) or "wait until it is done"
        return f"another change of the members is under way: {waits_for}"
    if leading.transfer is not None:
        return "leadership is being handed over: ask the next leader"
    if not gens.may_open(state):
        return "the leader takes no entries now: its disk is full or damaged"
    return ""


def _who_still_leaves(state: State, leading: Leading, wanted: Configuration) -> str:
    """What this leader knows of a replica that has left, and still gets the log, is not true of the
    one that comes under its number."""
    numbers = {member.number for member in configuration.present(wanted)}
    for peer in leading.progress:
        if peer in numbers and peer not in state.members:
            return f"node {peer} has left a moment ago: try again"
    return ""


def _why_not_now(
    state: State, leading: Leading, wanted: Configuration, request: ChangeRequested | None
) -> str:
    """Why this change must wait; empty: it need not. `request` None: the leader begins it."""
    sets = by_number(wanted)
    joining = [node for node in sets.incoming if node not in sets.voters]
    reason = (
        _why_not_lost(state, leading, request)
        or _who_still_leaves(state, leading, wanted)
        or "; ".join(filter(None, (_why_behind(state, leading, node) for node in joining)))
    )
    if reason or (request is not None and request.is_forced):
        return reason
    return _who_is_silent(state, leading, sets) or _who_is_damaged(state, leading, sets)


def _why_behind(state: State, leading: Leading, node: NodeId) -> str:
    """Why a learner has not caught up (C8); empty: it has."""
    progress = leading.progress.get(node)
    since_ns = state.now_ns - state.config.election_timeout_ns
    if progress is None or not progress.has_replied or not progress.was_heard_since(since_ns):
        return f"node {node} has not answered within an election timeout"
    if progress.is_disk_full:  # it takes no batches: as a voter it would only raise the majority
        return _full_learner(node)
    if (progress.newest_level or 0) < (level := _newest_level(state, leading)):
        return f"node {node} has not said that it reads format level {level}: run a newer version"
    log = state.log
    if progress.match == log.last_index:
        return ""
    if progress.match < state.configurations.newest_index:  # it would not vote, but be needed (C8)
        return f"node {node} has not caught up: the newest configuration is not in its log yet"
    size_bytes = log.bytes_in_memory(progress.match) if progress.match else None
    if size_bytes is None:
        return f"node {node} has not caught up: it lacks {log.last_index - progress.match} entries"
    last_bytes = log.bytes_in_memory(log.last_index) or size_bytes
    behind_bytes = last_bytes - size_bytes
    if behind_bytes > state.config.bulk_window_bytes or progress.advanced_ns < since_ns:
        return f"node {node} has not caught up: it is {behind_bytes} bytes behind"
    return ""


def what_is_in_force(state: State) -> InForce:
    kept = state.configurations
    is_committed = kept.newest_index <= state.commit
    return InForce(kept.newest_index, is_committed, kept.in_force, _why_waiting(state))


def _why_waiting(state: State) -> str:
    """What a change, or a learner that is to become a voter, waits for on full disks (S9)."""
    leading = state.leading
    if leading is None:
        return ""
    if leading.change is not None and (why := _why_no_space(state, leading, leading.change)):
        return why
    learners = (each.number for each in state.configurations.in_force.learners)
    peers = (leading.progress.get(number) for number in learners)
    return "; ".join(_full_learner(each.peer) for each in peers if each and each.is_disk_full)


def _why_no_space(state: State, leading: Leading, change: Change) -> str:
    """Why the change under way waits for space; empty: it does not."""
    full = [peer for peer in state.electors if leading.progress[peer].is_disk_full]
    if state.is_disk_full:
        full.append(state.config.node)
    if change.index:
        waits = change.index > state.commit and space.lacks_space(state, leading)
    else:
        waits = not space.leader_takes(state, EntryKind.CONFIG, change.size_bytes)
    if not full or not waits:
        return ""
    return (
        f"configuration {change.configuration.id} waits for space, the disks of nodes "
        f"{sorted(full)} are full: free some, or trim the log"
    )


def _full_learner(node: NodeId) -> str:
    return f"node {node} reports a full disk: free some space there before it becomes a voter"


def _newest_level(state: State, leading: Leading) -> int:
    """Of the log, or to which it is being raised: no voter may stop at it (S11)."""
    return state.level if leading.raising is None else leading.raising.level


def _why_not_lost(state: State, leading: Leading, request: ChangeRequested | None) -> str:
    """Why the member whose place another replica is to have is not lost; empty: it may be."""
    if request is not None and request.kind is ChangeKind.JOIN:  # heard while the change waited
        (joining,) = request.members
        held = _of_number(configuration.present(state.configurations.in_force), joining.number)
        return "" if held is None else joins.why_not_lost(state, leading, held.number)
    if request is None or request.kind is not ChangeKind.REPLACE:
        return ""
    if request.by != NO_NODE or request.members:
        return ""
    if request.node == state.config.node:
        return f"node {request.node} leads: it is not lost"
    if request.is_forced or joins.is_lost(state, leading, request.node):
        return ""
    return (
        f"node {request.node} was heard within {joins.LOST_AFTER_TIMEOUTS} election timeouts: stop "
        "it first, or replace it by a replica at another address"
    )


def _who_is_silent(state: State, leading: Leading, sets: VoterSets[NodeId]) -> str:
    """Who of the new voters has not answered, if a majority of them has not (C11)."""
    since_ns = state.now_ns - state.config.election_timeout_ns
    heard = {
        peer
        for peer, each in leading.progress.items()
        if each.has_replied and each.was_heard_since(since_ns)
    } | {state.config.node}
    if not sets.incoming or VoterSets(sets.incoming).is_majority(heard):
        return ""
    silent = [node for node in sets.incoming if node not in heard]
    return (
        f"no majority of the new voters answers, nodes {silent} do not: see to them first, for "
        "a change that is forced would leave the cluster without a leader until they are back"
    )


def _who_is_damaged(state: State, leading: Leading, sets: VoterSets[NodeId]) -> str:
    """Who of the voters that stay, or come where none stays, has damaged entries, of which one that
    leaves may hold the only whole copy (C13)."""
    if set(sets.voters) <= set(sets.incoming):
        return ""  # none leaves
    stay = [node for node in sets.incoming if node in sets.voters] or list(sets.incoming)
    if state.now_ns - leading.began_ns < state.config.election_timeout_ns:
        peers = (leading.progress.get(node) for node in stay)
        unheard = [each.peer for each in peers if each is not None and not each.has_replied]
        if unheard:
            return f"nodes {unheard} have not said yet whether they are damaged: try again"
    damaged = [node for node in stay if (each := leading.progress.get(node)) and each.faulty_first]
    if state.faulty and state.config.node in stay:
        damaged.append(state.config.node)
    if not damaged:
        return ""
    return f"entries of nodes {damaged} are damaged: one that leaves may have them whole; force it"


def _answer(state: State, event: ChangeRequested, code: ErrorCode, reason: str) -> None:
    state.emit(ChangeAnswered(event.request_id, code, reason))
