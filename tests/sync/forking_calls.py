"""A program that forks while calls wait, and prints how their copies end in the child: `forking_calls.py KIND`.

KIND is plain or ours. The server is down, and the backoff is long, so that nothing dials at the fork. The calls are a
future and a stream that wait for a connection; on our channel, there is also one that sleeps before a retry.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import grpc

import grpc_backoff

HANGS = 20
METHOD = "/echo.v1.Echo/Unary"


def outcome(work):
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the test checks what it is
        return (isinstance(error, grpc.RpcError), error.code().name)


def look(call):
    """Return all that a call can be asked about its end."""
    called = []
    call.add_done_callback(called.append)
    return [
        (call.done(), call.cancelled(), call.cancel()),
        (call.code().name, call.details()),
        (call.initial_metadata(), call.trailing_metadata()),
        outcome(lambda: call.result(timeout=5)),
        outcome(lambda: next(call)) if hasattr(call, "__next__") and isinstance(call, grpc.RpcError) else None,
        len(called),
    ]


def begun(channel, ours):
    """Start the calls and return them when the first dial has failed."""
    how = {"wait_for_ready": True, "timeout": 60}
    calls = [channel.unary_unary(METHOD).future(b"", **how), channel.unary_stream(METHOD)(b"", **how)]
    failed = []
    channel.subscribe(lambda state: failed.append(state is grpc.ChannelConnectivity.TRANSIENT_FAILURE))
    if ours:
        retried = grpc_backoff.retrying(channel.unary_unary(METHOD), "retry: 3, delay: 60s, jitter: none")
        calls.append(retried.future(b"", timeout=200))
    end = time.monotonic() + HANGS
    while not any(failed) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.5)  # the core's threads, and those that notify the calls, settle
    return calls


def main(kind):
    make = grpc.insecure_channel if kind == "plain" else grpc_backoff.insecure_channel
    channel = make("127.0.0.1:1", options=[("grpc.initial_reconnect_backoff_ms", 60_000)])
    calls = begun(channel, kind == "ours")
    pid = os.fork()
    if pid == 0:
        signal.alarm(HANGS)
        print(repr([look(call) for call in calls]), flush=True)  # noqa: T201
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    waiting = [call.done() for call in calls]
    channel.close()
    print(repr((status, waiting)))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
