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
ARITIES = ["Unary", "Down", "Up", "Both"]
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


def call(stub, method="Unary", *, retry=None, **how):
    request = Message(text="a") if method in ("Unary", "Down") else iter([Message(text="a")])
    callee = getattr(stub, method) if retry is None else aio.retrying(getattr(stub, method), retry)
    return callee(request, timeout=30, **how)


@pytest.mark.parametrize(
    ("words", "code", "retry", "how", "methods", "requests"),
    [
        # A rejection by GOAWAY would be made again, even with `retry: 0` on a channel whose policy allows retries.
        *(
            (words, code, RETRIED, {"retry": "retry: 0"}, ARITIES, 1)
            for words in REFUSED
            for code in (CODE.UNAVAILABLE, CODE.INTERNAL, CODE.ABORTED)
        ),
        # A wait-for-ready call that found no connection would be sent again.
        *(
            (words, code, retry, {"wait_for_ready": True}, ARITIES, 1)
            for words in (UNSENT, "connections to all backends failing")
            for code in (CODE.UNAVAILABLE, CODE.INTERNAL)
            for retry in (None, "retry: 0")
        ),
        # A message over the size limit is not retried, but the code is then RESOURCE_EXHAUSTED.
        (OVERSIZED, CODE.RESOURCE_EXHAUSTED, RETRIED, {}, ["Unary"], 1),
        (OVERSIZED, CODE.UNAVAILABLE, RETRIED, {}, ["Unary"], 4),
        # A call that its caller has cancelled is not retried, even if the policy names CANCELLED.
        (CANCELLED, CODE.CANCELLED, EVERY_CODE, {}, ARITIES, 4),
        # The status that stands in for a failed write is replaced by the server's own.
        (WRITE_FAILED, CODE.INTERNAL, "retry: 0", {}, ["Up", "Both"], 1),
    ],
)
@pytest.mark.parametrize("headers", [False, True], ids=["trailers only", "headers first"])
async def test_what_the_core_might_have_said(words, code, retry, how, methods, requests, headers):
    """RT-2, RT-10, CH-3, CH-7: a server's status is taken as the server's, although its text is one of the core's."""
    speaker = Speaker(code, words, headers=headers)
    async with calling(speaker, retry) as (stub, heard):
        for method in methods:
            said = call(stub, method, **how)
            assert await said.code() is code
            assert (await said.details()).startswith(words)
    assert speaker.requests == requests * len(methods)
    assert len([event for event in heard if isinstance(event, CallRetried)]) == (requests - 1) * len(methods)


@pytest.mark.parametrize(
    ("words", "leaves", "trailing", "how"),
    [
        (GOAWAY, 0.5, (), {"retry": "retry: 0"}),
        (GOAWAY, 0.5, [("x-proxy", "a")], {"retry": "retry: 0"}),
        (GOAWAY, 0.0, [("x-proxy", "a")], {"retry": "retry: 0"}),
        (UNSENT, 0.5, (), {"wait_for_ready": True}),
    ],
    ids=["bare", "with metadata", "with metadata, as the connection ends", "no connection"],
)
async def test_a_server_that_says_so_as_it_leaves(words, leaves, trailing, how):
    """RT-2, RT-10, CH-7: a status that arrives on a draining connection counts as the server's. Takes half a second."""
    speaker = Speaker(CODE.UNAVAILABLE, words, leaves=leaves, trailing=trailing)
    async with calling(speaker, RETRIED if "retry" in how else None) as (stub, _):
        assert await call(stub, **how).code() is CODE.UNAVAILABLE
    assert speaker.requests == 1
