"""Programs that create a channel for each request: what the next channel learns from the last one, and what is left."""

from __future__ import annotations

from grpc_backoff import Connected
from grpc_backoff.core import limits
from tests.both_apis.api import backoff_ms
from tests.both_apis.log import Log
from tests.sync.service import place

SETTLE = 1.5


def test_a_channel_for_each_request(ours, monkeypatch):
    """CB-15: only the first connection is observed, if the peer answers on each until this side closes it."""
    monkeypatch.setattr(limits, "SETTLE", SETTLE)
    monkeypatch.setattr(limits, "SETTLE_UNNOTIFIED", SETTLE)
    log = Log()
    with place() as server:
        for _ in range(3):
            with ours.channel(server.target, backoff_ms(60_000, 60_000), listeners=[log.hear]) as channel:
                channel.begin(timeout=60).outcome(60)
    first, *others = (event.took for event in log.of(Connected))
    assert first >= SETTLE
    assert max(others) < SETTLE
    assert len(others) == 2, "no connection outlives its channel"
