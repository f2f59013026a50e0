"""The transcript language: commands that make one event each, and the literal effects they cause.

A file is a list of blocks: command lines, `----`, the effects of the last command, a blank line.
Lines that begin with `#` are comments. Commands:

    new node=1 voters=1,2,3 log=1,1,2 noops=1 term=2 vote=0 floor=0 faulty=2
        raises=3:2 newest=2               the entry at 3 raises the log to level 2, the newest read
    tick MS · time-out                    time passes · until the next deadline
    persisted SEQ · meta SEQ              the disk answers
    propose GEN PROP [count=1] [size=10] [flush=yes]
    append PEER term= stream= commit= index= log=… [noops=…] [raises=…]
    heartbeat PEER term= commit= round= prev= log=… [noops=…]
    hear PEER MESSAGE field=value …       any other control message
    answer PEER MESSAGE field=value …     a bulk answer, by way of the replicator
    level ID LEVEL · transfer ID TARGET · read ID · disk-full yes|no · ingress-stalled ·
    replicator-gone PEER · rotted INDEX
    state                                 prints the core's state instead of effects
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logstore.format import peer_messages
from logstore.format.level import NEWEST_LEVEL
from logstore.model import Index, NodeId
from logstore.raft import events
from logstore.raft.describe import describe, describe_core
from tests.paper.one_node import OneNode, rows_of


def run(text: str) -> str:
    """The transcript with the effects that the code has now."""
    node: OneNode | None = None
    blocks = []
    for comments, commands in _blocks(text):
        output: list[str] = []
        for command in commands:
            verb, *arguments = command.split()
            if verb == "new":
                node = _new(arguments)
                output = []
                continue
            assert node is not None, "a transcript begins with `new`"
            output = _execute(node, verb, arguments)
        blocks.append("\n".join([*comments, *commands, "----", *(output or ["(nothing)"])]))
    return "\n\n".join(blocks) + "\n"


def _blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    for block in text.strip().split("\n\n"):
        lines = block.split("\n----")[0].splitlines()
        comments = [line for line in lines if line.startswith("#")]
        yield comments, [line for line in lines if not line.startswith("#")]


def _execute(node: OneNode, verb: str, arguments: list[str]) -> list[str]:
    if verb == "state":
        return [describe_core(node.core)]
    return [describe(effect) for effect in _effects(node, verb, arguments)]


def _effects(node: OneNode, verb: str, arguments: list[str]) -> list[Any]:
    numbers = [int(each) for each in arguments if each.isdigit()]
    named = dict(each.split("=") for each in arguments if "=" in each)
    match verb:
        case "tick":
            return node.tick(*numbers)
        case "time-out":
            return node.time_out()
        case "persisted":
            return node.step(events.Persisted(*numbers))
        case "meta":
            return node.step(events.MetaPersisted(*numbers))
        case "propose":
            gen, prop = numbers
            count, size = int(named.get("count", 1)), int(named.get("size", 10))
            flush = named.get("flush") == "yes"
            return node.propose(prop, gen=gen, count=count, size=size, waits_for_flush=flush)
        case "append":
            row = _log(named)[int(named["index"]) - 1]
            fields = {each: int(named[each]) for each in ("term", "stream", "commit")}
            return node.hear_append(numbers[0], row, **fields)
        case "heartbeat":
            prev = int(named["prev"])
            row = _log(named)[prev - 1] if prev else None
            fields = {each: int(named[each]) for each in ("term", "commit", "round")}
            return node.hear_heartbeat(numbers[0], prev=row, **fields)
        case "hear":
            return node.hear(numbers[0], _message(arguments[1], named))
        case "answer":
            return node.hear_answer(numbers[0], _message(arguments[1], named))
        case _:
            return node.step(_operation(verb, arguments, numbers))


def _operation(verb: str, arguments: list[str], numbers: list[int]) -> Any:
    match verb:
        case "level":
            return events.LevelRequested(*numbers)
        case "transfer":
            return events.TransferRequested(numbers[0], NodeId(numbers[1]))
        case "read":
            return events.ReadIndexRequested(numbers[0])
        case "disk-full":
            return events.DiskFullChanged(arguments[0] == "yes")
        case "ingress-stalled":
            return events.IngressStalled()
        case "replicator-gone":
            return events.ReplicatorGone(NodeId(numbers[0]))
        case "connection-lost":
            return events.ConnectionLost(NodeId(numbers[0]))
        case "rotted":
            return events.EntryRotted(Index(numbers[0]))
        case _:
            raise AssertionError(f"unknown command {verb}")


def _new(arguments: list[str]) -> OneNode:
    named = dict(each.split("=") for each in arguments)
    values: dict[str, Any] = {
        "node": int(named.get("node", 1)),
        "voters": _numbers(named.get("voters", "1,2,3")),
        "rows": _log(named),
        "term": int(named.get("term", 0)),
        "vote": int(named.get("vote", 0)),
        "commit_floor": int(named.get("floor", 0)),
        "newest_level": int(named.get("newest", NEWEST_LEVEL)),
        "faulty": tuple((at, at) for at in _numbers(named.get("faulty", ""))),
    }
    return OneNode(**values)


def _log(named: dict[str, str]) -> list[Any]:
    noops = _numbers(named.get("noops", ""))
    return rows_of(_numbers(named.get("log", "")), noops=noops, raises=_raises(named))


def _raises(named: dict[str, str]) -> dict[Index, int]:
    """Levels by the entries that raise the log to them."""
    pairs = (each.split(":") for each in named.get("raises", "").split(",") if each)
    return {Index(int(index)): int(level) for index, level in pairs}


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def _message(name: str, named: dict[str, str]) -> Any:
    values: dict[str, Any] = {}
    for field, value in named.items():
        values[field] = value == "yes" if value in ("yes", "no") else int(value)
    return getattr(peer_messages, name)(**values)
