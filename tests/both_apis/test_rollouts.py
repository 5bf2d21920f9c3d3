"""RO-3: calls that a stopping server cancels, and policies that list CANCELLED. Runs in real time."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallExhausted, CallRetried
from grpc_backoff.base.status import CANCELLED_BY_SERVER
from tests.both_apis.loops import LoopThread
from tests.both_apis.tries import fails, hangs
from tests.echo import services
from tests.sync.service import Echo, place, until

CODE = grpc.StatusCode
CANCELS = fails(code=CODE.CANCELLED)
LISTED = "retry: 3, delay: 1ms, codes: UNAVAILABLE, CANCELLED"


def test_a_policy_that_lists_it(trying, way, log):
    """RO-3: a policy whose codes list CANCELLED repeats a call that the server has cancelled."""
    with trying(CANCELS, retry=LISTED) as (service, channel):
        assert channel.begin(way, timeout=20).outcome().code is CODE.OK
        until(lambda: log.of(CallRetried))
    assert len(service.got) == 2
    assert [event.code for event in log.of(CallRetried)] == [CODE.CANCELLED.name]


@pytest.mark.parametrize("retry", ["standard", "retry: 3, delay: 1ms"])
def test_a_policy_that_does_not(trying, way, retry):
    """RO-3: without CANCELLED among the codes, a call that the server has cancelled ends with CANCELLED."""
    with trying(CANCELS, retry=retry) as (service, channel):
        assert channel.begin(way, timeout=20).outcome().code is CODE.CANCELLED
    assert len(service.got) == 1


def test_the_callers_own_cancellation(trying, cancellable):
    """RO-3: a call that its own caller cancels is not repeated, even if the codes of its policy list CANCELLED."""
    with trying(hangs, retry=LISTED) as (service, channel):
        call = channel.begin(cancellable, timeout=20)
        until(lambda: service.got)
        call.cancel()
        assert call.outcome().code is CODE.CANCELLED
        assert channel.unary(timeout=20) == "a"
    assert len(service.got) == 2


class Rollout:
    """A server of `grpc.aio` that is busy while calls arrive, and then stops with a grace period and starts again."""

    def __init__(self, port):
        self._port = port
        self._loop = LoopThread()
        self._busy = threading.Event()
        self._server = self._loop.run(self._start())

    async def _start(self):
        server = grpc.aio.server(ThreadPoolExecutor(8))
        services.add_EchoServicer_to_server(Echo(), server)
        assert server.add_insecure_port(f"127.0.0.1:{self._port}") == self._port
        await server.start()
        return server

    def restart(self):
        """Begin the restart; it takes half a second, in which the server accepts one call at the most."""
        self._restarted = self._loop.start(self._restart())
        assert self._busy.wait(20)

    async def _restart(self):
        self._busy.set()
        time.sleep(0.5)  # noqa: ASYNC251 - other calls arrive, and Python does not accept them (grpc/grpc#41785)
        await self._server.stop(5)
        self._server = await self._start()

    def close(self):
        self._restarted.result(30)
        self._loop.run(self._server.stop(None))
        self._loop.close()


@pytest.fixture
def rollout():
    with place(up=False) as held, contextlib.closing(Rollout(held.port)) as server:
        server.target = held.target
        yield server


@pytest.mark.parametrize("listed", [True, False])
def test_a_server_that_restarts(ours, rollout, log, listed):
    """RO-3: calls that a stopping server has not accepted end with CANCELLED; a policy that lists it repeats them."""
    retry = LISTED if listed else "standard"
    with ours.channel(rollout.target, listeners=[log.hear]) as channel:
        channel.ready()
        rollout.restart()
        made = [channel.begin(retry=retry, wait_for_ready=True, timeout=30) for _ in range(4)]
        codes = [call.outcome().code for call in made]
        told = {event.failure for event in log.of(CallRetried)}
        if listed:
            assert codes == [CODE.OK] * 4
            assert told == {f"CANCELLED, {CANCELLED_BY_SERVER}"}
        else:
            assert set(codes) == {CODE.CANCELLED, CODE.OK}
            assert told == set()


def test_a_server_that_goes_on_cancelling(trying, way, log):
    """RO-3, RT-6: the error and the event of a call that gives up say that it was not the caller who cancelled."""
    with trying(*[CANCELS] * 4, retry=LISTED) as (_, channel):
        outcome = channel.begin(way, timeout=20).outcome()
        assert outcome.code is CODE.CANCELLED
        assert f"; {CANCELLED_BY_SERVER}; " in outcome.details
        until(lambda: log.of(CallExhausted))
    assert log.of(CallExhausted)[0].failure == f"CANCELLED, {CANCELLED_BY_SERVER}"
