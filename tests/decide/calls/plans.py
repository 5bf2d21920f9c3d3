"""Random plans for calls, and a simple model of how a policy handles each of them (RT-1, RT-3, RT-7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, repeat

from hypothesis import strategies as st

from grpc_backoff import BackoffPolicy, Exponential, NoJitter, RetryPolicy
from tests.decide.calls.driving import RETRYABLE


@dataclass(frozen=True)
class Outcome:
    """How an attempt ends, unless it runs out of time first."""

    code: str
    after: float
    pushback: str | None = None


ANSWER = Outcome("OK", 0.0)


@dataclass(frozen=True)
class Plan:
    """A policy, the caller's timeout, and a script of outcomes; attempts after the script succeed."""

    script: tuple[Outcome, ...]
    max_attempts: int | None
    delay: float
    cap: float
    timeout: float | None
    deadline: float | None
    callers: float | None

    @property
    def policy(self):
        """The call's policy."""
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
        """The deadline: the latest time at which the call may end, in seconds after its start."""
        return min(bound for bound in (self.deadline, self.callers, math.inf) if bound is not None)


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
    callers=st.sampled_from([0.6, 1.2, 2.0]),  # never None, because only this ends a hanging attempt without a timeout
)


@dataclass(frozen=True)
class End:
    """How a call ended, according to the model or in a run."""

    attempts: int
    code: str
    at: float


def model(plan):
    """Return the end of a call that follows this plan, computed as simply as possible."""
    now, waits = 0.0, 0
    for attempts, outcome in enumerate(chain(plan.script, repeat(ANSWER)), 1):
        whole = plan.end - now
        own = math.inf if plan.timeout is None else plan.timeout
        took, code, pushback = outcome.after, outcome.code, outcome.pushback
        if took >= min(own, whole):
            took, code, pushback = min(own, whole), "DEADLINE_EXCEEDED", None
        now += took
        exceeded = code == "DEADLINE_EXCEEDED" and own < whole and took > own - 0.02
        retryable = code in RETRYABLE or exceeded
        if not retryable or attempts == plan.max_attempts or (pushback is not None and int(pushback) < 0):
            return End(attempts, code, now)
        wait, waits = next_wait(plan, pushback, waits)
        if now + wait >= plan.end:
            return End(attempts, code, now)
        now += wait
    raise AssertionError("the script has no end")


def next_wait(plan, pushback, waits):
    """Return the wait after a failure, and the updated number of waits taken from the schedule."""
    if pushback is None:
        return min(plan.delay * 2.0**waits, plan.cap), waits + 1
    return int(pushback) / 1000, 0


class Late:
    """The model for a computer on which each attempt and each wait may take up to `slack` seconds too long.

    Each delay is independent of the others, so each moment is a range, from `soonest` to `latest`.
    """

    def __init__(self, plan, slack):
        self.ends = set()  # (attempts, code)
        self._plan = plan
        self._slack = slack
        self._attempt(1, 0, 0.0, 0.0)

    def _attempt(self, number, waits, soonest, latest):
        plan, slack = self._plan, self._slack
        outcome = next(iter(plan.script[number - 1 : number]), ANSWER)
        own = math.inf if plan.timeout is None else plan.timeout
        if outcome.after < min(own, plan.end - soonest):
            times = soonest + outcome.after, latest + outcome.after + slack
            self._ended(number, waits, outcome.code, outcome.pushback, times, retryable=outcome.code in RETRYABLE)
        if outcome.after + slack >= own and soonest + own < plan.end:
            times = soonest + own, latest + own + slack
            self._ended(number, waits, "DEADLINE_EXCEEDED", None, times, retryable=True)
        if min(outcome.after, own) + slack >= plan.end - latest:
            self.ends.add((number, "DEADLINE_EXCEEDED"))

    def _ended(self, number, waits, code, pushback, times, *, retryable):
        plan = self._plan
        if not retryable or number == plan.max_attempts or (pushback is not None and int(pushback) < 0):
            self.ends.add((number, code))
            return
        wait, waits = next_wait(plan, pushback, waits)
        soonest, latest = times[0] + wait, min(times[1] + wait + self._slack, plan.end)
        if latest >= plan.end:
            self.ends |= {(number, code), (number, "DEADLINE_EXCEEDED")}
        if soonest < plan.end:
            self._attempt(number + 1, waits, soonest, latest)
