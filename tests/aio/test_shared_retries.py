"""What the retried calls of a channel share: hooks, the budget of their target, and policies by method."""

from __future__ import annotations

import asyncio
import json
import logging
from contextvars import ContextVar

import grpc
import grpc.aio
import pytest

from grpc_backoff import (
    CallExhausted,
    CallRetried,
    CallSucceeded,
    OptionError,
    PolicyWarning,
    Reason,
    RetryBudget,
    RetryHooks,
    RetryPolicy,
    WaitSource,
    aio,
)
from tests.aio.retry_service import CODE, METHOD, Say, answered, failing, peer
from tests.aio.test_drop_in_interceptors import Does
from tests.echo import EchoStub, Message, serving

__all__ = ["peer"]

DOWN = Say()
NEVER = [DOWN] * 1000
STALE = Say(CODE.UNAUTHENTICATED, "stale token")
QUICK = "retry: 2, delay: 1ms"
CALLER = ContextVar("caller", default=None)


def both(function):
    """Return a hook that is a function, and one that is a coroutine function, with the same effect."""

    async def asynchronous(failed):
        await asyncio.sleep(0)
        return function(failed)

    return [function, asynchronous]


class Noted(list):
    """What a hook was called with, and by whom; it answers as it is told."""

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
    """RT-4: the hook is called, and the call is made again at once, with what the hook gave in place of the old."""
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
    assert [seen.before for seen in peer.service.tries["a"]] == [None, "1", "2"], "it counts as a try"


async def test_refreshed_for_each_try(peer):
    """RT-4: at once the first time, then by the schedule and within the tries; the hook is asked each time."""
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
    """RT-4: it is one of the policy's tries; without any left the call is exhausted, without retries it just fails."""
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
    """RT-4: what a hook raises, or gives that is no metadata, is logged, and the call's own error stays its error."""
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
        assert str(record.exc_info[1]) == (f"refresh_credentials returned {kind}: expected pairs of metadata, or None")
        assert "secret" not in caplog.text  # RT-11
    assert not client.of(CallRetried)
    noted.answer = None
    assert await answered(client.call("b")) == "b", "the next call may have more luck"
    assert len(noted) == 2


@pytest.mark.parametrize("lasts", [0, 0.3], ids=["fast", "slow"])
async def test_a_hundred_calls_share_a_refresh(peer, lasts):
    """RT-4: one run of the hook serves all calls that were made with the old credentials, however fast it is."""
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
    """RT-4, RT-7: the call ends at its deadline with its own error; the hook goes on, and others wait for it."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def renew(_failed):
        begun.set()
        await go.wait()
        return (("token", "new"),)

    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=renew))
    peer.service.scripts |= {"a": [STALE], "b": [STALE]}
    patient = client.call("b")
    await begun.wait()
    error = await failing(client.call(timeout=0.3))
    assert (type(error), error.code()) == (grpc.aio.AioRpcError, CODE.UNAUTHENTICATED)
    go.set()
    assert await answered(patient) == "b"
    assert dict(peer.service.tries["b"][1].metadata)["token"] == "new"
    assert len(peer.service.tries["a"]) == 1


async def test_a_refresh_that_calls(peer):
    """RT-4: the hook may call on the same channel; such a call does not wait for the hook that waits for it."""
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


# Conflicts (RT-5), and the end (RT-6).


@STYLES
async def test_conflict(peer, style):
    """RT-5: conflicts are not retried; the hook is told once, before the caller."""
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
    """RT-6: the hook is told once, with what the error says; not of calls that fail in other ways, or succeed."""
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
    """RT-5, RT-6: it is logged, and the call's own error stays its error."""
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
    """RT-5, RT-6, RT-7: the call waits for a hook until its deadline and no longer; the hook goes on."""
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


# The budget (RT-9).


async def test_budget(peer):
    """RT-9: the channels of a target share its tokens: failures cost one each, whichever channel they are on."""
    budget, words = RetryBudget(max_tokens=10, token_ratio=0.1), "retry: 2, delay: 1ms"
    clients = [peer.client(words, retry_budget=budget) for _ in range(3)]
    texts = [str(number) for number in range(4)]
    peer.service.scripts = dict.fromkeys(texts, NEVER)
    errors = [await failing(clients[number % 3].call(text)) for number, text in enumerate(texts)]
    expected = [3, 2, 1, 1]  # 10 tokens: with 5 or fewer there are no retries
    assert [len(peer.service.tries[text]) for text in texts] == [error.attempts for error in errors] == expected
    assert {error.reason for error in errors if error.attempts < 3} == {Reason.BUDGET}
    assert "; gave up: the retry budget is used up (" in errors[-1].details()
    other = peer.client("retry: 1, delay: 1ms", retry_budget=RetryBudget(10, 0.2))
    assert (await failing(other.call("0"))).attempts == 2, "another budget is another matter"
    assert (await failing(peer.client("retry: 1, delay: 1ms").call("0"))).attempts == 2, "none is no limit"


@pytest.mark.parametrize("source", ["service config", "file"])
async def test_budget_from(peer, source, tmp_path):
    """RT-9: a service config's `retryThrottling` and the file's `[retry_budget]` are budgets too."""
    how = {}
    if source == "file":
        how["config"] = tmp_path / "retry.toml"
        how["config"].write_text("[retry_budget]\nmax_tokens = 2\ntoken_ratio = 0.1\n")
    else:
        throttling = {"retryThrottling": {"maxTokens": 2, "tokenRatio": 0.1}}
        how["options"] = [("grpc.service_config", json.dumps(throttling))]
    peer.service.scripts["a"] = NEVER
    error = await failing(peer.client(QUICK, **how).call())
    assert (error.attempts, error.reason) == (1, Reason.BUDGET)


# Policies by method (BP-2), and one call differently from its channel.


@pytest.mark.parametrize(
    ("retry", "tries"),
    [
        ({"echo.v1.Echo/Unary": "retry: 1", "echo.v1.Echo": "retry: 2", "*": "retry: 3"}, 2),
        ({"echo.v1.Echo": "retry: 2", "*": "retry: 3"}, 3),
        ({"echo.v1.Echo/Down": "retry: 1", "*": "retry: 3"}, 4),
        ({"echo.v1.Echo/Down": "retry: 1", "other.Service": "retry: 2"}, 1),
        ({"*": RetryPolicy.parse("retry: 4")}, 5),
    ],
)
async def test_policies_by_method(peer, retry, tries):
    """BP-2: the nearest name holds: the method's, its service's, all."""
    peer.service.scripts["a"] = NEVER
    await failing(peer.client(retry).call())
    assert len(peer.service.tries["a"]) == tries


FILE = """
[policies.mine]
retry = 3
delay = "1ms"

[methods."echo.v1.Echo"]
preset = "mine"

[methods."*"]
retry = 7
"""


def config_for(tries):
    policy = {"maxAttempts": tries, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1}
    policy["retryableStatusCodes"] = ["UNAVAILABLE"]
    return [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]}))]


@pytest.mark.parametrize("tries", [2, 5, 8])
async def test_argument_over_service_config_over_file(peer, tmp_path, tries):
    """BP-3, RT-10: the one with the most say carries the retries out alone: the server counts, nothing multiplies."""
    file = tmp_path / "retry.toml"
    file.write_text(FILE)
    peer.service.scripts |= dict.fromkeys(["file", "service config", "argument", "name"], NEVER)
    await failing(peer.client(config=file).call("file"))
    await failing(peer.client(config=file, options=config_for(tries)).call("service config"))
    await failing(peer.client("retry: 2", config=file, options=config_for(tries)).call("argument"))
    await failing(peer.client({"*": "mine"}, config=file, options=config_for(tries)).call("name"))
    counted = {text: len(seen) for text, seen in peer.service.tries.items()}
    assert counted == {"file": 4, "service config": tries, "argument": 3, "name": 4}
    assert [seen.before for seen in peer.service.tries["argument"]] == [None, "1", "2"]


async def test_previous_attempts_behind_a_core_that_retries(peer):
    """RT-10: where some methods are not retried, the core's transparent retries stay, and it takes the header away."""
    peer.service.scripts["a"] = [DOWN] * 2
    await answered(peer.client({"echo.v1.Echo/Unary": QUICK}).call())
    assert len(peer.service.tries["a"]) == 3
    assert [seen.before for seen in peer.service.tries["a"]] == [None] * 3


async def passed_on(continuation, details, request):
    return await continuation(details, request)


@pytest.mark.parametrize("interceptors", [None, [Does(passed_on)]], ids=["bare", "intercepted"])
@pytest.mark.parametrize("retry", [None, "retry: 5"])
async def test_retrying(peer, tmp_path, interceptors, retry):
    """BP-2: one call is retried by its own words, a policy or a name; its channel stays as it is."""
    file = tmp_path / "retry.toml"
    file.write_text(FILE.partition("[methods")[0])
    client = peer.client(retry, interceptors=interceptors, config=file)
    ways = ["retry: 2, delay: 1ms", RetryPolicy.parse("retry: 2"), "mine", "retry: 0"]
    for number, way in enumerate(ways):
        text = str(number)
        peer.service.scripts[text] = NEVER
        await failing(aio.retrying(client.stub.Unary, way)(Message(text=text)))
    assert [len(peer.service.tries[text]) for text in "0123"] == [3, 3, 4, 1]
    peer.service.scripts["channel"] = NEVER
    await failing(client.call("channel"))
    assert len(peer.service.tries["channel"]) == (6 if retry else 1)
    peer.service.scripts["again"] = [DOWN]
    twice = aio.retrying(aio.retrying(client.stub.Unary, "retry: 9"), "retry: 1")
    assert (await twice(Message(text="again"), timeout=30)).text == "again"


async def test_retrying_what_is_none():
    """BP-2: a plain channel's method is a TypeError, and a policy that is none says what is allowed."""
    async with serving() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as plain:
        with pytest.raises(TypeError, match=r"multicallable=grpc\.aio\._channel\.UnaryUnaryMultiCallable: expected"):
            aio.retrying(EchoStub(plain).Unary, "retry: 1")
    async with aio.insecure_channel("127.0.0.1:1") as channel:
        method = EchoStub(channel).Unary
        for wrong, message in (
            ("standart", "did you mean 'standard'"),
            ("retry: many", "retry='many': expected"),
            ("retries: 5", "did you mean 'retry'"),
            ("retry: 5, retry: 6", "each setting once"),
            (None, "a RetryPolicy, the name of one, or a policy string"),
            (5, "retry=5: expected"),
            ("", "a policy string such as"),
        ):
            with pytest.raises(OptionError, match=message):
                aio.retrying(method, wrong)
        with pytest.warns(PolicyWarning, match="backoff has no effect without a delay") as caught:
            aio.retrying(method, "retry: 5, backoff: exponential")
        assert caught[0].filename == __file__
        for not_a_method in (None, print, channel):
            with pytest.raises(TypeError, match="a method of a stub on a grpc_backoff channel"):
                aio.retrying(not_a_method, "retry: 1")


@pytest.mark.parametrize("retry", ["standart", {"*": "standart"}, {"not a method": "standard"}, 5, "", {"*": 5}])
async def test_a_channel_with_a_policy_that_is_none(retry):
    """CH-10: OptionError when the channel is made."""
    with pytest.raises(OptionError, match="retry"):
        aio.insecure_channel("127.0.0.1:1", retry=retry)


async def test_events(peer):
    """RT-12: what listeners are told of a call: each retry, and how it ended; nothing that is sensitive."""
    client = peer.client("retry: 1, delay: 1ms")
    secret = Say(details="secret", trailing=(("secret", "secret"),))
    peer.service.scripts |= {"secret": [secret], "exhausted secret": [secret] * 2}
    await answered(client.call("secret", metadata=(("authorization", "secret"),)))
    await failing(client.call("exhausted secret"))
    told = [event for event in client.events if isinstance(event, CallRetried | CallSucceeded | CallExhausted)]
    assert [type(event) for event in told] == [CallRetried, CallSucceeded, CallRetried, CallExhausted]
    assert [event.attempt for event in told] == [1, 2, 1, 2]
    assert {(event.target, event.method) for event in told} == {(peer.target, METHOD)}
    assert told == sorted(told, key=lambda event: event.at)
    assert "secret" not in repr(told)  # RT-11


async def test_nothing_at_all_at_once(peer):
    """RT-1: a hundred calls at once are retried each by itself, and none is lost or sent once too often."""
    client = peer.client("retry: 3, delay: 5ms")
    texts = [str(number) for number in range(100)]
    peer.service.scripts = {text: [DOWN] * (number % 5) for number, text in enumerate(texts)}
    codes = [(await call.code()) for call in [client.call(text) for text in texts]]
    for number, code in enumerate(codes):
        assert code is (CODE.UNAVAILABLE if number % 5 == 4 else CODE.OK)
        assert len(peer.service.tries[texts[number]]) == min(number % 5 + 1, 4)


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
    """RT-4: what grpc would not take is logged without its value, and the call ends with its own error."""
    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=lambda _: pairs))
    peer.service.scripts["a"] = [Say(CODE.UNAUTHENTICATED)]
    call = client.call()
    error = await failing(call)
    assert (error.code(), type(error)) == (CODE.UNAUTHENTICATED, grpc.aio.AioRpcError)
    assert await call.code() is CODE.UNAUTHENTICATED
    assert named in caplog.text
    assert "secret" not in caplog.text
