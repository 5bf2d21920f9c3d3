"""RT-7 at random: deadlines, per-try timeouts, pushbacks and patterns of failure, against a model of the policy.

A thousand combinations with every try scripted and the clock in hand, where the end must come at its very moment; then
some more against a real server, where it may be late by as much as the machine is, which is measured beside it.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass
from itertools import chain, repeat

import grpc
import grpc.aio
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from grpc_backoff import (
    BackoffPolicy,
    CallExhausted,
    CallRetried,
    CallSucceeded,
    Exponential,
    NoJitter,
    Reason,
    RetryHooks,
    RetryPolicy,
    aio,
)
from grpc_backoff.aio.retried_calls import RETRIED_CALLS
from grpc_backoff.aio.retries import Retries
from grpc_backoff.retry.core_words import Link
from grpc_backoff.testing import FakeClock
from tests.aio.retry_service import CODE, HANG, RetryService, Say, peer_of
from tests.echo import EchoStub, Message

RETRYABLE = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})
TICK = 1 / 1024  # floats are exact in these, so that two ways to compute a moment agree to the last bit

# Plans without any end are among those that the model is compared with.
pytestmark = pytest.mark.filterwarnings("ignore:retries of .*:grpc_backoff.errors.PolicyWarning")


@dataclass(frozen=True)
class Outcome:
    """How a try ends, unless its time is up before."""

    code: str
    after: float
    pushback: str | None = None


ANSWER = Outcome("OK", 0.0)


@dataclass(frozen=True)
class Plan:
    """One combination; a script that runs out goes on with answers."""

    script: tuple[Outcome, ...]
    max_attempts: int | None
    delay: float
    cap: float
    timeout: float | None
    deadline: float | None
    callers: float | None

    @property
    def policy(self):
        """The policy of the call."""
        return RetryPolicy(
            backoff=BackoffPolicy(Exponential(self.delay, 2.0), self.cap, NoJitter()),
            max_attempts=self.max_attempts,
            codes=RETRYABLE,
            server_delay_jitter=0.0,
            timeout=self.timeout,
            deadline=self.deadline,
        )

    @property
    def end(self):
        """When the call has to be over."""
        return min(bound for bound in (self.deadline, self.callers, math.inf) if bound is not None)


@dataclass(frozen=True)
class End:
    """What a model, or a run, says of a plan."""

    tries: int
    code: str
    at: float


def model(plan, slow=0.0):
    """Return what the policy says, in the plainest words; each try and each wait takes `slow` longer than it should."""
    now, waits = 0.0, 0
    for tries, outcome in enumerate(chain(plan.script, repeat(ANSWER)), 1):
        whole = plan.end - now
        own = math.inf if plan.timeout is None else plan.timeout
        took, code, pushback = outcome.after + slow, outcome.code, outcome.pushback
        if took >= min(own, whole):
            took, code, pushback = min(own, whole), "DEADLINE_EXCEEDED", None
        now += took
        retryable = code in RETRYABLE or (code == "DEADLINE_EXCEEDED" and own < whole)
        if not retryable or tries == plan.max_attempts or (pushback is not None and int(pushback) < 0):
            return End(tries, code, now)
        if pushback is None:
            wait, waits = min(plan.delay * 2.0**waits, plan.cap), waits + 1
        else:
            wait, waits = int(pushback) / 1000, 0
        wait += slow if wait else 0.0
        if now + wait >= plan.end:
            return End(tries, code, now)
        now += wait
    raise AssertionError("the script has no end")


# On a clock in hand.


class Attempt(grpc.aio.UnaryUnaryCall):
    """A try that goes as its outcome says, on a fake clock."""

    out_of_time = "DEADLINE_EXCEEDED"

    def __init__(self, clock, outcome, seconds):
        self._done = asyncio.get_running_loop().create_future()
        self._callbacks = []
        self._trailing = grpc.aio.Metadata()
        code, after = outcome.code, outcome.after
        if seconds is not None and after >= seconds:
            code, after = self.out_of_time, seconds
        elif outcome.pushback is not None:
            self._trailing.add("grpc-retry-pushback-ms", outcome.pushback)
        self._code = CODE[code]
        clock.call_at(clock.now() + after, self._end)

    def _end(self):
        self._done.set_result(None)
        for callback in self._callbacks:
            callback(self)

    def __await__(self):
        yield from asyncio.shield(self._done).__await__()
        if self._code is not CODE.OK:
            raise grpc.aio.AioRpcError(self._code, grpc.aio.Metadata(), self._trailing, "by script")
        return "answer"

    def add_done_callback(self, callback):
        self._callbacks.append(callback)

    def done(self):
        return self._done.done()

    def cancelled(self):
        return False

    def cancel(self):
        raise AssertionError("nobody cancels here")

    def time_remaining(self):
        raise AssertionError("a try is not asked for the call's time")

    async def code(self):
        await asyncio.shield(self._done)
        return self._code

    async def details(self):
        return "by script"

    async def debug_error_string(self):
        return ""

    async def initial_metadata(self):
        return grpc.aio.Metadata()

    async def trailing_metadata(self):
        return self._trailing

    async def wait_for_connection(self):
        assert self.done(), "nobody waits for a connection here; asked behind the end, it says how that was"
        await self


class Run:
    """A call by a plan, with a clock in hand."""

    def __init__(self, plan, hooks=None):
        self.clock = FakeClock()
        self.begun, self.ended = [], []
        self._script = chain(plan.script, repeat(ANSWER))
        self.retries = Retries(
            target="target",
            clock=self.clock,
            loop=asyncio.get_running_loop(),
            rng=random.Random(1),
            hooks=hooks or RetryHooks(),
            tokens=None,
            replay_limit=0,
            stands_in=False,
            emit=lambda _event: None,
            listeners=[],
        )
        self.call = RETRIED_CALLS["unary_unary"](
            self.retries, plan.policy, "/method", self._make, plan.callers, None, link=lambda: Link.NONE
        )
        self.call.add_done_callback(lambda _call: self.ended.append(self.clock.now() - 1000.0))

    def _make(self, seconds, _metadata):
        self.begun.append(self.clock.now() - 1000.0)
        self.attempt = Attempt(self.clock, next(self._script), seconds)
        return self.attempt

    async def outcome(self):
        """Return the answer, or the error."""
        return (await asyncio.gather(self.call, return_exceptions=True))[0]


def ticks(least, most):
    return st.integers(least, most).map(lambda number: number * TICK)


CODES = st.sampled_from(["UNAVAILABLE", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "INTERNAL", "OK"])
PUSHBACKS = st.sampled_from([None, None, None, "0", "125", "500", "2000", "-1"])  # eighths of a second are exact
OUTCOMES = st.builds(Outcome, CODES, ticks(0, 512), PUSHBACKS)
PLANS = st.builds(
    Plan,
    script=st.lists(OUTCOMES, max_size=12).map(tuple),
    max_attempts=st.none() | st.integers(1, 10),
    delay=ticks(1, 512),
    cap=ticks(512, 2048),
    timeout=st.none() | ticks(1, 512),
    deadline=st.none() | ticks(1, 8192),
    callers=st.none() | ticks(1, 8192),
)


def plan_of(*script, max_attempts=None, delay=0.5, cap=2.0, timeout=None, deadline=None, callers=None):
    return Plan(script, max_attempts, delay, cap, timeout, deadline, callers)


@settings(max_examples=1000, deadline=None)
@given(plan=PLANS)
@example(plan=plan_of(Outcome("UNAVAILABLE", 0.25), callers=0.75))
@example(plan=plan_of(Outcome("UNAVAILABLE", 0.0, "500"), deadline=0.5))
@example(plan=plan_of(Outcome("OK", 0.5), timeout=0.5, callers=0.5))
async def test_a_thousand_combinations(plan):
    """RT-1, RT-3, RT-7: the number of tries and the moment of the end are the model's; the deadline is never passed."""
    run = Run(plan)
    await run.clock.advance(100_000)
    expected = model(plan)
    assert [End(len(run.begun), (await run.call.code()).name, ended) for ended in run.ended] == [expected]
    assert all(moment < plan.end for moment in run.begun), "no try begins when the time is up"
    assert expected.at <= plan.end
    outcome = await run.outcome()
    assert (outcome == "answer") == (expected.code == "OK")
    if isinstance(outcome, aio.RetriesExhaustedError):
        assert (outcome.attempts, outcome.took) == (expected.tries, expected.at)
    assert run.clock.armed() == []


async def test_woken_too_late():
    """CB-12, RT-7: a loop that was blocked beyond the deadline makes no further try, and the error says why."""
    run = Run(plan_of(Outcome("UNAVAILABLE", 0.0), callers=1.0))
    await run.clock.advance(0.25)
    assert run.clock.armed() == [1000.5]
    await run.clock.jump(10)
    error = await run.outcome()
    assert (error.code(), error.attempts, error.reason) == (CODE.UNAVAILABLE, 1, Reason.DEADLINE)
    assert len(run.begun) == 1


async def test_closed_in_the_moment_of_a_failure():
    """CB-10: a channel that is closed right behind a try's failure, before anything followed, ends the call as well."""
    run = Run(plan_of(Outcome("UNAVAILABLE", 0.25)))
    run.attempt.add_done_callback(lambda _attempt: run.retries.close())
    await run.clock.advance(0.25)
    await run.retries.all_closed()
    assert run.ended == [0.25]
    assert run.call.cancelled()
    assert isinstance(await run.outcome(), asyncio.CancelledError)


async def test_reset_when_its_time_is_up(monkeypatch):
    """RT-7: a try that the server resets when its time is up has taken too long, and is made again."""
    monkeypatch.setattr(Attempt, "out_of_time", "CANCELLED")
    run = Run(plan_of(Outcome("OK", 8.0), delay=0.25, timeout=0.5))
    await run.clock.advance(2)
    assert (run.begun, run.ended) == ([0.0, 0.75], [0.75])
    assert await run.outcome() == "answer"


async def test_reset_when_the_time_of_the_call_is_up(monkeypatch):
    """RT-6, RT-7: a last try that the server resets as the call's own time ends has met the call's deadline."""
    monkeypatch.setattr(Attempt, "out_of_time", "CANCELLED")
    run = Run(plan_of(Outcome("UNAVAILABLE", 0.0), Outcome("OK", 8.0), delay=0.25, callers=1.0))
    await run.clock.advance(2)
    assert (run.begun, run.ended) == ([0.0, 0.25], [1.0])
    error = await run.outcome()
    assert (error.code(), error.reason) == (CODE.DEADLINE_EXCEEDED, Reason.DEADLINE)


async def test_cancelled_by_the_server_in_its_time():
    """RT-2, RT-7: CANCELLED that comes before the try's time is up is the server's word, and the call's end."""
    run = Run(plan_of(Outcome("CANCELLED", 0.25), delay=0.25, timeout=0.5))
    await run.clock.advance(2)
    assert (run.begun, run.ended) == ([0.0], [0.25])
    assert (await run.outcome()).code() is CODE.CANCELLED


@pytest.mark.parametrize("name", ["refresh_credentials", "on_conflict", "on_exhausted"])
async def test_hooks_are_waited_for_by_the_channels_clock(name):
    """CB-12, RT-7: a hook that never ends is waited for until the deadline, on the clock that the channel was given."""

    async def never(_failed):
        await asyncio.Event().wait()

    code = {"refresh_credentials": "UNAUTHENTICATED", "on_conflict": "ABORTED", "on_exhausted": "UNAVAILABLE"}[name]
    before = asyncio.all_tasks()
    plan = plan_of(Outcome(code, 0.25), delay=100.0, cap=100.0, callers=64.0)  # with no time for a second try
    run = Run(plan, RetryHooks(**{name: never}))
    await run.clock.advance(63)
    assert run.ended == []
    await run.clock.advance(2)
    assert run.ended == [64.0]
    assert (await run.outcome()).code() is CODE[code]
    for task in asyncio.all_tasks() - before:
        task.cancel()


# On the wire.

FAILING = Outcome("UNAVAILABLE", 0.0)
HANGING = Outcome("UNAVAILABLE", math.inf)
PUSHED = [Outcome("UNAVAILABLE", 0.0, pushback) for pushback in ("0", "50", "250", "3000", "-1")]
REAL_PLANS = st.builds(
    Plan,
    script=st.lists(st.sampled_from([FAILING, FAILING, HANGING, *PUSHED]), min_size=1, max_size=8).map(tuple),
    max_attempts=st.none() | st.integers(2, 8),
    delay=st.sampled_from([0.02, 0.1, 0.4]),
    cap=st.just(0.5),
    timeout=st.sampled_from([None, 0.5, 0.8]),
    deadline=st.none() | st.sampled_from([0.3, 0.9, 1.6]),
    callers=st.sampled_from([0.6, 1.2, 2.0]),  # something has to end a try that hangs
)


def said(outcome):
    """Return how the server is to answer a try."""
    if outcome is HANGING:
        return HANG
    return Say(trailing=() if outcome.pushback is None else (("grpc-retry-pushback-ms", outcome.pushback),))


def tries_of(client):
    """Return how often a client's one call was tried."""
    for event in client.of(CallSucceeded) + client.of(CallExhausted):
        return event.attempt
    return 1 + len(client.of(CallRetried))


class Lateness:
    """How late this machine is at the moment: its event loop, and grpc's own deadlines on a plain channel."""

    def __init__(self, target):
        self.worst = 0.0
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time

    async def __aenter__(self):
        self._tasks = [asyncio.ensure_future(self._tick())]
        self._tasks += [asyncio.ensure_future(self._call(0.3 + 0.1 * number)) for number in range(20)]
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


@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(plans=st.lists(REAL_PLANS, min_size=30, max_size=30))
async def test_combinations_on_the_wire(plans):
    """RT-7: a real channel passes no deadline by more than the machine is late, and tries as often as the model says.

    Takes some eight seconds of real time: five times thirty calls at once.
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
            return End(tries_of(client), (await call.code()).name, ended[0])

        async with Lateness(peer.target) as lateness:
            ends = await asyncio.wait_for(asyncio.gather(*map(run, range(30), plans, clients)), 60)
    slack = 0.05 + lateness.worst
    for plan, end in zip(plans, ends, strict=True):
        assert end.at <= plan.end + slack, (plan, end, slack)
        allowed = [model(plan, slow=slack * share / 16) for share in range(17)]
        tries = [each.tries for each in allowed]
        assert min(tries) <= end.tries <= max(tries), (plan, end, allowed)
        codes = {each.code for each in allowed}
        if len(codes) == 1 and (codes != {"DEADLINE_EXCEEDED"} or len(set(tries)) == 1):
            assert {end.code} == codes, (plan, end, allowed)
