"""Private details of grpcio that this library relies on, checked with real calls to detect changes in new releases."""

from __future__ import annotations

import asyncio
import weakref

import grpc
import grpc.aio
import pytest

from grpc_backoff.grpcio.aio_private import Polling, core_call, is_cancelled_here, is_stand_in, status_of
from grpc_backoff.grpcio.private import CANCELLED_DETAILS
from tests.aio.trying import CODE
from tests.echo import EchoStub, Message
from tests.sync.service import INITIAL, TRAILING, Echo, place


async def ended(server, channel, text):
    """Make a call; cancel it if it hangs; return it, when it has ended, with the error that its caller got, or None."""
    call = EchoStub(channel).Unary(Message(text=text), timeout=30)
    if text == "hang":
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
    ("text", "code", "details", "initial", "trailing"),
    [
        ("a", CODE.OK, "", (), ()),
        ("metadata", CODE.OK, "", INITIAL, TRAILING),
        ("abort", CODE.FAILED_PRECONDITION, "not now", (), TRAILING),
        ("cancelled", CODE.CANCELLED, "the server's own", (), ()),
        ("hang", CODE.CANCELLED, CANCELLED_DETAILS, (), ()),
    ],
)
async def test_how_it_ended(server, text, code, details, initial, trailing):
    """CH-1: a finished call tells its status, as its caller gets it, and whether this side or the server cancelled it.

    This library's cancelled calls have the same details as grpcio's.
    """
    async with grpc.aio.insecure_channel(server.target) as channel:
        call, told = await ended(server, channel, text)
    assert (core_call(call).is_ok(), is_cancelled_here(call)) == (code is CODE.OK, text == "hang")
    read = status_of(call)
    assert (read.code(), read.details()) == (code, details)
    assert ([*read.initial_metadata()], [*read.trailing_metadata()]) == ([*initial], [*trailing])
    assert (await call.code(), await call.details()) == (code, details)
    if told is not None:
        assert (told.code(), told.details()) == (code, details)
        assert [*told.trailing_metadata()] == [*trailing]
        assert read.debug_error_string() == told.debug_error_string()


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


async def test_what_grpcio_starts_is_kept_while_somebody_needs_it():
    """CB-10: channels share one `Polling` object, which is released with the last of them."""
    first, second = Polling.shared(), Polling.shared()
    assert first is second
    kept = weakref.ref(first)
    del first, second
    assert kept() is None
    assert Polling.shared() is not None
