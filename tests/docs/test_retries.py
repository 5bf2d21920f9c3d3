"""The page on retries: its code runs unchanged, except for the address."""

from __future__ import annotations

import ast
import asyncio
import re

import grpc
import pytest

from grpc_backoff.base.status import Link
from grpc_backoff.config.policy_string import read_string
from grpc_backoff.decide.calls.call_texts import Report, is_oversized, never_ran
from tests.docs.pages import block, blocks, read
from tests.echo import Echo, EchoStub, Message, serving

BLOCKS = blocks("retries.md")


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


@pytest.mark.parametrize("shown", [code for code in BLOCKS if "channel = " in code])
async def test_channel(shown):
    """RT-1, RT-4, RT-9: every channel on the page makes calls, and the one with hooks logs in again and retries."""
    service = FailsFirst()
    if "log_in" not in shown:
        service.codes.clear()
    names = {"new_token": new_token}
    async with serving(service) as port, asyncio.timeout(30):
        code = f"from grpc_backoff import aio\n{shown}".replace("shop:50051", f"127.0.0.1:{port}")
        exec(compile(code, "retries.md", "exec"), names)
        async with names["channel"] as channel:
            assert await EchoStub(channel).Unary(Message(text="hello")) == Message(text="hello")
    assert service.seen == ([None, "Bearer new"] if "log_in" in shown else [None])


def test_what_a_proxy_says():
    """RT-14, RT-2: the table of what proxies say agrees with what a policy with `never_ran_only` repeats."""
    table = read("retries.md").partition("### What a proxy says")[2].partition("\nA policy that retries")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    for happened, _, code, text, ran in rows[2:]:
        report = Report(code, re.match("`([^`]+)`", text)[1], Link.OPEN, metadata=True)
        metadata = [("x-envoy-overloaded", "true")] if "x-envoy-overloaded" in happened else []
        assert never_ran(report, metadata) == (ran == "never ran"), text
        assert is_oversized(report) == ("RT-2" in ran), text
    assert {row[-1] for row in rows[2:]} == {"never ran", "may have run", "not repeated (RT-2)"}


async def test_one_call():
    """BP-2: the page's single call with its own policy is retried."""
    service = FailsFirst()
    service.codes = [grpc.StatusCode.UNAVAILABLE]
    names = {"order": Message(text="hello")}
    exec(BLOCKS[0].partition("\n")[0], names)
    code = block("retries.md", "place = aio.retrying(stub").replace("delay: 1s", "delay: 10ms")
    code = compile(code, "retries.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with serving(service) as port, names["aio"].insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = EchoStub(channel)
        stub.Place = stub.Unary
        names["stub"] = stub
        await asyncio.wait_for(eval(code, names), 30)
    assert names["reply"].text == "hello"
    assert len(service.seen) == 2


def test_words():
    """BP-2: every policy string on the page is valid."""
    texts = re.findall(r'"((?:retry|preset|hedge): [^"]+)"', read("retries.md"))
    assert len(texts) >= 3
    assert all(read_string(text, None) for text in texts)
