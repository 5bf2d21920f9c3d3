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
    ("retry", "calls", "expected"),
    [
        (ENDLESS, [UNARY_IN_TIME], []),
        (ENDLESS, [UNARY_IN_TIME, UNARY], [f"max_attempts=unlimited: {NO_END}"]),
        (f"{ENDLESS}, deadline: 20s", [UNARY], []),
        ("retry: 11", [UNARY_IN_TIME], [f"max_attempts=12: {NO_DELAY}"]),
        ("max_attempts: unlimited", [UNARY], [f"max_attempts=unlimited: {NO_DELAY}; max_attempts=unlimited: {NO_END}"]),
        (None, [UNARY], []),
    ],
)
async def test_an_end(retry, calls, expected):
    """BP-2: a deadline and a call's own timeout are an end, and there is one warning for both problems.

    `tests/config/test_remarks.py` covers which policies are doubtful.
    """
    told, _ = await warnings_of(retry, *calls)

    assert [text.removeprefix("retries of /echo.v1.Echo/Unary: ") for text in told] == expected


async def test_one_call():
    """BP-2: a policy set for one call by `retrying` is checked too."""
    assert len((await warnings_of(None, UNARY, own=ENDLESS))[0]) == 1


async def test_a_delay_without_a_retry():
    """RT-1, BP-2: a policy that has a delay but never retries causes one warning, when the channel is created."""
    told, caught = await warnings_of("delay: 1s", UNARY)

    assert told == ["delay has no effect without retry or max_attempts"]
    assert caught[0].filename == __file__
