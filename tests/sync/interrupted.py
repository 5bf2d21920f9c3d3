"""A program whose main thread receives SIGINT during calls: `interrupted.py PHASE` prints whether it recovered."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import grpc

import grpc_backoff
from tests.both_apis.tries import Tries, hangs
from tests.echo import EchoStub, Message
from tests.sync.service import place, until

QUICK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]


def interrupt(when):
    """Send SIGINT to the calling thread, which is the main thread, once `when()` is true."""
    main = threading.get_ident()

    def send():
        until(when)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=send).start()


def interrupted(work):
    """Return whether KeyboardInterrupt ended `work`; the frames of `work` are released on return."""
    try:
        work()
    except KeyboardInterrupt:
        return True
    return False


def running(channel):
    connection = channel.connection()
    return set() if connection is None else connection.calls


def idle(channel):
    """Return whether the channel has no pending, sleeping or running call."""
    return not (len(channel.calls.pending) or channel.calls._between or running(channel))


def waiting(channel, stub, server):
    server.kill()
    until(lambda: channel.connection() is None)
    interrupt(lambda: len(channel.calls.pending) == 1)
    yield lambda: stub.Unary(Message(text="a"), wait_for_ready=True)
    interrupt(lambda: len(channel.calls.pending) == 1)
    yield lambda: stub.Unary.future(Message(text="a"), wait_for_ready=True).result()
    interrupt(lambda: len(channel.calls.pending) == 1)
    yield lambda: next(stub.Down(Message(text="a", count=1), wait_for_ready=True))
    server.start()


def sleeping(channel, stub, server):
    request = Message(text="a")
    for work in (
        lambda: stub.Unary(request),
        lambda: stub.Up(iter([request])),
        lambda: stub.Unary.future(request).result(),
        lambda: next(stub.Down(request)),
    ):
        server.servicer.fails = 1
        interrupt(lambda: len(channel.calls._between) == 1)
        yield work


def hedged(channel, stub, server):
    for count in (1, 2):  # before and after the second copy
        server.servicer.behaviours = [hangs, hangs]
        server.servicer.metadata.clear()
        interrupt(lambda count=count: len(server.servicer.metadata) == count)
        yield lambda: stub.Unary(Message(text="a"))


def main(phase):
    retry = {"sleeping": "retry: 3, delay: 60s", "hedged": "hedge: 1s, attempts: 2"}.get(phase)
    servicer = Tries() if phase == "hedged" else None
    with (
        place(*filter(None, [servicer])) as server,
        grpc_backoff.insecure_channel(server.target, QUICK, retry=retry) as channel,
    ):
        stub = EchoStub(channel)
        grpc.channel_ready_future(channel).result(20)
        for work in {"waiting": waiting, "sleeping": sleeping, "hedged": hedged}[phase](channel, stub, server):
            assert interrupted(work), work
            until(lambda: idle(channel))
        assert stub.Unary(Message(text="after"), wait_for_ready=True, timeout=20).text == "after"
    print("as it should be")  # noqa: T201


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run behind `nohup` or a shell's `&`
    main(*sys.argv[1:])
