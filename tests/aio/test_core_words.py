"""RT-2: servers whose status messages copy texts from grpc's core; the text alone must not cause a retry."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hyperframe.frame import GoAwayFrame

from grpc_backoff import CallRetried, aio
from tests.aio.retry_service import CODE
from tests.echo import EchoStub, Message
from tests.peers import peer

GOAWAY = "GOAWAY received; Error code: 0; Debug Text: bye"
REFUSED = [GOAWAY, f"Stream removed ({GOAWAY})"]
UNSENT = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused"
OVERSIZED = "Received message larger than max (5 vs 4)"
CANCELLED = "Locally cancelled by application!"
WRITE_FAILED = 'Failed "execute_batch": (<grpc._cython.cygrpc.SendMessageOperation object>,)'
HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
RETRIED = "retry: 3, delay: 1ms"
EVERY_CODE = f"retry: 3, delay: 1ms, codes: {' '.join(code.name for code in CODE if code is not CODE.OK)}"


class Speaker:
    """A server that answers every request with one status and counts the requests.

    Attributes:
        status: the trailers: status code, message and further metadata.
        headers: whether response headers precede the trailers.
        leaves: if given, the server sends GOAWAY first, and the answer this many seconds later.
        requests: how many requests have arrived.
    """

    def __init__(self, code, words, *, headers=False, trailing=(), leaves=None):
        self.status = [("grpc-status", str(code.value[0])), ("grpc-message", words), *trailing]
        self.headers = headers
        self.leaves = leaves
        self.requests = 0

    async def __call__(self, reader, writer):
        h2 = H2Connection(H2Configuration(client_side=False))
        h2.initiate_connection()
        writer.write(h2.data_to_send())
        while data := await reader.read(65536):
            requests = [event for event in h2.receive_data(data) if isinstance(event, RequestReceived)]
            for request in requests:
                self.requests += 1
                if self.leaves is not None:
                    writer.write(GoAwayFrame(0, last_stream_id=request.stream_id).serialize())
                    await asyncio.sleep(self.leaves)
                if self.headers:
                    h2.send_headers(request.stream_id, HEADERS)
                opening = [] if self.headers else HEADERS
                h2.send_headers(request.stream_id, [*opening, *self.status], end_stream=True)
            writer.write(h2.data_to_send())


@contextlib.asynccontextmanager
async def calling(speaker, retry):
    """Open a channel to the speaker; yield its stub, and its events."""
    heard = []
    async with peer(speaker) as target, aio.insecure_channel(target, retry=retry, listeners=[heard.append]) as channel:
        yield EchoStub(channel), heard


def once(stub, method="Unary"):
    """Make a call with `retry: 0` on a channel whose policy allows retries."""
    return call(stub, method, retry="retry: 0")


def call(stub, method="Unary", *, retry=None, **how):
    request = Message(text="a") if method in ("Unary", "Down") else iter([Message(text="a")])
    callee = getattr(stub, method) if retry is None else aio.retrying(getattr(stub, method), retry)
    return callee(request, timeout=30, **how)


@pytest.mark.parametrize("headers", [False, True], ids=["trailers only", "headers first"])
@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.parametrize("code", [CODE.UNAVAILABLE, CODE.INTERNAL, CODE.ABORTED])
async def test_a_server_that_says_a_goaway_came(code, words, headers):
    """RT-2, RT-10: a server's status that looks like a rejection by GOAWAY does not make the call run again."""
    speaker = Speaker(code, words, headers=headers)
    async with calling(speaker, RETRIED) as (stub, heard):
        for method in ("Unary", "Down", "Up", "Both"):
            said = once(stub, method)
            assert (await said.code(), await said.details()) == (code, words)
    assert speaker.requests == 4
    assert not [event for event in heard if isinstance(event, CallRetried)]


@pytest.mark.parametrize("trailing", [(), (("x-proxy", "a"),)], ids=["bare", "with metadata"])
async def test_a_server_that_says_a_goaway_came_as_it_leaves(trailing):
    """RT-2, RT-10: a status that arrives on a draining connection counts as the server's own. Takes half a second."""
    speaker = Speaker(CODE.UNAVAILABLE, GOAWAY, leaves=0.5, trailing=trailing)
    async with calling(speaker, RETRIED) as (stub, _):
        assert await once(stub).code() is CODE.UNAVAILABLE
    assert speaker.requests == 1


async def test_a_server_that_says_a_goaway_came_with_metadata_as_it_leaves():
    """RT-2: a status with metadata counts as the server's own, even if the connection ends at the same time."""
    speaker = Speaker(CODE.UNAVAILABLE, GOAWAY, leaves=0.0, trailing=[("x-proxy", "a")])
    async with calling(speaker, RETRIED) as (stub, _):
        assert await once(stub).code() is CODE.UNAVAILABLE
    assert speaker.requests == 1


async def test_a_server_that_says_it_found_no_connection_as_it_leaves():
    """CH-7: a call that was answered on a draining connection is not sent again on the next. Takes half a second."""
    speaker = Speaker(CODE.UNAVAILABLE, UNSENT, leaves=0.5)
    async with calling(speaker, None) as (stub, _):
        assert await call(stub, wait_for_ready=True).code() is CODE.UNAVAILABLE
    assert speaker.requests == 1


@pytest.mark.parametrize("code", [CODE.UNAVAILABLE, CODE.INTERNAL])
@pytest.mark.parametrize("words", [UNSENT, "connections to all backends failing"])
@pytest.mark.parametrize("retry", [None, "retry: 0"])
async def test_a_server_that_says_it_found_no_connection(code, words, retry):
    """CH-3, CH-7: a wait-for-ready call is not sent again if the server's own status looks like a failed dial."""
    speaker = Speaker(code, words)
    async with calling(speaker, retry) as (stub, _):
        for method in ("Unary", "Down", "Up", "Both"):
            assert await call(stub, method, wait_for_ready=True).code() is code
    assert speaker.requests == 4


@pytest.mark.parametrize("code", [CODE.UNAVAILABLE, CODE.RESOURCE_EXHAUSTED])
async def test_a_server_that_says_a_message_is_too_large(code):
    """RT-2: the core's text for an oversized message prevents a retry only if the code is RESOURCE_EXHAUSTED."""
    speaker = Speaker(code, OVERSIZED)
    async with calling(speaker, RETRIED) as (stub, _):
        assert await call(stub).code() is code
    assert speaker.requests == (1 if code is CODE.RESOURCE_EXHAUSTED else 4)


@pytest.mark.parametrize("method", ["Unary", "Down", "Up", "Both"])
async def test_a_server_that_says_the_program_cancelled(method):
    """RT-2: a server's CANCELLED is retried if the policy names that code, whatever its text says."""
    speaker = Speaker(CODE.CANCELLED, CANCELLED)
    async with calling(speaker, EVERY_CODE) as (stub, heard):
        assert await call(stub, method).code() is CODE.CANCELLED
        assert len([event for event in heard if isinstance(event, CallRetried)]) == 3
    assert speaker.requests == 4


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_a_server_that_says_a_write_failed(method):
    """RT-2: a server's INTERNAL with the core's text for a failed write is reported as the server sent it."""
    speaker = Speaker(CODE.INTERNAL, WRITE_FAILED)
    async with calling(speaker, "retry: 0") as (stub, _):
        said = call(stub, method)
        assert (await said.code(), await said.details()) == (CODE.INTERNAL, WRITE_FAILED)
    assert speaker.requests == 1
