"""What a process does that runs short of files or threads."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest

import grpc_backoff
from tests.echo import EchoStub, Message
from tests.sync.service import place

PROGRAM = Path(__file__).parent / "running_short.py"
FAST = ("grpc.initial_reconnect_backoff_ms", 100)
IDLE = ("grpc.client_idle_timeout_ms", 1000)


@pytest.mark.skipif(sys.platform != "linux", reason="the program limits itself as Linux allows it")
@pytest.mark.parametrize("what", ["files", "threads"])
@pytest.mark.parametrize("how", ["lost", "idle"])
def test_the_process_survives(what, how):
    """TH-5: without a free file or thread between two connections, calls fail, and the process goes on."""
    with place() as server:
        options = [FAST, IDLE] if how == "idle" else [FAST]
        command = [sys.executable, PROGRAM, what, repr(options), server.target]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout.readline() == "a\n"
                if how == "lost":
                    server.kill()
                program.stdin.write("short\n")
                program.stdin.flush()
                short = ast.literal_eval(program.stdout.readline() or "None")
                assert short is not None, f"it ended with {program.wait(20)}"
                if how == "lost":
                    server.start()
                rest, _ = program.communicate("over\n", timeout=60)
            finally:
                program.kill()
        assert (program.returncode, rest) == (0, "b\n")
        assert len(short) == 3
        assert ("a" in short) == (what == "threads" and how == "idle")  # it needs no new thread to connect


@pytest.fixture
def without_threads(monkeypatch):
    """Let none of this library's threads start; those of the server in this process do."""
    start = threading.Thread.start

    def others(thread):
        if thread.name.startswith("grpc-backoff"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def set_or_not(on):
        monkeypatch.setattr(threading.Thread, "start", others if on else start)

    return set_or_not


@pytest.mark.parametrize("retry", [None, "retry: 2, delay: 10ms, jitter: none", "hedge: 5s, attempts: 2"])
def test_calls_without_a_thread(server, without_threads, retry):
    """TH-5: blocking calls work where the conductor's thread cannot start; futures and streams raise, as grpcio's."""
    without_threads(True)
    with grpc_backoff.insecure_channel(server.target, [FAST], retry=retry) as channel:
        stub = EchoStub(channel)
        for method in (stub.Unary.future, stub.Down):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                method(Message(text="a"), timeout=20)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            channel.subscribe(lambda _: None, try_to_connect=True)
        assert stub.Unary(Message(text="a"), timeout=20).text == "a"
        without_threads(False)
        assert stub.Unary.future(Message(text="b"), timeout=20).result(20).text == "b"


@pytest.mark.parametrize("waits", [False, True])
def test_calls_that_fail_without_a_thread(without_threads, waits):
    """TH-5: where no thread can be started, a blocking call ends as elsewhere, at its deadline at the latest."""
    without_threads(True)
    code = grpc.StatusCode.DEADLINE_EXCEEDED if waits else grpc.StatusCode.UNAVAILABLE
    with grpc_backoff.insecure_channel("127.0.0.1:1", [FAST]) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            EchoStub(channel).Unary(Message(text="a"), timeout=1.0, wait_for_ready=waits)
        assert caught.value.code() is code


def test_many_calls_without_a_thread(server, without_threads):
    """TH-5: several threads that wait take turns, and each gets its answer."""
    without_threads(True)
    with grpc_backoff.insecure_channel(server.target, [FAST]) as channel:
        stub, request, got = EchoStub(channel), Message(text="a"), []
        callers = [threading.Thread(target=lambda: got.append(stub.Unary(request, timeout=20).text)) for _ in range(20)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(30)
        assert got == ["a"] * 20
