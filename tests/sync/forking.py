"""A program that forks with a channel in some phase and prints what its children can do: `forking.py PHASE TARGET`.

With `forking.py METHOD TARGET`, it starts its child by this start method of `multiprocessing` instead.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


import grpc

import grpc_backoff
from tests.echo import EchoStub, Message
from tests.sync.service import dialled

HANGS = 20
FAST = [("grpc.initial_reconnect_backoff_ms", 200)]


class Passing(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, continuation, details, request):
        return continuation(details, request)


def outcome(work):
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the parent checks its type
        return type(error).__name__


def new(target):
    with grpc_backoff.insecure_channel(target, FAST) as channel:
        return EchoStub(channel).Unary(Message(text="new"), timeout=10).text


def use(tell, channel, stub, target):
    """Call the methods of the inherited channel, then use two new channels, and send the outcomes to the parent."""
    faulthandler.dump_traceback_later(HANGS, exit=True)
    request = Message(text="a")
    said = [
        outcome(lambda: stub.Unary(request, timeout=2).text),
        outcome(lambda: stub.Unary.future(request, timeout=2).result(5).text),
        outcome(lambda: next(stub.Down(request, timeout=2)).text),
        outcome(lambda: EchoStub(grpc.intercept_channel(channel, Passing())).Unary(request, timeout=2).text),
        outcome(lambda: channel.subscribe(lambda _: None)),
    ]
    channel.connection_status()
    channel.reset_connect_backoff()
    channel.close()
    channel.close()
    tell.put((said, [outcome(lambda: new(target)), outcome(lambda: new(target))]))


def started(method, target):
    """While a channel is open, start a child by this `multiprocessing` method; the child creates its own channel."""
    with grpc_backoff.insecure_channel(target, FAST) as channel:
        assert EchoStub(channel).Unary(Message(text="a"), timeout=20).text == "a"
        context = multiprocessing.get_context(method)
        tell = context.SimpleQueue()
        child = context.Process(target=tell_new, args=(tell, target))
        child.start()
        child.join(60)
        EchoStub(channel).Unary(Message(text="a"), timeout=20)
    print(repr((tell.get(), child.exitcode)))  # noqa: T201


def tell_new(tell, target):
    faulthandler.dump_traceback_later(HANGS, exit=True)
    tell.put(outcome(lambda: new(target)))


def begin(phase, target, up):
    where = target if up else "127.0.0.1:1"
    channel = grpc_backoff.insecure_channel(where, FAST, listeners=[lambda _: None])
    stub = EchoStub(channel)
    if phase in ("ready", "closed", "closing"):
        stub.Unary(Message(text="a"), timeout=20)
    if phase == "attempt":
        channel.subscribe(lambda _: None, try_to_connect=True)
        while not dialled():
            time.sleep(0.001)
    if phase == "backoff":
        outcome(lambda: stub.Unary(Message(text="a"), timeout=20))
    if phase == "waiting":
        how = {"wait_for_ready": True, "timeout": 20}
        threading.Thread(target=lambda: outcome(lambda: stub.Unary(Message(text="a"), **how)), daemon=True).start()
        while channel.connection_status().last_error is None:
            time.sleep(0.001)
    if phase in ("closed", "closing"):
        channel.close()
    if phase == "closed":
        time.sleep(1.5)  # the core shuts down in its own threads
    return channel, stub


def main(phase, target):
    # The parent has no watchdog, because faulthandler in its forked child would wait for the watchdog's thread.
    up = phase not in ("backoff", "waiting")
    channel, stub = begin(phase, target, up)
    context = multiprocessing.get_context("fork")
    tell = context.SimpleQueue()
    child = context.Process(target=use, args=(tell, channel, stub, target))
    child.start()
    child.join()
    inherited, made = tell.get()
    pid = os.fork()
    if pid == 0:  # this child drops the inherited objects and exits normally
        faulthandler.dump_traceback_later(HANGS, exit=True)
        del channel, stub
        gc.collect()
        sys.exit(0)
    dropped = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    mine = stub.Unary(Message(text="mine"), timeout=20).text if phase in ("ready", "attempt") else "mine"
    channel.close()
    print(repr((inherited, made, child.exitcode, dropped, mine)))  # noqa: T201


if __name__ == "__main__":
    (started if sys.argv[1] in multiprocessing.get_all_start_methods() else main)(*sys.argv[1:])
