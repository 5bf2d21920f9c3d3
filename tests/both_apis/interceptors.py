"""Interceptors for both APIs, written once as generator functions.

Such a function receives the continuation, the call's details and the request. On asyncio, each value that it yields is
awaited and the result is sent back; on threads, the value itself is sent back. The function returns the interceptor's
result: a call or a response.
"""

from __future__ import annotations

from concurrent.futures import Future

import grpc
import grpc.aio

from tests.echo import Message

ASYNCIO = {
    "intercept_unary_unary": grpc.aio.UnaryUnaryClientInterceptor,
    "intercept_unary_stream": grpc.aio.UnaryStreamClientInterceptor,
    "intercept_stream_unary": grpc.aio.StreamUnaryClientInterceptor,
    "intercept_stream_stream": grpc.aio.StreamStreamClientInterceptor,
}
THREADED = (
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
)


def go_on(continuation, details, request):
    """Continue the call without changing anything."""
    return (yield continuation(details, request))


def noting(noted, name, metadata=grpc.aio.Metadata):
    """Return an interceptor that records its name and the call's method and adds its name to the metadata."""

    def intercept(continuation, details, request):
        noted.append((name, details.method))
        changed = metadata(*(details.metadata or ()), ("through", name))
        return (yield continuation(details._replace(metadata=changed), request))

    return intercept


def looking(seen):
    """Return an interceptor that records the code with which the call ended."""

    def intercept(continuation, details, request):
        call = yield continuation(details, request)
        seen.append((yield call.code()))
        return call

    return intercept


def notes(noted, *names):
    """Return asyncio interceptors that record these names, four for each."""
    return [each for name in names for each in for_asyncio(noting(noted, name))]


def for_asyncio(function):
    """Return four interceptors, one for each kind of call, because grpc.aio rejects an object of several kinds."""

    async def intercept(_self, continuation, details, request):
        steps, sent = function(continuation, details, request), None
        try:
            while True:
                sent = await steps.send(sent)
        except StopIteration as end:
            return end.value

    return [type("Interceptor", (base,), {name: intercept})() for name, base in ASYNCIO.items()]


def for_threads(function):
    """Return one interceptor for all kinds of calls."""

    def intercept(_self, continuation, details, request):
        steps, sent = function(continuation, details, request), None
        try:
            while True:
                sent = steps.send(sent)
        except StopIteration as end:
            return _result(end.value)

    return type("Interceptor", THREADED, dict.fromkeys(ASYNCIO, intercept))()


def _result(value):
    """Return the result as a threaded interceptor has to return it: a response becomes a future."""
    if not isinstance(value, Message):
        return value
    future = Future()
    future.set_result(value)
    return future
