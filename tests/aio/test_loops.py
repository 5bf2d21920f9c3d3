"""An event loop's clock, and using a channel on an event loop other than its own.

Closing works there as in `grpc.aio`; calls raise a clear error.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import threading
import time
import weakref
from contextvars import ContextVar

import grpc
import grpc.aio
import pytest

from grpc_backoff import aio
from grpc_backoff.aio import loops
from grpc_backoff.aio.loops import LoopClock, clock_of, ended_at_home, is_here, until_done
from grpc_backoff.errors import WrongLoopError
from tests.aio.test_waiting import QUICK
from tests.both_apis.interceptors import for_asyncio, go_on
from tests.echo import EchoStub, Message, serving
from tests.programs import output

KINDS = pytest.mark.parametrize("kind", [grpc.aio, aio], ids=["plain", "ours"])
NOBODY = "127.0.0.1:1"


@pytest.fixture
def home():
    """An event loop that is set but not running, as in a program before its `asyncio.run`."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


@KINDS
@pytest.mark.parametrize("grace", [None, 0.2])
@pytest.mark.parametrize("interceptors", [None, for_asyncio(go_on)], ids=["bare", "intercepted"])
@pytest.mark.parametrize("asked", [False, True])
def test_made_before_and_closed_in_a_run(home, kind, grace, interceptors, asked, caplog):
    """CB-10: a channel created before `asyncio.run`, and asked to connect, can be closed inside it and logs nothing."""
    gc.collect()  # what other tests have left may log when it is collected
    caplog.clear()

    async def close():
        await channel.close(grace)
        await channel.close(grace)

    channel = kind.insecure_channel(NOBODY, interceptors=interceptors)
    if asked:
        channel.get_state(try_to_connect=True)
    asyncio.run(close())
    assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert caplog.records == []


@KINDS
async def test_a_task_factory_without_context(kind, caplog):
    """CH-8: a program may have a task factory that knows no `context`, as those that were written for Python 3.10."""
    running = asyncio.get_running_loop()
    if not isinstance(running, asyncio.BaseEventLoop):
        pytest.skip("uvloop gives every task factory a `context`")
    running.set_task_factory(lambda loop, work: asyncio.Task(work, loop=loop))
    async with serving() as port, kind.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert (await EchoStub(channel).Unary(Message(text="a"), timeout=20)).text == "a"
    async with kind.insecure_channel(NOBODY) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await EchoStub(channel).Unary(Message(text="a"), timeout=20)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caplog.records == []


@KINDS
async def test_closed_after_its_loop(kind):
    """CB-10: a channel that was used in one `asyncio.run` can be closed in a later one."""
    async with serving() as port:

        async def use():
            channel = kind.insecure_channel(f"127.0.0.1:{port}")
            await EchoStub(channel).Unary(Message(text="a"), timeout=30)
            return channel

        async def close():
            await channel.close()

        channel = await asyncio.to_thread(asyncio.run, use())
        await asyncio.to_thread(asyncio.run, close())
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


def test_closed_while_its_loop_stands_still(home):
    """CB-10: closing a channel whose loop is stopped ends its attempt and its calls once that loop runs again."""

    async def call():
        outcomes.append(asyncio.ensure_future(EchoStub(channel).Unary(Message(), wait_for_ready=True).code()))
        await asyncio.sleep(0)

    outcomes = []
    channel = aio.insecure_channel(NOBODY, options=QUICK)
    home.run_until_complete(call())
    asyncio.run(channel.close())
    assert home.run_until_complete(asyncio.wait_for(outcomes[0], 30)) is grpc.StatusCode.CANCELLED
    home.run_until_complete(asyncio.sleep(0.05))
    assert asyncio.all_tasks(home) == set()


async def test_closed_from_the_loop_of_another_thread():
    """CB-10: `close()` may be called on another loop; running calls have their grace period if their own loop runs."""
    async with serving() as port:
        channel = aio.insecure_channel(f"127.0.0.1:{port}")
        call = EchoStub(channel).Unary(Message(text="a"), timeout=30)
        await asyncio.to_thread(asyncio.run, channel.close(30))
        assert (await call).text == "a"
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
        with pytest.raises(grpc.aio.UsageError):
            EchoStub(channel).Unary(Message())


def unary(channel, **arguments):
    return EchoStub(channel).Unary(Message(), timeout=30, **arguments)


def up(channel, **arguments):
    return EchoStub(channel).Up(iter([Message()]), timeout=30, **arguments)


async def poll(channel):
    while channel.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:
        await asyncio.sleep(0.05)


CALLS = {"wait_for_ready": lambda channel: unary(channel, wait_for_ready=True), "fail_fast": unary, "streaming": up}
WATCH = {"watch": lambda channel: channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE)}
WAYS = CALLS | WATCH | {"ready": lambda channel: channel.channel_ready(), "poll": poll}


async def use(channel, way):
    async with asyncio.timeout(30):
        await way(channel)


HOWS = {"bare": {}, "intercepted": {"interceptors": for_asyncio(go_on)}, "retried": {"retry": "standard"}}


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_used_on_another_loop(home, way, how):
    """A channel used on another loop raises WrongLoopError at once; its own loop can still close it."""
    channel = aio.insecure_channel(NOBODY, **how)
    with pytest.raises(
        WrongLoopError, match=r"to 127.0.0.1:1 was created on another .* is not running.* asyncio.run\(\)"
    ):
        asyncio.run(use(channel, way))
    home.run_until_complete(channel.close())


@pytest.mark.parametrize("way", (CALLS | WATCH).values(), ids=CALLS | WATCH)
async def test_ready_and_used_on_another_loop(way):
    """WrongLoopError is raised even if the channel is READY on its own running loop, and nothing is sent."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        with pytest.raises(WrongLoopError, match="runs in another thread"):
            await asyncio.to_thread(asyncio.run, use(channel, way))
        await unary(channel)


async def test_used_after_its_loop():
    """WrongLoopError is raised even if the channel's loop has ended; the error is a RuntimeError and can be pickled."""

    async def make():
        return aio.insecure_channel(NOBODY)

    async def use():
        try:
            await unary(channel)
        finally:
            await channel.close()

    channel = await asyncio.to_thread(asyncio.run, make())
    with pytest.raises(RuntimeError, match="is closed") as caught:
        await asyncio.to_thread(asyncio.run, use())
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def test_state_from_another_thread():
    """CH-1: `get_state` works in any thread; with `try_to_connect`, the channel's own loop dials."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.to_thread(channel.get_state, try_to_connect=True)
        await asyncio.wait_for(channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE), 30)
        await asyncio.wait_for(channel.channel_ready(), 30)
        assert await asyncio.to_thread(channel.get_state) is grpc.ChannelConnectivity.READY
        await asyncio.to_thread(asyncio.run, use(channel, poll))


async def test_dropped_after_another_loop_refused_it():
    """CB-10: a call that was rejected on another loop does not make the channel dial."""
    channel = aio.insecure_channel(NOBODY)
    with pytest.raises(WrongLoopError):
        await asyncio.to_thread(asyncio.run, use(channel, CALLS["wait_for_ready"]))
    assert channel.connection_status().attempt == 0
    await channel.close()
    gc.collect()


def test_ended_at_home(home):
    """`ended_at_home` runs a coroutine on a running loop and returns False if that loop stops or is not running."""
    started = threading.Event()
    home.call_soon(started.set)

    async def note():
        seen.append(is_here(home))

    async def elsewhere():
        assert not await ended_at_home(home, note())
        thread = threading.Thread(target=home.run_forever)
        thread.start()
        await asyncio.to_thread(started.wait)
        assert await ended_at_home(home, note())
        waiting = asyncio.create_task(ended_at_home(home, asyncio.sleep(60)))
        await asyncio.sleep(0.05)
        home.call_soon_threadsafe(home.stop)
        await asyncio.to_thread(thread.join)
        assert not await asyncio.wait_for(waiting, 30)
        assert not is_here(home)

    seen = []
    asyncio.run(elsewhere())
    for task in asyncio.all_tasks(home):
        task.cancel()
    home.run_until_complete(asyncio.sleep(0.01))
    assert seen == [True]


LOOP_AFTER_LOOP = """
import asyncio, contextlib, gc, socket, sys, threading
import grpc_backoff.aio

SETTINGS = b"\\0\\0\\0\\4\\0\\0\\0\\0\\0" if sys.argv[1] == "ready" else b""
kept, sockets = [], []
listener = socket.create_server(("127.0.0.1", 0))

def serve():
    while True:
        sockets.append(listener.accept()[0])
        sockets[-1].sendall(SETTINGS)

threading.Thread(target=serve, daemon=True).start()

async def client():
    target = f"127.0.0.1:{listener.getsockname()[1]}"
    kept.append(grpc_backoff.aio.insecure_channel(target, [("grpc.min_reconnect_backoff_ms", 500)]))
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(kept[-1].unary_unary("/a/b")(b"", wait_for_ready=True), 0.3)

async def last():
    await client()
    for each in sockets:
        each.close()
    for _ in range(15):
        gc.collect()
        await asyncio.sleep(0.1)

for main in (client, client, last):
    asyncio.run(main(), debug=False)  # debug mode reports whatever takes a busy machine 0.1 s
"""


@pytest.mark.parametrize("which", ["dialling", "ready"])
async def test_a_loop_that_ends_leaves_nothing_to_the_next(which):
    """CB-10: a loop that ends while its channel dials, or is connected, leaves no traceback in the loop after it."""
    status, said = await output(sys.executable, "-W", "ignore", "-c", LOOP_AFTER_LOOP, which, within=60)
    assert (status, said) == (0, "")


ENDS_EARLY = """
import asyncio, socket, sys, threading, time
import grpc_backoff.aio

kept, accepted = [], []
listener = socket.socket()
listener.bind(("127.0.0.1", 0))  # refuses, until it listens

def serve():
    while True:
        accepted.append(listener.accept())

async def client():
    def hear(event):
        if isinstance(event, grpc_backoff.AttemptStarted) and event.attempt == 2:
            listener.listen()
            threading.Thread(target=serve, daemon=True).start()
            begun.set()

    begun = asyncio.Event()
    limits = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 300)]
    target = f"127.0.0.1:{listener.getsockname()[1]}"
    kept.append(grpc_backoff.aio.insecure_channel(target, limits, listeners=[hear]))
    kept[-1].get_state(try_to_connect=True)
    await begun.wait()
    for _ in range(int(sys.argv[1])):
        await asyncio.sleep(0)

asyncio.run(client(), debug=False)  # as above
time.sleep(2)
assert len(accepted) <= 1, len(accepted)
"""


@pytest.mark.parametrize("turns", range(4))
async def test_a_loop_that_ends_as_an_attempt_begins(turns):
    """CB-10: the core does not go on dialling for a channel that the program still has, after its loop has ended."""
    status, said = await output(sys.executable, "-W", "ignore", "-c", ENDS_EARLY, str(turns), within=60)
    assert (status, said) == (0, "")


async def test_until_done():
    """Waiting ends with the last future, or in time, and neither cancels the futures nor raises their errors."""
    await until_done()
    failed, cancelled, running = (asyncio.get_running_loop().create_future() for _ in range(3))
    failed.set_exception(ZeroDivisionError())
    waiting = asyncio.create_task(until_done(failed, cancelled))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    cancelled.cancel()
    await waiting
    await until_done(failed, running, within=0.01)
    assert not running.done()
    assert isinstance(failed.exception(), ZeroDivisionError)


async def test_a_task_cancelled_in_until_done_is_freed():
    """Nothing that a cancelled task held is left to the garbage collector."""

    class Held:
        pass

    async def wait(_held):
        await until_done(never, within=60)

    gc.disable()
    try:
        never, held = asyncio.get_running_loop().create_future(), Held()
        task, gone = asyncio.create_task(wait(held)), weakref.ref(held)
        del held
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del task
        await asyncio.sleep(0.01)
        assert gone() is None
        assert not never.cancelled()
    finally:
        gc.enable()


class Ahead(asyncio.SelectorEventLoop):
    """An event loop whose clock is 1,000 seconds ahead."""

    def time(self):
        return super().time() + 1000


@pytest.mark.parametrize(("kind", "ahead"), [(asyncio.SelectorEventLoop, 0), (Ahead, 1000)])
def test_the_time_of_a_loop_is_its_own(kind, ahead):
    """CB-12: the clock shows its loop's time, which is monotonic unless the loop has a clock of its own."""
    loop = kind()
    try:
        assert 0 <= LoopClock(loop).now() - time.monotonic() - ahead + 1e-3 < 60
    finally:
        loop.close()


async def test_a_clock_that_differs_for_a_while(monkeypatch):
    """SH-1: a loop shares with others only while its clock is the machine's, which a library for tests may stop."""
    clock = clock_of(asyncio.get_running_loop())
    assert clock.keeps_time
    with monkeypatch.context() as stopped:
        stopped.setattr(loops, "monotonic", lambda: time.monotonic() + 1000)
        assert not clock.keeps_time
    assert clock.keeps_time


async def test_call_at_calls_back_once_and_can_be_taken_back():
    """CB-10: a timer calls back once, and not at all if it was cancelled. Waits 50 ms of real time."""
    clock, called = LoopClock(asyncio.get_running_loop()), []
    clock.call_at(clock.now() - 1, lambda: called.append("late"))
    clock.call_at(clock.now(), lambda: called.append("cancelled")).cancel()
    await asyncio.sleep(0.05)

    assert called == ["late"]


async def test_a_timer_keeps_nothing_of_its_callers_context():
    """CB-10: a timer runs in a separate context, so it does not keep its caller's context alive. Waits 50 ms."""
    carried, seen = ContextVar("carried", default=None), []
    carried.set("a request")
    clock = LoopClock(asyncio.get_running_loop())
    clock.call_at(clock.now(), lambda: seen.append(carried.get()))
    await asyncio.sleep(0.05)

    assert seen == [None]


class Early(asyncio.SelectorEventLoop):
    """An event loop whose timers come when 95 % of their time has passed, as Qt's coarse ones may."""

    def call_at(self, when, callback, *arguments, context=None):
        now = self.time()
        return super().call_at(now + 0.95 * (when - now), callback, *arguments, context=context)


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, Early])
def test_no_timer_is_early(kind):
    """CB-12: no wait ends before its time, whatever the loop's own timers do. Waits 0.4 s of real time."""
    loop = kind()
    clock, fired = LoopClock(loop), asyncio.Event()
    when = clock.now() + 0.4
    try:
        clock.call_at(when, fired.set)
        loop.run_until_complete(fired.wait())
        assert clock.now() >= when - 0.0011
    finally:
        loop.close()


class Leaping(Early):
    """An early event loop whose clock a test sets forward, by `ahead` seconds."""

    ahead = 0.0

    def time(self):
        return super().time() + self.ahead


def test_a_rearmed_timer_can_be_cancelled():
    """CB-10: a timer that came too early and was armed again can still be cancelled."""
    loop, called = Leaping(), []
    clock = LoopClock(loop)
    try:
        timer = clock.call_at(clock.now() + 1000.0, lambda: called.append("cancelled"))
        first = timer._handle
        loop.ahead = 960.0
        loop.run_until_complete(asyncio.sleep(0.01))
        assert timer._handle not in (None, first)
        timer.cancel()
        loop.ahead = 2000.0
        loop.run_until_complete(asyncio.sleep(0.01))
        assert called == []
    finally:
        loop.close()


async def test_work_that_is_posted_runs_at_home():
    """SH-3: any thread may post work, which runs on the loop, and in order."""
    home, order, done = LoopClock(asyncio.get_running_loop()), [], asyncio.Event()

    def post():
        order.append(home.is_here())
        home.post(lambda: order.append(home.is_here()))
        home.post(lambda: order.append("last"))
        home.post(done.set)

    await asyncio.to_thread(post)
    await asyncio.wait_for(done.wait(), 20)
    assert order == [False, True, "last"]


def test_a_home_that_is_closed():
    """SH-3: a closed loop says so, and takes no work."""
    loop = asyncio.new_event_loop()
    home = LoopClock(loop)
    assert not home.is_closed()
    loop.close()
    assert home.is_closed()
    with pytest.raises(RuntimeError, match="closed"):
        home.post(list)
