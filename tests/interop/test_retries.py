"""Retries over broken connections: which calls may execute twice, and which the core still retries.

The tests use real sockets and real time. Durations are short and tolerances generous, so that the tests also pass on a
machine with two busy cores.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import grpc.aio
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hyperframe.frame import GoAwayFrame

from grpc_backoff import CallRetried, RetryBudget, WaitSource, aio
from grpc_backoff.testing.front import FlakyFront, healthy
from grpc_judge.runner.process import free_port
from tests.aio.retry_service import RetryService
from tests.echo import EchoStub, Message, serving
from tests.interop.processes import ServerProcess

QUICK = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]
UNARY, OTHER = "echo.v1.Echo/Unary", "echo.v1.Echo/Down"
CODE = grpc.StatusCode


# A server that is killed while calls are running.


class NotingProcess(ServerProcess):
    """A server process that takes 0.1 s for each call and records in a file which calls it begins to execute."""

    def __init__(self, port, notes):
        super().__init__(port)
        self.notes = notes
        notes.touch()

    async def start(self):
        await self._start("-m", "tests.aio.retry_service", str(self.port), str(self.notes))

    def executed(self):
        """Return the number of times that each text was executed."""
        return Counter(self.notes.read_text().split())


class Caller:
    """Ten workers. Each makes one call after another, with a new text each time, and records the outcomes."""

    def __init__(self, name, channel, server):
        self.name = name
        self.stub = EchoStub(channel)
        self.server = server
        self.outcomes = {}
        self.stopping = False

    async def work(self, worker):
        number = 0
        while not self.stopping:
            number += 1
            text = f"{self.name}-{worker}-{number}"
            call = self.stub.Unary(Message(text=text), timeout=60)
            self.outcomes[text] = await call.code()
            await asyncio.sleep(0.01)

    def executed(self):
        """Return the number of times that each of this caller's texts was executed."""
        counted = self.server.executed()
        return {text: counted[text] for text in self.outcomes}


async def in_flight(server, callers):
    """Wait until each caller has a call that is being executed."""
    before = server.executed()
    async with asyncio.timeout(30):
        while not all(
            any(text.startswith(caller.name) for text in server.executed() - before if text not in caller.outcomes)
            for caller in callers
        ):
            await asyncio.sleep(0.005)


async def answered(callers, more):
    """Wait for `more` further answers to each caller; the first few may belong to interrupted calls."""
    goals = {caller: Counter(caller.outcomes.values())[CODE.OK] + more for caller in callers}
    async with asyncio.timeout(60):
        while any(Counter(caller.outcomes.values())[CODE.OK] < goal for caller, goal in goals.items()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("transparent", [True, False], ids=["beside a core that retries", "alone"])
async def test_server_killed_under_calls(tmp_path, transparent):
    """CH-7, RT-10: without a policy nothing executes twice; with one, calls in flight execute again.

    The server is killed three times under two channels of ten workers. It records which calls it begins to execute.
    """
    retry = "max_attempts: 50, delay: 50ms, backoff: exponential, max_delay: 300ms"
    heard = []
    async with NotingProcess(free_port(), tmp_path / "executed") as server:
        target = f"127.0.0.1:{server.port}"
        async with (
            aio.insecure_channel(target, options=QUICK, retry={OTHER: retry} if transparent else None) as once,
            aio.insecure_channel(
                target, options=QUICK, retry={UNARY: retry} if transparent else retry, listeners=[heard.append]
            ) as again,
        ):
            callers = [Caller("once", once, server), Caller("again", again, server)]
            workers = [asyncio.ensure_future(caller.work(worker)) for caller in callers for worker in range(10)]
            for _ in range(3):
                await in_flight(server, callers)
                await server.kill()
                await asyncio.sleep(0.2)
                await server.start()
                await answered(callers, 30)
            for caller in callers:
                caller.stopping = True
            await asyncio.wait_for(asyncio.gather(*workers), 60)
        without, with_retries = (caller.executed() for caller in callers)
        outcomes = [Counter(caller.outcomes.values()) for caller in callers]

    assert max(without.values()) == 1
    assert all(without[text] == 1 for text, code in callers[0].outcomes.items() if code is CODE.OK)
    lost = [text for text, code in callers[0].outcomes.items() if code is CODE.UNAVAILABLE and without[text]]
    assert len(lost) >= 3, "calls that were executed, and whose callers were told UNAVAILABLE"
    assert set(outcomes[0]) == {CODE.OK, CODE.UNAVAILABLE}

    assert set(outcomes[1]) == {CODE.OK}, "every call outlasts the restarts"
    assert min(with_retries.values()) == 1, "a call that nothing disturbed was executed once"
    assert max(with_retries.values()) <= 1 + 3, "once more for each kill"
    twice = sum(count - 1 for count in with_retries.values())
    assert 3 <= twice <= 3 * 10, "one for each call that was in flight, in each of three kills"
    assert twice <= len([event for event in heard if isinstance(event, CallRetried)]), "never more than once an attempt"


# GOAWAY: calls that the core still retries, and calls that this layer retries because the core cannot.


def goaway(times, last_stream, *, breaks=False):
    """Return a behaviour that answers the first `times` requests, one per connection, with GOAWAY, and then works."""
    left = times

    async def behave(visit):
        nonlocal left
        if not left:
            await healthy(visit)
            return
        left -= 1
        h2 = H2Connection(H2Configuration(client_side=False))
        h2.initiate_connection()
        visit.writer.write(h2.data_to_send())
        while data := await visit.reader.read(65536):
            events = h2.receive_data(data)
            visit.writer.write(h2.data_to_send())
            if any(isinstance(event, RequestReceived) for event in events):
                visit.writer.write(GoAwayFrame(0, last_stream_id=last_stream).serialize())
                await visit.writer.drain()
                await (asyncio.sleep(0.05) if breaks else visit.until_closed())
                return

    return behave


class Refused:
    """A call to a server whose first connections answer it with GOAWAY."""

    def __init__(self, behaviour, retry):
        self.behaviour, self.retry = behaviour, retry
        self.budget = RetryBudget(max_tokens=4, token_ratio=0.1)
        self.service, self.heard = RetryService(), []

    async def outcome(self):
        async with (
            serving(self.service) as port,
            FlakyFront(self.behaviour, upstream=("127.0.0.1", port)) as front,
            aio.insecure_channel(
                front.target, options=QUICK, retry=self.retry, retry_budget=self.budget, listeners=[self.heard.append]
            ) as channel,
        ):
            call = EchoStub(channel).Unary(Message(text="a"), timeout=60)
            code = await call.code()
            self.connections, self.tokens = len(front.visits), channel.calls.tokens
        self.retries = [event.source for event in self.heard if isinstance(event, CallRetried)]
        self.before = [seen.before for seen in self.service.tries["a"]]
        return code


@pytest.mark.parametrize("retry", [None, {OTHER: "retry: 3"}, {UNARY: "retry: 3, delay: 10ms"}])
async def test_the_core_still_makes_a_refused_call_again(retry):
    """RT-10, A6: unless all methods are retried, the core's transparent retry remains, and is not counted."""
    refused = Refused(goaway(1, 0), retry)
    assert await refused.outcome() is CODE.OK
    assert refused.retries == []
    assert refused.before == [None]
    assert refused.connections == 2


async def test_a_refused_call_is_made_again_once():
    """RT-9, RT-10, A6: if all methods are retried, this layer retries a refusal once; a second one is a failure.

    A refusal costs no token, because it says nothing about the server's health.
    """
    refused = await retried(1, [WaitSource.REFUSED])
    assert refused.before == [None], "such an attempt does not count"
    assert refused.tokens.left == 4
    refused = await retried(2, [WaitSource.REFUSED, WaitSource.SCHEDULE])
    assert refused.before == ["1"]
    assert refused.tokens.left == pytest.approx(3.1)


async def retried(times, sources):
    """Return a call that was refused this many times, and retried for these reasons.

    A loop that is late sometimes mistakes a refusal for a failure, so up to five calls are made.
    """
    for _ in range(5):
        refused = Refused(goaway(times, 0), "retry: 3, delay: 10ms")
        assert await refused.outcome() is CODE.OK
        if refused.retries == sources:
            return refused
    raise AssertionError(f"{refused.retries}: expected {sources}")


async def test_a_call_that_was_taken_is_not_refused():
    """RT-10, A6: if GOAWAY accepted a call and the connection then breaks, the attempt counts as a failure."""
    refused = Refused(goaway(1, 1, breaks=True), "retry: 3, delay: 10ms")
    assert await refused.outcome() is CODE.OK
    assert refused.retries == [WaitSource.SCHEDULE]
    assert refused.before == ["1"]
