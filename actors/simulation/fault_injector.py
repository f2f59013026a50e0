"""Injects the faults of a script into a simulated cluster, and heals it.

Owns when a fault begins and ends. Must not know phases, nor what is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial

import msgspec

from actors.simulation.checkers.facts import PowerCutAfterLie, SavesExcused
from actors.simulation.cluster import SimulatedCluster
from actors.simulation.disk.media_faults import EVERYWHERE, RotKind
from actors.simulation.faults.script import Fault, FaultKind, RotPlace
from actors.simulation.replica import Replica
from actors.simulation.world.random_streams import stream
from actors.topology import RAFT, WRITER
from logstore.format.level import FIRST_LEVEL
from transport.link import Lane

_ROT_KINDS = {
    "flip": RotKind.FLIPPED_BIT,
    "zero": RotKind.ZEROED,
    "garble": RotKind.GARBAGE,
    "misdirect": RotKind.MISDIRECTED,
    "stale": RotKind.STALE,
    "unreadable": RotKind.UNREADABLE,
}
_ROT_PLACES = frozenset(RotPlace)
_LOG_FILES = (".data", ".raft")
# How often it is looked for a joint configuration, which is left after a flush or two.
_LOOK_NS = 500_000


class FaultInjector:
    """`injected` counts faults by kind and by `kind.detail`. `ask_transfer` asks the operator for a
    handover, `ask_flood` all producers for many appends."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        ask_transfer: Callable[[int], None],
        ask_flood: Callable[[bool], None],
    ) -> None:
        self._ask_transfer = ask_transfer
        self._ask_flood = ask_flood
        self.injected: Counter[str] = Counter()
        self._cluster = cluster
        self._world = cluster.world
        self._is_over = False
        self._kept_old_disks: dict[int, tuple[int, int]] = {}  # node → the old disk, the newer one
        self._under_way: dict[tuple[FaultKind, Hashable], list[Fault]] = {}
        self._aims: dict[int, int] = {}  # group → the leader it is aimed at
        self._acts: dict[FaultKind, Callable[[Fault], None]] = {
            FaultKind.LINK_QUALITY: self._link_quality,
            FaultKind.PARTITION: self._partition,
            FaultKind.DISCONNECT: self._disconnect,
            FaultKind.KILL_PROCESS: self._kill_process,
            FaultKind.KILL_REPLICA: self._kill_replica,
            FaultKind.POWER_CUT: self._power_cut,
            FaultKind.PAUSE: self._pause,
            FaultKind.WALL_JUMP: self._wall_jump,
            FaultKind.MONOTONIC_JUMP: self._monotonic_jump,
            FaultKind.DISK_STALL: self._disk_stall,
            FaultKind.DISK_ERROR: self._disk_error,
            FaultKind.DISK_FULL: self._disk_full,
            FaultKind.LYING_FLUSH: self._lying_flush,
            FaultKind.ROT: self._rot,
            FaultKind.LOST_DISK: self._lost_disk,
            FaultKind.OLD_DISK: self._old_disk,
            FaultKind.TRANSFER: self._transfer,
            FaultKind.FLOOD: self._flood,
            FaultKind.RESTART: self._restart,
            FaultKind.VERSION: self._version,
        }

    def schedule(self) -> None:
        """Schedule the whole script; its times count from now."""
        for fault in self._cluster.script.faults:
            self._world.at(self._world.now_ns + fault.at_ns, self._strike, fault)

    def heal(self) -> None:
        """End all faults. Dead replicas stay dead."""
        self._is_over = True
        self._cluster.network.heal_all()
        for replica in self._cluster.replicas.values():
            replica.cancel_kills_and_stops()
            replica.disk.free_space()
            replica.disk.end_stalls()
            replica.stalled_until_ns = self._world.now_ns
            replica.disk.end_lying()
            replica.disk.failing.clear()
            replica.resume()
        for node in list(self._cluster.old_disks_in):
            self._end_old_disk(node)
        self.mend_versions()

    def mend_versions(self) -> None:
        """Give each replica that cannot read the newest level in any log a version that can."""
        level = self._cluster.ledger.record.entries.newest_level
        for replica in self._cluster.replicas.values():
            if replica.newest_level < level:
                replica.newest_level = level
                if replica.is_running:
                    replica.kill()
                    replica.start()

    def _strike(self, fault: Fault) -> None:
        if self._is_over:
            return
        if fault.awaits_joint and not self._cluster.ledger.record.is_joint_under_way:
            self._world.at(self._world.now_ns + _LOOK_NS, self._strike, fault)
            return
        fault = self._aimed(fault)
        if not {fault.node or 1, *fault.nodes} <= self._cluster.commissioned:
            return  # that machine does not run yet
        self.injected.update(fault.names)
        self._world.note(f"fault {fault.kind} {fault.node or fault.nodes or fault.links}")
        self._acts[fault.kind](fault)

    def _aimed(self, fault: Fault) -> Fault:
        """The fault with its real nodes."""
        if not fault.group:
            return fault
        if fault.group not in self._aims:
            self._aims[fault.group] = self._cluster.observer.leader or self._cluster.founders[0]
        nodes = sorted({*self._cluster.founders, self._aims[fault.group]})
        shift = nodes.index(self._aims[fault.group])

        def aim(node: int) -> int:
            return nodes[(node - 1 + shift) % len(nodes)] if node else 0

        process, dash, peer = fault.process.partition("-")
        return msgspec.structs.replace(
            fault,
            node=aim(fault.node),
            nodes=tuple(sorted(map(aim, fault.nodes))),
            links=tuple((aim(a), aim(b)) for a, b in fault.links),
            process=f"{process}-{aim(int(peer))}" if dash else process,
        )

    def _later(self, fault: Fault, action: Callable[[], None]) -> None:
        self._world.at(self._world.now_ns + fault.for_ns, self._unless_over, action)

    def _while(self, fault: Fault, where: Hashable, apply: Callable[[list[Fault]], None]) -> None:
        """Call `apply` now and when `fault` ends, with all active faults of its kind at `where`,
        oldest first: so the end of one leaves the others."""
        under_way = self._under_way.setdefault((fault.kind, where), [])

        def end() -> None:
            under_way.remove(fault)
            apply(under_way)

        under_way.append(fault)
        apply(under_way)
        self._later(fault, end)

    def _unless_over(self, action: Callable[[], None]) -> None:
        if not self._is_over:
            action()

    def _replica(self, fault: Fault) -> Replica:
        return self._cluster.replicas[fault.node]

    # --- network ---

    def _link_quality(self, fault: Fault) -> None:
        """Overlapping faults: the worst value of each kind counts."""
        network, low_ns = self._cluster.network, self._cluster.script.ground.link_delay_ns[0]

        def apply(link: tuple[int, int], lane: Lane, under_way: list[Fault]) -> None:
            delay_ns = max((each.delay_ns for each in under_way), default=0)
            network.set_quality(
                (link,),
                delay_ns=(low_ns, low_ns + delay_ns) if delay_ns else None,
                loss=max((each.loss for each in under_way), default=0),
                duplication=max((each.duplication for each in under_way), default=0),
                reordering=max((each.reordering for each in under_way), default=0),
                lane=lane,
            )

        for link in fault.links:
            for lane in _lanes(fault):
                self._while(fault, (link, lane), partial(apply, link, lane))

    def _partition(self, fault: Fault) -> None:
        """A "reset" holds messages, and loses them and the connections when it ends."""
        network = self._cluster.network

        def apply(link: tuple[int, int], lane: Lane, under_way: list[Fault]) -> None:
            if under_way:
                network.cut((link,), "drop" if under_way[-1].mode == "drop" else "hold", lane)
                return
            if fault.mode == "reset":
                network.disconnect((link,), lane)
            network.heal((link,), lane)

        for link in fault.links:
            for lane in _lanes(fault):
                self._while(fault, (link, lane), partial(apply, link, lane))

    def _disconnect(self, fault: Fault) -> None:
        self._cluster.network.disconnect(fault.links)

    # --- processes ---

    def _kill_process(self, fault: Fault) -> None:
        replica = self._replica(fault)
        if fault.calls < 0:
            replica.kill_process(fault.process)
        else:
            replica.kill_at_call(fault.process, fault.calls + 1, lambda: None)

    def _kill_replica(self, fault: Fault) -> None:
        replica = self._replica(fault)

        def kill() -> None:
            replica.kill()
            self._later(fault, replica.start)

        self._at_call(replica, fault, kill)

    def _power_cut(self, fault: Fault) -> None:
        """With `calls`, the first node that reaches its call cuts the power of all."""
        random = stream(fault.pick, "power-cut")
        replicas = [self._cluster.replicas[node] for node in fault.nodes]

        def cut() -> None:
            for replica in replicas:
                replica.cancel_kills_and_stops()
                if replica.disk.has_lies:
                    self._cluster.ledger.tell(PowerCutAfterLie(replica.node))
                    self._cluster.excuse_rest(replica.node)
                replica.power_cut(random, garble=fault.mode == "garble")
                self._excuse_rest_if_loss_is_unprovable(replica.node)
                self._later(fault, replica.start)

        for replica in replicas:
            self._at_call(replica, fault, cut)
            if fault.calls < 0:
                break

    def _at_call(self, replica: Replica, fault: Fault, act: Callable[[], None]) -> None:
        if fault.calls < 0 or not replica.is_running:
            act()
        elif fault.process:
            replica.kill_at_call_from(fault.process, fault.calls + 1, act)
        else:
            replica.kill_at_call("", fault.calls + 1, act)

    def _pause(self, fault: Fault) -> None:
        replica = self._replica(fault)
        paused = replica.actors_beside(fault.process)
        if not fault.process or RAFT in paused or WRITER in paused:
            self._excuse_saves(fault.node, self._world.now_ns + fault.for_ns)
        replica.pause(fault.process, fault.for_ns)

    def _excuse_saves(self, node: int, until_ns: int) -> None:
        self._cluster.ledger.tell(SavesExcused(node, until_ns))

    def _restart(self, fault: Fault) -> None:
        replica = self._replica(fault)
        replica.stop_orderly(partial(self._later, fault, replica.start))

    def _version(self, fault: Fault) -> None:
        core = self._cluster.observer.cores.get(fault.node)
        newest = fault.amount or (core.level if core else FIRST_LEVEL)
        replica = self._replica(fault)

        def start() -> None:
            if not replica.is_running:  # else it was started meanwhile, as what it was
                replica.newest_level = newest
                replica.start()

        if replica.is_running:
            replica.stop_orderly(partial(self._later, fault, start))
        else:
            replica.newest_level = newest

    def _transfer(self, fault: Fault) -> None:
        self._ask_transfer(fault.node)

    def _flood(self, fault: Fault) -> None:
        self._ask_flood(fault.mode == "again")

    # --- clocks ---

    def _wall_jump(self, fault: Fault) -> None:
        self._replica(fault).clock.jump_wall(fault.amount)

    def _monotonic_jump(self, fault: Fault) -> None:
        replica = self._replica(fault)
        replica.clock.jump_monotonic(fault.amount)
        replica.resume()

    # --- disks ---

    def _disk_stall(self, fault: Fault) -> None:
        replica = self._replica(fault)
        until_ns = self._world.now_ns + fault.for_ns
        replica.stalled_until_ns = max(replica.stalled_until_ns, until_ns)
        if not fault.process.endswith(_LOG_FILES):
            # A save that begins before the end still flushes two copies, each so much later.
            self._excuse_saves(fault.node, until_ns + 2 * fault.delay_ns)

        def apply(under_way: list[Fault]) -> None:
            worst_ns = max((each.delay_ns for each in under_way), default=0)
            replica.disk.stall(worst_ns, fault.process)

        self._while(fault, (fault.node, fault.process), apply)

    def _disk_error(self, fault: Fault) -> None:
        for _ in range(max(1, fault.amount)):
            self._replica(fault).disk.fail_next(fault.mode, fault.process)
        if fault.mode == "read":
            self._cluster.excuse(fault.node)

    def _disk_full(self, fault: Fault) -> None:
        disk = self._replica(fault).disk

        def apply(under_way: list[Fault]) -> None:
            if under_way:
                disk.fill()
            else:
                disk.free_space()

        self._while(fault, fault.node, apply)

    def _lying_flush(self, fault: Fault) -> None:
        disk = self._replica(fault).disk
        self._cluster.excuse(fault.node)

        def apply(under_way: list[Fault]) -> None:
            if under_way:
                disk.begin_lying()
            else:
                disk.end_lying()

        self._while(fault, fault.node, apply)

    def _rot(self, fault: Fault) -> None:
        """Sectors whose rot would make a loss unprovable are spared (FAULTS D33)."""
        random = stream(fault.pick, "rot")
        is_cached_too = bool(random.randrange(4))
        node, disk = fault.node, self._replica(fault).disk
        places = self._cluster.durability.places(node)
        aims = [(fault.process, EVERYWHERE)]
        if fault.process in _ROT_PLACES:
            extents = places.aim(RotPlace(fault.process), random, fault.amount)
            aims = [(extent.path, extent.within) for extent in extents]
        for path, within in aims:
            hit = disk.rot(
                random,
                _ROT_KINDS[fault.mode],
                _ends(path, folder=f"{self._replica(fault).folder}/"),
                is_cached_too=is_cached_too,
                within=within,
                spared=places.sectors_to_spare(),
            )
            if hit is not None:
                self._world.note(f"rot {hit[0]} sector {hit[1]}")
                self._cluster.excuse(node)
                self._cluster.durability.disk_changed(node)
                self._excuse_rest_if_loss_is_unprovable(node)

    def _lost_disk(self, fault: Fault) -> None:
        """Of a replica that may have voted: another one starts in its place (SAFETY L1, L5)."""
        cluster, replica = self._cluster, self._replica(fault)
        if cluster.may_lose(fault.node):
            replica.kill()
            cluster.lose(fault.node)
            self._later(fault, replica.start)

    def _old_disk(self, fault: Fault) -> None:
        """What was lost last is back for a while, with votes and entries of its own."""
        cluster, replica = self._cluster, self._replica(fault)
        disk = cluster.ledger.record.replicas[fault.node].disk
        if not disk or fault.node in cluster.old_disks_in:
            return
        replica.kill()
        cluster.old_disks_in[fault.node] = disk
        cluster.put_in(fault.node, disk - 1)
        replica.start()
        self._later(fault, partial(self._end_old_disk, fault.node))

    def _end_old_disk(self, node: int) -> None:
        """The newer disk is put in again, unless the cluster needs the old one."""
        cluster = self._cluster
        disk = cluster.old_disks_in.pop(node)
        if not cluster.ledger.record.is_member(node) or cluster.may_lose(node):
            self._put_in(node, disk)
        else:
            self._kept_old_disks[node] = cluster.ledger.record.replicas[node].disk, disk

    def mend_places(self) -> None:
        """Put in the newer disk where the old one was kept, and its replica was replaced since: no
        other one would ever come for its place."""
        record = self._cluster.ledger.record
        for node, (kept, disk) in list(self._kept_old_disks.items()):
            if record.replicas[node].disk != kept:  # an operator did
                del self._kept_old_disks[node]
            elif not record.is_member(node):
                del self._kept_old_disks[node]
                self._put_in(node, disk)

    def _put_in(self, node: int, disk: int) -> None:
        self._cluster.replicas[node].kill()
        self._cluster.put_in(node, disk)
        self._cluster.replicas[node].start()

    def _excuse_rest_if_loss_is_unprovable(self, node: int) -> None:
        cluster = self._cluster
        if node in cluster.excused and cluster.durability.places(node).has_unprovable_loss():
            cluster.excuse_rest(node)


def _lanes(fault: Fault) -> tuple[Lane, ...]:
    return (Lane[fault.lane.upper()],) if fault.lane else tuple(Lane)


def _ends(end: str, *, folder: str) -> Callable[[str], bool]:
    """Files of the disk that is in, not of one that was taken out."""
    return lambda path: path.startswith(folder) and path.endswith(end)
