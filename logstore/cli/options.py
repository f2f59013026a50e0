"""Options that several commands share, and the client they give."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from logstore.limits import CLIENT_TIMEOUT_S, FIRST_LSN_MAX
from logstore.model import FIRST_LSN

# The nodes of configs/cluster-3.toml: each of them may be the one that is down.
DEFAULT_ENDPOINTS = "127.0.0.1:7100,127.0.0.1:7110,127.0.0.1:7120"

_F = TypeVar("_F", bound=Callable[..., Any])


class IntegerRange(click.IntRange):
    """A range of integers, of which click says that "abc" is no valid "integer range"."""

    name = "integer"


class NumberRange(click.FloatRange):
    """A range that NaN is not in: no comparison with it is true."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("nan is no number", param, ctx)
        return number


def endpoint_option(command: _F) -> _F:
    return click.option(
        "--endpoint",
        "endpoints",
        envvar="LOGSTORE_ENDPOINT",
        default=DEFAULT_ENDPOINTS,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[,…]",
        help="control ports of replicas; one that answers is enough to find the others",
    )(command)


def timeout_option(command: _F) -> _F:
    return click.option(
        "--timeout",
        "timeout_s",
        type=NumberRange(0.1, 3_600.0),
        default=CLIENT_TIMEOUT_S,
        show_default=True,
        help="seconds to wait for a leader or a replica",
    )(command)


def first_lsn_option(command: _F) -> _F:
    return click.option(
        "--first-lsn",
        "first_lsn",
        type=IntegerRange(FIRST_LSN, FIRST_LSN_MAX),
        metavar="LSN",
        help="where a new cluster's log begins, if not at 1; what is before it is kept elsewhere",
    )(command)


def json_option(command: _F) -> _F:
    return click.option(
        "--json", "json_path", metavar="FILE", help="write it there as JSON; - is stdout"
    )(command)
