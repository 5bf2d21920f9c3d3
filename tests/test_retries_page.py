"""The page on retries: its code runs unchanged, except for the address."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import grpc
import pytest

from grpc_backoff.config.policy_string import read_string
from tests.echo import Echo, EchoStub, Message, serving

PAGE = (Path(__file__).parents[1] / "docs" / "retries.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class FailsFirst(Echo):
    """Fails the first attempt and records the authorization of every attempt."""

    def __init__(self):
        super().__init__()
        self.codes = [grpc.StatusCode.UNAUTHENTICATED]
        self.seen = []

    async def Unary(self, request, context):  # noqa: N802
        self.seen.append(dict(context.invocation_metadata()).get("authorization"))
        if self.codes:
            await context.abort(self.codes.pop(0), "not now")
        return request


async def new_token():
    return "new"


@pytest.mark.parametrize("block", [block for block in BLOCKS if "channel = " in block])
async def test_channel(block):
    """RT-1, RT-4, RT-9: every channel on the page makes calls, and the one with hooks logs in again and retries."""
    service = FailsFirst()
    if "log_in" not in block:
        service.codes.clear()
    names = {"new_token": new_token}
    async with serving(service) as port, asyncio.timeout(30):
        code = f"from grpc_backoff import aio\n{block}".replace("shop:50051", f"127.0.0.1:{port}")
        exec(compile(code, "retries.md", "exec"), names)
        async with names["channel"] as channel:
            assert await EchoStub(channel).Unary(Message(text="hello")) == Message(text="hello")
    assert service.seen == ([None, "Bearer new"] if "log_in" in block else [None])


async def test_one_call():
    """BP-2: the page's single call with its own policy is retried."""
    (block,) = [block for block in BLOCKS if "place = aio.retrying(stub" in block]
    service = FailsFirst()
    service.codes = [grpc.StatusCode.UNAVAILABLE]
    names = {"order": Message(text="hello")}
    exec(BLOCKS[0].partition("\n")[0], names)
    code = compile(block.replace("delay: 1s", "delay: 10ms"), "retries.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with serving(service) as port, names["aio"].insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = EchoStub(channel)
        stub.Place = stub.Unary
        names["stub"] = stub
        await asyncio.wait_for(eval(code, names), 30)
    assert names["reply"].text == "hello"
    assert len(service.seen) == 2


def test_words():
    """BP-2: every policy string on the page is valid."""
    texts = re.findall(r'"((?:retry|preset|hedge): [^"]+)"', PAGE)
    assert len(texts) >= 3
    assert all(read_string(text, None) for text in texts)
