"""A server that handles each attempt as a test specifies."""

from __future__ import annotations

import itertools
import threading

import grpc

from tests.echo import Message
from tests.sync.service import Echo


class Tries(Echo):
    """Handles each attempt with the next of the given behaviours, or with `echo` once these have run out.

    A behaviour receives an attempt's requests and its context, and yields responses. If the method has a single
    response, the texts of these responses are joined.

    Attributes:
        behaviours: the behaviours that are left; a test may set them.
        ended: how many attempts have ended, cancelled or not.
    """

    def __init__(self, *behaviours):
        super().__init__()
        self.behaviours = list(behaviours)
        self.ended = 0
        self._lock = threading.Lock()

    def Unary(self, request, context):  # noqa: N802
        return self._one(iter([request]), context)

    def Down(self, request, context):  # noqa: N802
        yield from self._many(iter([request]), context)

    def Up(self, request_iterator, context):  # noqa: N802
        return self._one(request_iterator, context)

    def Both(self, request_iterator, context):  # noqa: N802
        yield from self._many(request_iterator, context)

    def _one(self, requests, context):
        texts = [response.text for response in self._many(requests, context)]
        return Message(text="".join(texts), count=len(texts))

    def _many(self, requests, context):
        with self._lock:
            got = self._begin(context)
            behave = self.behaviours.pop(0) if self.behaviours else echo
        if not context.add_callback(self._end):
            self._end()
        yield from behave(_noted(requests, got), context)

    def _end(self):
        with self._lock:
            self.ended += 1

    @property
    def previous(self):
        """The value of `grpc-previous-rpc-attempts` in each attempt's metadata; None for a first attempt."""
        return [metadata.get("grpc-previous-rpc-attempts") for metadata in self.metadata]


def _noted(requests, got):
    for request in requests:
        got.append(request.text)
        yield request


def echo(requests, _context):
    """Answer each request with itself."""
    yield from requests


def counts(requests, _context):
    """Read all requests and answer with their number."""
    yield Message(text=str(sum(1 for _ in requests)))


def hangs(_requests, context):
    """Read no request and send no response until the attempt ends."""
    over = threading.Event()
    if context.add_callback(over.set):
        over.wait(60)
    yield from ()


def fails(
    after=0, *, headers=(), answers=0, when=None, code=grpc.StatusCode.UNAVAILABLE, details="not now", trailing=()
):
    """Return a behaviour that fails after `after` requests, or after all of them if `after` is None.

    Before failing, it sends `headers` and this many `answers`, and waits for the event `when`, if one is given, or for
    the end of the attempt.
    """

    def behave(requests, context):
        for _ in itertools.islice(requests, after):
            pass
        if headers:
            context.send_initial_metadata(headers)
        for number in range(answers):
            yield Message(text=f"answer {number}")
        if when is not None:
            context.add_callback(when.set)
            when.wait(20)
        context.set_trailing_metadata(trailing)
        context.abort(code, details)

    return behave


def pushback(value):
    """Return a behaviour that fails and sends this pushback."""
    return fails(trailing=(("grpc-retry-pushback-ms", value),))
