"""Signals end a command's waiting, and nothing that is half done."""

from __future__ import annotations

import os
import signal
from io import BufferedReader

import pytest

from logstore.cli.interrupts import InterruptibleSource, Interrupts


def test_a_signal_between_waits_is_kept_for_the_next_one() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            pytest.fail("the signal is due")


def test_a_signal_ends_reading() -> None:
    reading, writing = os.pipe()
    with Interrupts() as interrupts, os.fdopen(reading, "rb") as pipe:
        assert isinstance(pipe, BufferedReader)
        source = InterruptibleSource(pipe, interrupts)
        os.write(writing, b"x")
        assert source.read1(10) == b"x"
        previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        try:
            with pytest.raises(KeyboardInterrupt):
                source.read1(10)
        finally:
            signal.signal(signal.SIGALRM, previous)
            os.close(writing)


def test_a_pipe_that_does_not_block_has_not_ended_where_nothing_is_in_it_yet() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)  # as a parent leaves its children's stdin
    with Interrupts() as interrupts, os.fdopen(reading, "rb") as pipe:
        assert isinstance(pipe, BufferedReader)
        source = InterruptibleSource(pipe, interrupts)
        previous = signal.signal(signal.SIGALRM, lambda *_: os.write(writing, b"late"))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        try:
            assert source.read1(10) == b"late"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            os.close(writing)
        assert source.read1(10) == b""


def test_a_second_signal_gets_through_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
