"""Dials of grpcio's core that no attempt has ordered: the process is late. In real time."""

from __future__ import annotations

import asyncio
import threading
import time

import grpc
import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, CoreRedial, Disconnected
from grpc_backoff.testing.front import healthy, silent
from tests.both_apis.api import backoff_ms
from tests.both_apis.log import Log
from tests.both_apis.test_answers import calls, goaway
from tests.both_apis.test_pool import post
from tests.peers import SETTINGS
from tests.sync.service import front, place, until

LIMIT, LATE = 0.5, 5.0
PATIENT = "retry: 50, delay: 20ms, jitter: none"


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


def test_a_peer_that_refuses_calls_and_does_not_close(ours):
    """CB-7, CB-16: a connection that has refused a call by GOAWAY is retired, although the core stays READY.

    The peer writes SETTINGS and GOAWAY together. The calls have a policy, so the core does not hide the refusals.
    """
    log, visits = Log(), []

    async def refuses_twice(visit):
        visits.append(visit)
        if len(visits) > 2:
            return await healthy(visit)
        visit.writer.write(SETTINGS + goaway(0))
        return await visit.until_closed()

    options = backoff_ms(300, 300)
    with (
        place() as server,
        front(refuses_twice, server.port) as peer,
        ours.channel(peer.target, options, listeners=[log.hear], retry=PATIENT) as channel,
    ):
        codes = {channel.begin(timeout=60).outcome(60).code for _ in range(3)}
        assert codes == {grpc.StatusCode.OK}
        assert len(visits) == 3
        assert min(log.gaps()) >= 0.29, "it answered nothing, so the next attempt waits"


@pytest.mark.parametrize(
    ("options", "connections"), [([], 3), ([("grpc.enable_retries", 0)], 2), ([("grpc_backoff.reconnect", "eager")], 3)]
)
def test_a_trial(ours, options, connections):
    """CB-16: after calls without an answer, the core repeats no calls on the next connection, until one is answered."""
    log, visits = Log(), []

    async def hangs_up_once(visit):
        visits.append(visit)
        if len(visits) > 1:
            return await healthy(visit)
        visit.writer.write(SETTINGS)
        await visit.reader.readuntil(b"Unary")
        return None

    options = [*backoff_ms(100, 100), *options]
    with (
        place() as server,
        front(hangs_up_once, server.port) as peer,
        ours.channel(peer.target, options, listeners=[log.hear]) as channel,
    ):
        channel.ready()
        time.sleep(0.2)  # so that an eager channel dials again as soon as it is disconnected
        assert channel.begin(timeout=60).outcome().code is grpc.StatusCode.UNAVAILABLE
        log.until(Disconnected)
        stream = channel.begin("Both", iter(["a", done := threading.Event()]), timeout=60, wait_for_ready=True)
        assert stream.read() == "a"
        until(lambda: channel.unary(timeout=60, wait_for_ready=True) and len(visits) == connections)
        assert not log.of(CoreRedial)
        done.set()
        assert stream.outcome().code is grpc.StatusCode.OK, "it goes on after the trial"
        log.exactly(Disconnected, connections - 1)
        trials = [event for event in log.of(Disconnected) if "trial" in event.failure.reason]
        assert len(trials) == connections - 2
        assert not any(event.counted_as_failure for event in trials)
        assert len(visits) == connections


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "does not close"])
def test_a_core_that_repeats_nothing(ours, closes):
    """CB-16: with `grpc.enable_retries=0`, each refusal shows, so the core never redials, and no call hangs."""
    log, codes = Log(), []

    async def refuses(visit):
        visit.writer.write(SETTINGS + goaway(0))
        # Long after the calls were refused: for one that begins just as the peer closes, the core redials (CB-16).
        await asyncio.sleep(0.25) if closes else await visit.until_closed()

    options = [*backoff_ms(300, 300), ("grpc.enable_retries", 0)]
    with front(refuses) as peer, ours.channel(peer.target, options, listeners=[log.hear]) as channel:
        channel.start([calls(10, codes, timeout=20) for _ in range(4)])()
        assert set(codes) == {grpc.StatusCode.UNAVAILABLE}
        assert not log.of(CoreRedial)
        until(lambda: len(peer.visits) == len(log.of(AttemptStarted)))
        assert all(gap >= 0.29 for gap in log.gaps())
