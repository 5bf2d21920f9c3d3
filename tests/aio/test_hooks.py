"""RT-4 to RT-6: hooks for retried calls on a real channel: when they run, how often, and what they may do."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar

import grpc
import grpc.aio
import pytest

from grpc_backoff import (
    CallExhausted,
    CallRetried,
    Reason,
    RetryHooks,
    WaitSource,
)
from tests.aio.retry_service import CODE, METHOD, Say, answered, failing, peer

__all__ = ["peer"]

DOWN = Say()
NEVER = [DOWN] * 1000
STALE = Say(CODE.UNAUTHENTICATED, "stale token")
QUICK = "retry: 2, delay: 1ms"
CALLER = ContextVar("caller", default=None)


def both(function):
    """Return a function and a coroutine function that do the same, for use as hooks."""

    async def asynchronous(failed):
        await asyncio.sleep(0)
        return function(failed)

    return [function, asynchronous]


class Noted(list):
    """A hook that records its arguments and the values of `CALLER` and returns or raises `answer`."""

    def __init__(self, answer=None):
        super().__init__()
        self.answer = answer
        self.callers = []

    def __call__(self, failed):
        self.append(failed)
        self.callers.append(CALLER.get())
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


STYLES = pytest.mark.parametrize("style", [0, 1], ids=["sync", "async"])


# Renewing credentials (RT-4).


@STYLES
@pytest.mark.parametrize("answer", [None, (("token", "new"),), [("token", "new")], grpc.aio.Metadata(("token", "new"))])
async def test_refreshed(peer, style, answer):
    """RT-4: after UNAUTHENTICATED the hook runs, and the call is repeated at once with the new credentials."""
    noted = Noted(answer)
    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=both(noted)[style]))
    peer.service.scripts["a"] = [Say(CODE.UNAUTHENTICATED, "stale token", trailing=(("why", "expired"),)), DOWN]
    CALLER.set("me")
    assert await answered(client.call(metadata=(("token", "old"), ("token", "older"), ("mine", "1")))) == "a"
    (failed,) = noted
    assert (failed.target, failed.method, failed.attempt) == (peer.target, METHOD, 1)
    assert (failed.code, failed.details, failed.reason) == (CODE.UNAUTHENTICATED, "stale token", None)
    assert ("why", "expired") in failed.trailing_metadata
    assert "expired" not in repr(failed)
    assert failed.took > 0
    assert noted.callers == ["me"]
    refresh, schedule = client.of(CallRetried)
    assert (refresh.delay, refresh.source) == (0.0, WaitSource.REFRESH)
    assert schedule.source is WaitSource.SCHEDULE
    tokens = [[value for key, value in seen.metadata if key == "token"] for seen in peer.service.tries["a"]]
    assert tokens == [["old", "older"]] + [["new"] if answer else ["old", "older"]] * 2
    assert [dict(seen.metadata)["mine"] for seen in peer.service.tries["a"]] == ["1"] * 3
    assert [seen.before for seen in peer.service.tries["a"]] == [None, "1", "2"], "it counts as an attempt"


async def test_refreshed_for_each_try(peer):
    """RT-4: the first retry is immediate, and later retries follow the schedule; the hook runs before each of them."""
    noted = Noted()
    hooks = RetryHooks(refresh_credentials=noted)
    peer.service.scripts |= {"a": [STALE] * 9, "b": [STALE] * 9}
    client = peer.client(QUICK, retry_hooks=hooks)
    error = await failing(client.call())
    assert (error.code(), error.attempts, error.reason) == (CODE.UNAUTHENTICATED, 3, Reason.ATTEMPTS)
    assert [retry.source for retry in client.of(CallRetried)] == [WaitSource.REFRESH, WaitSource.SCHEDULE]
    assert (len(noted), len(peer.service.tries["a"])) == (2, 3)
    listed = peer.client(f"{QUICK}, codes: UNAUTHENTICATED", retry_hooks=hooks)
    error = await failing(listed.call("b"))
    assert (error.attempts, error.reason) == (3, Reason.ATTEMPTS)
    assert [retry.source for retry in listed.of(CallRetried)] == [WaitSource.REFRESH, WaitSource.SCHEDULE]
    assert (len(noted), len(peer.service.tries["b"])) == (4, 3)


async def test_a_refresh_needs_a_try(peer):
    """RT-4: the hook runs only if the policy still allows another attempt."""
    noted = Noted()
    hooks = RetryHooks(refresh_credentials=noted)
    peer.service.scripts |= {"a": [DOWN, STALE], "b": [STALE], "c": [STALE], "d": [STALE]}
    error = await failing(peer.client("retry: 1, delay: 1ms", retry_hooks=hooks).call())
    assert (error.code(), error.attempts, error.reason) == (CODE.UNAUTHENTICATED, 2, Reason.ATTEMPTS)
    for text, retry in (("b", None), ("c", "retry: 0")):
        assert type(await failing(peer.client(retry, retry_hooks=hooks).call(text))) is grpc.aio.AioRpcError
    assert noted == []
    assert type(await failing(peer.client(QUICK).call("d"))) is grpc.aio.AioRpcError
    assert [len(peer.service.tries[text]) for text in "abcd"] == [2, 1, 1, 1]


UNUSABLE = [ZeroDivisionError("secret"), "secret", True, {"secret": "x"}, [("secret",)], 5]


@STYLES
@pytest.mark.parametrize("answer", UNUSABLE, ids=["raises", "text", "True", "dict", "no pair", "number"])
async def test_refresh_that_fails(peer, style, answer, caplog):
    """RT-4: an exception from the hook or an unusable result is logged, and the call fails with its own error."""
    noted = Noted(answer)
    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=both(noted)[style]))
    peer.service.scripts |= {"a": [STALE], "b": [STALE]}
    error = await failing(client.call())
    assert (type(error), error.code(), error.details()) == (grpc.aio.AioRpcError, CODE.UNAUTHENTICATED, "stale token")
    (record,) = [record for record in caplog.records if record.name.startswith("grpc_backoff")]
    assert (record.levelno, record.getMessage()) == (logging.ERROR, f"a hook of the channel to {peer.target} raised")
    if isinstance(answer, Exception):
        assert record.exc_info[1] is answer
    else:
        kind = type(answer).__name__
        assert str(record.exc_info[1]) == (f"refresh_credentials returned {kind}: expected (key, value) pairs, or None")
        assert "secret" not in caplog.text  # RT-11
    assert not client.of(CallRetried)
    noted.answer = None
    assert await answered(client.call("b")) == "b", "the next call may have more luck"
    assert len(noted) == 2


@pytest.mark.parametrize("lasts", [0, 0.3], ids=["fast", "slow"])
async def test_a_hundred_calls_share_a_refresh(peer, lasts):
    """RT-4: one run of the hook serves all calls that were made with the old credentials."""
    noted = Noted()

    async def renew(failed):
        noted(failed)
        await asyncio.sleep(lasts)
        return (("token", f"new {len(noted)}"),)

    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=renew))
    texts = [str(number) for number in range(100)]
    peer.service.scripts = {text: [Say(STALE.code, hold=int(text) % 10 * 0.02)] for text in texts}
    calls = [client.call(text, metadata=(("token", "old"),)) for text in texts]
    assert [await answered(call) for call in calls] == texts
    assert len(noted) == 1
    assert {dict(peer.service.tries[text][1].metadata)["token"] for text in texts} == {"new 1"}
    peer.service.scripts["later"] = [STALE]
    await answered(client.call("later", metadata=(("token", "old"),)))
    assert len(noted) == 2, "a call that was made later is not served by an old run"


async def test_a_refresh_that_is_slower_than_the_deadline(peer):
    """RT-4, RT-7: the call ends at its deadline with its own error, but the hook continues for the other calls."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def renew(_failed):
        begun.set()
        await go.wait()
        return (("token", "new"),)

    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=renew))
    peer.service.scripts |= {"a": [STALE], "b": [STALE]}
    waiting = client.call("b")
    await begun.wait()
    error = await failing(client.call(timeout=0.3))
    assert (type(error), error.code()) == (grpc.aio.AioRpcError, CODE.UNAUTHENTICATED)
    go.set()
    assert await answered(waiting) == "b"
    assert dict(peer.service.tries["b"][1].metadata)["token"] == "new"
    assert len(peer.service.tries["a"]) == 1


async def test_a_refresh_that_calls(peer):
    """RT-4: the hook may make calls on the same channel; these calls do not wait for the hook, so nothing deadlocks."""
    errors = []

    async def renew(_failed):
        errors.append(await failing(clients[0].call("login")))
        return (("token", await answered(clients[0].call("login again"))),)

    clients = [peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=renew))]
    peer.service.scripts |= {"a": [STALE], "login": [STALE], "login again": [DOWN]}
    assert await answered(clients[0].call()) == "a"
    assert [error.code() for error in errors] == [CODE.UNAUTHENTICATED]
    assert dict(peer.service.tries["a"][1].metadata)["token"] == "login again"
    assert [len(peer.service.tries[text]) for text in ("login", "login again")] == [1, 2]


# Conflicts (RT-5) and giving up (RT-6).


@STYLES
async def test_conflict(peer, style):
    """RT-5: conflicts are not retried; `on_conflict` is called once, before the caller gets the error."""
    noted, code = Noted(), CODE.ALREADY_EXISTS
    client = peer.client(QUICK, retry_hooks=RetryHooks(on_conflict=both(noted)[style]))
    peer.service.scripts |= {"a": [DOWN, Say(code, "lost the race", trailing=(("version", "7"),))], "b": [DOWN] * 3}
    error = await failing(client.call())
    (failed,) = noted
    assert (failed.attempt, failed.code, failed.details, failed.reason) == (2, code, "lost the race", None)
    assert dict(failed.trailing_metadata)["version"] == "7"
    assert (type(error), error.code(), error.details()) == (grpc.aio.AioRpcError, code, "lost the race")
    assert len(peer.service.tries["a"]) == 2
    assert not client.of(CallExhausted)
    await failing(client.call("b"))
    assert len(noted) == 1, "what is no conflict is not for this hook"


@STYLES
async def test_exhausted(peer, style):
    """RT-6: `on_exhausted` gets the error's attempt count, reason and duration, and is called only on giving up."""
    noted = Noted()
    client = peer.client(QUICK, retry_hooks=RetryHooks(on_exhausted=both(noted)[style]))
    peer.service.scripts |= {"a": NEVER, "b": [Say(CODE.INTERNAL)], "c": [DOWN, DOWN]}
    error = await failing(client.call())
    (failed,) = noted
    assert (failed.attempt, failed.reason, failed.took) == (error.attempts, error.reason, error.took)
    assert (failed.code, failed.details) == (CODE.UNAVAILABLE, "not now")
    await failing(client.call("b"))
    await answered(client.call("c"))
    assert len(noted) == 1


@pytest.mark.parametrize(("name", "script"), [("on_conflict", [Say(CODE.ABORTED)]), ("on_exhausted", NEVER)])
@STYLES
async def test_a_hook_that_raises(peer, name, script, style, caplog):
    """RT-5, RT-6: an exception from a hook is logged, and the call fails with its own error."""
    hook = both(Noted(ZeroDivisionError("no hook")))[style]
    client = peer.client(QUICK, retry_hooks=RetryHooks(**{name: hook}))
    peer.service.scripts["a"] = script
    error = await failing(client.call())
    assert error.code() is script[0].code
    assert caplog.text.count(f"a hook of the channel to {peer.target} raised") == 1
    assert "ZeroDivisionError: no hook" in caplog.text


@pytest.mark.parametrize(
    ("name", "script"), [("on_conflict", [Say(CODE.ABORTED)]), ("on_exhausted", [DOWN, DOWN, DOWN])]
)
async def test_a_hook_that_takes_its_time(peer, name, script):
    """RT-5, RT-6, RT-7: the call waits for a hook until its deadline at most; the hook itself continues."""
    finished, go = asyncio.Event(), asyncio.Event()

    async def slow(_failed):
        await go.wait()
        finished.set()

    client = peer.client(QUICK, retry_hooks=RetryHooks(**{name: slow}))
    peer.service.scripts |= {"a": script, "b": script}
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await failing(client.call(timeout=0.3))).code() is script[0].code
    assert loop.time() - began >= 0.29
    waiting = client.call("b")
    await peer.service.until(len(script), "b")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    go.set()
    assert (await failing(waiting)).code() is script[0].code
    await asyncio.wait_for(finished.wait(), 30)


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ([("Authorization", "secret")], "'Authorization'"),
        ([("a b", "secret")], "'a b'"),
        ([(b"authorization", "secret")], "b'authorization'"),
        ([("authorization", b"secret")], "bytes for authorization"),
        ([("token-bin", "secret")], "str for token-bin"),
    ],
)
async def test_a_hook_with_bad_metadata(peer, caplog, pairs, named):
    """RT-4: metadata that grpc would reject is logged without its value, and the call fails with its own error."""
    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=lambda _: pairs))
    peer.service.scripts["a"] = [Say(CODE.UNAUTHENTICATED)]
    call = client.call()
    error = await failing(call)
    assert (error.code(), type(error)) == (CODE.UNAUTHENTICATED, grpc.aio.AioRpcError)
    assert await call.code() is CODE.UNAUTHENTICATED
    assert named in caplog.text
    assert "secret" not in caplog.text
