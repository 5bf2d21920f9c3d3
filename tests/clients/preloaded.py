"""A program whose child is forked by `multiprocessing`'s forkserver, which has imported `forking`; tells its answer."""

from __future__ import annotations

import multiprocessing
import sys


def answer():
    from tests.clients import forking  # not in the program, which would make channels of its own

    return forking.answer()


if __name__ == "__main__":
    servers = multiprocessing.get_context("forkserver")
    servers.set_forkserver_preload(["tests.clients.forking"])
    with servers.Pool(1) as pool:
        print("answer:", pool.apply(answer), file=sys.stderr)  # noqa: T201
