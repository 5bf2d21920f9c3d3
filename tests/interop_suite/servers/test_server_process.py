"""A server's process: the committed programs, which keep to their contract, and programs that break it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time

import grpc
import psutil
import pytest

from grpc_judge.runner.program import ROOT
from grpc_judge.servers import server_process as process
from grpc_judge.servers.happenings import Happening
from grpc_judge.servers.server import EMPTY_CALL, Server, find_servers
from grpc_judge.servers.server_process import ServerError, ServerProcess

SERVERS = {server.folder.name: server for server in find_servers()}
PYTHON = SERVERS["grpc_python"]
LISTENING = """import sys; print('{"event": "listening", "port": 1, "versions": {}}', flush=True); """


def needs(name):
    missing = SERVERS[name].missing and not os.environ.get("GRPC_BACKOFF_REQUIRE_PEERS")
    return pytest.param(name, marks=pytest.mark.skipif(bool(missing), reason=f"{SERVERS[name].missing} is missing"))


def running(program, tmp_path):
    command = (sys.executable, "-c", program)
    server = Server(name="made up", folder=ROOT, command=command, happenings=tuple(Happening))
    return ServerProcess(server, 0, {}, str(tmp_path))


@contextlib.asynccontextmanager
async def serving(name, folder, **settings):
    """Run a server (a proxy with grpcio's server behind it); yield its process and a plain grpc.aio channel."""
    async with contextlib.AsyncExitStack() as stack:
        server = SERVERS[name]
        if server.proxy:
            behind = await stack.enter_async_context(ServerProcess(PYTHON, 0, {}, folder))
            settings["upstream"] = (await behind.listening()).port
        running = await stack.enter_async_context(ServerProcess(server, 0, settings, folder))
        port = (await running.listening()).port
        yield running, await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))


def empty_call(channel, delay=0, method=EMPTY_CALL):
    metadata = (("answer-after-ms", str(delay)),)
    return channel.unary_unary(method)(b"", metadata=metadata, wait_for_ready=True, timeout=20)


async def ended(process):
    """Return the exit status of a process, which must end soon."""
    return await asyncio.wait_for(process._process.wait(), 20)


@pytest.mark.parametrize("name", [needs(name) for name in ("grpc_python", "etcd", "nginx", "haproxy")])
async def test_it_answers_and_ends_gracefully(name, tmp_path):
    """CH-6: a server reports its port, answers, and after SIGTERM lets a running call finish. Takes seconds."""
    async with serving(name, str(tmp_path)) as (running, channel):
        method = SERVERS[name].method
        assert await empty_call(channel, method=method) is not None
        versions = (await running.listening()).versions
        assert "python" in versions
        assert all(version != "unknown" for version in versions.values())
        call = asyncio.ensure_future(empty_call(channel, 500, method))
        await asyncio.sleep(0.2)
        await running.drain()
        assert await call is not None
        assert await ended(running) == (143 if name == "etcd" else 0)  # etcd raises the signal again when it ends


async def test_it_answers_as_late_as_it_is_told(tmp_path):
    """CH-6: the server delays its answer for as long as the request says."""
    async with serving("grpc_python", str(tmp_path)) as (_, channel):
        await empty_call(channel)
        began = time.monotonic()
        assert await empty_call(channel, 300) == b""
        assert time.monotonic() - began >= 0.29


@pytest.mark.parametrize("name", [needs(name) for name in ("grpc_python", "etcd", "nginx", "haproxy")])
async def test_nothing_outlives_its_input(name, tmp_path):
    """IO-4: a program and its child processes end when its standard input ends and leave no files."""
    async with serving(name, str(tmp_path)) as (running, channel):
        await empty_call(channel, method=SERVERS[name].method)
        whole = [running._process.pid, *(each.pid for each in psutil.Process(running._process.pid).children(True))]
        running._process.stdin.close()
        await ended(running)
        async with asyncio.timeout(10):
            while any(psutil.pid_exists(pid) for pid in whole):
                await asyncio.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [needs(name) for name in ("grpc_python", "nginx")])
async def test_connections_age(name, tmp_path):
    """CB-7: `--max-age-ms` ends connections without losing a call. Takes a second, and twenty at most."""
    async with serving(name, str(tmp_path), **{"max-age-ms": 300}) as (_, channel):
        began, ends = time.monotonic(), 0
        while time.monotonic() < began + (20.0 if not ends else 1.0):
            assert await empty_call(channel, 10) == b""
            ends += channel.get_state() is not grpc.ChannelConnectivity.READY
        assert ends >= 1


async def test_killed_and_started_again_on_its_port(tmp_path):
    """CH-2: a killed server can be started again on its port at once."""
    async with serving("grpc_python", str(tmp_path)) as (running, channel):
        port = (await running.listening()).port
        await running.kill()
        async with ServerProcess(PYTHON, port, {}, str(tmp_path)) as again:
            assert (await again.listening()).port == port
            assert await empty_call(channel) == b""


async def test_frozen_and_thawed(tmp_path):
    """CH-3: a frozen server answers nothing; once thawed, it answers the pending calls."""
    async with serving("grpc_python", str(tmp_path)) as (running, channel):
        await empty_call(channel)
        await running.freeze()
        assert psutil.Process(running._process.pid).status() == psutil.STATUS_STOPPED
        call = asyncio.ensure_future(empty_call(channel))
        done, _ = await asyncio.wait({call}, timeout=0.5)
        assert not done
        running.thaw()
        assert await call == b""


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("raise SystemExit('no such library')", "made up ended with status 1: no such library"),
        ("print('hello')", "made up ended with status 0"),
        ("""print('{"event": "listening"}')""", "made up was not ready within "),
    ],
    ids=["fails", "says nothing", "says too little"],
)
async def test_a_program_that_does_not_listen(program, complaint, tmp_path):
    """IO-4: the error for a program that does not listen is one line with its exit status and last output."""
    with pytest.raises(ServerError) as caught:
        async with running(program, tmp_path) as server:
            await server.listening()
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


async def test_a_program_that_does_not_begin(monkeypatch, tmp_path):
    """IO-4: a program that is not ready within the limit is reported and killed."""
    monkeypatch.setattr(process, "_STARTUP", 0.2)
    with pytest.raises(ServerError, match=r"^made up was not ready within 0.2 s$"):
        async with running("import time; time.sleep(60)", tmp_path) as server:
            await server.listening()


async def test_a_program_that_does_not_end(monkeypatch, tmp_path):
    """IO-4: a program that ignores SIGTERM is reported and killed."""
    monkeypatch.setattr(process, "_DRAIN", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + LISTENING + "time.sleep(60)"
    async with running(deaf, tmp_path) as server:
        await server.listening()
        with pytest.raises(ServerError, match=r"^made up had not ended 0.2 s after SIGTERM$"):
            await server.drain()
        assert await ended(server) == -9


async def test_a_native_program_that_fails(tmp_path):
    """IO-4: if a native server fails, its wrapper exits with the server's status and prints its last output."""
    program = (
        "import sys; from grpc_judge.servers.keeper import Native, keep; "
        "from grpc_judge.servers.server_program import ServeOrder; "
        "command = lambda order, folder: [sys.executable, '-c', 'raise SystemExit(\"bad configuration\")']; "
        "keep(Native(name='n', command=command, version=['env']), "
        "ServeOrder(port=0, upstream=None, max_age_ms=None, grace_ms=1))"
    )
    with pytest.raises(ServerError, match=r"^made up ended with status 1: bad configuration$"):
        async with running(program, tmp_path) as server:
            await server.listening()
