"""RO-2: `drain` and `drain_on_signals`, with servers and health servicers of both APIs.

The waits are in real time, with slack for a slow machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from grpc_backoff import OptionError
from grpc_backoff.server import drain, drain_on_signals
from tests.both_apis.loops import LoopThread

METHOD = "/test.Sleeper/Sleep"
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def sleep(request, _context):
    time.sleep(float(request))
    return b"slept"


async def sleep_on_loop(request, _context):
    await asyncio.sleep(float(request))
    return b"slept"


def handlers(handler):
    return [
        grpc.method_handlers_generic_handler("test.Sleeper", {"Sleep": grpc.unary_unary_rpc_method_handler(handler)})
    ]


class Threads:
    """A server of grpc."""

    def __init__(self):
        self.server = grpc.server(ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers(handlers(sleep))
        self.health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def drain(self, **how):
        drain(self.server, how.pop("health", self.health), **how)

    def stop_server(self):
        self.server.stop(None).wait()

    stop = stop_server


class Asyncio:
    """A server of grpc.aio, on an event loop in a separate thread."""

    def __init__(self):
        self.loop = LoopThread()
        self.loop.run(self._start())

    async def _start(self):
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers(handlers(sleep_on_loop))
        self.health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()

    def drain(self, **how):
        async def wait():
            await drain(self.server, how.pop("health", self.health), **how)

        self.loop.run(wait(), 60)

    def stop_server(self):
        self.loop.run(self.server.stop(None))

    def stop(self):
        self.stop_server()
        self.loop.close()


@pytest.fixture(params=[Threads, Asyncio], ids=["threads", "asyncio"])
def place(request):
    place = request.param()
    yield place
    place.stop()


@pytest.fixture
def channel(place):
    with grpc.insecure_channel(f"127.0.0.1:{place.port}") as channel:
        grpc.channel_ready_future(channel).result(30)
        yield channel


def in_background(work, **how):
    thread = threading.Thread(target=work, kwargs=how)
    thread.start()
    return thread


def call(channel, seconds=0.0):
    return channel.unary_unary(METHOD).future(str(seconds).encode(), timeout=30)


def is_unready(channel):
    check = health_pb2_grpc.HealthStub(channel).Check
    return check(health_pb2.HealthCheckRequest(), timeout=10).status == NOT_SERVING


def test_drain(place, channel, caplog):
    """RO-2: the server is unready and still answers, then it stops, and the running calls finish."""
    caplog.set_level(logging.INFO, "grpc_backoff.server")
    draining = in_background(place.drain, unready=1.0, grace=20.0)
    while not is_unready(channel):
        time.sleep(0.01)
    assert call(channel).result() == b"slept"
    long = [call(channel, 2.0) for _ in range(3)]
    assert [each.result() for each in long] == [b"slept"] * 3
    draining.join()
    assert call(channel).code() is grpc.StatusCode.UNAVAILABLE
    texts = [record.getMessage() for record in caplog.records if record.name == "grpc_backoff.server"]
    assert [text.split(":")[0] for text in texts] == ["draining", "draining", "drained"]
    assert texts[1].endswith("for 3 calls")
    assert texts[2].endswith("for 3 calls")


def test_grace(place, channel):
    """RO-2: calls that still run after the grace period are cancelled."""
    long = call(channel, 20.0)
    time.sleep(0.3)
    began = time.monotonic()
    in_background(place.drain, unready=0.0, grace=0.5).join(10)
    assert long.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    assert time.monotonic() - began < 10


def test_twice(place, channel):
    """RO-2: a second drain waits for the first one."""
    drains = [in_background(place.drain, unready=0.5, grace=20.0) for _ in range(2)]
    began, long = time.monotonic(), call(channel, 2.0)
    for thread in drains:
        thread.join()
        assert time.monotonic() - began > 1.9
    assert long.result() == b"slept"


@pytest.mark.parametrize("stopped", ["drained", "by the program", "by the program, during the drain"])
def test_stopped(place, stopped):
    """RO-2: a stopped server is not waited for, also if the program stops it itself, before or during the drain."""
    stopping = threading.Timer(0.5, place.stop_server)
    if stopped == "drained":
        place.drain(unready=0.0, grace=0.0)
    elif stopped == "by the program":
        place.stop_server()
    else:
        stopping.start()
    began = time.monotonic()
    place.drain(unready=60.0)
    assert time.monotonic() - began < 30
    if stopping.ident is not None:
        stopping.join()


class Broken:
    """A health servicer that fails with an error of this kind."""

    def __init__(self, kind):
        self._kind = kind

    def enter_graceful_shutdown(self):
        raise self._kind("no health")


BROKEN = [Broken(kind) for kind in (RuntimeError, asyncio.CancelledError, SystemExit)]


@pytest.mark.parametrize("servicer", [None, *BROKEN], ids=["none", "broken", "cancelled", "exits"])
def test_without_health(place, channel, servicer):
    """RO-2: without a health servicer that works, the server still drains."""
    long = call(channel, 1.0)
    time.sleep(0.3)
    place.drain(health=servicer, unready=0.1, grace=20.0)
    assert long.result() == b"slept"


def test_a_health_servicer_that_times_out():
    """RO-2: the server drains although its servicer was cancelled from within and raises something else."""

    class TimesOut:
        async def enter_graceful_shutdown(self):
            asyncio.current_task().cancel()  # as timeouts of some libraries do
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            raise TimeoutError

    async def main():
        server = grpc.aio.server()
        await server.start()
        await drain(server, TimesOut(), unready=0.0)
        assert not await server.wait_for_termination(0)

    asyncio.run(main())


def test_the_end_of_the_loop():
    """RO-2: the event loop does not wait for a drain whose health servicer hangs, because it cancels that."""

    class Hanging:
        async def enter_graceful_shutdown(self):
            await asyncio.Event().wait()

    async def main():
        server = grpc.aio.server()
        await server.start()
        drained = asyncio.ensure_future(drain(server, Hanging(), unready=60.0))
        await asyncio.sleep(0.01)
        await server.stop(None)
        assert not drained.done()

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("do", [drain, drain_on_signals])
def test_arguments(place, do):
    """RO-2: wrong arguments raise errors that say what was expected, and the server goes on."""
    with pytest.raises(OptionError, match=r"unready=-1: expected a finite"):
        do(place.server, unready=-1)
    with pytest.raises(OptionError, match=r"grace=nan: expected a finite"):
        do(place.server, grace=float("nan"))
    with pytest.raises(TypeError, match=r"server=<object object at .*>: expected a grpc.Server or a grpc.aio.Server"):
        do(object())
    with pytest.raises(TypeError, match=r"health=<object object at .*>: expected a health servicer"):
        do(place.server, object())
    with grpc.insecure_channel(f"127.0.0.1:{place.port}") as channel:
        assert call(channel).result() == b"slept"


def test_servicer_of_the_other_api():
    """RO-2: a server of grpc cannot wait for an asyncio servicer."""
    place = Threads()
    with pytest.raises(TypeError, match=r"health=<.*HealthServicer.*>: expected a health servicer for threads"):
        drain(place.server, health.aio.HealthServicer())
    place.stop()


PROGRAMS = {
    "threads": """
from tests.test_server import Threads, drain_on_signals
place = Threads()
drain_on_signals(place.server, place.health, unready=0.5, grace=30)
print(place.port, flush=True)
place.server.wait_for_termination()
""",
    "asyncio": """
import asyncio
import contextlib
from tests.test_server import Asyncio, drain_on_signals

class Here(Asyncio):
    def __init__(self):
        pass

async def main():
    place = Here()
    await place._start()
    drain_on_signals(place.server, place.health, unready=0.5, grace=30)
    print(place.port, flush=True)
    await place.server.wait_for_termination()

asyncio.run(main())
""",
}


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("api", PROGRAMS)
def test_signals(api, signals):
    """RO-2: one signal drains the server, a second one stops it at once; the program then ends by itself."""
    with subprocess.Popen([sys.executable, "-c", PROGRAMS[api]], stdout=subprocess.PIPE, text=True) as program:
        try:
            port = int(program.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                long = call(channel, 2.0 if signals == 1 else 5.0)
                while is_unready(channel):
                    time.sleep(0.01)
                time.sleep(0.3)
                program.send_signal(signal.SIGTERM)
                while not is_unready(channel):
                    time.sleep(0.01)
                assert call(channel).result() == b"slept"
                if signals == 2:
                    program.send_signal(signal.SIGTERM)
                    assert long.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
                else:
                    assert long.result() == b"slept"
            assert program.wait(60) == 0
        finally:
            program.kill()


OWN = {
    "threads": "import threading; threading.Thread(target=place.drain, kwargs={'unready': 120}).start()\n",
    "asyncio": "from grpc_backoff.server import drain; draining = drain(place.server, place.health, unready=120)\n    ",
}
"""What has the program drain the server by itself, as an endpoint for a preStop hook does."""


@pytest.mark.parametrize("api", PROGRAMS)
def test_a_signal_during_a_drain(api):
    """RO-2: the first signal cuts off no call if the program drains the server already; the second one stops it."""
    source = PROGRAMS[api].replace("print(", f"{OWN[api]}print(")
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as program:
        try:
            port = int(program.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                while not is_unready(channel):
                    time.sleep(0.01)
                program.send_signal(signal.SIGTERM)
                assert call(channel, 1.0).result() == b"slept"
                program.send_signal(signal.SIGTERM)
            assert program.wait(60) == 0
        finally:
            program.kill()
