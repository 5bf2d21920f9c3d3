"""RT-7 on the wire: random plans on a real channel, compared with the model of the policy.

A call may end late by as much as the machine itself runs late, which is measured at the same time.
`tests/calls/test_deadlines.py` checks the same model exactly, a thousand times, on a fake clock.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from grpc_backoff import CallExhausted, CallRetried, CallSucceeded
from tests.aio.retry_service import CODE, HANG, RetryService, Say, peer_of
from tests.calls.plans import HANGING, REAL_PLANS, End, Late
from tests.echo import EchoStub, Message


def said(outcome):
    """Return the answer that the plan's server gives to an attempt."""
    if outcome is HANGING:
        return HANG
    return Say(trailing=() if outcome.pushback is None else (("grpc-retry-pushback-ms", outcome.pushback),))


def attempts_of(client):
    """Return how many attempts the client's only call made."""
    for event in client.of(CallSucceeded) + client.of(CallExhausted):
        return event.attempt
    return 1 + len(client.of(CallRetried))


class Lateness:
    """Measures how late this machine currently runs: its event loop, and plain grpc's deadlines and responses."""

    def __init__(self, target):
        self.worst = 0.0
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time

    async def __aenter__(self):
        self._tasks = [asyncio.ensure_future(self._tick())]
        self._tasks += [asyncio.ensure_future(self._call(0.3 + 0.1 * number)) for number in range(20)]
        self._tasks += [asyncio.ensure_future(self._answers()) for _ in range(5)]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tick(self):
        while True:
            began = self._now()
            await asyncio.sleep(0.005)
            self.worst = max(self.worst, self._now() - began - 0.005)

    async def _call(self, seconds):
        async with grpc.aio.insecure_channel(self._target) as channel:
            await channel.channel_ready()
            began = self._now()
            call = EchoStub(channel).Unary(Message(text="hang"), timeout=seconds)
            assert await call.code() is CODE.DEADLINE_EXCEEDED
            self.worst = max(self.worst, self._now() - began - seconds)

    async def _answers(self):
        async with grpc.aio.insecure_channel(self._target) as channel:
            await channel.channel_ready()
            while True:
                began = self._now()
                await EchoStub(channel).Unary(Message(text="plain"))
                self.worst = max(self.worst, self._now() - began)
                await asyncio.sleep(0.02)


@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(plans=st.lists(REAL_PLANS, min_size=30, max_size=30))
async def test_combinations_on_the_wire(plans):
    """RT-7: no call exceeds its deadline by more than the machine's lateness; the attempts match the model.

    Takes about eight seconds of real time: five times thirty concurrent calls.
    """
    loop, service = asyncio.get_running_loop(), RetryService()
    service.scripts |= {str(number): [said(outcome) for outcome in plan.script] for number, plan in enumerate(plans)}
    service.scripts["hang"] = [HANG] * 1000
    async with peer_of(service, secure=False) as peer:
        clients = [peer.client({"*": plan.policy}) for plan in plans]
        await asyncio.gather(*(client.channel.channel_ready() for client in clients))

        async def run(number, plan, client):
            ended = []
            began = loop.time()
            call = client.call(str(number), timeout=plan.callers)
            call.add_done_callback(lambda _call: ended.append(loop.time() - began))
            await asyncio.gather(call, return_exceptions=True)
            return End(attempts_of(client), (await call.code()).name, ended[0])

        async with Lateness(peer.target) as lateness:
            ends = await asyncio.wait_for(asyncio.gather(*map(run, range(30), plans, clients)), 60)
    slack = 0.05 + 3 * lateness.worst  # the worst moment may not have been measured
    for plan, end in zip(plans, ends, strict=True):
        assert end.at <= plan.end + slack, (plan, end, slack)
        allowed = Late(plan, slack).ends
        assert (end.attempts, end.code) in allowed, (plan, end, slack, allowed)
