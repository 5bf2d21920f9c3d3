"""Plans of calls at random, and a model of what a policy makes of each in the plainest words (RT-1, RT-3, RT-7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, repeat

from grpc_backoff import BackoffPolicy, Exponential, NoJitter, RetryPolicy
from tests.calls.driving import RETRYABLE


@dataclass(frozen=True)
class Outcome:
    """How an attempt ends, unless its time is up before."""

    code: str
    after: float
    pushback: str | None = None


ANSWER = Outcome("OK", 0.0)


@dataclass(frozen=True)
class Plan:
    """One combination; behind its script come answers."""

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

    attempts: int
    code: str
    at: float


def model(plan, slow=0.0):
    """Return what the policy says, in the plainest words; each attempt and each wait takes `slow` too long."""
    now, waits = 0.0, 0
    for attempts, outcome in enumerate(chain(plan.script, repeat(ANSWER)), 1):
        whole = plan.end - now
        own = math.inf if plan.timeout is None else plan.timeout
        took, code, pushback = outcome.after + slow, outcome.code, outcome.pushback
        if took >= min(own, whole):
            took, code, pushback = min(own, whole), "DEADLINE_EXCEEDED", None
        now += took
        retryable = code in RETRYABLE or (code == "DEADLINE_EXCEEDED" and own < whole)
        if not retryable or attempts == plan.max_attempts or (pushback is not None and int(pushback) < 0):
            return End(attempts, code, now)
        if pushback is None:
            wait, waits = min(plan.delay * 2.0**waits, plan.cap), waits + 1
        else:
            wait, waits = int(pushback) / 1000, 0
        wait += slow if wait else 0.0
        if now + wait >= plan.end:
            return End(attempts, code, now)
        now += wait
    raise AssertionError("the script has no end")
