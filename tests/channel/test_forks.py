"""FK-1: generations of channels, and what is refused in which; real forks are in the test_forks of both APIs."""

from __future__ import annotations

import pytest

from grpc_backoff import ForkError
from grpc_backoff.channel import forks


def test_a_generation():
    """FK-1: the channels of one process are of one generation, and may be used there."""
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
    """FK-1: after asyncio channels no asyncio channel works; grpcio's fork support helps in all other cases."""
    monkeypatch.setattr(forks, "_now", forks.Generation(**after))
    monkeypatch.setattr(forks, "survives_forks", lambda: supported)
    for asyncio, may in ((False, threaded), (True, asynchronous)):
        if may:
            forks.check_core("target", asyncio=asyncio)
        else:
            with pytest.raises(ForkError, match="to target cannot be created in this process"):
                forks.check_core("target", asyncio=asyncio)


def test_one_warning(monkeypatch, caplog):
    """FK-2: where the core may have been busy at the fork, the first channel says so, once."""
    monkeypatch.setattr(forks, "_now", forks.Generation(doubtful=True))
    for _ in range(2):
        forks.check_core("target")
    assert caplog.text.count("may have been dialling") == 1


def test_fork_support_is_asked_for():
    """FK-1: grpcio says whether it is on."""
    assert forks.survives_forks() in (True, False)
