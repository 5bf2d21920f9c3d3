"""The service behind the channel tests: does what a request's text says, and remembers what reached it.

How a channel is made does not belong here; see `conftest.py`.
"""

from __future__ import annotations

import asyncio

import grpc

from tests.echo import Echo, Message

INITIAL = (("first", "1"), ("first-bin", b"\x00\xff"))
TRAILING = (("last", "2"), ("last-bin", b"\xfe\x00"))


class Scripted(Echo):
    """`abort`, `metadata` and `hang` do as they say; every other text is answered as by `Echo`."""

    target = ""

    def __init__(self):
        super().__init__()
        self.metadata = []
        self.remaining = []
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def Unary(self, request, context):  # noqa: N802
        await self._obey(request.text, context)
        return await super().Unary(request, context)

    async def Down(self, request, context):  # noqa: N802
        await self._obey(request.text, context)
        async for response in super().Down(request, context):
            yield response
        await self._hang_if(request.text == "then hang")

    async def Up(self, request_iterator, context):  # noqa: N802
        texts = []
        await self._obey("", context)
        async for request in request_iterator:
            texts.append(request.text)
            await self._obey(request.text, context, note=False)
        return Message(text="".join(texts), count=len(texts))

    async def Both(self, request_iterator, context):  # noqa: N802
        await self._obey("", context)
        async for request in request_iterator:
            await self._obey(request.text, context, note=False)
            yield request

    async def _obey(self, text, context, *, note=True):
        if note:
            self.metadata.append(tuple(map(tuple, context.invocation_metadata())))
            self.remaining.append(context.time_remaining())
        if text == "abort":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now", trailing_metadata=TRAILING)
        if text == "metadata":
            await context.send_initial_metadata(INITIAL)
            context.set_trailing_metadata(TRAILING)
        await self._hang_if(text == "hang")

    async def _hang_if(self, hangs):
        if hangs:
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
