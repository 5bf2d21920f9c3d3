"""FK-1: generations of channels, and when a channel is rejected. Each API's `test_forks.py` tests real forks."""

from __future__ import annotations

import pytest

from grpc_backoff import ForkError
from grpc_backoff.channel import forks


def test_a_generation():
    """FK-1: all channels of a process have the same generation; a channel of another generation is rejected."""
    assert forks.generation() is forks.generation()
    forks.refuse_inherited("target", forks.generation())
    with pytest.raises(ForkError, match="the channel to target was created before a fork"):
        forks.refuse_inherited("target", forks.Generation())


@pytest.mark.parametrize(
    ("after", "supported", "threaded", "asynchronous"),
    [
        ({}, False, True, True),
        ({"after_use": True}, False, False, False),
        ({"after_use": True}, True, True, True),
        ({"after_asyncio": True}, False, False, False),
        ({"after_asyncio": True}, True, True, False),
    ],
)
def test_what_is_refused(monkeypatch, after, supported, threaded, asynchronous):
    """FK-1: after a fork with open channels, new channels need fork support.

    If one of the open channels was an asyncio channel, new asyncio channels are rejected even with fork support.
    """
    monkeypatch.setattr(forks, "_now", forks.Generation(**after))
    monkeypatch.setattr(forks, "survives_forks", lambda: supported)
    for asyncio, may in ((False, threaded), (True, asynchronous)):
        if may:
            forks.check_core("target", asyncio=asyncio)
        else:
            with pytest.raises(ForkError, match="to target cannot be created in this process"):
                forks.check_core("target", asyncio=asyncio)


def test_one_warning(monkeypatch, caplog):
    """FK-2: if the core may have been dialling at the fork, the first channel in the child logs one warning."""
    monkeypatch.setattr(forks, "_now", forks.Generation(doubtful=True))
    for _ in range(2):
        forks.check_core("target")
    assert caplog.text.count("may have been dialling") == 1


def test_fork_support_is_asked_for():
    """FK-1: `survives_forks()` returns whether grpcio's fork support is on."""
    assert forks.survives_forks() in (True, False)
