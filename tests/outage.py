"""A program that prints what outages of every kind import: `python -m tests.outage aio|sync TARGET TEXT...`.

Only what is imported after the channels, the stubs and the calls' policies were made is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import sys
import time

import grpc

import grpc_backoff
from grpc_backoff import RetryHooks, aio
from tests.echo import EchoStub, Message

logging.basicConfig(level=logging.DEBUG)
logging.getLogger("asyncio").setLevel(logging.WARNING)
FAST = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
]
ROUND = [*FAST, ("grpc.lb_policy_name", "round_robin")]
QUIET = [*FAST, ("grpc_backoff.quiet_after", 0.2), ("grpc_backoff.answer_within", 0.2)]
WIDE = [*FAST, ("grpc_backoff.max_connections", 2), ("grpc_backoff.streams_per_connection", 1)]
RETRY = "codes: UNAVAILABLE RESOURCE_EXHAUSTED, retry: 2, delay: 10ms, max_delay: 10ms"
HEDGE = "hedge: 20ms, attempts: 2"
ABSENT = "127.0.0.1:1"
imported = []


class Finder:
    """Notes what is looked for among the modules, and finds nothing."""

    @staticmethod
    def find_spec(name, _path=None, _target=None):
        imported.append(name)


def hook(_failed):
    return ()


HOOKS = RetryHooks(refresh_credentials=hook, on_conflict=hook, on_exhausted=hook)


def used(error):
    """Do with a call's error what programs do."""
    str(error), repr(error), error.code(), error.details(), error.debug_error_string()
    with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):  # grpc's own cannot be pickled
        pickle.loads(pickle.dumps(error))
    logging.getLogger("program").info("a call failed", exc_info=error)


def channels(make, target):
    """Return channels of every kind to a target where nothing listens, and to a server."""
    return [
        make(where, options, retry=retry, retry_hooks=HOOKS)
        for where in (ABSENT, target, "no-such-host.invalid:1")
        for options in (FAST, ROUND, QUIET, WIDE)
        for retry in (None, RETRY, HEDGE)
    ]


async def on_asyncio(target, texts):
    made = channels(aio.insecure_channel, target)
    stubs = [EchoStub(channel) for channel in made]
    subscriptions = [aio.subscribe(stub.Down, Message(text="x"), policy=RETRY) for stub in stubs[:4]]
    for channel in made:
        channel.add_listener(repr)
    begin()

    async def tried(work):
        try:
            async with asyncio.timeout(1.5):
                await work
        except grpc.RpcError as error:
            used(error)
        except (TimeoutError, asyncio.CancelledError):
            pass

    async def read(stream):
        async for _ in stream:
            break

    def calls(stub):
        for text in texts:
            yield tried(stub.Unary(Message(text=text), timeout=0.5))
        yield tried(stub.Unary(Message(text="w"), timeout=0.3, wait_for_ready=True))
        yield tried(read(stub.Down(Message(text="d", count=1), timeout=0.5)))
        yield tried(stub.Up(iter([Message(text="u")]), timeout=0.5))
        yield tried(read(stub.Both(iter([Message(text="b")]), timeout=0.5)))

    await asyncio.gather(*(call for stub in stubs for call in calls(stub)))
    await asyncio.gather(*(tried(read(subscription)) for subscription in subscriptions))
    for channel in made:
        channel.reset_connect_backoff()
        channel.connection_status()
    hanging = [asyncio.ensure_future(tried(stub.Unary(Message(text="hang"), timeout=5))) for stub in stubs]
    await asyncio.sleep(0.5)
    await asyncio.gather(*(subscription.aclose() for subscription in subscriptions))
    await asyncio.gather(*(channel.close(0.05) for channel in made))
    await asyncio.gather(*hanging)


def on_threads(target, texts):  # noqa: C901 - one step after the other
    made = channels(grpc_backoff.insecure_channel, target)
    stubs = [EchoStub(channel) for channel in made]
    subscriptions = [grpc_backoff.subscribe(stub.Down, Message(text="x"), policy=RETRY) for stub in stubs[:4]]
    for channel in made:
        channel.add_listener(repr)
        channel.subscribe(lambda _state: None)
    begin()

    def tried(work):
        try:
            work()
        except grpc.RpcError as error:
            used(error)

    def call(stub):
        futures = [stub.Unary.future(Message(text=text), timeout=0.5) for text in texts]
        streams = [stub.Down(Message(text="d", count=1), timeout=0.5) for _ in range(2)]
        both = stub.Both(iter([Message(text="b")]), timeout=0.5)
        up = stub.Up.future(iter([Message(text="u")]), timeout=0.5)
        tried(lambda: stub.Unary(Message(text="w"), timeout=0.3, wait_for_ready=True))
        tried(lambda: stub.Unary(Message(text=texts[0]), timeout=0.5))
        for future in [*futures, up]:
            tried(future.result)
        for stream in [*streams, both]:
            tried(lambda stream=stream: list(stream))

    for stub in stubs:
        call(stub)
    for subscription in subscriptions:
        subscription.close()
    for channel in made:
        channel.reset_connect_backoff()
        channel.connection_status()
    hanging = [stub.Unary.future(Message(text="hang"), timeout=5) for stub in stubs]
    time.sleep(0.5)
    for channel in made:
        channel.close()
    for call in hanging:
        call.cancel()


def begin():
    sys.meta_path.insert(0, Finder)


if __name__ == "__main__":
    api, where, *kinds = sys.argv[1:]
    if api == "aio":
        asyncio.run(on_asyncio(where, kinds))
    else:
        on_threads(where, kinds)
    sys.meta_path.remove(Finder)
    print("imported:", *sorted(set(imported)))  # noqa: T201
