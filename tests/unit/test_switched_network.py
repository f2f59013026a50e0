"""Replicas at one switch: a node that is cut off hears nobody, and is back when it is mended."""

from __future__ import annotations

import socket

import pytest

from benchmarks.namespaces import Namespace
from benchmarks.switched_network import CLIENT, SwitchedNetwork, why_no_switch

WHY_NOT = why_no_switch()
PORT = 7_100
CUT_TIMEOUT_S = 0.2
REACHED_TIMEOUT_S = 30.0


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_a_node_that_is_cut_off_is_reached_by_nobody_until_it_is_mended() -> None:
    with (
        SwitchedNetwork([1, 2]) as network,
        network.entered(1),
        socket.create_server((network.address(1), PORT)),
    ):
        for place in (CLIENT, 2):
            with network.entered(place):
                _connect(network, REACHED_TIMEOUT_S)
        network.cut(1)
        for place in (CLIENT, 2):
            with network.entered(place), pytest.raises(OSError):
                _connect(network, CUT_TIMEOUT_S)
        network.mend(1)
        with network.entered(2):
            _connect(network, REACHED_TIMEOUT_S)


def _connect(network: SwitchedNetwork, timeout_s: float) -> None:
    socket.create_connection((network.address(1), PORT), timeout=timeout_s).close()


def test_without_the_right_a_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Namespace) -> None:
        raise PermissionError("unshare: Operation not permitted")

    monkeypatch.setattr(Namespace, "__init__", refuse)
    assert "not permitted" in why_no_switch()
    assert "as root" in why_no_switch()
