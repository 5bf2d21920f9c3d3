"""RT-4 to RT-6: how both APIs run user-supplied hooks, which may also be coroutine functions on asyncio.

The pure tests of the state machine (`tests/decide/calls`) cover when a hook is called, and what follows.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar, copy_context

import grpc
import grpc.aio
import pytest

import grpc_backoff
from grpc_backoff import FailedCall, OptionError, RetryHooks
from grpc_backoff.aio.hooks import Hooks as AsyncioHooks
from grpc_backoff.aio.loops import LoopClock
from grpc_backoff.decide.calls.call_machine import Hook
from grpc_backoff.sync.hooks import Hooks as ThreadedHooks
from tests.echo import EchoStub, Message
from tests.sync.service import Echo, place

FAILED = FailedCall(
    target="t",
    method="/m",
    attempt=1,
    code=grpc.StatusCode.UNAUTHENTICATED,
    details="",
    trailing_metadata=(),
    took=0.1,
)
TOKEN = (("token", "new"),)


class Threads:
    """The hooks of a threaded channel; each call that asks has a thread of its own."""

    def __init__(self, **given):
        self.now = time.monotonic
        self.hooks = ThreadedHooks(RetryHooks(**given), "t", self.now)
        self.can_refresh = self.hooks.can_refresh

    async def ask(self, hook=Hook.REFRESH, began=0.0):
        return await asyncio.to_thread(self.hooks.ask, hook, FAILED, began, copy_context())


class Asyncio:
    """The hooks of an asyncio channel."""

    def __init__(self, **given):
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        self.now = clock.now
        self.hooks = AsyncioHooks(RetryHooks(**given), "t", clock, loop)
        self.can_refresh = self.hooks.can_refresh

    async def ask(self, hook=Hook.REFRESH, began=0.0):
        done = asyncio.get_running_loop().create_future()
        self.hooks.ask(hook, FAILED, began, copy_context(), done.set_result)
        return await done


class Coroutines(Asyncio):
    """The hooks of an asyncio channel as coroutine functions."""

    def __init__(self, **given):
        def later(function):
            async def hook(failed):
                await asyncio.sleep(0.01)
                return function(failed)

            return hook

        super().__init__(**{name: later(function) for name, function in given.items()})


@pytest.fixture(params=[Threads, Asyncio, Coroutines])
def hooks(request):
    """What makes hooks from functions."""
    return request.param


async def test_each_is_called(hooks):
    """RT-5, RT-6: the hooks for conflicts and exhaustion receive the failed call; their return values are ignored."""
    seen = []
    made = hooks(on_conflict=lambda failed: seen.append(failed) or TOKEN, on_exhausted=seen.append)
    assert await made.ask(Hook.CONFLICT) is None
    assert await made.ask(Hook.EXHAUSTED) is None
    assert seen == [FAILED, FAILED]
    assert await hooks().ask(Hook.CONFLICT) is None


async def test_in_the_context_of_the_call(hooks):
    """RT-4: a hook sees the context variables of the call for which it runs."""
    variable, seen = ContextVar("variable", default=None), []
    variable.set("mine")

    def look(_failed):
        seen.append(variable.get())

    made = hooks(on_conflict=look, refresh_credentials=look)
    await made.ask(Hook.CONFLICT)
    await made.ask()
    assert seen == ["mine"] * 2


@pytest.mark.parametrize("answer", [TOKEN, list(TOKEN), grpc.aio.Metadata(*TOKEN)])
async def test_renewed_metadata(hooks, answer):
    """RT-4: a hook may return its metadata in any form that grpc accepts, or nothing."""
    assert await hooks(refresh_credentials=lambda _: answer).ask() == TOKEN
    assert await hooks(refresh_credentials=lambda _: None).ask() == ()


KIND = "refresh_credentials returned <{}>: expected (key, value) pairs, or None"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ZeroDivisionError("mine"), "ZeroDivisionError: mine"),
        *((given, KIND.format(type(given).__name__)) for given in ("secret", True, {"secret": "x"}, [("secret",)], 5)),
        ([("Authorization", "secret")], "'Authorization'"),
        ([("a b", "secret")], "'a b'"),
        ([(b"authorization", "secret")], "b'authorization'"),
        ([("authorization", b"secret")], "<bytes> for authorization: expected bytes for keys that end in -bin"),
        ([("token-bin", "secret")], "<str> for token-bin"),
        ([("authorization", "secret\n")], "a str for authorization: expected printable ASCII characters only"),
        ([("authorization", "sécret")], "a str for authorization: expected printable ASCII characters only"),
    ],
)
async def test_a_renewal_that_fails(hooks, answer, words, caplog):
    """RT-4, RT-11: an exception or unusable metadata is logged without its value, and renews nothing.

    The next call may have more luck.
    """
    answers = [answer, TOKEN]

    def refresh(_failed):
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    made = hooks(refresh_credentials=refresh)
    assert await made.ask() is None
    (record,) = [record for record in caplog.records if record.name.startswith("grpc_backoff")]
    assert (record.levelname, record.getMessage()) == ("ERROR", "a hook of the channel to t raised")
    assert words in caplog.text
    assert "secret" not in caplog.text
    assert await made.ask() == TOKEN


@pytest.mark.parametrize("hook", [Hook.CONFLICT, Hook.EXHAUSTED])
async def test_one_that_raises(hooks, hook, caplog):
    """RT-5, RT-6: an exception from another hook is logged too."""
    assert await hooks(**{hook.value: lambda _: 1 / 0}).ask(hook) is None
    assert caplog.text.count("a hook of the channel to t raised") == 1
    assert "ZeroDivisionError" in caplog.text


async def test_one_renewal_for_many(hooks):
    """RT-4: calls that fail during a refresh share it, but a call whose attempt began later causes another refresh."""
    runs = []
    made = hooks(refresh_credentials=lambda _: runs.append(None) or [("token", str(len(runs)))])
    began = made.now() - 1
    assert set(await asyncio.gather(*(made.ask(began=began) for _ in range(8)))) == {(("token", "1"),)}
    assert await made.ask(began=began) == (("token", "1"),)
    assert await made.ask(began=made.now() + 1) == (("token", "2"),)


async def test_not_for_the_hooks_own_calls(hooks):
    """RT-4: calls that the hook itself makes do not refresh credentials."""
    seen = []
    made = hooks(refresh_credentials=lambda _: seen.append(made.can_refresh()))
    assert made.can_refresh()
    await made.ask()
    assert seen == [False]
    assert made.can_refresh()
    assert not hooks().can_refresh()


async def test_no_coroutine_functions():
    """CH-10: a coroutine function, or an object that is called as one, is refused as a hook for a threaded channel."""

    async def refresh(_failed):
        return None

    class Refresh:
        async def __call__(self, _failed):
            return None

    for hook in (refresh, Refresh()):
        with pytest.raises(OptionError, match=r"RetryHooks\.refresh_credentials"):
            Threads(refresh_credentials=hook)


class Expired(Echo):
    """Accepts no credentials."""

    def Unary(self, request, context):  # noqa: N802
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "expired")


@pytest.mark.parametrize("style", ["__call__", "future"])
@pytest.mark.parametrize("own", [True, False])
def test_a_hook_that_waits_for_a_future(style, own):
    """RT-4, RT-6: a hook of a threaded call may wait for futures, and these may need hooks."""
    texts = []
    with place() as server:
        done = threading.Event()

        def exhausted(failed):
            texts.append(failed.method)
            if Message.FromString(failed.request).count:
                call = stub.Unary.future(Message(text="abort"), timeout=20) if own else other
                assert isinstance(call.exception(timeout=10), grpc_backoff.RetriesExhaustedError)
                done.set()

        channel = grpc_backoff.insecure_channel(
            server.target,
            retry="codes: FAILED_PRECONDITION, retry: 1, delay: 10ms",
            retry_hooks=RetryHooks(on_exhausted=exhausted),
        )
        stub = EchoStub(channel)
        with channel:
            first = Message(text="abort", count=1)
            begun = stub.Unary.future(first, timeout=20) if style == "future" else None
            other = stub.Unary.future(Message(text="abort"), timeout=20)
            with pytest.raises(grpc_backoff.RetriesExhaustedError):
                stub.Unary(first, timeout=20) if begun is None else begun.result(20)
            assert done.wait(10)
    assert len(texts) >= 2


@pytest.mark.parametrize("style", ["__call__", "future"])
def test_a_renewal_that_waits_for_its_own_future(style):
    """RT-4: a threaded hook that renews credentials may wait for a future, which does not renew them again."""
    runs = []
    with place(Expired()) as server:

        def renew(_failed):
            runs.append(stub.Unary.future(Message(text="expired"), timeout=20).code())

        hooks = RetryHooks(refresh_credentials=renew)
        with grpc_backoff.insecure_channel(server.target, retry="retry: 1, delay: 10ms", retry_hooks=hooks) as channel:
            stub = EchoStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                getattr(stub.Unary, style)(Message(text="expired"), timeout=10).result(20)
    assert (caught.value.code(), runs) == (grpc.StatusCode.UNAUTHENTICATED, [grpc.StatusCode.UNAUTHENTICATED])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("hook", ["on_exhausted", "on_conflict", "refresh_credentials"])
def test_a_hook_that_ends_its_thread(hook):
    """RT-4 to RT-6: a threaded call in the background ends with its own error even if its hook raises SystemExit."""
    codes = {"on_exhausted": "abort", "on_conflict": "conflict", "refresh_credentials": "expired"}

    def leave(_failed):
        raise SystemExit

    class Conflicting(Expired):
        def Unary(self, request, context):  # noqa: N802
            if request.text == "conflict":
                context.abort(grpc.StatusCode.ABORTED, "conflict")
            if request.text == "abort":
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "abort")
            super().Unary(request, context)

    with place(Conflicting()) as server:
        retry, hooks = "codes: FAILED_PRECONDITION, retry: 1, delay: 10ms", RetryHooks(**{hook: leave})
        with grpc_backoff.insecure_channel(server.target, retry=retry, retry_hooks=hooks) as channel:
            call = EchoStub(channel).Unary.future(Message(text=codes[hook]), timeout=60)
            assert isinstance(call.exception(timeout=20), grpc.RpcError)
