"""A service that handles each attempt of a call with the behaviour that the test specifies."""

from __future__ import annotations

import asyncio

import grpc

from tests.echo import Echo, Message


class Tries(Echo):
    """Handles each attempt with the next of the given behaviours, or with `echo` once these have run out.

    A behaviour receives an attempt's requests and its context, and yields responses. If the method has a single
    response, the texts of these responses are joined.

    Attributes:
        got: for each attempt, the texts of its requests.
        metadata: the metadata of each attempt.
        ended: how many attempts have ended, cancelled or not.
    """

    def __init__(self, *behaviours):
        super().__init__()
        self.behaviours = behaviours
        self.got = []
        self.metadata = []
        self.ended = 0

    async def Unary(self, request, context):  # noqa: N802
        return await self._one(_each(request), context)

    async def Down(self, request, context):  # noqa: N802
        async for response in self._many(_each(request), context):
            yield response

    async def Up(self, request_iterator, context):  # noqa: N802
        return await self._one(request_iterator, context)

    async def Both(self, request_iterator, context):  # noqa: N802
        async for response in self._many(request_iterator, context):
            yield response

    async def _one(self, requests, context):
        texts = [response.text async for response in self._many(requests, context)]
        return Message(text="".join(texts), count=len(texts))

    async def _many(self, requests, context):
        got = []
        self.got.append(got)
        self.metadata.append(dict(context.invocation_metadata()))
        count = len(self.got)
        behave = self.behaviours[count - 1] if count <= len(self.behaviours) else echo
        try:
            async for response in behave(_noted(requests, got), context):
                yield response
        finally:
            self.ended += 1

    @property
    def previous(self):
        """The value of `grpc-previous-rpc-attempts` in each attempt's metadata; None for a first attempt."""
        return [metadata.get("grpc-previous-rpc-attempts") for metadata in self.metadata]

    async def until(self, condition):
        """Wait until the condition, a function of this service, is true."""
        async with asyncio.timeout(30):
            while not condition(self):
                await asyncio.sleep(0.002)


async def _each(*requests):
    for request in requests:
        yield request


async def _noted(requests, got):
    async for request in requests:
        got.append(request.text)
        yield request


async def echo(requests, context):
    """Answer each request with itself."""
    async for request in requests:
        yield request


async def counts(requests, context):
    """Read all requests and answer with their number."""
    taken = 0
    async for _ in requests:
        taken += 1
    yield Message(text=str(taken))


async def hangs(requests, context):
    """Read no request and send no response, forever."""
    await asyncio.Event().wait()
    yield Message()


def fails(after=0, *, headers=(), answers=0, when=None, code=grpc.StatusCode.UNAVAILABLE, trailing=()):
    """Return a behaviour that fails after `after` requests, or after all of them if `after` is None.

    Before failing, it sends `headers` and this many `answers`, and waits for the event `when`, if one is given.
    """

    async def behave(requests, context):
        taken = 0
        while after is None or taken < after:
            if await anext(requests, None) is None:
                break
            taken += 1
        if headers:
            await context.send_initial_metadata(headers)
        for number in range(answers):
            yield Message(text=f"answer {number}")
        if when is not None:
            await when.wait()
        await context.abort(code, "not now", trailing)

    return behave
