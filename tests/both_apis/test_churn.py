"""Programs that create a channel for each request: what the next channel learns from the last one, and what is left."""

from __future__ import annotations

import asyncio
import itertools
import threading

import grpc
import pytest

from grpc_backoff import AttemptStarted, Closed, Connected, Disconnected
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.engine.spares import SPARES
from grpc_backoff.testing.front import healthy
from tests.both_apis.api import backoff_ms
from tests.both_apis.log import Log
from tests.certificates import client_credentials, server_credentials
from tests.peers import SETTINGS
from tests.sync.service import front, place, until

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
    assert len(others) == 2, "each channel hears of a connection"


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


@pytest.fixture
def unhurried(monkeypatch):
    """A connection may serve many channels in turn, even on a slow machine, and waits for longer than a test does."""
    monkeypatch.setattr(dial_times, "SPARE_UNTIL", 60.0)
    monkeypatch.setattr(dial_times, "SPARE_FOR", 60.0)
    yield
    SPARES.close()


def in_turn(ours, target, options=((), (), (), (), ()), **how):
    """Make a call on each of several channels, one after the other; return the codes."""
    codes = []
    for each in options:
        with ours.channel(target, each, **how) as channel:
            codes.append(channel.begin(timeout=20).outcome().code)
    return codes


class Visits:
    """A behaviour that lets a real server answer, and counts connections."""

    def __init__(self):
        self.made = []

    async def __call__(self, visit):
        self.made.append(visit)
        await healthy(visit)

    def are_over(self):
        return all(visit.ended is not None for visit in self.made)


@pytest.mark.usefixtures("unhurried")
def test_channels_in_turn_share_a_connection(ours):
    """SH-8: from the second connection on, the next channel takes it over; each channel hears its own events."""
    log, visits = Log(), Visits()
    with place() as server, front(visits, server.port) as peer:
        codes = in_turn(ours, peer.target, listeners=[log.hear])
        assert codes == 5 * [grpc.StatusCode.OK]
        assert len(visits.made) == 2
        for kind in (AttemptStarted, Connected, Closed):
            assert len({event.channel for event in log.of(kind)}) == 5
        assert visits.made[0].ended is not None, "the first is closed at once"
        SPARES.close()
        until(visits.are_over)


def test_a_connection_does_not_wait_for_long(ours):
    """SH-8: a tenth of a second after the last channel was closed, its connection is closed as well."""
    visits = Visits()
    with place() as server, front(visits, server.port) as peer:
        in_turn(ours, peer.target)
        until(visits.are_over)


@pytest.mark.usefixtures("unhurried")
def test_who_shares_no_connection(ours):
    """SH-8: a channel with other options, with credentials, or with a pool of its own, makes its own connection."""
    visits, other, own = Visits(), [("grpc.primary_user_agent", "another")], [("grpc.use_local_subchannel_pool", 1)]
    with place() as server, front(visits, server.port) as peer:
        in_turn(ours, peer.target, [(), (), other, (), other, other, *3 * [own]])
        assert len(visits.made) == 7, "the second `()` is used twice, and so is the second `other`"
        SPARES.close()
    secure = Visits()
    with place(credentials=server_credentials()) as server, front(secure, server.port) as peer:
        in_turn(ours, peer.target, credentials=client_credentials())
        assert len(secure.made) == 5


@pytest.mark.usefixtures("unhurried")
def test_a_channel_with_a_call_keeps_nothing(ours, way):
    """SH-8, CB-10: closing a channel still ends its calls, and the connection with them."""
    visits = Visits()
    with place() as server, front(visits, server.port) as peer:
        in_turn(ours, peer.target, [(), ()])
        with ours.channel(peer.target) as channel:
            channel.unary(timeout=20)
            call = channel.begin(way, ["hang"], timeout=20)
            until(server.servicer.hanging.is_set)
        assert call.outcome().code is grpc.StatusCode.CANCELLED
        until(server.servicer.cancelled.is_set)
        until(visits.are_over)


@pytest.mark.usefixtures("unhurried")
def test_stubs_of_a_closed_channel(ours):
    """SH-8: they do not reach the connection that another channel has taken over."""
    with place() as server:
        in_turn(ours, server.target, [(), ()])
        with ours.channel(server.target) as first:
            first.unary(timeout=20)
        with ours.channel(server.target) as second:
            second.unary(timeout=20)
            with pytest.raises((ValueError, grpc.aio.UsageError), match="closed"):
                first.unary(timeout=20)
            second.unary(timeout=20)


@pytest.mark.usefixtures("unhurried")
def test_a_peer_that_answers_once_per_connection(ours):
    """SH-8: if a channel gets no answer on a connection that it took over, none waits for the next channel."""
    visits = Visits()
    with place() as server, front(visits, server.port) as peer:
        in_turn(ours, peer.target, [(), (), ()])
        with ours.channel(peer.target) as channel:
            assert channel.begin(texts=["hang"], timeout=0.3).outcome().code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert len(visits.made) == 2
        assert in_turn(ours, peer.target) == 5 * [grpc.StatusCode.OK]
        assert len(visits.made) == 7


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("during", ["a call", "the time between"])
def test_a_peer_that_hangs_up_later(ours, monkeypatch, during):
    """SH-8: after that, no connection waits for the next channel, because it might be lost together with a call."""
    log, visits, over = Log(), [], threading.Event()

    async def hangs_up(visit):
        visits.append(visit)
        relay = asyncio.ensure_future(healthy(visit))
        while not over.is_set() and not relay.done():
            await asyncio.sleep(0.001)
        relay.cancel()

    def hang_up():
        over.set()
        until(lambda: all(visit.ended is not None for visit in visits))
        over.clear()

    with place() as server, front(hangs_up, server.port) as peer:
        in_turn(ours, peer.target, [(), (), ()])
        if during == "a call":
            monkeypatch.setattr(dial_times, "SPARE_UNTIL", 0.2)  # then the core is asked to notify
            with ours.channel(peer.target, listeners=[log.hear]) as channel:
                channel.unary(timeout=20)
                hang_up()
                until(lambda: log.of(Disconnected))
        else:
            hang_up()
            until(lambda: not any(spare.is_up() for spare, _ in SPARES._kept.values()))
        before = len(visits)
        assert in_turn(ours, peer.target) == 5 * [grpc.StatusCode.OK]
        assert len(visits) == before + 5
