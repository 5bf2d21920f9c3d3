"""Calls that a program keeps make no channel dial: a server sees the connections that events report, and no others."""

from __future__ import annotations

import gc
import time

import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Connected, CoreRedial, Disconnected
from grpc_backoff.testing.front import accept_close, healthy, silent
from tests.both_apis.api import ARITIES, backoff_ms
from tests.both_apis.log import Log
from tests.sync.service import front, place, until

LIMIT = 0.3  # seconds
OPTIONS = backoff_ms(200, 300, round(1000 * LIMIT))
WATCHED = 2 * LIMIT  # seconds: a core that dials by itself would do so within one limit


@pytest.fixture(autouse=True)
def no_collection():
    """Keep what the calls leave behind, as a program may: a collection would release it."""
    gc.disable()
    yield
    gc.enable()


def test_kept_calls(ours):
    """CB-1, CB-10: calls of all arities, kept through an outage, cause no dials during it, after it, or after `close`.

    No call runs as the connection is lost, so grpcio's core has none for which it would dial. Takes about three
    seconds of real time.
    """
    log, kept = Log(), []
    with place() as server, front(healthy, server.port) as peer:

        def seen_as_told():
            """Watch for connections; the server must have seen one for each attempt and each redial."""
            time.sleep(WATCHED)
            told = len(log.of(AttemptStarted)) + len(log.of(CoreRedial))
            assert len(peer.visits) == told, [type(event).__name__ for event in log]

        with ours.channel(peer.target, OPTIONS, listeners=[log.hear]) as channel:

            def begin(**how):
                made = [channel.begin(arity, timeout=20, **how) for arity in ARITIES]
                kept.extend(made)
                return made

            def keep(**how):
                kept.extend([call.outcome() for call in begin(**how)])

            keep(wait_for_ready=True)
            for behaviour in (accept_close, silent):
                peer.behave(behaviour)
                lost, failed = len(log.of(Disconnected)), len(log.of(AttemptFailed))
                peer.break_all()
                log.until(Disconnected, lost + 1)
                connected = len(log.of(Connected))
                waiting = begin(wait_for_ready=True)
                log.until(AttemptFailed, failed + 2)
                keep()
                peer.behave(healthy)
                kept.extend([call.outcome() for call in waiting])
                log.until(Connected, connected + 1)
                keep()
                seen_as_told()
            peer.break_all()
        until(lambda: all(visit.ended is not None for visit in peer.visits))
        seen_as_told()
    answers = [each.texts for each in kept if hasattr(each, "texts")]
    assert answers.count(None) == 2 * len(ARITIES)  # the fail-fast calls of the two outages
