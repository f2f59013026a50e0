"""Mutants of the produce port: who is answered, and when it is read (SAFETY E9, W6, W7)."""

from __future__ import annotations

from tests.mutants.mutant import Constant, Mutant, mutant

APPENDS = "actors.ingress.appends"
RETRIES = "actors.ingress.retries"
# What only costs a producer its ack timeout is no broken promise: a unit test shows it.
_ONLY_LATE = (
    "the producer asks again after its ack timeout; tests/unit/test_ingress_produce_port.py"
)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "bytes-of-a-gone-connection-count-for-the-next",
        "SAFETY W6",
        "transport.listening:Connection.count_early",
        "min(size_bytes, state.received)",
        "size_bytes",
        "a connection may leave as much more unread as was read late of the one before it",
        unreachable="the world's network has rules, and no sockets to count at: "
        "tests/unit/test_listening_accounts.py finds it",
    ),
    mutant(
        "answers-of-a-turn-go-to-one-connection",
        "SAFETY E9",
        "actors.ingress.acks:AckFeed.flush",
        "self._send(self._produce, route, self._replica.encode(message))",
        "last = [key[2] for key in self._rows if isinstance(key[2], bytes)][-1]\n"
        "            self._send(self._produce, last, self._replica.encode(message))",
        "what a do_work settles of several connections is sent to the last of them",
    ),
    mutant(
        "connections-of-a-producer-share-their-answers",
        "SAFETY E9",
        "actors.ingress.acks:AckFeed.acknowledge",
        "if key != last_key:",
        "if last_key is None or key[0] != last_key[0]:",
        "what one group settles of a producer is sent to the connection of its first batch",
        unreachable=_ONLY_LATE,
    ),
    mutant(
        "replies-leave-by-the-control-port",
        "SAFETY E8, E9",
        "actors.ingress.control:ControlPort._receive",
        "caller = Caller(frames[0], envelope.correlation, socket)",
        "caller = Caller(frames[0], envelope.correlation, self._socket)",
        "requests of the produce port are answered over the control socket",
    ),
    mutant(
        "produce-port-read-without-room",
        "SAFETY E6, W7",
        f"{APPENDS}:Appends.do_work",
        "    room_bytes = admission.room_bytes\n",
        "    room_bytes = max(admission.room_bytes, _CHARGE_MIN_BYTES)\n",
        "a batch is taken whether there is room or not, and while a snapshot is due",
    ),
    mutant(
        "awaited-batches-told-before-their-commit",
        "SAFETY E4",
        f"{RETRIES}:Retries.take_committed",
        "if origins[-1][3].is_committed(commit):\n"
        "            done += [each for each in origins if each[3].is_committed(commit)]",
        "if origins[-1][3].first_lsn:\n            done += origins",
        "a connection that asks for a batch is told that it is committed once it has LSNs",
    ),
    mutant(
        "awaited-batches-told-to-the-feed",
        "SAFETY E9",
        "actors.ingress.control:ControlPort._answer_session_state",
        "route: Route = request.round if caller.socket is self._socket else caller.routing_id",
        "route: Route = request.round",
        "a connection is never told of the commit of what SessionState said is in the log",
        unreachable=_ONLY_LATE,
    ),
    mutant(
        "late-copy-takes-the-answer",
        "SAFETY E9",
        f"{RETRIES}:Retries.await_commit",
        "self._awaited[key] = [*others[1 - ROUTES_PER_BATCH_MAX :], origin]",
        "self._awaited[key] = [origin]",
        "of several connections that wait for a batch only the last one to ask is answered",
        unreachable=_ONLY_LATE,
    ),
    mutant(
        "gap-told-to-one-connection",
        "SAFETY E9, FAULTS K5",
        "actors.ingress.admission:Admission._refused",
        "answered = (header.producer_epoch, push.route)",
        "answered = (header.producer_epoch, 0 if isinstance(push.route, bytes) else push.route)",
        "after one connection of a producer was told of a gap no other is",
        unreachable=_ONLY_LATE,
    ),
    mutant(
        "only-the-last-frame-is-counted",
        "SAFETY W6",
        f"{APPENDS}:_Port.receive",
        "sum(map(len, frames))",
        "len(frames[-1])",
        "one do_work copies any number of large frames that come before a small one",
        unreachable="what it costs is memory traffic, which no seed measures: "
        "`test_every_frame_of_garbage_counts_for_what_is_read_at_once` finds it",
    ),
    mutant(
        "one-port-before-the-other",
        "SAFETY W7",
        f"{APPENDS}:Appends._read",
        "            self._ports = self._ports[number:] + self._ports[:number]\n",
        "",
        "the append port is read until it is empty before the produce port is",
        unreachable="producers of a seed do not fill every group; unit tests do",
    ),
    Mutant(
        "requests-of-the-produce-port-have-no-turns",
        "SAFETY V6",
        "a crowd of SessionStates is answered in one do_work, however long that takes",
        (Constant(f"{APPENDS}:_REQUESTS_PER_WORK", 1 << 30),),
        unreachable="a seed has few producers; a unit test of the port has a crowd",
    ),
)
