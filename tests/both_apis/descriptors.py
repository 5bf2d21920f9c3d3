"""A program that runs out of file descriptors during an outage. Its argument is `asyncio` or `threads`.

It prints how many attempts failed meanwhile, up to three, and the answer to a call that waited. It is a process of its
own, because a server in the same process would keep grpcio's core running.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys

from grpc_backoff import AttemptFailed
from tests.both_apis.api import AsyncioApi, ThreadedApi, backoff_ms
from tests.sync.service import place, until

OPTIONS = backoff_ms(300, 300)
DESCRIPTORS = 128


def take_all():
    """Open files until no descriptor is left, and return them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken


def run(api):
    failures = []

    def hear(event):
        if isinstance(event, AttemptFailed):
            failures.append(event)

    with place(up=False) as server, api.channel(server.target, OPTIONS, listeners=[hear]) as channel:
        call = channel.begin("Unary", ["a"], timeout=60, wait_for_ready=True)
        until(lambda: failures)
        taken = take_all()
        before = len(failures)
        until(lambda: len(failures) >= before + 3)
        for descriptor in taken:
            os.close(descriptor)
        server.start()
        print(min(3, len(failures) - before), call.outcome(60).texts)  # noqa: T201 - the test reads it
    api.close()


if __name__ == "__main__":
    run(ThreadedApi("ours") if sys.argv[1] == "threads" else AsyncioApi("ours", asyncio.new_event_loop))
