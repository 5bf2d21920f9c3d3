"""The chaos kit: servers and fronts that fail before clients of every kind, and what the assertions say."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from concurrent import futures
from itertools import pairwise
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme

from grpc_judge.chaos import (
    assert_backs_off,
    assert_no_call_lost,
    assert_no_flood,
    assert_reconnects_within,
    terms,
)
from grpc_judge.flaky import AcceptClose, Step, Tls, Working
from grpc_judge.timeline import Request, Visit

pytest_plugins = ["grpc_judge.pytest_plugin"]

QUICK = terms(initial=0.5, cap=2.0, tolerance=0.35)  # a slow machine is a third of a second late
OPTIONS = [("grpc.initial_reconnect_backoff_ms", 500), ("grpc.max_reconnect_backoff_ms", 2000)]
METHOD = "/any.Service/Method"
INTEROP = Path(__file__).parents[3] / "interop"


def outer_pytest(folder, tests):
    """Run these tests in a pytest of their own, with the plugin, and return what it prints."""
    (folder / "test_it.py").write_text(tests)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "grpc_judge.pytest_plugin", "-p", "no:cacheprovider", folder],
        env=os.environ | {"PYTHONPATH": str(INTEROP), "PYTEST_ADDOPTS": ""},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return run.stdout + run.stderr


def visits(*at):
    return [Visit(number=number, behaviour="x", accepted=each) for number, each in enumerate(at, 1)]


def test_a_client_in_this_thread(flaky_grpc):
    """IO-3: a client that blocks its thread meets the server's script. Takes three seconds."""
    flaky_grpc.play([Step(AcceptClose(), times=3), Working()])
    with grpc.insecure_channel(flaky_grpc.target, OPTIONS) as channel:
        for _ in range(3):
            channel.unary_unary(METHOD)(b"", wait_for_ready=True, timeout=20)
    flaky_grpc.wait_for(connections=4)
    assert_backs_off(flaky_grpc.visits, QUICK)
    assert_no_flood(flaky_grpc.visits, QUICK)
    assert_no_call_lost(flaky_grpc.calls, made=3)
    assert len(flaky_grpc.gaps) == 3


async def test_a_client_on_asyncio(grpc_port):
    """IO-3: a client on an event loop waits for a port that refuses until the test says so. Takes a second."""
    async with grpc.aio.insecure_channel(grpc_port.target, OPTIONS) as channel:
        call = channel.unary_unary(METHOD)(b"", wait_for_ready=True, timeout=20)
        await asyncio.sleep(0.3)
        assert grpc_port.visits == ()
        back = grpc_port.now
        grpc_port.play(Working())
        await call
    assert_reconnects_within(grpc_port.visits, 5.0, since=back)


def test_a_client_in_another_process(flaky_grpc):
    """IO-3: a client in a process of its own is a client like any other. Takes a second."""
    program = "import sys, grpc; grpc.insecure_channel(sys.argv[1]).unary_unary('/a/b')(b'', timeout=20)"
    subprocess.run([sys.executable, "-c", program, flaky_grpc.target], check=True, timeout=60)
    assert_no_call_lost(flaky_grpc.calls, made=1)


def test_a_front_before_the_tests_own_server(grpc_chaos, grpc_front):
    """IO-3: a front refuses, forwards and breaks connections to any server. Takes two seconds."""
    own = grpc_chaos.server()
    with grpc.insecure_channel(grpc_front.target, OPTIONS) as channel:
        call = channel.unary_unary(METHOD)
        with pytest.raises(grpc.RpcError):
            call(b"", timeout=20)
        assert grpc_front.visits == ()
        grpc_front.forward(own.target, latency=0.05)
        call(b"", wait_for_ready=True, timeout=20)
        grpc_front.refuse()
        grpc_front.break_all()
        time.sleep(0.5)  # a call on the connection that the client does not know to be broken would fail
        grpc_front.forward(own.target)
        call(b"", wait_for_ready=True, timeout=20)
    assert len(grpc_front.visits) >= 2
    assert len(own.calls) >= 2


@pytest.mark.parametrize("upstream", ["nonsense", "h:", ":1", "h:x"])
def test_a_front_needs_a_port(grpc_front, upstream):
    """IO-3: a target without a host or a port is refused with the form that is expected."""
    with pytest.raises(ValueError, match=f"^upstream={upstream}: expected HOST:PORT$"):
        grpc_front.forward(upstream)


class Counting(grpc.GenericRpcHandler):
    """Answers every unary call, as soon as two run at once or half a second has passed; `most` ran at once."""

    def __init__(self):
        self.most = self.now = 0
        self.two = threading.Event()
        self.lock = threading.Lock()

    def service(self, _details):
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, request, _context):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        if self.now > 1:
            self.two.set()
        self.two.wait(0.5)
        with self.lock:
            self.now -= 1
        return request


@pytest.fixture
def real():
    """Return the target of a server of grpc's own, and its handler."""
    handler = Counting()
    with futures.ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads, handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}", handler
        server.stop(None).wait()


@pytest.mark.parametrize(("streams", "most"), [(1, 1), (None, 2)])
def test_a_front_that_limits_streams(grpc_front, real, streams, most):
    """IO-3: a front limits the calls that a connection has at once. Takes two seconds."""
    target, handler = real
    grpc_front.forward(target, streams=streams)
    with grpc.insecure_channel(grpc_front.target, OPTIONS) as channel:
        call = channel.unary_unary(METHOD)
        assert call(b"0", wait_for_ready=True, timeout=20) == b"0"
        running = [call.future(b"1", timeout=20) for _ in range(2)]
        assert [each.result() for each in running] == [b"1"] * 2
    assert handler.most == most


def test_a_front_that_drains(grpc_front, real):
    """IO-3: after a GOAWAY, a running call ends well, and the next one uses another connection. Takes three seconds."""
    target, handler = real
    grpc_front.forward(target)
    with grpc.insecure_channel(grpc_front.target, OPTIONS) as channel:
        call = channel.unary_unary(METHOD)
        call(b"0", wait_for_ready=True, timeout=20)
        running = call.future(b"1", timeout=20)
        while not handler.now:
            time.sleep(0.01)
        grpc_front.drain(grace=2.0)
        assert running.result() == b"1"
        assert call(b"2", wait_for_ready=True, timeout=20) == b"2"
    assert len(grpc_front.visits) == 2
    assert grpc_front.visits[0].ended is not None


def test_a_front_that_changes_its_certificate(grpc_front, real):
    """IO-3: a front shows one certificate and then another, which the client does not trust. Takes a second."""
    trusted, other = trustme.CA(), trustme.CA()
    roots = grpc.ssl_channel_credentials(trusted.cert_pem.bytes())
    for authority, answered in ((trusted, True), (other, False)):
        issued = authority.issue_cert("127.0.0.1")
        certificate = b"".join(each.bytes() for each in issued.cert_chain_pems)
        grpc_front.forward(real[0], tls=Tls(certificate, issued.private_key_pem.bytes()))
        grpc_front.break_all()
        with grpc.secure_channel(grpc_front.target, roots, OPTIONS) as channel:
            call = channel.unary_unary(METHOD)
            if answered:
                assert call(b"0", timeout=20) == b"0"
            else:
                with pytest.raises(grpc.RpcError, match="CERTIFICATE_VERIFY_FAILED"):
                    call(b"0", timeout=20)


async def test_an_outage_on_a_clock(grpc_outage, real):
    """IO-3: an hour without a server passes quickly for a program that repeats its call. Takes three seconds."""

    async def answered():
        while True:
            try:
                return await call(b"1", wait_for_ready=True)
            except grpc.aio.AioRpcError:
                continue  # the call that was running when the outage began

    async with grpc_outage.channel(real[0]) as channel:
        call = channel.unary_unary(METHOD)
        waiting = asyncio.ensure_future(answered())
        await grpc_outage(3600)
        assert await asyncio.wait_for(grpc_outage.until_done(waiting), 60) == b"1"
    gaps = [after - at for at, after in pairwise(grpc_outage.attempts)]
    assert 10 < len(gaps) < 60
    assert max(gaps[1:]) <= 144  # the first connection lasted until the outage


@pytest.mark.parametrize("failure", ["hang", "hang_up", "reset", "hang_up_after_settings", "cut"])
def test_a_front_that_fails(grpc_chaos, grpc_front, failure):
    """IO-3: each failure of the front keeps a call from being answered. Takes two seconds for each."""
    if failure == "cut":
        grpc_front.forward(grpc_chaos.server().target, cut_after=60)  # SETTINGS arrive, an answer does not
    else:
        getattr(grpc_front, failure)()
    with grpc.insecure_channel(grpc_front.target, OPTIONS) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary(METHOD)(b"", wait_for_ready=True, timeout=2)
    assert grpc_front.visits


def test_what_the_assertions_say():
    """IO-3: each assertion says what was seen and what is allowed."""
    with pytest.raises(AssertionError, match=r"does not back off.*\ngap 1: 1\.000 s.*\ngap 2: 0\.010 s.* <-$"):
        assert_backs_off(visits(0.0, 1.0, 1.01))
    with pytest.raises(AssertionError, match=r"expected 3 connections or more; the server saw 2 connections in 1\.0 s"):
        assert_backs_off(visits(0.0, 1.0))
    with pytest.raises(AssertionError, match=r"at most 2 connections are allowed; the server saw 60 connections"):
        assert_no_flood(visits(*(n / 100 for n in range(60))))
    with pytest.raises(AssertionError, match=r"^the client did not reconnect; the server saw no connection"):
        assert_reconnects_within([], 1.0)
    with pytest.raises(AssertionError, match=r"^the client took 2\.000 s to reconnect, more than 1 s"):
        assert_reconnects_within(visits(1.0, 5.0), 1.0, since=3.0)
    lost = [Request(at=1.0, stream=1, path="/a/b", outcome="reset", call="0-1")]
    with pytest.raises(AssertionError, match=r"^1 of 1 requests were not answered: /a/b 0-1: reset"):
        assert_no_call_lost(lost)
    with pytest.raises(AssertionError, match=r"^2 calls were made, but only 0 reached the server"):
        assert_no_call_lost([], made=2)
    assert_backs_off(visits(0.0, 1.0, 2.6, 5.2))
    assert_no_flood([])


def test_a_wait_has_an_end(flaky_grpc):
    """IO-3: waiting for connections that do not come fails, and says what did come."""
    with pytest.raises(
        AssertionError, match=r"^expected 1 connections, 0 of them ended, within 0\.1 s; the server saw no"
    ):
        flaky_grpc.wait_for(connections=1, within=0.1)


def test_nothing_is_left_after_a_failed_test(tmp_path):
    """IO-3: a test that fails leaves no thread and no port; the fixtures need no configuration. Takes two seconds."""
    said = outer_pytest(
        tmp_path,
        textwrap.dedent("""
            import socket, threading
            seen = []
            def test_fails(flaky_grpc, grpc_front):
                grpc_front.hang()
                seen.extend(int(each.target.rpartition(":")[2]) for each in (flaky_grpc, grpc_front))
                held = [socket.create_connection(("127.0.0.1", port)) for port in seen]
                assert [each.close() for each in held] == "on purpose"
            def test_nothing_left():
                assert [each.name for each in threading.enumerate()] == ["MainThread"]
                for port in seen:
                    assert socket.socket().connect_ex(("127.0.0.1", port)) != 0
        """),
    )
    assert "1 failed, 1 passed" in said


def test_the_page(tmp_path):
    """IO-3: the tests on the distribution's page pass. Takes eight seconds."""
    _, page = re.findall(r"```python\n(.*?)```", (INTEROP / "README.md").read_text("utf-8"), re.DOTALL)
    assert "2 passed" in outer_pytest(tmp_path, page)


def test_the_plugin_is_cheap():
    """IO-3: everybody's pytest loads the plugin, so it imports neither grpc nor the judge."""
    program = (
        "import sys, grpc_judge.pytest_plugin; print({'grpc', 'numpy', 'h2', 'grpc_judge.chaos'} & {*sys.modules})"
    )
    env = os.environ | {"PYTHONPATH": str(INTEROP)}
    run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
