"""BP-2, RT-1: one warning per channel and method for policies under which a call may be retried without end."""

from __future__ import annotations

import warnings

import pytest

from grpc_backoff import PolicyWarning, aio, parse_policy
from tests.echo import EchoStub, Message, serving

NO_DELAY = "expected a delay, or at most 10 retries without one"
NO_END = "expected a deadline, a timeout for the call, or a limited number of attempts"


async def warnings_of(retry, *calls, own=None):
    """Make each of the calls twice; return the texts of this library's warnings, and a list of all warnings caught."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}", retry=retry) as channel:
            for method, how in calls * 2:
                callee = getattr(EchoStub(channel), method)
                assert await (callee if own is None else aio.retrying(callee, own))(Message(), **how).code() is not None
    return [str(warning.message) for warning in caught if warning.category is PolicyWarning], caught


UNARY, UNARY_IN_TIME, DOWN = ("Unary", {}), ("Unary", {"timeout": 20}), ("Down", {})
ENDLESS = "max_attempts: unlimited, delay: 1ms, jitter: none"


@pytest.mark.parametrize("retry", [ENDLESS, parse_policy(ENDLESS), {"echo.v1.Echo": ENDLESS}, "steps"])
async def test_no_end(retry):
    """BP-2: a policy with neither a deadline nor a limit on attempts causes one warning for each method."""
    told, caught = await warnings_of(retry, UNARY, DOWN)

    assert [text.partition(":")[0] for text in told] == [
        f"retries of /echo.v1.Echo/{name}" for name in ("Unary", "Down")
    ]
    assert all(text.endswith(NO_END) for text in told)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize(
    "retry", [f"{ENDLESS}, deadline: 20s", "retry: 100, delay: 1ms, jitter: none", "standard", "contention", None]
)
async def test_an_end(retry):
    """BP-2: a policy with a deadline or a limit on attempts causes no warning."""
    assert (await warnings_of(retry, UNARY))[0] == []


async def test_a_call_with_a_timeout():
    """BP-2: a call with its own timeout causes no warning; only calls without one do."""
    assert (await warnings_of(ENDLESS, UNARY_IN_TIME))[0] == []
    assert len((await warnings_of(ENDLESS, UNARY_IN_TIME, UNARY))[0]) == 1


async def test_no_delay():
    """BP-2: a policy with more than ten retries without delay causes a warning, even if the call has a timeout."""
    assert (await warnings_of("retry: 10", UNARY))[0] == []
    assert (await warnings_of("retry: 11", UNARY_IN_TIME))[0] == [
        f"retries of /echo.v1.Echo/Unary: max_attempts=12: {NO_DELAY}"
    ]


async def test_both():
    """BP-2: a policy without delay and without an end causes a single warning that states both problems."""
    (told,) = (await warnings_of("max_attempts: unlimited", UNARY))[0]

    assert NO_DELAY in told
    assert NO_END in told


async def test_one_call():
    """BP-2: a policy set for one call by `retrying` is checked too."""
    assert len((await warnings_of(None, UNARY, own=ENDLESS))[0]) == 1


async def test_a_delay_without_a_retry():
    """RT-1, BP-2: a policy that has a delay but never retries causes one warning, when the channel is created."""
    told, caught = await warnings_of("delay: 1s", UNARY)

    assert told == ["delay has no effect without retry or max_attempts"]
    assert caught[0].filename == __file__
