"""Private details of grpcio that this library relies on, checked with real calls to detect changes in new releases."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from grpc_backoff.aio.grpcio import core_call, is_cancelled_here, is_stand_in, status_of
from grpc_backoff.channel.grpcio import CANCELLED_DETAILS
from tests.aio.trying import CODE
from tests.echo import EchoStub, Message
from tests.sync.service import INITIAL, TRAILING, Echo, place


async def ended(text, *, cancel=False):
    """Make a call with grpcio alone and wait for its end; return it with the error that its caller got, or None."""
    with place() as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            return await outcome(channel, server, text, cancel)


async def outcome(channel, server, text, cancel):
    call = EchoStub(channel).Unary(Message(text=text), timeout=30)
    if cancel:
        assert await asyncio.to_thread(server.servicer.hanging.wait, 20)
        call.cancel()
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return call, error
    except asyncio.CancelledError:
        pass
    await call.code()
    return call, None


@pytest.mark.parametrize(
    ("text", "cancel", "ok", "cancelled_here"),
    [
        ("a", False, True, False),
        ("abort", False, False, False),
        ("cancelled", False, False, False),
        ("hang", True, False, True),
    ],
)
async def test_how_it_ended(text, cancel, ok, cancelled_here):
    """CH-1: a finished call tells whether it was OK, and whether this side or the server cancelled it."""
    call, _ = await ended(text, cancel=cancel)
    assert (core_call(call).is_ok(), is_cancelled_here(call)) == (ok, cancelled_here)


async def test_status_of_a_failure():
    """CH-1: `status_of` returns the code, details and metadata that the caller of a failed call gets."""
    call, told = await ended("abort")
    read = status_of(call)
    assert read.code() is told.code() is CODE.FAILED_PRECONDITION
    assert read.details() == told.details() == "not now"
    assert [*read.trailing_metadata()] == [*told.trailing_metadata()] == [*TRAILING]
    assert [*read.initial_metadata()] == [*told.initial_metadata()]
    assert read.debug_error_string() == told.debug_error_string()


async def test_status_of_an_answer():
    """CH-1: `status_of` returns OK for a successful call, with its initial and trailing metadata."""
    call, _ = await ended("metadata")
    read = status_of(call)
    assert (read.code(), read.details()) == (CODE.OK, "")
    assert [*read.initial_metadata()] == [*INITIAL]
    assert [*read.trailing_metadata()] == [*TRAILING]


async def test_what_grpcio_says_of_a_cancelled_call():
    """CH-1: this library's cancelled calls have the same details as grpcio's."""
    call, _ = await ended("hang", cancel=True)
    assert await call.details() == CANCELLED_DETAILS
    assert status_of(call).code() is CODE.CANCELLED


def failed(code, debug):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "", debug)


@pytest.mark.parametrize(
    ("error", "stands_in"),
    [
        (failed(CODE.INTERNAL, 'Failed "execute_batch": (SendMessageOperation,)'), True),
        (failed(CODE.UNAVAILABLE, 'Failed "execute_batch": (SendMessageOperation,)'), False),
        (failed(CODE.INTERNAL, "a server's own"), False),
        (failed(CODE.INTERNAL, None), False),
        (RuntimeError('Failed "execute_batch"'), False),
    ],
)
def test_stand_in(error, stands_in):
    """RT-8: only grpcio's own status for a failed write counts as a stand-in; a server's INTERNAL does not."""
    assert is_stand_in(error) is stands_in


async def test_a_stand_in_of_grpcios_own():
    """RT-8: grpcio still reports the expected status after a failed write. Repeats the call, because this is a race."""

    class Ends(Echo):
        def Both(self, request_iterator, context):  # noqa: N802
            context.abort(CODE.UNAVAILABLE, "not now")

    with place(Ends()) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            for _ in range(200):
                if is_stand_in(await write_until_it_fails(EchoStub(channel).Both(timeout=30))):
                    return
    raise AssertionError("grpcio has other words for it")


async def write_until_it_fails(call):
    for _ in range(10_000):
        try:
            await call.write(Message(text="x" * 10_000))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            return error
    raise AssertionError("no write failed")
