"""The retry policy as a value."""

from __future__ import annotations

import math
import random
from dataclasses import FrozenInstanceError, replace

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.checks import STATUS_CODES
from grpc_backoff.policy.jitter import NoJitter
from grpc_backoff.policy.presets import CONNECT, GRPC, RETRY_PRESETS
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Steps
from tests.policy.values import Always, failures, retry_policies, unhurried
from tests.texts import exactly

STANDARD = RETRY_PRESETS["standard"]
SECONDS = "a finite number of seconds above 0"
PAUSE = "a finite, non-negative number of seconds"
ATTEMPTS = 'a whole number of at least 1 (or "unlimited")'


@unhurried
@given(policy=retry_policies, n=failures, seed=st.integers())
def test_waits_are_the_backoffs(policy, n, seed):
    """BP: a retry policy has the waits of its backoff."""
    assert policy.delay(n, random.Random(seed)) == policy.backoff.delay(n, random.Random(seed))
    assert policy.delay(n, Always(0.5), 2.0) == policy.backoff.delay(n, Always(0.5), 2.0)
    assert (policy.nominal(n), policy.bounds(n)) == (policy.backoff.nominal(n), policy.backoff.bounds(n))


def test_smallest():
    """RT: only the backoff, attempts, codes and server-delay jitter are required; all limits are off by default."""
    policy = RetryPolicy(backoff=GRPC, max_attempts=3, codes=frozenset({"ABORTED"}), server_delay_jitter=0)

    assert (policy.timeout, policy.deadline, policy.max_server_delay) == (None, None, None)
    assert policy.server_delay_jitter == 0


def test_value():
    """BP: a policy is a frozen value that compares by content; its codes may be given in any kind of collection."""
    policy = replace(STANDARD, codes=["UNAVAILABLE", "RESOURCE_EXHAUSTED", "UNAVAILABLE"])

    assert policy == STANDARD
    assert len({policy, STANDARD, replace(STANDARD, timeout=1.0)}) == 2
    with pytest.raises(FrozenInstanceError):
        policy.timeout = 2.0


def test_status_codes():
    """RT-2: the status codes are grpc's codes for failed calls, in the order of their numbers."""
    assert [(code.name, code.value[0]) for code in grpc.StatusCode][1:] == [
        (name, number) for number, name in enumerate(STATUS_CODES, 1)
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({"max_attempts": value}, f"max_attempts={value}: expected {ATTEMPTS}") for value in (0, 2.0, True)),
        ({"codes": ()}, "codes=(): expected a list of at least one status code"),
        ({"codes": None}, "codes=None: expected a list of at least one status code"),
        ({"timeout": 0}, f"timeout=0: expected {SECONDS}"),
        ({"timeout": "1s"}, f"timeout='1s': expected {SECONDS}"),
        ({"deadline": math.inf}, f"deadline=inf: expected {SECONDS}"),
        ({"max_server_delay": -1}, f"max_server_delay=-1: expected {SECONDS}"),
        ({"server_delay_jitter": math.nan}, f"server_delay_jitter=nan: expected {PAUSE}"),
        ({"server_delay_jitter": None}, f"server_delay_jitter=None: expected {PAUSE}"),
    ],
)
def test_impossible(change, message):
    """CH-10: a policy created in code is checked in the same way as a policy string or the file."""
    with pytest.raises(OptionError, match=exactly(f"RetryPolicy.{message}")):
        replace(STANDARD, **change)


@pytest.mark.parametrize("code", ["OK", "NOPE", grpc.StatusCode.UNAVAILABLE, 14])
def test_no_code(code):
    """RT-2: a code must be the name of one of grpc's failures."""
    with pytest.raises(OptionError, match=r"RetryPolicy\.codes=.*: expected 'CANCELLED', 'UNKNOWN', "):
        replace(STANDARD, codes=["UNAVAILABLE", code])


@pytest.mark.parametrize(
    ("attempts", "answers"), [(3, [True, True, False, False]), (1, [False] * 4), (None, [True] * 4)]
)
def test_should_retry(attempts, answers):
    """RT-1: the last attempt is never followed by a retry; without a maximum, no attempt is the last one."""
    policy = replace(STANDARD, max_attempts=attempts)

    assert [policy.should_retry(n) for n in (1, 2, 3, 4)] == answers


def test_total_bounds():
    """BP-1: `total_bounds` covers the waits between the attempts, or as many waits as requested."""
    assert STANDARD.total_bounds() == (7.5, 22.5)
    assert STANDARD.total_bounds(5) == (15.5, 46.5)
    assert RETRY_PRESETS["aggressive"].total_bounds(5) == (7.75, 21.25)
    assert RETRY_PRESETS["conservative"].total_bounds(5) == (31.0, 75.0)
    assert replace(STANDARD, max_attempts=1).total_bounds() == (0.0, 0.0)
    assert STANDARD.total_bounds(0) == (0.0, 0.0)


def test_total_bounds_without_an_end():
    """BP: with unlimited attempts, the total of the waits is bounded only by the deadline."""
    assert RETRY_PRESETS["steps"].total_bounds() == (math.inf, math.inf)
    assert replace(RETRY_PRESETS["steps"], deadline=9.0).total_bounds() == (9.0, 9.0)
    assert replace(STANDARD, deadline=10.0).total_bounds() == (7.5, 10.0)


def test_total_bounds_of_many_tries():
    """BP: `total_bounds` of a billion waits takes no time, even if a list starts with several equal waits."""
    assert replace(STANDARD, max_attempts=10**9 + 1).total_bounds()[1] == pytest.approx(30.0 * 10**9)
    steps = BackoffPolicy(Steps((1.0, 1.0, 5.0), 1.0), 30.0, NoJitter())
    assert replace(STANDARD, backoff=steps, max_attempts=6).total_bounds() == (17.0, 17.0)


@pytest.mark.parametrize("n", [True, False, 1.5, 1.0, "1", None])
def test_no_number(n):
    """BP: a count of failures must be an integer; True and 1.0 are rejected even if the wait for 1 is cached."""
    STANDARD.delay(1, Always(0.5))
    connect = replace(CONNECT, jitter_first=False)
    for ask in (
        lambda: STANDARD.delay(n, Always(0.5)),
        lambda: STANDARD.nominal(n),
        lambda: STANDARD.bounds(n),
        lambda: STANDARD.should_retry(n),
        lambda: connect.gap(n, Always(0.5)),
        lambda: connect.nominal(n),
    ):
        with pytest.raises(TypeError, match=f"^n={n!r}: expected a whole number"):
            ask()
