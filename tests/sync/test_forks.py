"""FK-1: what a child of a fork can do with channels, in real children."""

from __future__ import annotations

import pytest

from grpc_backoff.sync import forks
from tests.echo import EchoStub, Message


def test_a_generation():
    """FK-1: the channels of one process are of one generation."""
    assert forks.generation() is forks.generation()


def test_nothing_is_refused_without_a_fork(server):
    """FK-1: a process that was not forked makes channels as it likes."""
    import grpc_backoff

    forks.check_core("target")
    with grpc_backoff.insecure_channel(server.target) as one, grpc_backoff.insecure_channel(server.target) as other:
        for channel in (one, other):
            assert EchoStub(channel).Unary(Message(text="a")).text == "a"


@pytest.mark.parametrize("name", ["generation", "note", "check_core"])
def test_it_is_documented(name):
    """FK-1: each says what it is for."""
    assert getattr(forks, name).__doc__
