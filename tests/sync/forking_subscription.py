"""A program that forks with an open subscription, and prints what the child and the parent read: PHASE TARGET.

In phase `open`, the stream is open and its reader is elsewhere; in phase `sleeping`, there is no server, and another
thread sleeps in the subscription until the next stream.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import grpc

import grpc_backoff
from tests.echo import EchoStub, Message

HANGS = 20


def outcome(work):
    try:
        return work()
    except StopIteration:
        return "StopIteration"
    except Exception as error:  # noqa: BLE001 - the test checks what it is
        return (isinstance(error, grpc.RpcError), error.code().name if isinstance(error, grpc.RpcError) else str(error))


def main(phase, target):
    ended = threading.Event()
    with grpc_backoff.insecure_channel(target, listeners=[lambda event: _note(event, ended)]) as channel:
        how = {
            "policy": f"delay: {'10ms' if phase == 'open' else '60s'}, jitter: none",
            "wait_for_ready": phase == "open",
        }
        numbers = grpc_backoff.subscribe(EchoStub(channel).Down, Message(text="a", count=2), **how)
        if phase == "open":
            next(numbers)
        else:
            threading.Thread(target=outcome, args=[lambda: next(numbers)], daemon=True).start()
            ended.wait(HANGS)
            time.sleep(0.5)  # the reader begins to sleep, and the core's threads settle
        pid = os.fork()
        if pid == 0:
            signal.alarm(HANGS)
            read = outcome(lambda: next(numbers))
            again = outcome(lambda: next(numbers))
            numbers.close()
            print(repr((read, again)), flush=True)  # noqa: T201
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        mine = next(numbers).text if phase == "open" else numbers._state.phase.name
        numbers.close()
    print(repr((status, mine)))  # noqa: T201


def _note(event, ended):
    if isinstance(event, grpc_backoff.StreamEnded):
        ended.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
