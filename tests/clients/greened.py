# ruff: noqa: E402, T201 - gevent patches before other imports; the program prints
"""A gevent program, `greened.py KIND TARGET`, whose greenlets make calls while a server is up and while it is down.

KIND is plain, ours, or late: ours, imported and installed before gevent patches, as by `python -m grpc_backoff run`.
The program prints "up" and waits for a line of input, which the test sends after stopping the server. It prints "away"
once a call is waiting for the server to return.
"""

from __future__ import annotations

import sys

if sys.argv[1] == "late":
    import grpc_backoff

    grpc_backoff.install()

from gevent import monkey

monkey.patch_all()

import gevent
import grpc
import grpc.experimental.gevent

grpc.experimental.gevent.init_gevent()

import grpc_backoff

METHOD = "/greened/Ask"
FAST = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]


def main(kind, target):
    make = grpc_backoff.insecure_channel if kind == "ours" else grpc.insecure_channel  # installed, if it is late
    turns = []

    def count():
        while True:
            turns.append(None)
            gevent.sleep(0.01)

    gevent.spawn(count)
    with make(target, FAST) as channel:
        ask = channel.unary_unary(METHOD)
        assert ask(b"one", timeout=20) == b"one"
        assert ask.future(b"future", timeout=20).result() == b"future"
        jobs = [gevent.spawn(ask, str(number).encode(), timeout=20) for number in range(20)]
        gevent.joinall(jobs, timeout=30)
        assert [job.value for job in jobs] == [str(number).encode() for number in range(20)]
        print("up", flush=True)
        sys.stdin.readline()  # returns once the test has stopped the server
        waiting = gevent.spawn(ask, b"waited", timeout=60, wait_for_ready=True)
        before = len(turns)
        gevent.sleep(0.5)
        assert not waiting.ready()
        assert len(turns) > before + 5, "other greenlets have their turns while one waits"
        print("away", flush=True)
        waiting.join(timeout=60)
        assert waiting.value == b"waited"
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
