"""A program that runs short of files or threads between two connections: `running_short.py WHAT OPTIONS TARGET`.

It prints a line when it is connected, and waits for a line before it calls again; then it prints how three calls ended
while it was short, and one afterwards, before which it waits for another line.
"""

from __future__ import annotations

import ast
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import grpc

import grpc_backoff
from tests.echo import EchoStub, Message

SHUT_DOWN_WITHIN = 2.5
"""How long grpcio's core may take to shut down after its last channel was closed, in seconds."""


def outcome(stub):
    try:
        return stub.Unary(Message(text="a"), timeout=5).text
    except (grpc.RpcError, OSError) as error:
        return type(error).__name__


def take_all_files():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, most))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        return lambda: [os.close(each) for each in taken]


def take_all_threads():
    """Leave too little memory for the stack of a thread, because a limit of threads does not bind root."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (6 << 20), before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_AS, before)


def main(what, options, target):
    with grpc_backoff.insecure_channel(target, ast.literal_eval(options)) as channel:
        stub = EchoStub(channel)
        print(outcome(stub), flush=True)  # noqa: T201
        input()
        time.sleep(SHUT_DOWN_WITHIN)
        release = take_all_files() if what == "files" else take_all_threads()
        short = [outcome(stub) for _ in range(3)]
        release()
        print(short, flush=True)  # noqa: T201
        input()
        print(stub.Unary(Message(text="b"), timeout=20, wait_for_ready=True).text)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
