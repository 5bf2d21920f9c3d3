"""The page about subscriptions: both of its blocks read a real stream, across an end of it."""

from __future__ import annotations

import asyncio
import contextlib

from tests.both_apis.test_subscriptions import CODE, Numbers
from tests.docs.pages import blocks
from tests.echo import EchoStub, Message
from tests.sync.service import place


class EnoughError(Exception):
    """Ends the page's loops, which have no end."""


async def test_blocks():
    """SB-1: the blocks for asyncio and for threads read on, behind the last message."""
    read = []

    def handle_in_thread(message):
        read.append(message.count)
        if len(read) == 4:
            raise EnoughError

    async def handle(message):
        handle_in_thread(message)

    names = {"Message": Message, "EchoStub": EchoStub, "handle": handle, "handle_in_thread": handle_in_thread}
    for code in blocks("howto/subscriptions.md"):
        exec(code, names)
    with place(Numbers((2, CODE.OK))) as server, contextlib.suppress(EnoughError):
        async with asyncio.timeout(60):
            await names["watch"](server.target)
    assert read == [1, 2, 3, 4]
    read.clear()
    with place(Numbers((2, CODE.OK))) as server, contextlib.suppress(EnoughError):
        await asyncio.to_thread(names["watch_in_thread"], server.target)
    assert read == [1, 2, 3, 4]
