"""Programs that create a channel for each request: what the next channel learns from the last one, and what is left."""

from __future__ import annotations

import itertools

import grpc

from grpc_backoff import AttemptStarted, Connected
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.testing.front import healthy
from tests.both_apis.api import backoff_ms
from tests.both_apis.log import Log
from tests.peers import SETTINGS
from tests.sync.service import front, place

SETTLE = 1.5


def test_a_channel_for_each_request(ours, monkeypatch):
    """CB-15: only the first connection is observed, if the peer answers on each until this side closes it."""
    monkeypatch.setattr(dial_times, "SETTLE", SETTLE)
    monkeypatch.setattr(dial_times, "SETTLE_UNNOTIFIED", SETTLE)
    log = Log()
    with place() as server:
        for _ in range(3):
            with ours.channel(server.target, backoff_ms(60_000, 60_000), listeners=[log.hear]) as channel:
                channel.begin(timeout=60).outcome(60)
    first, *others = (event.took for event in log.of(Connected))
    assert first >= SETTLE
    assert max(others) < SETTLE
    assert len(others) == 2, "no connection outlives its channel"


def test_a_familiar_peer_that_begins_to_hang_up(ours):
    """CB-7, CB-15: from the first such connection on, attempts are INITIAL_BACKOFF apart, on new channels too."""
    log, visits, codes = Log(), [], []

    async def hangs_up_later(visit):
        visits.append(visit)
        if len(visits) == 1:
            return await healthy(visit)
        return visit.writer.write(SETTINGS)

    with place() as server, front(hangs_up_later, server.port) as peer:
        for _ in range(3):
            with ours.channel(peer.target, backoff_ms(300, 300), listeners=[log.hear]) as channel:
                codes.append(channel.begin(timeout=60).outcome(60).code)
    assert codes == [grpc.StatusCode.OK, *2 * [grpc.StatusCode.UNAVAILABLE]]
    starts = [event.at for event in log.of(AttemptStarted)][1:]
    assert min(later - earlier for earlier, later in itertools.pairwise(starts)) >= 0.29
