"""RT-4 to RT-6: hooks for retried calls on a real channel: what they are given, and how long calls wait for them.

`tests/both_apis/test_hooks.py` covers how hooks run, and `tests/decide/calls` when they run.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallExhausted, CallRetried, RetryHooks, WaitSource
from tests.aio.retry_service import CODE, METHOD, Say, peer
from tests.aio.trying import failing, finish

__all__ = ["peer"]

DOWN = Say()
NEVER = [DOWN] * 1000
STALE = Say(CODE.UNAUTHENTICATED, "stale token")
QUICK = "retry: 2, delay: 1ms"
CALLER = ContextVar("caller", default=None)


# Renewing credentials (RT-4).


@pytest.mark.parametrize("answer", [None, (("token", "new"),)])
async def test_refreshed(peer, answer):
    """RT-4: after UNAUTHENTICATED the hook runs, and the call is repeated at once with the new credentials."""
    noted, callers = [], []

    def refresh(failed):
        noted.append(failed)
        callers.append(CALLER.get())
        return answer

    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=refresh))
    peer.service.scripts["a"] = [Say(CODE.UNAUTHENTICATED, "stale token", trailing=(("why", "expired"),)), DOWN]
    CALLER.set("me")
    assert await finish(client.call(metadata=(("token", "old"), ("token", "older"), ("mine", "1")))) == "a"
    (failed,) = noted
    assert (failed.target, failed.method, failed.attempt) == (peer.target, METHOD, 1)
    assert (failed.code, failed.details, failed.reason) == (CODE.UNAUTHENTICATED, "stale token", None)
    assert ("why", "expired") in failed.trailing_metadata
    assert "expired" not in repr(failed)
    assert failed.took > 0
    assert callers == ["me"]
    refresh, schedule = client.of(CallRetried)
    assert (refresh.delay, refresh.source) == (0.0, WaitSource.REFRESH)
    assert schedule.source is WaitSource.SCHEDULE
    tokens = [[value for key, value in seen.metadata if key == "token"] for seen in peer.service.tries["a"]]
    assert tokens == [["old", "older"]] + [["new"] if answer else ["old", "older"]] * 2
    assert [dict(seen.metadata)["mine"] for seen in peer.service.tries["a"]] == ["1"] * 3
    assert [seen.before for seen in peer.service.tries["a"]] == [None, "1", "2"], "it counts as an attempt"


async def test_a_hundred_calls_share_a_refresh(peer):
    """RT-4: one run of the hook serves all calls that were made with the old credentials, also after it has ended."""
    noted = []

    async def renew(failed):
        noted.append(failed)
        await asyncio.sleep(0.1)
        return (("token", f"new {len(noted)}"),)

    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=renew))
    texts = [str(number) for number in range(100)]
    peer.service.scripts = {text: [Say(STALE.code, hold=int(text) % 10 * 0.02)] for text in texts}
    calls = [client.call(text, metadata=(("token", "old"),)) for text in texts]
    assert [await finish(call) for call in calls] == texts
    assert len(noted) == 1
    assert {dict(peer.service.tries[text][1].metadata)["token"] for text in texts} == {"new 1"}
    peer.service.scripts["later"] = [STALE]
    await finish(client.call("later", metadata=(("token", "old"),)))
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
    assert await finish(waiting) == "b"
    assert dict(peer.service.tries["b"][1].metadata)["token"] == "new"
    assert len(peer.service.tries["a"]) == 1


async def test_a_refresh_that_calls(peer):
    """RT-4: the hook may make calls on the same channel; these calls do not wait for the hook, so nothing deadlocks."""
    errors = []

    async def renew(_failed):
        errors.append(await failing(clients[0].call("login")))
        return (("token", await finish(clients[0].call("login again"))),)

    clients = [peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=renew))]
    peer.service.scripts |= {"a": [STALE], "login": [STALE], "login again": [DOWN]}
    assert await finish(clients[0].call()) == "a"
    assert [error.code() for error in errors] == [CODE.UNAUTHENTICATED]
    assert dict(peer.service.tries["a"][1].metadata)["token"] == "login again"
    assert [len(peer.service.tries[text]) for text in ("login", "login again")] == [1, 2]


# Conflicts (RT-5) and giving up (RT-6).


async def test_conflict(peer):
    """RT-5: conflicts are not retried; `on_conflict` is called once, before the caller gets the error."""
    noted, code = [], CODE.ALREADY_EXISTS
    client = peer.client(QUICK, retry_hooks=RetryHooks(on_conflict=noted.append))
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


@pytest.mark.parametrize(
    ("name", "script"),
    [("refresh_credentials", [STALE]), ("on_conflict", [Say(CODE.ABORTED)]), ("on_exhausted", NEVER)],
)
async def test_a_hook_that_raises(peer, name, script, caplog):
    """RT-4, RT-5, RT-6: an exception from a hook is logged, and the call fails with its own error."""
    client = peer.client(QUICK, retry_hooks=RetryHooks(**{name: lambda _: 1 / 0}))
    peer.service.scripts["a"] = script
    call = client.call()
    error = await failing(call)
    assert error.code() is await call.code() is script[0].code
    assert error.details().startswith(script[0].details)
    assert len(peer.service.tries["a"]) == (3 if name == "on_exhausted" else 1)
    assert caplog.text.count(f"a hook of the channel to {peer.target} raised") == 1


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
