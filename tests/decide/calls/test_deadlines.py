"""RT-7: random deadlines, attempt timeouts, pushbacks and failures, compared with a model of the policy.

The clock is simulated, so every call must end at the exact moment that the model computes.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.call_machine import CallPhase, Ending
from grpc_backoff.decide.calls.server_hint import read_hint
from tests.decide.calls.driving import BEGAN, Run
from tests.decide.calls.plans import ANSWER, REAL_PLANS, End, Late, Outcome, Plan, model

TICK = 1 / 1024  # floats hold its multiples exactly, so equal times compare equal


def play(plan, out_of_time="DEADLINE_EXCEEDED"):
    """Run a call by this plan, with timers that fire on time; attempts end as scripted, or when their time is up."""
    run, script = Run(plan.policy, timeout=plan.callers), iter(plan.script)
    run.answered = False
    while run.phase is not CallPhase.DONE:
        if run.phase is CallPhase.RUNNING:
            end_attempt(run, next(script, ANSWER), out_of_time)
        elif run.phase is CallPhase.SLEEPING:
            run.wake()
        else:
            run.feed(m.HookDone())
    return run


def end_attempt(run, outcome, out_of_time):
    """End the attempt with this outcome, unless its time is up first."""
    seconds = run.begun[-1][1]
    if seconds is not None and outcome.after >= seconds:
        run.fail(out_of_time, after=seconds)
    elif outcome.code == "OK":
        run.answered = True
        run.succeed(outcome.after)
    else:
        trailers = [] if outcome.pushback is None else [("grpc-retry-pushback-ms", outcome.pushback)]
        run.fail(outcome.code, after=outcome.after, hint=read_hint(trailers, (), lambda: 0.0))


def ticks(least, most):
    return st.integers(least, most).map(lambda number: number * TICK)


CODES = st.sampled_from(["UNAVAILABLE", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "INTERNAL", "OK"])
PUSHBACKS = st.sampled_from([None, None, None, "0", "125", "500", "2000", "-1"])  # eighths of a second are exact floats
PLANS = st.builds(
    Plan,
    script=st.lists(st.builds(Outcome, CODES, ticks(0, 512), PUSHBACKS), max_size=12).map(tuple),
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
@given(plan=PLANS, out_of_time=st.sampled_from(["DEADLINE_EXCEEDED", "CANCELLED"]))
@example(plan=plan_of(Outcome("UNAVAILABLE", 0.25), callers=0.75), out_of_time="CANCELLED")
@example(plan=plan_of(Outcome("UNAVAILABLE", 0.0, "500"), deadline=0.5), out_of_time="CANCELLED")
@example(plan=plan_of(Outcome("OK", 0.5), timeout=0.5, callers=0.5), out_of_time="CANCELLED")
def test_a_thousand_combinations(plan, out_of_time):
    """RT-1, RT-3, RT-7: attempts and end time match the model, even if the server cancels attempts that time out."""
    run, expected = play(plan, out_of_time), model(plan)
    code = "OK" if run.answered else run.state.failed
    assert End(len(run.begun), code, run.ended - BEGAN) == expected
    assert all(now - BEGAN < plan.end for now, _, _ in run.begun), "no attempt begins when the time is up"
    assert run.ended - BEGAN <= plan.end
    if run.finish.ending is Ending.EXHAUSTED:
        told = run.events[-1]
        assert (told.attempt, told.took) == (expected.attempts, expected.at)
    assert run.timer is None


@settings(max_examples=200, deadline=None)
@given(plan=REAL_PLANS, slack=st.sampled_from([0.0, 0.1]))
def test_the_model_of_a_late_machine(plan, slack):
    """The tolerant model allows the exact model's result, and without lateness at most one more attempt."""
    expected, allowed = model(plan), Late(plan, slack).ends
    assert (expected.attempts, expected.code) in allowed
    if not slack:
        assert {attempts for attempts, _ in allowed} <= {expected.attempts, expected.attempts + 1}
