"""CH-1: interceptors around retried calls whose requests are written, or come from an asynchronous iterator.

`tests/faces/test_interceptors.py` covers all other calls.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from grpc_backoff import CallRetried, aio
from tests.aio.service import Tries, fails
from tests.aio.test_drop_in_interceptors import notes
from tests.aio.trying import ANSWERS, CODE, REQUEST_STREAMS, RETRY, finish, make
from tests.echo import EchoStub, serving

STYLES = pytest.mark.parametrize("style", ["written", "async iterator"])


@contextlib.asynccontextmanager
async def intercepting(interceptors, *behaviours, retry=RETRY):
    """Run a server with these behaviours, and open a channel with these interceptors; yield service and stub."""
    service = Tries(*behaviours)
    service.events = []
    async with (
        serving(service) as port,
        aio.insecure_channel(
            f"127.0.0.1:{port}", interceptors=interceptors, retry=retry, listeners=[service.events.append]
        ) as channel,
    ):
        yield service, EchoStub(channel)


@REQUEST_STREAMS
@STYLES
async def test_a_call_is_seen_once(method, style):
    """CH-1: each interceptor runs once per call, and its metadata is on every attempt."""
    noted = []
    async with intercepting(notes(noted, "one", "two"), fails(), fails(1)) as (service, stub):
        call = make(stub, method, style=style, metadata=(("own", "x"),))
        assert await finish(call) == ANSWERS[method]
        assert await call.code() is CODE.OK
    assert [name for name, _ in noted] == ["one", "two"]
    assert [metadata["own"] for metadata in service.metadata] == ["x"] * 3
    assert [metadata["through"] for metadata in service.metadata] == ["two"] * 3
    assert service.previous == [None, "1", "2"]


@REQUEST_STREAMS
@STYLES
async def test_cancel_between_two_tries(method, style):
    """CH-1: an intercepted call can be cancelled between two attempts."""
    async with intercepting(notes([], "one"), fails(), retry="retry: 3, delay: 60s") as (service, stub):
        call = make(stub, method, style=style)
        finishing = asyncio.create_task(finish(call))
        await service.until(lambda service: any(isinstance(event, CallRetried) for event in service.events))
        assert call.cancel()
        with pytest.raises((asyncio.CancelledError, asyncio.InvalidStateError)):  # the latter from grpc's own writer
            await finishing
        assert call.cancelled()
        assert len(service.got) == 1
