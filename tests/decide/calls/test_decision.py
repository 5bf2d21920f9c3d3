"""The decision after a failed attempt: each branch, and then the properties of every decision."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from grpc_backoff.decide.calls.call_machine import Progress
from grpc_backoff.decide.calls.decision import (
    FailedAttempt,
    GiveUp,
    Retry,
    costs_token,
    decide,
    is_conflict,
    is_retryable,
)
from grpc_backoff.decide.calls.events import Reason, WaitSource
from grpc_backoff.decide.calls.server_hint import ServerHint, hint_window
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.checks import STATUS_CODES
from grpc_backoff.policy.jitter import NoJitter
from grpc_backoff.policy.presets import RETRY_PRESETS
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Decorrelated, Exponential
from tests.policy.values import Always, retry_policies, unhurried

POLICY = RetryPolicy(
    backoff=BackoffPolicy(Exponential(2.0, 2.0), 30.0, NoJitter()),
    max_attempts=4,
    codes=frozenset({"UNAVAILABLE"}),
    server_delay_jitter=4.0,
    max_server_delay=60.0,
)
RETRIES_UNAUTHENTICATED = replace(POLICY, codes=frozenset({"UNAVAILABLE", "UNAUTHENTICATED"}))

BUSY = FailedAttempt(code="UNAVAILABLE")
BAD = FailedAttempt(code="INVALID_ARGUMENT")
EXPIRED = FailedAttempt(code="UNAUTHENTICATED")
RENEWABLE = EXPIRED._replace(can_refresh=True)
TOO_LATE = FailedAttempt(code="DEADLINE_EXCEEDED")
REFUSED = FailedAttempt(code="UNAVAILABLE", refused=True)
SAYS_REFUSED = FailedAttempt(code="UNAVAILABLE", says_refused=True)

# The progress of a call whose waits came from the schedule: 2 s, 4 s, 8 s.
FIRST = Progress()
SECOND = Progress(attempt=2, step=1, previous=2.0)
LAST = Progress(attempt=4, step=3, previous=8.0)

PUSHBACK = ServerHint(0.25, WaitSource.PUSHBACK)
STOP = ServerHint(None, WaitSource.PUSHBACK)
RETRY_INFO = ServerHint(10.0, WaitSource.RETRY_INFO)
RETRY_AFTER = ServerHint(20.0, WaitSource.RETRY_AFTER)


def decided(failure=BUSY, progress=FIRST, policy=POLICY, **given):
    given = {"left": None, "budget_spent": False, "rng": Always(0.5), **given}
    return decide(policy, progress, failure, **given)


def says(word, failure=BUSY):
    return failure._replace(hint=word)


ONE_ATTEMPT = replace(POLICY, max_attempts=1)
UNBOUNDED = replace(POLICY, max_server_delay=None)
AFTER_REFRESH = Progress(attempt=2, step=1, refreshed=True)

SCHEDULED = Retry(2.0, WaitSource.SCHEDULE, Progress(attempt=2, step=1, previous=2.0))
REPEATED = Retry(0.0, WaitSource.REFUSED, Progress(refused=True))
RENEWED = Retry(0.0, WaitSource.REFRESH, AFTER_REFRESH, refresh=True)
RENEWED_LATER = Retry(4.0, WaitSource.SCHEDULE, Progress(attempt=3, step=2, previous=4.0, refreshed=True), refresh=True)


def branch(following, **given):
    """Return the decision that should follow from these arguments, and the arguments."""
    return given, following


BRANCHES = {
    # RT-2: the code.
    "RT-2: a code that is not retried": branch(GiveUp(), failure=BAD),
    "RT-2: nor by pushback": branch(GiveUp(), failure=says(PUSHBACK, BAD)),
    "RT-2: nor by RetryInfo": branch(GiveUp(), failure=says(RETRY_INFO, BAD)),
    "RT-2: nor where a message is too large": branch(GiveUp(), failure=BUSY._replace(oversized=True)),
    "A6: but what was never taken": branch(REPEATED, failure=BAD._replace(refused=True)),
    "RT-2: a code that is": branch(SCHEDULED),
    # RT-1: the number of attempts.
    "RT-1: one attempt is no retry": branch(GiveUp(), policy=ONE_ATTEMPT),
    "A6: but what was not taken": branch(REPEATED, policy=ONE_ATTEMPT, failure=REFUSED),
    "RT-1: nor with new credentials": branch(
        GiveUp(), policy=replace(RETRIES_UNAUTHENTICATED, max_attempts=1), failure=RENEWABLE
    ),
    "RT-1: the second of two": branch(SCHEDULED, policy=replace(POLICY, max_attempts=2)),
    "RT-1: no third of two": branch(GiveUp(Reason.ATTEMPTS), policy=replace(POLICY, max_attempts=2), progress=SECOND),
    "RT-1: no fifth of four": branch(GiveUp(Reason.ATTEMPTS), progress=LAST),
    "RT-1: without end": branch(
        Retry(30.0, WaitSource.SCHEDULE, Progress(attempt=10**6 + 1, step=10**6, previous=30.0)),
        policy=replace(POLICY, max_attempts=None),
        progress=Progress(attempt=10**6, step=10**6 - 1, previous=30.0),
    ),
    # RT-8: a response that has reached the caller.
    "RT-8: a call that is committed": branch(GiveUp(), failure=BUSY._replace(committed=True)),
    "RT-8: also after a GOAWAY": branch(GiveUp(), failure=REFUSED._replace(committed=True)),
    "RT-8: also with new credentials": branch(GiveUp(), failure=RENEWABLE._replace(committed=True)),
    "RT-8: also with a pushback": branch(GiveUp(), failure=says(PUSHBACK)._replace(committed=True)),
    # gRFC A6: streams that the server never processed.
    "A6: refused": branch(REPEATED, failure=REFUSED),
    "A6: refused, and no attempt is left": branch(
        Retry(0.0, WaitSource.REFUSED, LAST._replace(refused=True)), failure=REFUSED, progress=LAST
    ),
    "A6: refused, and no budget": branch(REPEATED, failure=REFUSED, budget_spent=True),
    "A6: refused for the second time": branch(
        Retry(2.0, WaitSource.SCHEDULE, Progress(attempt=2, step=1, previous=2.0, refused=True)),
        failure=REFUSED,
        progress=Progress(refused=True),
    ),
    "A6: refused for the second time, and no attempt is left": branch(
        GiveUp(Reason.ATTEMPTS), failure=REFUSED, progress=LAST._replace(refused=True)
    ),
    "A6: refused at the deadline": branch(GiveUp(Reason.DEADLINE), failure=REFUSED, left=0.0),
    # RT-13: streams of which only a text says that they were refused.
    "RT-13: says refused": branch(
        Retry(0.0, WaitSource.REFUSED, Progress(attempt=2, refused=True)), failure=SAYS_REFUSED
    ),
    "RT-13: says so for the second time": branch(
        Retry(2.0, WaitSource.SCHEDULE, Progress(attempt=3, step=1, previous=2.0, refused=True)),
        failure=SAYS_REFUSED,
        progress=Progress(attempt=2, refused=True),
    ),
    "RT-13: says so to a policy that does not retry the code": branch(
        GiveUp(), failure=SAYS_REFUSED, policy=replace(POLICY, codes=frozenset({"ABORTED"}))
    ),
    "RT-13: says so with one attempt": branch(GiveUp(), policy=ONE_ATTEMPT, failure=SAYS_REFUSED),
    "RT-13: says so at the last attempt": branch(GiveUp(Reason.ATTEMPTS), failure=SAYS_REFUSED, progress=LAST),
    "RT-13: says so without budget": branch(GiveUp(Reason.BUDGET), failure=SAYS_REFUSED, budget_spent=True),
    "RT-13: says so, but the attempt's own time was up": branch(
        SCHEDULED, failure=TOO_LATE._replace(own_timeout=True, says_refused=True)
    ),
    "RT-13: says so, with a code that needs new credentials": branch(
        RENEWED_LATER, failure=RENEWABLE._replace(says_refused=True), progress=AFTER_REFRESH
    ),
    "RT-13: says so to a call that is committed": branch(GiveUp(), failure=SAYS_REFUSED._replace(committed=True)),
    "RT-13: says so at the deadline": branch(GiveUp(Reason.DEADLINE), failure=SAYS_REFUSED, left=0.0),
    # RT-4: new credentials.
    "RT-4: nobody renews them": branch(GiveUp(), failure=EXPIRED),
    "RT-4: the first time": branch(RENEWED, failure=RENEWABLE),
    "RT-4: later, the first time": branch(
        Retry(0.0, WaitSource.REFRESH, Progress(attempt=3, step=2, previous=2.0, refreshed=True), refresh=True),
        failure=RENEWABLE,
        progress=SECOND,
    ),
    "RT-4: the second time, by the schedule": branch(RENEWED_LATER, failure=RENEWABLE, progress=AFTER_REFRESH),
    "RT-4: the third time, by the schedule": branch(
        Retry(8.0, WaitSource.SCHEDULE, Progress(attempt=4, step=3, previous=8.0, refreshed=True), refresh=True),
        failure=RENEWABLE,
        progress=Progress(attempt=3, step=2, previous=4.0, refreshed=True),
    ),
    "RT-4: the second time, and nobody renews them": branch(GiveUp(), failure=EXPIRED, progress=AFTER_REFRESH),
    "RT-4: the second time, within the attempts": branch(
        GiveUp(Reason.ATTEMPTS), failure=RENEWABLE, progress=LAST._replace(refreshed=True)
    ),
    "RT-4: the second time, within the budget": branch(
        GiveUp(Reason.BUDGET),
        failure=RENEWABLE,
        progress=SECOND._replace(refreshed=True),
        budget_spent=True,
    ),
    "RT-4: the second time, as the server says": branch(
        Retry(12.0, WaitSource.RETRY_INFO, Progress(attempt=3, step=2, refreshed=True), asked=10.0, refresh=True),
        failure=says(RETRY_INFO, RENEWABLE),
        progress=AFTER_REFRESH,
    ),
    "RT-4: the second time, where the policy retries it": branch(
        RENEWED_LATER, failure=RENEWABLE, progress=AFTER_REFRESH, policy=RETRIES_UNAUTHENTICATED
    ),
    "RT-4: where the policy retries it, and nobody renews them": branch(
        SCHEDULED, failure=EXPIRED, policy=RETRIES_UNAUTHENTICATED
    ),
    "RT-4: it counts as an attempt": branch(GiveUp(Reason.ATTEMPTS), failure=RENEWABLE, progress=LAST),
    "RT-4: without a look at the budget": branch(RENEWED, failure=RENEWABLE, budget_spent=True),
    "RT-4: whatever the server says of a wait": branch(RENEWED, failure=says(RETRY_INFO, RENEWABLE)),
    "RT-4: unless it says no": branch(GiveUp(Reason.STOPPED), failure=says(STOP, RENEWABLE)),
    "RT-4: at the deadline": branch(GiveUp(Reason.DEADLINE), failure=RENEWABLE, left=0.0),
    # RT-9: the budget.
    "RT-9: no budget": branch(GiveUp(Reason.BUDGET), budget_spent=True),
    "RT-9: of a code that is not retried": branch(GiveUp(), failure=BAD, budget_spent=True),
    # RT-3: server hints.
    "RT-3: pushback, to the millisecond": branch(
        Retry(0.25, WaitSource.PUSHBACK, Progress(attempt=2), asked=0.25), failure=says(PUSHBACK)
    ),
    "RT-3: pushback of none": branch(
        Retry(0.0, WaitSource.PUSHBACK, Progress(attempt=2), asked=0.0), failure=says(PUSHBACK._replace(delay=0.0))
    ),
    "RT-3: pushback begins the sequence anew": branch(
        Retry(0.25, WaitSource.PUSHBACK, Progress(attempt=4), asked=0.25),
        failure=says(PUSHBACK),
        progress=Progress(attempt=3, step=2, previous=4.0),
    ),
    "RT-3: a long pushback is cut": branch(
        Retry(60.0, WaitSource.PUSHBACK, Progress(attempt=2), asked=2147483.647),
        failure=says(PUSHBACK._replace(delay=2147483.647)),
    ),
    "RT-3: a pushback that says no": branch(GiveUp(Reason.STOPPED), failure=says(STOP)),
    "RT-3: RetryInfo, with jitter": branch(
        Retry(12.0, WaitSource.RETRY_INFO, Progress(attempt=3, step=2, previous=2.0), asked=10.0),
        failure=says(RETRY_INFO),
        progress=SECOND,
    ),
    "RT-3: retry-after, with jitter": branch(
        Retry(22.0, WaitSource.RETRY_AFTER, Progress(attempt=2, step=1), asked=20.0), failure=says(RETRY_AFTER)
    ),
    "RT-3: a long one is cut, and jitter comes on top": branch(
        Retry(62.0, WaitSource.RETRY_INFO, Progress(attempt=2, step=1), asked=9.2e18),
        failure=says(RETRY_INFO._replace(delay=9.2e18)),
    ),
    "RT-3: jitter is limited to the room below the cap": branch(
        Retry(59.5, WaitSource.RETRY_INFO, Progress(attempt=2, step=1), asked=59.0),
        failure=says(RETRY_INFO._replace(delay=59.0)),
    ),
    "RT-3: it never gives more attempts": branch(GiveUp(Reason.ATTEMPTS), failure=says(PUSHBACK), progress=LAST),
    "RT-3: nor budget": branch(GiveUp(Reason.BUDGET), failure=says(PUSHBACK), budget_spent=True),
    # RT-7 and RT-3: the deadline.
    "RT-3: a wait for which there is time": branch(SCHEDULED, left=2.001),
    "RT-3: one up to the deadline": branch(GiveUp(Reason.DEADLINE, 2.0, None, 2.0), left=2.0),
    "RT-3: one past the deadline": branch(GiveUp(Reason.DEADLINE, 2.0, None, 1.0), left=1.0),
    "RT-3: a pushback past the deadline": branch(
        GiveUp(Reason.DEADLINE, 0.25, WaitSource.PUSHBACK, 0.2), failure=says(PUSHBACK), left=0.2
    ),
    "RT-3: its jitter is cut by the deadline": branch(
        Retry(10.5, WaitSource.RETRY_INFO, Progress(attempt=2, step=1), asked=10.0), failure=says(RETRY_INFO), left=11.0
    ),
    "RT-3: what nobody can have meant": branch(
        SCHEDULED, policy=UNBOUNDED, failure=says(RETRY_INFO._replace(delay=9e9))
    ),
    "RT-3: a cut wait may fit": branch(
        Retry(60.0, WaitSource.PUSHBACK, Progress(attempt=2), asked=9e9),
        failure=says(PUSHBACK._replace(delay=9e9)),
        left=61.0,
    ),
    "RT-3: nor a pushback that nobody can have meant": branch(
        SCHEDULED, policy=UNBOUNDED, failure=says(PUSHBACK._replace(delay=2147483.647))
    ),
    "RT-3: a pushback of a day": branch(
        Retry(86_400.0, WaitSource.PUSHBACK, Progress(attempt=2), asked=86_400.0),
        policy=UNBOUNDED,
        failure=says(PUSHBACK._replace(delay=86_400.0)),
    ),
    "RT-3: a longer one, where a deadline bounds it": branch(
        Retry(90_000.0, WaitSource.PUSHBACK, Progress(attempt=2), asked=90_000.0),
        policy=UNBOUNDED,
        failure=says(PUSHBACK._replace(delay=90_000.0)),
        left=1e6,
    ),
    "RT-3: no wait, and no time either": branch(
        GiveUp(Reason.DEADLINE, None, WaitSource.PUSHBACK), failure=says(PUSHBACK._replace(delay=0.0)), left=0.0
    ),
    # RT-7: the attempt's timeout and the call's deadline.
    "RT-7: an attempt's own time was up": branch(SCHEDULED, failure=TOO_LATE._replace(own_timeout=True)),
    "RT-7: the time of a call's only attempt": branch(GiveUp(), failure=TOO_LATE, left=0.0),
    "RT-7: the deadline ended a later attempt": branch(
        GiveUp(Reason.DEADLINE), failure=TOO_LATE, progress=SECOND, left=0.0
    ),
    "RT-7: the server says so long before": branch(GiveUp(), failure=TOO_LATE, progress=SECOND, left=9.0),
    "RT-7: the server says so, without a deadline": branch(GiveUp(), failure=TOO_LATE, progress=SECOND),
    "RT-7: where the policy retries it, there is no time": branch(
        GiveUp(Reason.DEADLINE, 2.0, None, 0.0),
        failure=TOO_LATE,
        left=0.0,
        policy=replace(POLICY, codes=frozenset({"DEADLINE_EXCEEDED"})),
    ),
    # RT-5: conflicts.
    "RT-5: not retried by themselves": branch(GiveUp(), failure=FailedAttempt(code="ABORTED")),
    "RT-5: but by the policy that is made for them": branch(
        Retry(0.01, WaitSource.SCHEDULE, Progress(attempt=2, step=1, previous=0.01)),
        failure=FailedAttempt(code="ABORTED"),
        policy=RETRY_PRESETS["contention"],
        rng=Always(0.0),
    ),
}


@pytest.mark.parametrize(("given", "following"), BRANCHES.values(), ids=BRANCHES)
def test_branch(given, following):
    """RT-1 to RT-9: each failure leads to the expected decision; the name of each case gives its rule."""
    assert decided(**given) == following


OBSTACLES = [
    # The obstacles to a retry, in the order in which they are checked.
    (Reason.BUDGET, {"budget_spent": True}),
    (Reason.ATTEMPTS, {"progress": LAST}),
    (Reason.STOPPED, {"failure": says(STOP)}),
    (Reason.DEADLINE, {"left": 0.0}),
]


@pytest.mark.parametrize("first", range(len(OBSTACLES)))
def test_order(first):
    """RT-3: the first reason to give up counts, in gRFC A6's order: budget, attempts, server hint, deadline."""
    given = {name: value for _, one in OBSTACLES[first:] for name, value in one.items()}

    wait = 2.0 if given == {"left": 0.0} else None
    assert decided(**given) == GiveUp(OBSTACLES[first][0], wait, None, None if wait is None else 0.0)


@pytest.mark.parametrize(
    ("code", "own_timeout", "retryable", "conflict"),
    [
        ("UNAVAILABLE", False, True, False),
        ("DEADLINE_EXCEEDED", False, False, False),
        ("DEADLINE_EXCEEDED", True, True, False),
        ("ABORTED", False, False, True),
        ("ABORTED", True, False, True),
        ("ALREADY_EXISTS", False, False, True),
        ("INTERNAL", True, False, False),
        ("UNAUTHENTICATED", False, False, False),
    ],
)
def test_kinds(code, own_timeout, retryable, conflict):
    """RT-2, RT-5, RT-7: the code alone determines retries and conflicts, except when an attempt timeout has expired."""
    failure = FailedAttempt(code=code, own_timeout=own_timeout)

    assert (is_retryable(POLICY, failure), is_conflict(POLICY, failure)) == (retryable, conflict)


@pytest.mark.parametrize("code", ["ABORTED", "ALREADY_EXISTS"])
def test_no_conflict_where_it_is_retried(code):
    """RT-5: a conflict that the policy retries is not reported to the hook."""
    assert not is_conflict(replace(POLICY, codes=frozenset({code})), FailedAttempt(code=code))


@pytest.mark.parametrize(
    ("failure", "costs"),
    [
        (BUSY, True),
        (says(PUSHBACK), True),
        (says(RETRY_INFO), True),
        (says(STOP), True),
        (TOO_LATE._replace(own_timeout=True), True),
        (BAD, False),
        (says(PUSHBACK, BAD), False),
        (says(STOP, BAD), True),
        (EXPIRED, False),
        (TOO_LATE, False),
    ],
)
def test_cost(failure, costs):
    """RT-9: a retryable failure costs a token, and so does any failure that the server asks not to retry."""
    assert costs_token(POLICY, failure) is costs


@pytest.mark.parametrize("value", [BUSY, FIRST, GiveUp(), Retry(0.0, WaitSource.SCHEDULE, FIRST)])
def test_values(value):
    """RT-1: a decision's inputs and results are frozen values."""
    assert not hasattr(value, "__dict__")
    for name in value._fields:
        with pytest.raises(AttributeError):
            setattr(value, name, 5)


# Properties of every decision.

waits = st.just(0.0) | st.floats(0, 1e3) | st.floats(0, 1e19)
words = (
    st.none()
    | st.just(STOP)
    | st.builds(
        ServerHint, waits, st.sampled_from([WaitSource.PUSHBACK, WaitSource.RETRY_INFO, WaitSource.RETRY_AFTER])
    )
)
codes = st.sampled_from(STATUS_CODES) | st.sampled_from(["UNAVAILABLE", "UNAUTHENTICATED", "DEADLINE_EXCEEDED"])
failures = st.builds(
    FailedAttempt,
    code=codes,
    hint=words,
    own_timeout=st.booleans(),
    refused=st.booleans(),
    says_refused=st.booleans(),
    can_refresh=st.booleans(),
    committed=st.booleans(),
)
progresses = st.builds(
    Progress,
    attempt=st.integers(1, 120),
    step=st.integers(0, 120),
    previous=st.none() | st.floats(0, 1e6),
    refreshed=st.booleans(),
    refused=st.booleans(),
)
lefts = st.none() | st.just(0.0) | st.floats(0, 100) | st.floats(0, 1e20)
surroundings = st.fixed_dictionaries({"left": lefts, "budget_spent": st.booleans()})


class Counting(random.Random):
    drawn = 0

    def random(self):
        self.drawn += 1
        return super().random()


@unhurried
@example(
    policy=RETRIES_UNAUTHENTICATED,
    progress=AFTER_REFRESH,
    failure=RENEWABLE._replace(says_refused=True),
    given={"left": None, "budget_spent": False},
    seed=0,
)
@given(policy=retry_policies, progress=progresses, failure=failures, given=surroundings, seed=st.integers())
def test_every_decision(policy, progress, failure, given, seed):
    """RT-1 to RT-9: every decision satisfies the rules, for any policy, failure and circumstances."""
    if isinstance(policy.backoff.strategy, Decorrelated):  # none of its waits is shorter than its base
        assume(progress.previous is None or progress.previous >= policy.backoff.strategy.base)
    rng = Counting(seed)
    following = decide(policy, progress, failure, rng=rng, **given)
    renews = failure.can_refresh and failure.code == "UNAUTHENTICATED"

    assert following == decide(policy, progress, failure, rng=random.Random(seed), **given)  # pure
    if isinstance(following, GiveUp):
        assert following.wait is None or following.reason is Reason.DEADLINE
        assert following.reason is not Reason.DEADLINE or given["left"] is not None
        return
    assert not failure.committed  # RT-8
    refused = following.source is WaitSource.REFUSED and failure.refused
    assert refused or policy.max_attempts != 1  # RT-1
    assert refused or is_retryable(policy, failure) or renews  # RT-2, RT-4
    assert 0 <= following.delay < (math.inf if given["left"] is None else given["left"])  # RT-3, RT-7
    later = following.progress
    assert later.attempt == progress.attempt + (not refused)
    if refused:  # gRFC A6: only once, and not counted
        assert later == progress._replace(refused=True) != progress
        assert (following.delay, rng.drawn) == (0.0, 0)
        return
    assert policy.max_attempts is None or later.attempt <= policy.max_attempts  # RT-1
    assert failure.hint is None or failure.hint.delay is not None  # RT-3
    assert (renews and not progress.refreshed) or not given["budget_spent"]  # RT-9
    assert following.refresh == renews  # RT-4
    if following.source is WaitSource.REFUSED:  # RT-13: only once, and counted
        assert (failure.says_refused, failure.code) == (True, "UNAVAILABLE")
        assert (
            later == progress._replace(attempt=later.attempt, refused=True) != progress._replace(attempt=later.attempt)
        )
        assert (following.delay, rng.drawn) == (0.0, 0)
        return
    assert later.refused == progress.refused
    if following.source is WaitSource.REFRESH:  # RT-4: only once, and immediately
        assert later == progress._replace(attempt=later.attempt, step=progress.step + 1, refreshed=True)
        assert renews
        assert not progress.refreshed
        assert (following.delay, rng.drawn) == (0.0, 0)
        return
    assert later.refreshed == progress.refreshed
    if following.source is WaitSource.SCHEDULE:
        low, high = policy.bounds(later.step)
        decorrelated = isinstance(policy.backoff.strategy, Decorrelated)  # its bounds depend on the previous wait
        assert low <= following.delay <= (policy.backoff.cap if decorrelated else high)
        assert failure.hint is None or failure.hint.delay > 86_400  # an unbounded wait of more than a day is ignored
        assert (later.step, later.previous, rng.drawn) == (progress.step + 1, following.delay, 1)
        return
    assert following.source is failure.hint.source  # RT-3
    assert following.asked == failure.hint.delay
    least = min(failure.hint.delay, policy.max_server_delay or math.inf)
    if following.source is WaitSource.PUSHBACK:
        assert (following.delay, later.step, later.previous, rng.drawn) == (least, 0, None, 0)
    else:
        window = hint_window(policy, failure.hint, given["left"])
        assert window.low <= following.delay <= window.at(1.0)
        assert (later.step, later.previous, rng.drawn) == (progress.step + 1, progress.previous, 1)


@unhurried
@given(
    policy=retry_policies, failures=st.lists(failures, min_size=1, max_size=40), given=surroundings, seed=st.integers()
)
def test_every_call(policy, failures, given, seed):
    """RT-1, RT-13: each retry counts as an attempt, except one after a proven refusal (gRFC A6)."""
    rng, progress, sources, uncounted = random.Random(seed), Progress(), [], 0
    for failure in failures:
        following = decide(policy, progress, failure, rng=rng, **given)
        if isinstance(following, GiveUp):
            break
        at_once = following.source is WaitSource.REFUSED
        assert not at_once or failure.refused or failure.says_refused
        uncounted += at_once and failure.refused
        progress = following.progress
        sources.append(following.source)
        assert progress.attempt == 1 + len(sources) - uncounted

    assert sources.count(WaitSource.REFUSED) <= 1  # gRFC A6, RT-13
    assert sources.count(WaitSource.REFRESH) <= 1  # RT-4
    assert policy.max_attempts is None or progress.attempt <= policy.max_attempts


@unhurried
@given(policy=retry_policies, progress=progresses, delay=st.floats(0, 86_400), seed=st.integers())
def test_sequence_begins_anew(policy, progress, delay, seed):
    """RT-3: after a pushback has been waited out, the policy's sequence starts over from its first wait."""
    policy = replace(policy, max_attempts=None, codes=frozenset({"UNAVAILABLE"}), never_ran_only=False)

    pushed = decided(says(ServerHint(delay, WaitSource.PUSHBACK)), progress, policy)
    after = decided(BUSY, pushed.progress, policy, rng=random.Random(seed))

    assert after.source is WaitSource.SCHEDULE
    assert after.delay == policy.delay(1, random.Random(seed))
    assert after.progress.step == 1


def test_waits_of_a_call():
    """RT-3: waits follow the policy's sequence; RetryInfo replaces one wait, and a pushback restarts the sequence."""
    policy, progress, seen = replace(POLICY, max_attempts=None), Progress(), []
    for word in (None, None, RETRY_INFO, None, PUSHBACK, None, None):
        following = decided(says(word), progress, policy)
        progress = following.progress
        seen.append((progress.attempt, following.delay))

    assert seen == [(2, 2.0), (3, 4.0), (4, 12.0), (5, 16.0), (6, 0.25), (7, 2.0), (8, 4.0)]


def test_decorrelated():
    """RT-3: decorrelated backoff grows from its own last wait, not from a wait that the server asked for."""
    policy = replace(POLICY, max_attempts=None, backoff=BackoffPolicy(Decorrelated(1.0), 1000.0, NoJitter()))
    progress, seen = Progress(), []
    for word in (None, None, RETRY_INFO, None, PUSHBACK, None):
        following = decided(says(word), progress, policy, rng=Always(1.0))
        progress = following.progress
        seen.append(following.delay)

    assert seen == [3.0, 9.0, 14.0, 27.0, 0.25, 3.0]


TOLD = {
    (1, 0.0, GiveUp(Reason.STOPPED)): ("gave up: the server asked the client not to retry (1 attempt in 0 s)"),
    (5, 12.345, GiveUp(Reason.ATTEMPTS)): "gave up: no attempts are left (5 attempts in 12.3 s)",
    (2, 1.0, GiveUp(Reason.DEADLINE)): ("gave up: the deadline leaves no time for another attempt (2 attempts in 1 s)"),
    (2, 1.0, GiveUp(Reason.DEADLINE, wait=5.0, left=0.5)): (
        "gave up: the deadline leaves no time for another attempt (2 attempts in 1 s; the schedule calls for a wait of "
        "5 s, but only 0.5 s are left)"
    ),
    (1, 0.002, GiveUp(Reason.DEADLINE, wait=5.0, asked_by=WaitSource.PUSHBACK, left=0.998)): (
        "gave up: the deadline leaves no time for another attempt (1 attempt in 0.002 s; the server's "
        "grpc-retry-pushback-ms asks for a wait of 5 s, but only 0.998 s are left)"
    ),
}


@pytest.mark.parametrize(("given_up", "text"), TOLD.items())
def test_account(given_up, text):
    """RT-3, RT-6: the text gives a fixed reason first, then the figures."""
    attempts, took, decision = given_up
    assert decision.account(attempts, took) == text
