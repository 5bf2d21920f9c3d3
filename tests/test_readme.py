"""The README's code is run, and its options table is the code's."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import grpc.aio

import grpc_backoff
from grpc_backoff import aio, testing
from grpc_backoff.config.options import OPTION_KEYS
from tests.echo import EchoStub, Message, serving

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def block(saying):
    """Return the one block of code that has these words, wherever it stands."""
    (found,) = [block for block in BLOCKS if saying in block]
    return found


async def test_the_ten_lines(capsys):
    """CH-1: what a user copies runs as it stands; only the address is another."""
    async with serving() as port:
        code = (
            block("async def main()")
            .replace("localhost:50051", f"127.0.0.1:{port}")
            .replace("asyncio.run(main())\n", "")
        )
        assert "EchoStub(channel)" in code
        names = {"EchoStub": EchoStub, "Message": Message}
        exec(compile(code, "README.md", "exec"), names)
        await asyncio.wait_for(names["main"](), 30)
    said = capsys.readouterr().out
    assert said.startswith("hello ConnectionStatus(")
    assert "State.READY" in said


async def test_retry_calls():
    """RT-1: the channel and the call that are retried run as they are shown."""
    async with serving() as port:
        code = block("aio.retrying(").replace("localhost:50051", f"127.0.0.1:{port}")
        channel, call = code.splitlines()
        names = {"aio": aio, "request": Message(text="hello")}
        exec(channel, names)
        async with names["channel"]:
            names["stub"] = EchoStub(names["channel"])
            await asyncio.wait_for(eval(compile(call, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names), 30)
    assert names["reply"].text == "hello"


async def test_see_and_steer(capsys):
    """CH-11, CB-9: the calls beside grpc's own exist as they are shown."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        exec(compile(block("channel.add_listener("), "README.md", "exec"), {"channel": channel})
        await asyncio.wait_for(channel.channel_ready(), 30)
    assert "Connected(" in capsys.readouterr().out


async def test_install(monkeypatch):
    """CH-1: the two lines make `grpc.aio`'s own names ours."""
    monkeypatch.setattr(grpc.aio, "insecure_channel", grpc.aio.insecure_channel)
    exec(compile(block("grpc_backoff.install()"), "README.md", "exec"), {})
    try:
        async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            assert type(channel) is aio.Channel
    finally:
        grpc_backoff.uninstall()


async def test_an_outage_of_a_minute():
    """CB-5: the test that a user copies survives the outage; it is run as it stands."""

    async def code_under_test(channel):
        for order in ("a", "b"):
            reply = await EchoStub(channel).Unary(Message(text=order), wait_for_ready=True, timeout=300)
            placed.append(reply.text)

    placed = []
    async with serving() as port:
        names = {**vars(testing), "asyncio": asyncio, "port": port, "code_under_test": code_under_test}
        work = eval(compile(block("ScriptedConnector("), "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        await asyncio.wait_for(work, 30)
    assert placed == ["a", "b"]


def test_every_block_is_run():
    """CH-1: whatever the README shows in Python, a test here runs."""
    run = ["async def main()", "aio.retrying(", "channel.add_listener(", "ScriptedConnector(", "grpc_backoff.install()"]
    assert [block(saying) for saying in run] == BLOCKS


def test_the_options_table_is_complete():
    """CH-9: every option that means something to this library is in the table, and no other."""
    listed = re.findall(r"^\| `([a-z_.]+)` \|", README, re.MULTILINE)
    unlisted = {"grpc.testing.fixed_reconnect_backoff_ms"}  # for tests, as its name says
    assert set(listed) == set(OPTION_KEYS) - unlisted
