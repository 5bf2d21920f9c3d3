"""TH-6: exceptions that signal handlers raise in a main thread that makes calls, such as KeyboardInterrupt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import grpc_backoff
from tests.base.test_threads import interrupted
from tests.echo import EchoStub, Message

PROGRAM = Path(__file__).with_name("interrupted.py")


TRIES = 3  # Python drops an interrupt that arrives during a finalizer


def said(phase):
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), phase], stdout=subprocess.PIPE, text=True, timeout=35, check=False
        )
    except subprocess.TimeoutExpired:
        return "nothing"
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="a system without signals to threads")
@pytest.mark.parametrize("phase", ["waiting", "sleeping", "hedged"])
def test_interrupted(phase):
    """TH-6: KeyboardInterrupt ends a pending, sleeping or hedged call, and the channel works afterwards."""
    assert any(said(phase) == "as it should be\n" for _ in range(TRIES))


@pytest.mark.parametrize("retry", [None, "retry: 3, delay: 10ms", "hedge: 1s, attempts: 2"])
def test_no_lock_stays(server, retry):
    """TH-6: no signal handler can leave a lock of grpcio's channel, of a future or of a response stream locked.

    `interrupted` finds no place for one in conditions, whose own code would leave their locks acquired.
    """
    with grpc_backoff.insecure_channel(server.target, retry=retry) as channel:
        stub = EchoStub(channel)
        stub.Unary(Message(text="a"), wait_for_ready=True, timeout=20)
        core = channel.connection().channel._channel
        assert not interrupted(lambda: core.check_connectivity_state(False), 1)
        future, stream = stub.Unary.future(Message(text="a")), stub.Down(Message(text="a", count=1))
        for call in future, stream:
            list(call) if call is stream else call.result(20)
            assert not interrupted(call.done, 1)


@pytest.mark.parametrize("where", ["attempts.guard_call", "core_connector.Entry.follow"])
@pytest.mark.parametrize("retry", [None, "retry: 3, delay: 10ms"])
def test_no_place_stays_taken(server, monkeypatch, where, retry):
    """TH-6, PO-14: a future or a response stream that is interrupted while it is made takes up no room."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with grpc_backoff.insecure_channel(server.target, retry=retry) as channel:
        stub = EchoStub(channel)
        stub.Unary(Message(text="a"), wait_for_ready=True, timeout=20)
        with monkeypatch.context() as patched:
            patched.setattr(f"grpc_backoff.sync.{where}", interrupt)
            for make in stub.Unary.future, stub.Down:
                if retry is None or where.endswith("guard_call"):
                    with pytest.raises(KeyboardInterrupt):
                        make(Message(text="a"), timeout=20)
        assert not channel.connection().calls
        assert stub.Unary.future(Message(text="a")).result(20).text == "a"
