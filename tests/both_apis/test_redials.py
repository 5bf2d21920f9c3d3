"""Dials of grpcio's core that no attempt has ordered: the process is late. In real time."""

from __future__ import annotations

import time

from grpc_backoff import AttemptFailed, AttemptStarted, CoreRedial
from grpc_backoff.testing.front import silent
from tests.both_apis.api import backoff_ms
from tests.both_apis.log import Log
from tests.both_apis.test_pool import post
from tests.sync.service import front, until

LIMIT, LATE = 0.5, 5.0


def test_a_process_that_is_late(ours):
    """CB-1, CB-12, CB-16: if the limit of an attempt passes unnoticed, the core's dials are few, and all are announced.

    The process is late by ten limits, and the core redials at gaps of at least 1.28 limits, which grow by 1.6.
    """
    log = Log()
    options = backoff_ms(200, 60_000, round(LIMIT * 1000))
    with front(silent) as peer, ours.channel(peer.target, options, listeners=[log.hear]) as channel:
        call = channel.begin(timeout=60, wait_for_ready=True)
        until(lambda: len(peer.visits) == 1)
        post(ours, channel, lambda: time.sleep(LATE))
        log.until(AttemptFailed)
        log.until(AttemptStarted, 2)
        until(lambda: len(peer.visits) >= len(log.of(AttemptStarted)))
        visits, announced = len(peer.visits), len(log.of((AttemptStarted, CoreRedial)))
        assert 3 <= visits <= 8, "the core did redial, but not at constant gaps"
        assert visits <= announced <= visits + 2
        assert log.of(AttemptStarted)[1].at - log.of(CoreRedial)[-1].at >= 0.19, "one INITIAL_BACKOFF"
        if ours.name == "asyncio":
            call.cancel()
