"""Clients that commit to one etcd key at the same time, and the results of their commits."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import grpc
import grpc.aio

from examples import etcd
from examples.gateway import Gateway, serving
from examples.protos import counters, counters_services
from grpc_backoff import aio
from grpc_backoff.decide.calls.events import CallRetried

__all__ = ["Plan", "Result", "measure"]

_DONE, _LOST = grpc.StatusCode.OK.name, grpc.StatusCode.ABORTED.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure.

    Attributes:
        clients: the numbers of concurrent clients; each number is measured separately.
        commits: how many commits each client makes.
        work: how many seconds the gateway computes between reading and writing.
        steady: whether a client continues as soon as its own commit has ended, without waiting for the other clients.
        policies: the clients' retry policies, by display name.
        seed: the seed of the jitter; None for a different one in each run.
    """

    clients: Sequence[int]
    commits: int
    work: float
    steady: bool
    policies: Mapping[str, str]
    seed: int | None


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit by one client: the status of each attempt, and the seconds that the call took, including waits."""

    codes: Sequence[str]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome for one number of clients with one policy.

    Attributes:
        clients: the number of clients.
        policy: the display name of the policy.
        commits: how many commits were requested.
        done: how many commits were reported as done.
        attempts: how many attempts all commits took together.
        most_attempts: the largest number of attempts that one commit took.
        unknown: how many attempts ended with neither success nor ABORTED, and therefore may or may not have written.
        median: the median duration of a call in seconds, done or not.
        largest: the largest duration in seconds.
        counter: the counter's final value in etcd.
    """

    clients: int
    policy: str
    commits: int
    done: int
    attempts: int
    most_attempts: int
    unknown: int
    median: float
    largest: float
    counter: int

    @property
    def adds_up(self) -> bool:
        """Whether the counter shows every commit that was reported as done, and none of them twice."""
        return self.done <= self.counter <= self.done + self.unknown


class Client:
    """A client that adds 1 to a counter, through its own channel."""

    def __init__(self, target: str, key: str, retry: str, rng: random.Random) -> None:
        """Connect with this retry policy; `retry` is a preset name or a policy string."""
        self.channel = aio.insecure_channel(target, retry=retry, rng=rng, listeners=[self._heard])
        self._stub = counters_services.CountersStub(self.channel)
        self._request = counters.CommitRequest(key=key, change=1)
        self._codes: list[str] = []

    async def commit(self) -> Commit:
        """Make one call. The channel makes as many attempts as its policy allows."""
        self._codes = []
        began = time.perf_counter()
        try:
            await self._stub.Commit(self._request)
        except grpc.aio.AioRpcError as error:
            self._codes.append(error.code().name)
        else:
            self._codes.append(_DONE)
        return Commit(self._codes, time.perf_counter() - began)

    def _heard(self, event: object) -> None:
        if isinstance(event, CallRetried):
            self._codes.append(event.code)


async def measure(plan: Plan, begins: Callable[[str], object]) -> list[Result]:
    """Measure every number of clients with every policy; `begins` is called with each pair before it starts."""
    results = []
    async with etcd.running() as store, serving(store, plan.work) as (target, gateway):
        for number in plan.clients:
            for policy in plan.policies:
                begins(f"{number} clients, {policy}")
                results.append(await _race(plan, number, policy, target, gateway))
    return results


async def _race(plan: Plan, number: int, policy: str, target: str, gateway: Gateway) -> Result:
    key, rng = uuid.uuid4().hex, random.Random(plan.seed)
    async with contextlib.AsyncExitStack() as stack:
        clients = [Client(target, key, plan.policies[policy], random.Random(rng.random())) for _ in range(number)]
        for client in clients:
            await stack.enter_async_context(client.channel)
            await client.channel.channel_ready()
        commits = await (_steadily if plan.steady else _at_once)(clients, plan.commits)
    counter, _ = await gateway.read(key)
    return _result(number, policy, commits, counter)


async def _at_once(clients: Sequence[Client], times: int) -> list[Commit]:
    """Have all clients commit at the same moment and wait for all of them before the next round."""
    rounds = [await asyncio.gather(*(client.commit() for client in clients)) for _ in range(times)]
    return [commit for commits in rounds for commit in commits]


async def _steadily(clients: Sequence[Client], times: int) -> list[Commit]:
    """Have each client commit again as soon as its previous commit has ended."""

    async def work(client: Client) -> list[Commit]:
        return [await client.commit() for _ in range(times)]

    return [commit for commits in await asyncio.gather(*map(work, clients)) for commit in commits]


def _result(number: int, policy: str, commits: Sequence[Commit], counter: int) -> Result:
    codes = [code for commit in commits for code in commit.codes]
    times = [commit.seconds for commit in commits]
    return Result(
        clients=number,
        policy=policy,
        commits=len(commits),
        done=codes.count(_DONE),
        attempts=len(codes),
        most_attempts=max(len(commit.codes) for commit in commits),
        unknown=sum(code not in {_DONE, _LOST} for code in codes),
        median=statistics.median(times),
        largest=max(times),
        counter=counter,
    )
